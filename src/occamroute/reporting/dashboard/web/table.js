// The table of queries: a page at a time, sorted and searched by the server.

import { ask, later, newest } from "./asking.js";
import { count, number, percent } from "./format.js";
import { bar, called, exact, fill, find, make, preview, table } from "./making.js";

const SIZE = 25;

/** ``source`` names the question and its parameters; ``columns`` are {name, title, kind, show}. */
export const queryTable = ({ about, source, columns }) => {
  const view = { sort: "row", falling: false, offset: 0 };
  const place = find("table");

  const parameters = () => {
    const found = source.parameters({ limit: SIZE, offset: view.offset, sort: view.sort, falling: view.falling ? 1 : 0 });
    if (find("search-classifier").value) found.set("classifier", find("search-classifier").value);
    if (find("search-text").value) found.set("text", find("search-text").value);
    return found;
  };

  const heading = (column) => {
    if (!column.name) return { attributes: { class: column.kind }, content: column.title };
    const sorted = view.sort === column.name;
    const direction = sorted ? (view.falling ? "descending" : "ascending") : "none";
    return {
      attributes: { class: column.kind, "aria-sort": direction },
      content: make("button", { type: "button", class: "sort", onclick: () => {
        view.falling = sorted ? !view.falling : false;
        view.sort = column.name;
        view.offset = 0;
        refresh();
      } }, column.title, make("span", { "aria-hidden": "true" }, sorted ? (view.falling ? " ↓" : " ↑") : "")),
    };
  };

  const show = (found) => {
    const rows = found.rows.map((row) => ({ cells: columns.map((column) => ({ attributes: { class: column.kind }, content: column.show(row) })) }));
    const active = document.activeElement?.closest?.("#table th") ? [...place.querySelectorAll("th")].indexOf(document.activeElement.closest("th")) : -1;
    fill(place, found.total ? table("Queries", columns.map(heading), rows) : make("p", { class: "empty" }, found.why ?? "No query fits. Try another classifier, or less text."));
    if (active >= 0) place.querySelectorAll("th")[active]?.querySelector("button")?.focus();
    pager(found.total);
  };

  const pager = (total) => {
    const last = Math.min(total, view.offset + SIZE);
    const turn = (offset, words, possible) => make("button", { type: "button", disabled: !possible, onclick: () => {
      view.offset = offset;
      refresh();
    } }, words);
    const buttons = [turn(Math.max(0, view.offset - SIZE), "← before", view.offset > 0), turn(view.offset + SIZE, "next →", last < total)];
    const active = [...find("pager").querySelectorAll("button")].indexOf(document.activeElement);
    fill(find("pager"), buttons[0],
      make("span", {}, total ? `${count(view.offset + 1)} to ${count(last)} of ${count(total)}` : "none"), buttons[1]);
    // Whoever turns pages by keyboard goes on from here, at the ends the other way.
    if (active >= 0) buttons[buttons[active].disabled ? 1 - active : active].focus();
  };

  const load = newest(async () => {
    let found = await ask(source.name, parameters());
    if (view.offset > 0 && view.offset >= found.total) { // fewer fit than before: the last page that there is
      view.offset = SIZE * Math.floor(Math.max(0, found.total - 1) / SIZE);
      found = await ask(source.name, parameters());
    }
    show(found.refused ? { total: 0, rows: [], why: found.refused } : found);
  });
  const refresh = () => load().catch((error) => show({ total: 0, rows: [], why: `This table cannot be shown: ${error.message}` }));

  const select = find("search-classifier");
  fill(select, make("option", { value: "" }, "all"), about.names.map((name) => make("option", { value: name }, name)));
  const searched = () => {
    view.offset = 0;
    refresh();
  };
  select.addEventListener("change", searched);
  find("search-text").addEventListener("input", later(150, searched));
  find("search").addEventListener("submit", (event) => event.preventDefault());
  return { refresh: later(120, refresh) };
};

const named = (about, name) => called(name, about.names.indexOf(name));

export const planColumns = (about, open) => [
  { name: "id", title: "query", kind: "long", show: (row) => [preview(row), make("button", { type: "button", class: "link", onclick: () => open(row.row) }, row.id)] },
  about.labelled && { title: "label", kind: "text small-off", show: (row) => row.label ?? "" },
  { name: "classifier", title: "goes to", kind: "text", show: (row) => named(about, row.classifier) },
  { name: "success", title: "estimate", kind: "", show: (row) => [bar(row.success, `c${about.names.indexOf(row.classifier) % 12}`), " ", exact(row.success, percent(row.success))] },
  { name: "cost", title: "cost", kind: "small-off", show: (row) => exact(row.cost, number(row.cost)) },
  about.distances && { name: "distance", title: "nearest row", kind: "small-off", show: (row) => number(row.distance, 3) },
  about.known && { name: "reached", title: "right?", kind: "", show: (row) => right(row.reached) },
].filter(Boolean);

export const runColumns = (about) => [
  { name: "id", title: "query", kind: "long", show: (row) => row.id },
  { name: "reached", title: "answer", kind: "text", show: (row) => (row.failure ? make("span", { class: "problem" }, row.failure) : row.answer) },
  { name: "classifier", title: "from", kind: "text", show: (row) => (row.classifier ? named(about, row.classifier) : "nobody") },
  { name: "cost", title: "cost", kind: "", show: (row) => exact(row.cost, number(row.cost)) },
  { title: "why", kind: "text small-off", show: (row) => row.reason },
];

/** Whether an answer is right; soft success in between is shown as it is. */
export const right = (success) =>
  success > 0.95 ? make("span", { class: "yes" }, make("span", { "aria-hidden": "true" }, "✓"), make("span", { class: "unseen" }, "right"))
    : success < 0.05 ? make("span", { class: "no" }, make("span", { "aria-hidden": "true" }, "✗"), make("span", { class: "unseen" }, "wrong"))
      : percent(success, 0);
