// A small chart library: scales, marks on axes, lines, areas and points, in SVG.

import { draw, fill } from "./making.js";

const MARGIN = { left: 52, right: 16, top: 14, bottom: 40 };

export const linear = (low, high, start, end) => {
  const span = high - low || 1;
  const scale = (value) => start + ((value - low) / span) * (end - start);
  scale.inverse = (place) => low + ((place - start) / (end - start || 1)) * span;
  return scale;
};

export const logarithmic = (low, high, start, end) => {
  const inner = linear(Math.log(low), Math.log(high), start, end);
  const scale = (value) => inner(Math.log(value));
  scale.inverse = (place) => Math.exp(inner.inverse(place));
  return scale;
};

/** Round numbers within a range, about so many. */
export const ticks = (low, high, wanted) => {
  const rough = (high - low || Math.abs(low) || 1) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high * (1 + 1e-12) + step * 1e-9; index += 1) {
    found.push(Number((index * step).toPrecision(12)));
  }
  return found.length < 3 && wanted < 12 ? ticks(low, high, 2 * wanted) : found;
};

/** Digits of a percentage that tell these shares apart, and no more. */
export const digitsOf = (shares) => (shares.every((share) => Math.abs(Math.round(100 * share) - 100 * share) < 1e-6) ? 0 : 1);

/** 1, 2 and 5 times powers of ten within a range of positive numbers. */
export const logTicks = (low, high, wanted) => {
  const found = [];
  const decades = Math.log10(high / low);
  const factors = decades > wanted ? [1] : decades > wanted / 2.4 ? [1, 3] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const factor of factors) {
      const tick = Number((factor * 10 ** power).toPrecision(6));
      if (tick >= low * 0.999 && tick <= high * 1.001) found.push(tick);
    }
  }
  return found.length > 1 ? found : [low, high];
};

/** A picture in a place, drawn anew whenever the place changes its width; ``paint`` gets a frame to draw in. */
export const picture = (place, { title, height = 0.5, most = 420, least = () => 240 }, paint) => {
  const svg = draw("svg", { role: "img", "aria-label": title });
  fill(place, svg);
  const again = () => {
    const width = Math.max(240, Math.floor(place.clientWidth));
    const tall = Math.round(Math.max(least(), Math.min(most, width * height)));
    svg.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", tall);
    const inside = {
      left: MARGIN.left, right: width - MARGIN.right, top: MARGIN.top, bottom: tall - MARGIN.bottom, width, height: tall,
    };
    svg.replaceChildren();
    paint(svg, inside);
  };
  let before = 0;
  new ResizeObserver(() => {
    if (place.clientWidth === before) return;
    before = place.clientWidth;
    again();
  }).observe(place);
  return { svg, again, name: (words) => svg.setAttribute("aria-label", words) };
};

export const axes = (svg, inside, { x, y, xTicks, yTicks, xText, yText, xLabel, yLabel }) => {
  const middle = (inside.left + inside.right) / 2;
  const lines = yTicks.map((tick) =>
    draw("line", { class: "grid", x1: inside.left, x2: inside.right, y1: y(tick), y2: y(tick) }));
  const yNames = yTicks.map((tick) =>
    draw("text", { class: "tick", x: inside.left - 8, y: y(tick) + 4, "text-anchor": "end" }, yText(tick)));
  const xNames = [];
  let end = -Infinity;
  for (const tick of xTicks) {
    const text = xText(tick);
    const half = text.length * 3.8;
    if (x(tick) - half < end + 6) continue;
    end = x(tick) + half;
    const anchor = x(tick) + half > inside.width ? "end" : "middle";
    xNames.push(draw("line", { class: "mark", x1: x(tick), x2: x(tick), y1: inside.bottom, y2: inside.bottom + 4 }));
    xNames.push(draw("text", { class: "tick", x: x(tick), y: inside.bottom + 18, "text-anchor": anchor }, text));
  }
  svg.append(
    draw("g", { "aria-hidden": "true" },
      lines, yNames, xNames,
      draw("line", { class: "axis", x1: inside.left, x2: inside.right, y1: inside.bottom, y2: inside.bottom }),
      draw("text", { class: "label", x: middle, y: inside.height - 4, "text-anchor": "middle" }, xLabel),
      yLabel ? draw("text", { class: "label", x: inside.left, y: inside.top - 3 }, yLabel) : null),
  );
};

const place = (value) => value.toFixed(2);

/** A line; one point is a line of no length, which round ends make a dot. */
export const path = (xs, ys) =>
  xs.map((x, index) => `${index ? "L" : "M"}${place(x)} ${place(ys[index])}`).join("") + (xs.length === 1 ? "h0" : "");

export const area = (xs, lows, highs) =>
  `${path(xs, highs)}${[...xs].reverse().map((x, index) => `L${place(x)} ${place(lows[xs.length - 1 - index])}`).join("")}Z`;

/** Texts beside points; one that would cover another is left out, the important ones come first. */
export const names = (svg, inside, wanted) => {
  const taken = [];
  for (const one of wanted) {
    const width = one.text.length * 6.6 + 8;
    const left = one.x + 9 + width > inside.right;
    const box = { x: left ? one.x - 9 - width : one.x + 9, y: one.y - 8, width, height: 16 };
    const meets = taken.some((other) =>
      box.x < other.x + other.width && other.x < box.x + box.width && box.y < other.y + other.height && other.y < box.y + box.height);
    if (meets || box.x < inside.left) continue;
    taken.push(box);
    svg.append(draw("text", {
      class: "name", "aria-hidden": "true", x: left ? one.x - 9 : one.x + 9, y: one.y + 4, "text-anchor": left ? "end" : "start",
    }, one.text));
  }
};

/** The name of a layer inside it, where it is tall and long enough; ``xs`` are places, ``lows`` and ``highs`` its edges there. */
export const layerName = (svg, text, xs, lows, highs) => {
  const width = text.length * 6.6 + 12;
  let start = null;
  let found = null;
  xs.forEach((x, index) => {
    if (lows[index] - highs[index] < 17) start = null;
    else {
      start ??= index;
      if (x - xs[start] >= (found ? xs[found[1]] - xs[found[0]] + 1 : width)) found = [start, index];
    }
  });
  if (!found) return;
  const middle = (xs[found[0]] + xs[found[1]]) / 2;
  const right = Math.max(1, xs.findIndex((x) => x >= middle));
  const share = (middle - xs[right - 1]) / (xs[right] - xs[right - 1] || 1);
  const at = (edge) => edge[right - 1] + share * (edge[right] - edge[right - 1]);
  svg.append(draw("text", { class: "name", "aria-hidden": "true", x: middle, y: (at(lows) + at(highs)) / 2 + 4, "text-anchor": "middle" }, text));
};
