// What the view is: a budget, classifiers dropped, prices changed. It lives in the address, so that a view can be shared.

export const state = { budget: "", dropped: new Set(), prices: new Map() };

export const parameters = (extra = {}) => {
  const found = new URLSearchParams({ budget: state.budget });
  for (const name of state.dropped) found.append("drop", name);
  for (const [name, price] of state.prices) found.append("price", `${price}:${name}`);
  for (const [name, value] of Object.entries(extra)) found.set(name, value);
  return found;
};

export const hasChanges = () => state.dropped.size + state.prices.size > 0;

/** The changes alone, to tell whether two views have the same. */
export const changes = () => String(parameters({ budget: "" }));

export const noChanges = () => {
  state.dropped.clear();
  state.prices.clear();
};

/** Take the view from the address; names that are not here are left out. */
export const fromAddress = (about) => {
  const found = new URLSearchParams(location.hash.slice(1));
  const known = new Set([...about.names, about.extractor]);
  state.budget = found.get("budget") ?? about.budget;
  state.dropped = new Set(found.getAll("drop").filter((name) => about.names.includes(name)));
  if (state.dropped.size >= about.names.length) state.dropped.clear();
  state.prices = new Map();
  for (const pair of found.getAll("price")) {
    const cut = pair.indexOf(":");
    const name = pair.slice(cut + 1);
    if (cut > 0 && known.has(name)) state.prices.set(name, pair.slice(0, cut));
  }
};

export const toAddress = () => {
  const wanted = `#${parameters()}`;
  if (location.hash !== wanted) history.replaceState(null, "", wanted);
};
