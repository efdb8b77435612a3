// Elements from plain data. Whatever a name holds, it becomes text: nothing here reads markup.

const SVG = "http://www.w3.org/2000/svg";

const filled = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
};

export const make = (tag, attributes = {}, ...children) =>
  filled(document.createElement(tag), attributes, children);

export const draw = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

export const find = (id) => document.getElementById(id);

export const fill = (place, ...children) => place.replaceChildren(...children.flat().filter(Boolean));

/** A number as text that people read, with the number itself beside it, to its last digit. */
export const exact = (value, text, attributes = {}) => make("output", { "data-value": value, ...attributes }, text);

export const swatch = (index) => make("span", { class: `swatch c${index % 12}`, "aria-hidden": "true" });

/** A classifier by its colour, where it has one, and its name: of a very long one the beginning, all of it when pointed at. */
export const called = (name, index = -1) => make("span", { class: "called" }, index < 0 ? null : swatch(index),
  make("span", { dir: "auto", title: name.length > 40 ? name : null }, name));

/** A bar that is a share of its place; what it says is said in words beside it. */
export const bar = (share, kind = "") => {
  const inner = make("span", { class: kind });
  inner.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return make("span", { class: "bar", "aria-hidden": "true" }, inner);
};

/** A table: headings are texts or elements, rows are lists of texts, elements, or [content, attributes]. */
export const table = (caption, headings, rows) =>
  make(
    "table",
    {},
    make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, headings.map((one) => cell("th", one, { scope: "col" })))),
    make("tbody", {}, rows.map((row) => make("tr", row.attributes ?? {}, row.cells.map((one) => cell("td", one))))),
  );

const cell = (tag, content, attributes = {}) =>
  content !== null && typeof content === "object" && !(content instanceof Node)
    ? make(tag, { ...attributes, ...content.attributes }, ...[content.content].flat())
    : make(tag, attributes, content ?? "");

/** A query as people know it: its picture or text, where the server has one, else nothing. */
export const preview = (row, kind = "thumb") => {
  if (row.picture) return make("img", { class: kind, loading: "lazy", alt: "", src: `api/picture?${new URLSearchParams({ id: row.id })}` });
  return row.text ? make("span", { class: `words ${kind}`, tabindex: kind === "large" ? "0" : null }, row.text) : null;
};
