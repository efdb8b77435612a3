// The plan at the budget, in one sentence and five numbers.

import { counted, number, percent, points, signedPoints } from "./format.js";
import { exact, fill, find, make } from "./making.js";

const same = (one) => Math.abs(one.share) < 5e-4;

const saving = (one) => {
  if (same(one)) return "as much";
  return one.share > 0 ? `${percent(one.share)} less` : `${percent(-one.share)} more`;
};

const than = (one) => (same(one) ? " as always asking " : " than always asking ");

const difference = (value) =>
  Math.abs(value) < 5e-5 ? "at the same accuracy" : `with ${points(value)} ${value < 0 ? "less" : "more"} accuracy`;

const queries = (about) => counted(about.n_queries, "query", "queries");

const tile = (name, big, ...small) => make("div", { class: "tile" },
  make("dt", {}, name), make("dd", {}, make("span", { class: "big" }, big), ...small.map((one) => make("span", { class: "small" }, one))));

const really = (about, at) => {
  if (about.penalty) return " by estimates less the penalty";
  return at.reached === null ? "" : ` (really ${percent(at.reached)})`;
};

export const words = (about, at) =>
  `A budget of ${number(at.amount)} is expected to get ${percent(at.expected_accuracy)} of ${queries(about)} right${really(about, at)}: `
  + `${saving(at.dearest)}${than(at.dearest)}${at.dearest.name}, ${difference(at.dearest.difference)}.`;

export const showNumbers = (about, at) => {
  const { dearest, best } = at;
  fill(find("sentence"),
    "A budget of ", make("strong", {}, number(at.amount)), " should get ",
    make("strong", {}, percent(at.expected_accuracy)), ` of ${queries(about)} right${really(about, at)}, for `,
    make("strong", {}, saving(dearest)), than(dearest), make("q", {}, dearest.name), `, ${difference(dearest.difference)}.`);
  const gap = at.gap === 0 ? "proved to be the best plan" : `proved within ${at.gap.toExponential(0)} of the best`;
  const one = at.price * at.amount / 100;
  fill(find("numbers"),
    tile(about.penalty ? "Estimates less the penalty" : "Expected accuracy", exact(at.expected_accuracy, percent(at.expected_accuracy, 2), { id: "accuracy" }),
      at.reached === null ? gap : ["really reached ", exact(at.reached, percent(at.reached, 2), { id: "reached" })]),
    tile("Planned cost", exact(at.planned_cost, number(at.planned_cost), { id: "cost" }), at.reached === null ? `of ${number(at.amount)}` : gap),
    tile("Against the dearest", exact(dearest.share, saved(dearest), { id: "dearest-share" }),
      [exact(dearest.saved, number(Math.abs(dearest.saved)), { id: "dearest-saved" }), ` ${dearest.saved < 0 ? "more" : "saved"}, `,
        exact(dearest.difference, signedPoints(dearest.difference), { id: "dearest-difference" })],
      dearest.name),
    tile("Against the best single", exact(best.share, saved(best), { id: "best-share" }),
      [exact(best.saved, number(Math.abs(best.saved)), { id: "best-saved" }), ` ${best.saved < 0 ? "more" : "saved"}, `,
        exact(best.difference, signedPoints(best.difference), { id: "best-difference" })],
      best.name),
    tile("The next unit of money", exact(at.price, number(at.price), { id: "price" }), "right answers, at most",
      `1 % more budget: up to ${number(one, 2)}`));
  const place = find("numbers");
  place.classList.remove("stale");
  place.dataset.budget = at.budget;
  for (const name of ["bound", "gap", "value"]) place.dataset[name] = String(at[name]);
};

const saved = (one) => (same(one) ? "0 %" : `${one.share > 0 ? "−" : "+"}${percent(Math.abs(one.share))}`);

/** Where there is no plan, what stands there is of another budget, and must not be read as of this one. */
export const showNoPlan = () => {
  const place = find("numbers");
  place.classList.add("stale");
  find("sentence").textContent = `There is no plan at this budget.${place.dataset.budget ? " The numbers and the queries below are those of the last plan." : ""}`;
};

/** What a saved plan says of itself. */
export const showPromise = (about) => {
  const facts = about.facts;
  if (about.kind !== "plan" || !facts) return;
  const interval = facts.accuracy_interval;
  fill(find("promise"),
    make("strong", {}, "The plan as it was saved: "),
    `expected accuracy ${percent(facts.expected_accuracy, 2)}`,
    interval ? ` (90 %: ${percent(interval[0])} to ${percent(interval[1])})` : "",
    `, planned cost ${number(facts.planned_cost, 6)} of ${number(facts.budget, 6)}. `,
    facts.broken ? make("span", { class: "problem" }, `Its certificate does not hold: ${facts.broken}`)
      : `Its certificate was checked when this page was opened, and holds: ${facts.gap === 0 ? "no plan is better" : `no plan is better by more than ${facts.gap.toExponential(1)}`}.`);
  find("promise").hidden = false;
};
