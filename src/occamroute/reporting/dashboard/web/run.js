// A run: what was bought, for how much, and what failed.

import { count, number, percent } from "./format.js";
import { exact, fill, find, make } from "./making.js";
import { usageBars } from "./pictures.js";

const tile = (name, big, small) => make("div", { class: "tile" }, make("dt", {}, name),
  make("dd", {}, make("span", { class: "big" }, big), make("span", { class: "small" }, small)));

export const showRun = (about) => {
  const facts = about.facts;
  const failed = Object.entries(facts.failures);
  find("bought").hidden = false;
  fill(find("bought-sentence"), make("strong", {}, count(facts.answered)), ` of ${count(facts.n_queries)} queries were answered for `,
    make("strong", {}, number(facts.spent)), ` of a budget of ${number(facts.budget)}.`);
  fill(find("bought-numbers"),
    tile("Answered", exact(facts.answered, count(facts.answered), { id: "answered" }), `of ${count(facts.n_queries)}`),
    tile("Spent", exact(facts.spent, number(facts.spent), { id: "spent" }), `${percent(facts.budget ? facts.spent / facts.budget : 0)} of the budget`),
    tile("Lost to failures", exact(facts.lost, number(facts.lost), { id: "lost" }), "paid, or perhaps paid, without an answer"),
    tile("Expected accuracy", exact(facts.expected_accuracy, percent(facts.expected_accuracy, 2), { id: "expected" }), "what the plan promised for what was bought"));
  fill(find("bought-usage"), usageBars(about.names, facts.usage, facts.n_queries));
  fill(find("bought-failures"), failed.length
    ? make("ul", {}, failed.slice(0, 50).map(([id, reason]) => make("li", {}, make("q", {}, id), ": ", reason)), failed.length > 50 ? make("li", {}, `and ${count(failed.length - 50)} more`) : null)
    : make("p", { class: "empty" }, "Nothing failed."));
};
