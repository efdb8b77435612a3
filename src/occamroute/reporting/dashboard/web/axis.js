// The axis of budgets, which the frontier, its handle and the picture of usage share.

import { linear, logarithmic, logTicks, ticks } from "./chart.js";
import { number } from "./format.js";

/** From the front and each classifier alone: the ends of the axis, and where the handle may stand. */
export const budgetAxis = (front, old) => {
  const alone = front.classifiers.map((one) => one.cost).filter((cost) => cost > 0 || !front.wide);
  const least = Number(front.least);
  const others = old ? [Number(old.least), old.most] : [];
  const low = Math.min(least, ...alone, ...others.filter((value) => value > 0 || !front.wide));
  const high = Math.max(front.most, ...alone, ...others);
  return { least, leastText: front.least, most: front.most, low, high: high > low ? high : low + 1, wide: front.wide && low > 0 };
};

export const across = (axis, inside) => {
  const pad = 10;
  const make = axis.wide ? logarithmic : linear;
  return make(axis.low, axis.high, inside.left + pad, inside.right - pad);
};

export const budgetTicks = (axis, width) => {
  const wanted = Math.max(3, Math.floor(width / 90));
  return axis.wide ? logTicks(axis.low, axis.high, wanted) : ticks(axis.low, axis.high, wanted);
};

export const budgetText = (value) => number(value, 3);

/** The budget at a share of the way from the least to the most, with no more digits than the place can tell. */
export const budgetAt = (axis, share) => {
  if (share <= 0) return axis.leastText;
  if (share >= 1) return String(axis.most);
  const scale = (axis.wide ? logarithmic : linear)(axis.least, axis.most, 0, 1);
  const value = scale.inverse(share);
  const finest = Math.abs(scale.inverse(Math.min(1, share + 0.0005)) - scale.inverse(share - 0.0005)) || value / 1000;
  const digits = Math.max(0, Math.ceil(-Math.log10(finest)));
  const rounded = digits > 0 ? Number(value.toFixed(Math.min(100, digits))) : Math.round(value / 10 ** whole(finest)) * 10 ** whole(finest);
  if (rounded <= axis.least) return axis.leastText;
  return String(rounded >= axis.most ? axis.most : rounded);
};

const whole = (finest) => Math.max(0, Math.floor(Math.log10(finest)));

export const shareOf = (axis, budget) => {
  if (!(axis.most > axis.least)) return 0;
  const scale = (axis.wide ? logarithmic : linear)(axis.least, axis.most, 0, 1);
  return Math.max(0, Math.min(1, scale(Math.max(axis.least, budget))));
};
