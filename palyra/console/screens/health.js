// Health: incidents in time, the supervision tree, models, servers and queues.  The first line is the answer.
//
// State: `health` = {rows (of the tree), stamps, changed, chosen (an incident that the shared list lacks), modes,
// models, servers, tasks, sessions, failed (method -> error), own {says, isResolving}}.  Incidents are overview.js's.

import { answer, isUnwell, partsOf, rowsOf, rowsWith, stampOf } from "../fold/health.js";
import { isOpen } from "../overview.js";
import { incidentView } from "../parts/incident.js";
import { incidentList, incidentTable, lanes } from "../parts/lanes.js";
import { modelsView } from "../parts/models.js";
import { section } from "../parts/section.js";
import { failure, skeleton } from "../parts/states.js";
import { actorView, PAGE, tree } from "../parts/tree.js";
import { href } from "../route.js";
import { html } from "../view.js";

export const title = "Health";

const EVERY_MS = 2_000;
const LEGEND = ["warning", "error", "critical"];
const STATIC = "(min-width: 1101px)"; // the inspector stands beside the list

let timer;
let isReading = false;
let isLooking = false; // for the tree, or a row of it, that the address names

/** Bring what the address names into view, once. */
function look() {
  const found = document.querySelector(".tree tr.selected");
  if (!isLooking || !document.querySelector(".tree")) return;
  isLooking = false;
  if (found) found.scrollIntoView({ block: "nearest" });
  else document.getElementById("tree").scrollIntoView();
}

export function open(context, route) {
  close();
  context.store.state.health ??= { rows: [], stamps: new Map(), changed: new Set(), failed: {}, own: {} };
  timer = setInterval(() => document.hidden || void read(context), EVERY_MS);
  void read(context);
  moved(context, route);
}

export function close() {
  clearInterval(timer);
}

export function moved(context, { parts }) {
  const { health, incidents } = context.store.state;
  if (!health) return;
  if (health.at !== location.hash) Object.assign(health, { at: location.hash, own: {} }); // a reason that is being written outlives a lost connection
  if (parts[0] === "incidents" && parts[1] && !incidents?.some((each) => each.incident_id === parts[1])) void readOne(context, parts[1]);
  void read(context);
  isLooking = parts[0] === "tree";
}

async function readOne({ ask, store }, id) {
  const { health } = store.state;
  try {
    health.chosen = await ask("incident.get", { incident_id: id });
  } catch (error) {
    health.chosen = { incident_id: id, error };
  }
  store.touch();
}

/** Read what is in view: the tree, or models and queues. */
async function read(context) {
  if (isReading || !context.isLive()) return;
  isReading = true;
  const { health } = context.store.state;
  const get = async (method, params) => {
    try {
      const found = await context.ask(method, params);
      delete health.failed[method];
      return found;
    } catch (error) {
      if (context.isLive()) health.failed[method] = error;
      return null;
    }
  };
  if (context.route.parts[0] === "models") {
    const [models, servers, tasks, sessions] = await Promise.all([get("model.list"), get("mcp.list"), get("task.counts"), get("session.list", { limit: 200 })]);
    Object.assign(health, { models, servers: servers?.servers, tasks, sessions: sessions?.sessions });
  } else {
    const [top, modes] = await Promise.all([get("system.tree"), get("healing.mode", {})]);
    if (top) take(health, rowsOf(top));
    health.modes = modes?.modes;
  }
  isReading = false;
  context.store.touch();
}

/** Rows that differ from the last look flash until the next one. */
function take(health, rows) {
  const stamps = new Map(rows.map((row) => [row.path, stampOf(row)]));
  health.changed = new Set(health.rows.length ? [...stamps].filter(([path, stamp]) => health.stamps.get(path) !== stamp).map(([path]) => path) : []);
  Object.assign(health, { rows, stamps });
}

const actsOf = (context) => {
  const { health } = context.store.state;
  const tell = async (method, params, says) => {
    try {
      await context.ask(method, params);
      health.own = {};
      context.announce(says);
      await Promise.all([context.refresh(), read(context)]);
    } catch (error) {
      health.own.says = `${error.code}: ${error.message}`;
    }
    context.store.touch();
  };
  return {
    mode: (domain, mode) => void tell("healing.mode", { domain, mode }, `${domain}: ${mode}`),
    resolve: (incident, reason) => void tell("incident.resolve", { incident_id: incident.incident_id, reason }, "Resolved"),
    write: () => {
      health.own.isResolving = !health.own.isResolving;
      context.store.touch();
      if (health.own.isResolving) setTimeout(() => document.querySelector(".inspector input[name=reason]")?.focus(), 50);
    },
  };
};

// --- What is shown ------------------------------------------------------------------------------

/** Open ones first, then the newest. */
const sorted = (incidents) => [...(incidents ?? [])].sort((left, right) => isOpen(right) - isOpen(left) || right.last_ms - left.last_ms);

export function view(context, route) {
  const { health, incidents } = context.store.state;
  if (!health) return html`<div class="pad"></div>`;
  const list = sorted(incidents);
  const open = list.filter(isOpen);
  const isModels = route.parts[0] === "models";
  if (isLooking && health.rows.length) requestAnimationFrame(look);
  const inspector = isModels ? null : inspect(context, route, list, open);
  const bad = (health.models?.models ?? []).filter((each) => each.breaker !== "closed").length;
  return html`<div class="split health ${inspector ? "" : "alone"} ${route.parts[1] ? "has-card" : ""} ${context.isLive() ? "" : "dim"}"><div class="pad">
    <h1>${answer(incidents ? open.length : null, health.rows)}</h1>
    <nav class="tabs" aria-label="Kinds"><a class="plain" href=${href("health", ["incidents"])} aria-current=${isModels ? null : "page"}>Incidents and tree</a>
      <a class="plain" href=${href("health", ["models"])} aria-current=${isModels ? "page" : null}>Models and queues ${bad ? html`<span class="count wait">${bad}</span>` : null}</a></nav>
    ${isModels ? modelsView(context, health, () => read(context)) : [incidentsView(context, route, list), treeView(context, route)]}</div>${inspector}</div>`;
}

function incidentsView(context, { parts, query }, list) {
  const { incidents, refused } = context.store.state;
  const isTable = query.as === "table";
  const chosen = list.find((each) => each.incident_id === parts[1]);
  const other = href("health", parts, { ...query, as: isTable ? null : "table" });
  const aside = html`<span class="legend">${isTable ? null : LEGEND.map((each) => html`<span class="key"><svg viewBox="0 0 8 8" aria-hidden="true"><rect class="k-${each}" width="8" height="8" rx="2"></rect></svg>${each}</span>`)}
    <a class="only-wide act" href=${other}>${isTable ? "as a plot" : "as a table"} <kbd>t</kbd></a></span>`;
  const content = refused?.["incident.list"] ? failure(refused["incident.list"])
    : !incidents ? skeleton()
    : isTable ? (list.length ? incidentTable(list, chosen, context.now(), query) : html`<p class="after muted">No incident in 24 hours.</p>`)
    : [lanes(list, chosen, context.now(), query), incidentList(list, context.now(), query)];
  return section("Incidents", "24 h", incidents ? aside : null, content);
}

function treeView(context, { parts, query }) {
  const { health } = context.store.state;
  const failed = health.failed["system.tree"];
  if (!health.rows.length) return section("Supervision tree", "", null, failed ? failure(failed, () => read(context)) : skeleton(8));
  const wanted = (query.find ?? "").toLowerCase();
  const isFiltered = query.only === "unwell" || wanted;
  const shown = isFiltered ? rowsWith(health.rows, (row) => (query.only !== "unwell" || isUnwell(row)) && row.id.toLowerCase().includes(wanted)) : health.rows;
  const to = (patch) => href("health", parts, { ...query, from: null, ...patch });
  const aside = html`<input class="field small-field" type="search" aria-label="Find an actor" placeholder="Find an actor  /" value=${query.find ?? ""} @input=${({ target }) => context.replace(to({ find: target.value.trim() }))}>
    <a class="act" href=${to({ only: query.only ? null : "unwell" })}>${query.only ? "the whole tree" : "only what is not well"} <kbd>w</kbd></a>`;
  const from = Math.min(Number(query.from) || 0, Math.max(0, shown.length - 1));
  const path = parts[0] === "tree" ? parts[1] : undefined;
  const look = {
    shown, from, chosen: path, isChosenShown: shown.slice(from, from + PAGE).some((row) => row.path === path), changed: health.changed,
    href: (each) => href("health", ["tree", each], query), page: (at) => context.go(to({ from: at || null })),
  };
  return html`<div id="tree">${section("Supervision tree", `${shown.length === health.rows.length ? "" : `${shown.length} of `}${health.rows.length} actors`, aside,
    shown.length ? tree(look) : html`<p class="after muted">${wanted ? "No actor has that name." : "Every actor is well."}</p>`)}</div>`;
}

/** What is chosen by the address, else the first open incident where there is room for it. */
function inspect(context, { parts: [kind, id], query }, list, open) {
  const { health } = context.store.state;
  if (kind === "tree" && id) {
    const row = health.rows.find((each) => each.path === id);
    const crashes = row ? list.filter((each) => partsOf(each.key).subject === row.id) : [];
    if (row) return actorView(row, href("health", ["tree"], query), crashes.map((each) => html`<p class="after"><a href=${href("health", ["incidents", each.incident_id])}>${each.summary}</a></p>`));
    return health.rows.length ? html`<aside class="inspector" aria-label="Actor"><h1 class="breaks">${partsOf(id.split("/").at(-1)).kind}</h1>${failure({ code: "not_found", message: `${id} is not in the tree: it has ended.` })}<a href=${href("health", ["tree"])}>The whole tree</a></aside>` : null;
  }
  const chosen = id ? (list.find((each) => each.incident_id === id) ?? (health.chosen?.incident_id === id ? health.chosen : null)) : matchMedia(STATIC).matches ? open[0] : null;
  if (!chosen) return null;
  if (chosen.error) return html`<aside class="inspector" aria-label="Incident">${failure(chosen.error)}<a href=${href("health", ["incidents"])}>All incidents</a></aside>`;
  return incidentView(context, chosen, { modes: health.modes, own: health.own, acts: actsOf(context), others: open.filter((each) => each !== chosen), query });
}

/** The next incident, or the one before. */
function step(context, by) {
  const { parts, query } = context.route;
  const list = sorted(context.store.state.incidents);
  if (!list.length || parts[0] === "models") return false;
  const at = list.findIndex((each) => each.incident_id === parts[1]);
  const next = list[Math.min(list.length - 1, Math.max(0, at + by))];
  context.go(href("health", ["incidents", next.incident_id], query));
}

const toggle = (context, name, value) => {
  const { parts, query } = context.route;
  context.go(href("health", parts, { ...query, [name]: query[name] ? null : value }));
};

export const keys = (context) => [
  { key: "j", what: "Next incident, or next row of the tree", act: () => step(context, 1) },
  { key: "k", what: "The one before", act: () => step(context, -1) },
  { key: "t", what: "Table instead of lanes", act: () => toggle(context, "as", "table") },
  { key: "w", what: "Only actors that are not well", act: () => toggle(context, "only", "unwell") },
  { key: "r", what: "Resolve the incident", act: () => void document.querySelector(".inspector [aria-expanded]")?.click() },
  { key: "m", what: "Models and queues, and back", act: () => context.go(href("health", [context.route.parts[0] === "models" ? "incidents" : "models"])) },
  { key: "/", what: "Find an actor", act: () => document.querySelector(".health input[type=search]")?.focus() },
  { key: "Enter", what: "Open the row" },
  { key: "Escape", what: "Close the inspector, leave a field", act: () => leave(context) },
];

function leave(context) {
  const { parts, query } = context.route;
  if (document.activeElement?.matches("input")) document.activeElement.blur();
  else if (parts[1]) context.go(href("health", [parts[0]], query));
  else return false;
}
