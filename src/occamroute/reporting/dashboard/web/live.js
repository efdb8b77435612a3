// The service as it is now: its budget and pace, drift, the latest decisions; quiet while nobody looks.

import { ask } from "./asking.js";
import { duration, moment, number, percent } from "./format.js";
import { called, exact, fill, find, make, table } from "./making.js";
import { showDecision } from "./receipt.js";

const EVERY = 3000;

const unreachable = (error) => {
  find("failure").textContent = `The service cannot be asked just now: ${error.message}`;
  find("failure").hidden = false;
};

const segment = (share, kind) => {
  const made = make("span", { class: kind });
  made.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
  return made;
};

const budget = (now) => {
  const cap = Number(now.cap) || 1;
  const used = (Number(now.spent) + Number(now.held)) / cap;
  const even = now.until === null ? null : (now.now - now.since) / (now.until - now.since);
  const meter = make("div", { class: "purse", role: "img", "aria-label": `${percent(used)} of the budget is spent or held${even === null ? "" : `, ${percent(even)} of the window is over`}` },
    segment(Number(now.spent) / cap, "spent"), segment(Number(now.held) / cap, "held"));
  if (even !== null) {
    const mark = make("span", { class: "even" });
    mark.style.left = `${100 * even}%`;
    meter.append(mark);
  }
  const pace = even === null ? "This budget has no end in time." : Math.abs(used - even) < 0.02 ? "It is spent at an even pace."
    : used < even ? `It is spent more slowly than evenly: ${percent(even)} of the window is over.` : `It is spent faster than evenly: only ${percent(even)} of the window is over.`;
  const amount = (name, kind) => make("div", { class: "tile" }, make("dt", {}, kind ? make("span", { class: `swatch ${kind}` }) : null, name),
    make("dd", {}, make("span", { class: "big" }, exact(now[name], number(Number(now[name])), { id: `live-${name}` }))));
  fill(find("live-budget"), make("h3", {}, `${percent(used)} of ${number(Number(now.cap))} is used`), meter,
    make("dl", { class: "numbers tight" }, amount("spent", "spent"), amount("held", "held"), amount("available")),
    make("p", {}, pace, now.until === null ? "" : ` A new one begins in ${duration(now.until - now.now)}.`),
    make("p", { class: "quiet small" }, `About ${number(now.remaining, 3)} queries are still expected; the next may cost ${number(now.rate, 3)} on average${now.price === null ? "" : `, and money is worth ${number(now.price, 3)} right answers a unit`}.`));
};

const drift = (found) => fill(find("live-drift"), make("h3", {}, found.alarms.length ? "Something has changed" : "Nothing has drifted"),
  found.alarms.length ? make("ul", {}, found.alarms.map((one) => make("li", { class: "problem" }, one.sentence)))
    : make("p", {}, "Queries and answers are as the labelled rows were, as far as chance explains."),
  make("dl", { class: "facts" }, Object.entries(found.evidence).flatMap(([name, value]) => [make("dt", {}, `evidence in ${name}`), make("dd", {}, exact(value, number(value, 3)), " of 100")])));

const decisions = (about, rows) => {
  const open = async (id) => {
    try {
      showDecision(about, await ask("decision", new URLSearchParams({ id })));
    } catch (error) {
      unreachable(error);
    }
  };
  const focused = document.activeElement?.dataset?.decision;
  fill(find("decisions"), rows.length ? table("Latest decisions",
    [{ content: "when", attributes: { class: "text" } }, { content: "goes to", attributes: { class: "text" } }, { content: "why", attributes: { class: "text small-off" } }, { content: "answer", attributes: { class: "text" } }],
    rows.map((row) => ({ cells: [
      { attributes: { class: "text" }, content: make("button", { type: "button", class: "link", "data-decision": row.id, onclick: () => open(row.id) }, moment(row.at)) },
      { attributes: { class: "text" }, content: called(row.classifier, about.names.indexOf(row.classifier)) },
      { attributes: { class: "text small-off" }, content: row.reason.replaceAll("_", " ") },
      { attributes: { class: "text" }, content: row.outcome?.label ?? "" }] })))
    : make("p", { class: "empty" }, "No query has come yet."));
  if (focused) find("decisions").querySelector(`[data-decision="${CSS.escape(focused)}"]`)?.focus();
};

export const watch = (about) => {
  find("live").hidden = false;
  find("decided").hidden = false;
  const explored = about.about.find(([name]) => name === "snapshot")?.[1];
  let timer = null;
  const look = async () => {
    clearTimeout(timer);
    if (document.hidden) return;
    try {
      const now = await ask("live");
      budget(now.budget);
      drift(now.drift);
      decisions(about, now.decisions);
      find("changed").hidden = now.snapshot === explored;
      find("live").dataset.seen = String(now.budget.now);
      find("failure").hidden = true;
    } catch (error) {
      unreachable(error);
    }
    timer = setTimeout(look, EVERY);
  };
  document.addEventListener("visibilitychange", look);
  look();
};
