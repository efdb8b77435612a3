// A receipt: why a query goes where it goes.

import { moment, number, percent } from "./format.js";
import { bar, called, exact, fill, find, make, preview, swatch, table } from "./making.js";
import { right } from "./table.js";

const dialog = () => find("receipt");

const open = (title, ...content) => {
  fill(find("receipt-title"), title);
  fill(find("receipt-body"), ...content);
  if (!dialog().open) dialog().showModal();
  dialog().scrollTop = 0;
};

const estimates = (names, rows, known) => table("Every classifier's estimate",
  ["classifier", "estimate", { content: "cost", attributes: { class: "small-off" } }, "score", ...(known ? ["right?"] : [])],
  rows.map((row) => ({
    attributes: { class: row.chosen ? "chosen" : null },
    cells: [
      { attributes: { class: "text" }, content: [called(row.classifier, names.indexOf(row.classifier)), row.chosen ? make("span", { class: "badge" }, "chosen") : null] },
      { content: [bar(row.success, `c${Math.max(0, names.indexOf(row.classifier)) % 12}`), " ", exact(row.success, percent(row.success))] },
      { attributes: { class: "small-off" }, content: number(Number(row.cost)) },
      row.score === null ? "" : exact(row.score, number(row.score, 3)),
      ...(known ? [right(row.reached)] : [])],
  })));

const scoring = (price, beyond) => make("p", { class: "quiet small" },
  "Score: estimate less the price of money, ", exact(price, number(price)), " right answers a unit, times the cost", ...beyond);

const neighbours = (names, rows) => {
  if (!rows.length) return null;
  const about = rows.some((row) => row.success);
  return [make("h3", {}, "The labelled queries nearest to it"),
    make("div", { class: "wide", role: "region", tabindex: "0", "aria-label": "Neighbours" }, table("The labelled queries nearest to it",
      ["query", ...(rows.some((row) => row.label) ? [{ attributes: { class: "text" }, content: "label" }] : []), "distance",
        ...(about ? names.map((name, index) => ({ attributes: { class: "narrow" }, content: [swatch(index), make("span", { class: "unseen" }, name)] })) : [])],
      rows.map((row) => ({ cells: [{ attributes: { class: "long" }, content: [preview(row), row.id] }, ...(rows.some((one) => one.label) ? [{ attributes: { class: "text" }, content: row.label ?? "" }] : []),
        number(row.distance, 3), ...(about ? names.map((name) => (name in row.success ? right(row.success[name]) : "")) : [])] })))),
    about ? make("ul", { class: "legend" }, names.map((name, index) => make("li", {}, called(name, index)))) : null];
};

const features = (rows) => (!rows?.length ? null : [make("h3", {}, "What its features say"),
  make("ul", { class: "bars" }, [...rows].sort((a, b) => b.value - a.value).slice(0, 5).map((row) =>
    make("li", {}, make("span", { class: "named" }, row.label), bar(row.value, "c0"), make("span", { class: "used" }, percent(row.value)))))]);

const changes = (sentences) => [make("h3", {}, "What would send it elsewhere"),
  sentences.length ? make("ul", {}, sentences.map((one) => make("li", {}, one))) : make("p", { class: "quiet" }, "No budget and no price of one classifier alone.")];

const flip = (one) => one.kind === "budget" ? `With a budget above ${number(one.above)}: ${one.classifier}.` : `If this call of ${one.classifier} cost less than ${number(one.below)}.`;

export const showReceipt = (about, found) => {
  const known = found.estimates.some((row) => row.reached !== null);
  open(["Query ", make("q", {}, found.id)],
    make("p", { class: "lead" }, "goes to ", make("strong", {}, found.classifier), found.label ? `; its label is ${found.label}` : "", "."),
    preview(found, "large"),
    make("p", {}, found.sentence),
    estimates(about.names, found.estimates, known),
    scoring(found.price, found.overhead > 0 ? [" beyond the features, which every query pays for (", exact(found.overhead, number(found.overhead)), ")."] : ["."]),
    found.flips === null ? null : changes(found.flips.slice(0, 4).map(flip)), features(found.features), neighbours(about.names, found.neighbours));
};

export const showDecision = (about, found) => {
  const outcome = found.outcome;
  open(["Decision ", make("q", {}, found.id)],
    make("p", { class: "lead" }, `${moment(found.at)}: goes to `, make("strong", {}, found.classifier), found.client ? ` for ${found.client}` : "", "."),
    make("p", {}, found.sentence),
    outcome?.label ? make("p", {}, "Answered: ", make("strong", {}, String(outcome.label)), outcome.cost ? ` for ${outcome.cost}` : "") : null,
    found.feedback ? make("p", {}, `It was right with ${percent(found.feedback.success, 0)}.`) : null,
    estimates(about.names, found.estimates.map((row) => ({ ...row, chosen: row.classifier === found.classifier, reached: null })), false),
    found.price === null ? null : scoring(found.price, [found.extractor ? " beyond the features, which every query pays for." : "."]),
    changes(found.flips.slice(0, 4).map((one) => one.sentence)), features(found.known), neighbours(about.names, found.neighbours));
};
