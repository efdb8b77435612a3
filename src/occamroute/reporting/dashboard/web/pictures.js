// Two more pictures: who answers at which budget, and each classifier by itself.

import { across, budgetText, budgetTicks } from "./axis.js";
import { area, axes, digitsOf, layerName, linear, logarithmic, logTicks, names, path, picture, ticks } from "./chart.js";
import { count, number, percent } from "./format.js";
import { called, draw, exact, fill, find, make, table } from "./making.js";

export const usageChart = (about) => {
  let rows = null;
  let axis = null;
  let budget = null;
  let line = null;
  let x = null;
  const chart = picture(find("usage-chart"), { title: "Who answers at which budget", height: 0.6, most: 320 }, (svg, inside) => {
    if (!rows) return;
    x = across({ ...axis, low: axis.least, high: axis.most > axis.least ? axis.most : axis.least + 1 }, inside);
    const y = linear(0, 1, inside.bottom, inside.top + 4);
    // One budget, where there is no other, is as wide as the picture.
    const drawn = rows.length > 1 ? rows : [rows[0], rows[0]];
    const xs = rows.length > 1 ? rows.map((row) => x(Number(row.budget))) : [inside.left + 10, inside.right - 10];
    let floor = drawn.map(() => 0);
    const layers = about.names.flatMap((name, index) => {
      const bottom = floor;
      floor = drawn.map((row, place) => bottom[place] + (row.usage[name] ?? 0) / about.n_queries);
      return rows.some((row) => row.usage[name]) ? [{ name, index, lows: bottom.map(y), highs: floor.map(y) }] : [];
    });
    for (const { name, index, lows, highs } of layers) {
      svg.append(draw("path", { class: `layer c${index % 12}`, d: area(xs, lows, highs) }, draw("title", {}, name)));
    }
    axes(svg, inside, {
      x, y, xTicks: budgetTicks({ ...axis, low: axis.least, high: axis.most }, inside.width), yTicks: [0, 0.25, 0.5, 0.75, 1],
      xText: budgetText, yText: (tick) => percent(tick, 0), xLabel: "budget",
    });
    line = draw("line", { class: "stem", y1: inside.top, y2: inside.bottom });
    svg.append(line);
    for (const { name, lows, highs } of layers) layerName(svg, name, xs, lows, highs);
    stand();
  });
  const stand = () => {
    if (!line || budget === null || !(budget > 0 || !axis.wide)) return;
    const at = x(Math.max(axis.least, Math.min(axis.most, budget)));
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
  };
  return {
    show(found, on) {
      rows = found;
      axis = on;
      chart.again();
      const used = about.names.filter((name) => found.some((row) => row.usage[name]));
      chart.name(`Share of queries by classifier at ${found.length} budgets; the table below has the numbers`);
      const reached = found[0]?.reached !== null;
      fill(find("usage-table"), table("The plan at several budgets",
        ["budget", "expected", ...(reached ? ["reached"] : []), "next unit buys",
          ...used.map((name) => ({ attributes: { class: "named-column" }, content: called(name, about.names.indexOf(name)) }))],
        found.map((row) => ({ cells: [
          number(Number(row.budget)), exact(row.expected_accuracy, percent(row.expected_accuracy, 2)),
          ...(reached ? [exact(row.reached, percent(row.reached, 2))] : []), exact(row.price, number(row.price)),
          ...used.map((name) => count(row.usage[name] ?? 0))] }))));
    },
    stand(value) {
      budget = Number.isFinite(value) ? value : null;
      stand();
    },
  };
};

export const paretoChart = (about) => {
  let shown = null;
  const chart = picture(find("pareto-chart"), { title: "Each classifier by itself", height: 0.6, most: 320 }, (svg, inside) => {
    if (!shown) return;
    const prices = shown.map((one) => one.price);
    const accuracies = shown.map((one) => one.accuracy);
    const [cheap, dear] = [Math.min(...prices), Math.max(...prices)];
    const [low, high] = [Math.min(...accuracies), Math.max(...accuracies)];
    const wide = cheap > 0 && dear > 12 * cheap;
    const x = (wide ? logarithmic : linear)(cheap, dear > cheap ? dear : cheap + (cheap || 1), inside.left + 12, inside.right - 12);
    const pad = (high - low || 0.02) * 0.08;
    const y = linear(low - pad, high + pad, inside.bottom, inside.top + 6);
    const wanted = Math.max(3, Math.floor(inside.width / 90));
    const yTicks = ticks(low - pad, high + pad, 5);
    axes(svg, inside, {
      x, y, yTicks, xTicks: wide ? logTicks(cheap, dear, wanted) : ticks(cheap, dear, wanted), xText: (tick) => number(tick, 3),
      yText: (tick) => percent(tick, digitsOf(yTicks)), xLabel: "price of a call",
    });
    const good = shown.filter((one) => one.efficient).sort((a, b) => a.price - b.price);
    svg.append(draw("path", { class: "core", d: path(good.map((one) => x(one.price)), good.map((one) => y(one.accuracy))) }));
    for (const one of shown) {
      svg.append(draw("circle", {
        class: `${one.efficient ? "alone" : "alone beaten"} c${about.names.indexOf(one.name) % 12}`, cx: x(one.price), cy: y(one.accuracy), r: 6,
      }, draw("title", {}, `${one.name}: ${percent(one.accuracy)} for ${number(one.price)}`)));
    }
    names(svg, inside, [...good, ...shown].filter((one, place, all) => all.indexOf(one) === place)
      .map((one) => ({ x: x(one.price), y: y(one.accuracy), text: one.name })));
  });
  return {
    show(classifiers) {
      shown = classifiers;
      chart.again();
      chart.name(`Accuracy against price of ${classifiers.length} classifiers; the table below has the numbers`);
      fill(find("pareto-table"), table("Each classifier by itself", ["classifier", "price of a call", "for all queries", "expected accuracy", "beaten?"],
        classifiers.map((one) => ({ cells: [
          { attributes: { class: "text named-column" }, content: called(one.name, about.names.indexOf(one.name)) }, exact(one.price, number(one.price)), exact(one.cost, number(one.cost)),
          exact(one.accuracy, percent(one.accuracy, 2)), one.efficient ? "no" : "yes"] }))));
    },
  };
};

export const usageBars = (names, usage, total) => make("ul", { class: "bars" },
  names.map((name, index) => {
    const inner = make("span", { class: `c${index % 12}` });
    inner.style.width = `${(100 * (usage[name] ?? 0)) / (total || 1)}%`;
    return make("li", {}, make("span", { class: "named" }, called(name, index)), make("span", { class: "bar", "aria-hidden": "true" }, inner),
      make("span", { class: "used" }, `${count(usage[name] ?? 0)} (${percent((usage[name] ?? 0) / (total || 1))})`));
  }));
