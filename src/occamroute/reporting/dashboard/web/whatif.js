// What if a classifier were not there, or cost something else.

import { count, number, percent } from "./format.js";
import { bar, called, fill, find, make, swatch } from "./making.js";
import { hasChanges, noChanges, state } from "./state.js";

const short = (price) => {
  if (price === 0 || price >= 1e-4) return String(Number(price.toPrecision(4)));
  const [front, exponent] = price.toExponential(3).split("e");
  return `${Number(front)}e${exponent}`;
};

export const whatIf = (about, change) => {
  const outside = about.extractor !== null && !about.names.includes(about.extractor);
  const rows = new Map();
  const problem = find("whatif-problem");

  const priceField = (name, price) => {
    const field = make("input", {
      inputmode: "decimal", autocomplete: "off", spellcheck: "false", "aria-label": `Price of a call of ${name}`, title: String(price),
    });
    // Short enough to be read; left as it is, the exact price counts.
    field.dataset.given = short(price);
    field.addEventListener("change", () => {
      const text = field.value.trim();
      if (text === "" || text === field.dataset.given) state.prices.delete(name);
      else state.prices.set(name, text);
      if (text === "") field.value = field.dataset.given;
      change();
    });
    return field;
  };

  const tick = (name) => {
    const box = make("input", { type: "checkbox", checked: !state.dropped.has(name), "aria-label": `${name} may answer` });
    box.addEventListener("change", () => {
      if (!box.checked && state.dropped.size + 1 >= about.names.length) {
        box.checked = true;
        say("At least one classifier must be left to answer.");
        return;
      }
      if (box.checked) state.dropped.delete(name);
      else state.dropped.add(name);
      change();
    });
    return box;
  };

  const say = (words) => {
    problem.textContent = words ?? "";
    problem.hidden = !words;
  };

  const line = (name, index, price, box) => {
    const share = bar(0, `c${index % 12}`);
    const used = make("span", { class: "used" });
    const field = priceField(name, price);
    const row = make("li", { class: "option" },
      make("label", { class: "who" }, box, index >= 0 ? swatch(index) : null, make("span", { class: "named" }, called(name),
        name === about.extractor ? make("span", { class: "badge" }, "features") : null)),
      make("span", { class: "price" }, field),
      index >= 0 ? make("span", { class: "share" }, share, used) : null);
    rows.set(name, { row, share, used, field, box });
    return row;
  };

  const list = make("ul", { class: "options" },
    about.names.map((name, index) => line(name, index, about.prices[name], tick(name))),
    outside ? line(about.extractor, -1, about.overhead, null) : null);
  fill(find("whatif-list"), make("p", { class: "options-head quiet small", "aria-hidden": "true" }, make("span", {}, "may answer"), make("span", {}, "price of a call"), make("span", {}, "of the queries")), list);
  fill(find("whatif-note"), about.extractor === null ? [] :
    outside ? ["The price of ", make("q", {}, about.extractor), " is what its features cost for each query."] :
      ["A call of ", make("q", {}, about.extractor), " yields the features: it is paid for every query, and its own answer is then free. Unticked, it is still paid but may not answer; its price is the price of the features."]);
  find("undo").addEventListener("click", () => {
    noChanges();
    list.querySelector("input").focus(); // this button goes
    change();
  });

  return {
    say,
    /** Fields as the view is: after an undo, or when the address was changed. */
    refresh() {
      for (const [name, one] of rows) {
        if (one.box) one.box.checked = !state.dropped.has(name);
        one.field.value = state.prices.get(name) ?? one.field.dataset.given;
        one.field.classList.toggle("changed", state.prices.has(name));
        one.row.classList.toggle("dropped", state.dropped.has(name));
      }
      find("undo").hidden = !hasChanges();
    },
    show(at) {
      for (const [name, one] of rows) {
        const queries = at.usage[name] ?? 0;
        one.share.firstChild.style.width = `${(100 * queries) / about.n_queries}%`;
        one.used.textContent = name in at.usage ? percent(queries / about.n_queries) : state.dropped.has(name) ? "dropped" : "";
        one.used.dataset.value = String(queries);
        one.used.title = `${count(queries)} of ${count(about.n_queries)} queries, a call for ${number(Number(one.field.value))}`;
      }
    },
  };
};
