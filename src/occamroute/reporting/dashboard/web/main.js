// The page: what it shows, and how one move of the budget reaches every number.

import { ask, later, newest } from "./asking.js";
import { showNoPlan, showNumbers, showPromise, words } from "./numbers.js";
import { counted } from "./format.js";
import { frontierChart } from "./frontier.js";
import { watch } from "./live.js";
import { fill, find, make } from "./making.js";
import { paretoChart, usageChart } from "./pictures.js";
import { showReceipt } from "./receipt.js";
import { showRun } from "./run.js";
import { changes, fromAddress, hasChanges, noChanges, parameters, state, toAddress } from "./state.js";
import { planColumns, queryTable, runColumns } from "./table.js";
import { whatIf } from "./whatif.js";

const KINDS = { profile: "a profile: half of its rows, planned for by the other half", plan: "a plan", run: "a run", service: "a service, explored on its held-out rows" };

const fail = (error) => {
  find("failure").textContent = `This page cannot go on: ${error.message}`;
  find("failure").hidden = false;
};

const origin = (about) => {
  fill(find("notes"), about.notes.map((note) => make("p", {}, note)));
  fill(find("about"), about.about.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  find("origin").hidden = false;
  find("made-by").textContent = `occamroute ${about.version}. Every number on this page is one of the ${about.kind === "run" ? "run" : "solver"}'s own; nothing is loaded from anywhere else.`;
};

const problem = (at) => {
  const place = find("budget-problem");
  place.hidden = !at.refused;
  find("budget").setAttribute("aria-invalid", at.refused ? "true" : "false");
  fill(place, at.refused ? [at.refused, " ", at.least ? make("button", { type: "button", onclick: () => {
    find("budget").focus(); // this button goes
    moveTo(at.least);
  } }, `Take the least: ${at.least}`) : null] : []);
};

let moveTo = () => {};

const explore = async (about) => {
  find("explore").hidden = false;
  find("queries").hidden = false;
  showPromise(about);
  fromAddress(about);
  let axis = null;
  let drawn = null; // the changes that the axis is for
  // What came with the page is not asked for again.
  const isFirst = (budget) => !hasChanges() && budget === about.budget && about.at !== null;
  const usage = usageChart(about);
  const pareto = paretoChart(about);
  const say = later(600, (text) => { find("announcer").textContent = text; });
  const share = later(150, () => {
    toAddress();
    for (const kind of ["csv", "parquet"]) find(`download-${kind}`).href = `api/plan.${kind}?${parameters()}`;
  });

  const open = (row) => ask("receipt", parameters({ row })).then((found) => showReceipt(about, found)).catch(fail);
  const table = queryTable({ about, source: { name: "queries", parameters }, columns: planColumns(about, open) });

  /** Ask for the plan at the budget; while the answer is under way only the newest wish waits. */
  const move = newest(async (budget, source, isOld) => {
    const at = isFirst(budget) ? about.at : await ask("at", parameters({ budget }));
    find("failure").hidden = true;
    if (isOld()) return;
    problem(at);
    if (at.refused) {
      say(at.refused);
      showNoPlan();
      changesOf.show({ usage: {} });
    } else {
      showNumbers(about, at);
      changesOf.show(at);
      say(words(about, at));
      table.refresh();
      share();
    }
    front.stand(budget, at.refused ? false : at, source);
    usage.stand(at.amount ?? Number(budget));
    find("explore").dataset.answered = budget;
  });
  moveTo = (budget, source) => {
    state.budget = budget;
    front.stand(budget, source === "field" ? undefined : null, source);
    move(budget, source).catch(fail);
  };
  const front = frontierChart(about, (budget, source) => moveTo(budget, source));

  const swept = newest(async (isOld) => {
    const asked = changes();
    const found = await ask("sweep", parameters());
    // An answer about other changes is not for the axis of now; the right one is under way.
    if (!found.refused && !isOld() && asked === drawn && asked === changes()) usage.show(found.rows, axis);
    find("usage-chart").dataset.swept = asked;
  });
  const sweep = later(250, () => swept().catch(fail));

  const change = newest(async (isOld) => {
    changesOf.refresh();
    let found = hasChanges() ? await ask("frontier", parameters()) : about.frontier;
    changesOf.say(found.refused);
    if (isOld() || (found.refused && axis)) return;
    if (found.refused) { // changes that came with the address and will not do: the page begins without them
      noChanges();
      changesOf.refresh();
      found = about.frontier;
    }
    axis = front.show(found, hasChanges() ? about.frontier : null);
    drawn = changes();
    pareto.show(found.classifiers);
    sweep();
    moveTo(state.budget);
  });
  const changesOf = whatIf(about, () => change().catch(fail));
  addEventListener("hashchange", () => {
    fromAddress(about);
    change().catch(fail);
  });
  await change();
};

const begin = async () => {
  const about = await ask("about");
  document.title = `${about.title} · occamroute`;
  find("title").textContent = about.title;
  find("kind").textContent = about.exploring ? `${KINDS[about.kind]}; ${counted(about.n_queries, "query", "queries")}, ${counted(about.names.length, "classifier")}` : KINDS[about.kind];
  origin(about);
  if (about.live) watch(about);
  if (about.kind === "run") {
    showRun(about);
    find("queries").hidden = false;
    document.querySelector(".downloads").hidden = true;
    find("search-text").previousSibling.textContent = "Id or answer ";
    queryTable({ about, source: { name: "bought", parameters: (extra) => new URLSearchParams(extra) }, columns: runColumns(about) }).refresh();
  }
  if (about.exploring) await explore(about);
};

begin().catch(fail);
