// The frontier with its handle: dragged on the picture, moved by a slider, or typed.

import { across, budgetAt, budgetAxis, budgetText, budgetTicks, shareOf } from "./axis.js";
import { area, axes, digitsOf, linear, names, path, picture, ticks } from "./chart.js";
import { counted, number, percent } from "./format.js";
import { draw, fill, find, make } from "./making.js";

// So many points are each drawn.
const FEW = 30;

export const frontierChart = (about, move) => {
  const place = find("frontier-chart");
  const slider = find("slider");
  const field = find("budget");
  let front = null;
  let first = null;
  let axis = null;
  let now = null;
  let handle = null;
  let scales = null;

  // Where the list of classifiers stands beside it, the picture is as tall.
  const beside = matchMedia("(min-width: 60.01rem)");
  const least = () => (beside.matches ? Math.min(620, 90 + 41 * about.names.length) : 260);
  const chart = picture(place, { title: "Expected accuracy at every budget", height: 0.52, most: 430, least }, (svg, inside) => {
    if (!front) return;
    const old = first !== front ? first : null;
    const all = [...front.accuracies, ...(front.reached ?? []), ...front.classifiers.map((one) => one.accuracy), ...(old?.accuracies ?? [])];
    const low = Math.min(...all);
    const high = Math.max(...all);
    const pad = (high - low || 0.02) * 0.06;
    const x = across(axis, inside);
    const y = linear(low - pad, high + pad, inside.bottom, inside.top + 10);
    scales = { x, y };
    const yTicks = ticks(low, high, 5);
    axes(svg, inside, {
      x, y, yTicks, xTicks: budgetTicks(axis, inside.width), xText: budgetText,
      yText: (tick) => percent(tick, digitsOf(yTicks)),
      xLabel: about.n_queries === 1 ? "budget for the query" : `budget for all ${counted(about.n_queries, "query", "queries")}`,
    });
    const xs = front.budgets.map(x);
    const ys = front.accuracies.map(y);
    const floor = xs.map(() => inside.bottom);
    svg.append(draw("path", { class: "under", d: area(xs, floor, ys) }));
    if (axis.high > front.most) {
      svg.append(draw("path", { class: "front flat", d: path([xs.at(-1), x(axis.high)], [ys.at(-1), ys.at(-1)]) }));
    }
    if (old) {
      // Nothing is not on a logarithmic axis.
      const kept = old.budgets.flatMap((budget, index) => (budget > 0 || !axis.wide ? [index] : []));
      svg.append(draw("path", { class: "front old", d: path(kept.map((index) => x(old.budgets[index])), kept.map((index) => y(old.accuracies[index]))) }));
    }
    if (front.reached) svg.append(draw("path", { class: "front reached", d: path(xs, front.reached.map(y)) }));
    svg.append(draw("path", { class: "front", id: "front-line", d: path(xs, ys) }));
    if (few()) xs.forEach((at, index) => svg.append(draw("circle", { class: "step", cx: at, cy: ys[index], r: 3 })));
    singles(svg, inside, x, y);
    handle = draw("g", { class: "grip", "aria-hidden": "true" },
      draw("line", { class: "stem", y1: inside.top, y2: inside.bottom }),
      draw("circle", { class: "hollow", r: 5 }),
      draw("circle", { class: "knob", r: 9 }));
    svg.append(handle);
    const edge = (share) => x(share === 0 ? Math.max(axis.least, axis.low) : axis.most);
    // The slider's thumb stands under the handle: its track is as long as the frontier is wide.
    slider.style.marginLeft = `${edge(0) - 11}px`;
    slider.style.width = `${Math.max(44, edge(1) - edge(0) + 22)}px`;
    stand();
  });

  // Of few queries the best plan between two points can be far below the line.
  const few = () => front.points <= FEW;

  const singles = (svg, inside, x, y) => {
    const costs = front.classifiers.map((one) => one.cost);
    const dearest = front.classifiers[costs.indexOf(Math.max(...costs))];
    const best = front.classifiers.reduce((a, b) => (b.accuracy > a.accuracy ? b : a));
    const shown = front.classifiers.filter((one) => one.cost > 0 || !axis.wide);
    for (const one of shown) {
      svg.append(draw("circle", { class: `alone c${about.names.indexOf(one.name) % 12}`, cx: x(one.cost), cy: y(one.accuracy), r: 4.5 },
        draw("title", {}, `always ${one.name}: ${percent(one.accuracy)} for ${number(one.cost)}`)));
    }
    const order = [dearest, best, ...shown].filter((one) => shown.includes(one));
    names(svg, inside, [...new Set(order)].slice(0, 5).map((one) => ({ x: x(one.cost), y: y(one.accuracy), text: one.name })));
  };

  /** Put the handle where the budget is, on the curve until the plan is known. */
  const stand = () => {
    if (!handle || !now) return;
    const { x, y } = scales;
    const budget = Math.max(axis.low, Math.min(axis.high, now.budget));
    if (!Number.isFinite(budget) || (axis.wide && budget <= 0)) return;
    const [line, hollow, knob] = handle.children;
    const at = x(budget);
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
    knob.setAttribute("cx", at);
    knob.setAttribute("visibility", now.plan === false ? "hidden" : "visible");
    knob.setAttribute("cy", y(now.plan?.expected_accuracy ?? between(budget)));
    hollow.setAttribute("cx", at);
    hollow.setAttribute("visibility", now.plan?.reached == null ? "hidden" : "visible");
    if (now.plan?.reached != null) hollow.setAttribute("cy", y(now.plan.reached));
  };

  const between = (budget) => {
    const { budgets, accuracies } = front;
    const right = budgets.findIndex((one) => one >= budget);
    if (right <= 0) return accuracies[right === 0 ? 0 : accuracies.length - 1];
    const share = (budget - budgets[right - 1]) / (budgets[right] - budgets[right - 1] || 1);
    return accuracies[right - 1] + share * (accuracies[right] - accuracies[right - 1]);
  };

  const drag = (event) => {
    if (!scales) return;
    const value = scales.x.inverse(event.clientX - chart.svg.getBoundingClientRect().left);
    move(budgetAt(axis, value <= axis.least ? 0 : value >= axis.most ? 1 : shareOf(axis, value)));
  };
  place.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !scales) return;
    place.setPointerCapture(event.pointerId);
    place.classList.add("dragging");
    drag(event);
  });
  place.addEventListener("pointermove", (event) => {
    if (place.hasPointerCapture(event.pointerId)) drag(event);
  });
  for (const end of ["pointerup", "pointercancel"]) place.addEventListener(end, () => place.classList.remove("dragging"));
  slider.addEventListener("input", () => move(budgetAt(axis, Number(slider.value) / 1000)));
  field.addEventListener("input", () => move(field.value.trim(), "field"));
  find("budget-form").addEventListener("submit", (event) => {
    event.preventDefault();
    move(field.value.trim());
  });

  const legend = () => {
    const entries = [["front", few() ? "expected, from estimates; between dots at most" : "expected, from estimates"]];
    if (front.reached) entries.push(["front reached", "really reached"]);
    if (first !== front) entries.push(["front old", "before the changes"]);
    fill(find("frontier-legend"),
      entries.map(([kind, words]) => make("li", {},
        draw("svg", { width: 26, height: 10, "aria-hidden": "true" }, draw("path", { class: kind, d: "M1 5L25 5" })), words)),
      make("li", {}, draw("svg", { width: 12, height: 12, "aria-hidden": "true" }, draw("circle", { class: "alone c6", cx: 6, cy: 6, r: 4.5 })), "one classifier for everything"));
  };

  return {
    show(found, before) {
      front = found;
      first = before ?? found;
      axis = budgetAxis(front, first === front ? null : first);
      chart.name(`Expected accuracy against budget, from ${percent(front.accuracies[0])} for ${number(Number(front.least))} to ${percent(front.accuracies.at(-1))} for ${number(front.most)}`);
      find("budget-hint").textContent = `from ${number(Number(front.least))} to ${number(front.most)}`;
      legend();
      chart.again();
      return axis;
    },
    /** The budget that is asked for, and the plan once it is known, or false where there is none. */
    stand(budget, plan, source) {
      const value = plan?.amount ?? Number(budget);
      now = { budget: value, plan };
      if (source !== "field" && document.activeElement !== field) field.value = budget;
      else if (source !== "field" && plan === null) field.value = budget;
      if (axis && Number.isFinite(value) && document.activeElement !== slider) slider.value = String(Math.round(1000 * shareOf(axis, value)));
      if (plan && !plan.refused) {
        slider.setAttribute("aria-valuetext", `${number(value)}: ${percent(plan.expected_accuracy)} expected`);
      }
      stand();
    },
  };
};
