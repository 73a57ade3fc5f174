// Runs: all of them in one table, the latest event first; `?phase=&open=&agent=&principal=&session=&tainted=&q=` are its filters.
//
// State: `runs` = {reader (runs-reader.js), key (of the filter), top, height, row (pixels), at (run_id), text (typed), agents}.

import { filterOf, latestOf, OPEN, PHASES, windowOf } from "../fold/runs.js";
import { exact } from "../fold/money.js";
import { moment, span } from "../fold/time.js";
import { grouped, many, oneLine, sentence, tail } from "../fold/text.js";
import { LEAVE } from "../keys.js";
import { icon, phase } from "../parts/icon.js";
import { empty, failure, skeleton } from "../parts/states.js";
import { RunsReader } from "../runs-reader.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";

export const title = "Runs";

const TYPED_MS = 250;
const NEAR = 40; // rows from the end: then older ones are read
const COLUMNS = 9;
let timer;

export function open(context, route) {
  const { state } = context.store;
  if (!state.runs) {
    state.runs = { reader: null, key: null, top: 0, height: 720, row: 28, at: null, text: null, agents: [] };
    context.ask("agent.list").then(({ agents }) => {
      if (state.runs) state.runs.agents = agents.map(({ name }) => name);
    }, () => {});
    moved(context, route);
  } else void state.runs.reader.open(); // connected again
}

export function close(context) {
  clearTimeout(timer);
  context.store.state.runs?.reader?.close();
  context.store.state.runs = undefined;
}

/** Another filter is another list. */
export function moved(context, { query }) {
  const { runs } = context.store.state;
  const filter = filterOf(query);
  const key = JSON.stringify(filter);
  if (!runs || !context.wire || key === runs.key) return;
  runs.reader?.close();
  Object.assign(runs, { key, reader: new RunsReader(context, filter), top: 0, at: null });
  document.getElementById("runs")?.scrollTo(0, 0);
  void runs.reader.open();
}

export function view(context, { query }) {
  const { runs } = context.store.state;
  if (!runs?.reader) return html`<div class="pad">${skeleton(8)}</div>`;
  const { reader } = runs;
  const rows = reader.rows;
  return html`<div class="list-page ${context.isLive() ? "" : "dim"}"><div class="list-head"><h1>${answer(reader, rows, query)}</h1>${filters(context, runs, query)}</div>
    <div class="list-body" id="runs" tabindex="-1" @scroll=${({ target }) => scrolled(context, runs, target)} @pointerenter=${() => (reader.isHeld = true)} @pointerleave=${() => (reader.isHeld = false)}>
    ${reader.error && !rows.length ? failure(reader.error, () => reader.open()) : !reader.isRead ? skeleton(8) : rows.length ? table(context, runs, rows) : nothing(query)}</div></div>`;
}

function answer({ isRead, next }, rows, query) {
  if (!isRead) return "Runs";
  const waiting = rows.filter((run) => run.phase === "awaiting_approval").length;
  const open = rows.filter((run) => OPEN.includes(run.phase)).length;
  const found = next ? `The newest ${grouped(rows.length)} runs` : sentence(many(rows.length, "run"));
  if (Object.keys(filterOf(query)).length) return next ? `${found} that fit.` : `${found} found.`;
  return `${found}, ${open} open${waiting ? `, ${waiting} waiting for a person` : ""}.`;
}

function nothing(query) {
  if (Object.keys(filterOf(query)).length) return html`<div class="panel"><p class="calm-word">No run fits</p><p class="soft">None of the runs you may see has all of this. <a href="#/runs">Show all</a></p></div>`;
  return empty("No run yet", html`Each message makes one: <a href="#/session/new">write it here</a>, or in a terminal.`, 'palyra run "hello"');
}

function filters(context, runs, query) {
  const set = (patch) => href("runs", [], { ...query, open: undefined, ...patch });
  const chosen = query.phase ?? (query.open ? "open" : "");
  const select = (label, name, options) => html`<label><span class="aloud">${label}</span><select class="field" aria-label=${label} @change=${({ target }) => context.go(name === "phase" && target.value === "open" ? set({ phase: undefined, open: 1 }) : set({ [name]: target.value }))}>
    ${options.map(([value, says]) => html`<option value=${value} ?selected=${value === (name === "phase" ? chosen : (query[name] ?? ""))}>${says}</option>`)}</select></label>`;
  const agents = [...new Set([...runs.agents, ...(query.agent ? [query.agent] : [])])];
  return html`<form class="filters" role="search" aria-label="Filters" @submit=${(event) => event.preventDefault()}>
    <input class="field" id="find" type="search" aria-label="Find by title" placeholder="Title" maxlength="256" .value=${runs.text ?? query.q ?? ""} @input=${({ target }) => typed(context, runs, target.value)}>
    ${select("Phase", "phase", [["", "any phase"], ["open", "open"], ...PHASES.map((each) => [each, each])])}
    ${select("Agent", "agent", [["", "any agent"], ...agents.map((each) => [each, each])])}
    ${select("Taint", "tainted", [["", "tainted or not"], ["1", "tainted"], ["no", "not tainted"]])}
    ${[["principal", "principal"], ["session", "session"]].map(([name, says]) => (query[name] ? html`<span class="nowrap">${says} <b>${name === "session" ? tail(query[name]) : query[name]}</b> <a href=${set({ [name]: undefined })} aria-label="Without the ${says}">×</a></span>` : null))}
    ${Object.keys(filterOf(query)).length ? html`<a href="#/runs">Clear</a>` : null}</form>`;
}

function typed(context, runs, text) {
  runs.text = text;
  clearTimeout(timer);
  timer = setTimeout(() => {
    context.replace(href("runs", [], { ...context.route.query, q: text.trim() }));
    runs.text = null;
  }, TYPED_MS);
}

function table(context, runs, rows) {
  const { first, last, before, after } = windowOf(rows.length, runs);
  requestAnimationFrame(() => measure(context, runs));
  const { reader } = runs;
  const gap = (px) => html`<tr class="gap" aria-hidden="true"><td colspan=${COLUMNS}><svg width="1" height=${px}></svg></td></tr>`;
  return html`<table class="runs all" aria-rowcount=${rows.length + 1}><thead><tr aria-rowindex="1"><th scope="col">Title</th><th scope="col">Phase</th><th scope="col">Agent</th><th scope="col">Principal</th><th scope="col">Last event</th><th scope="col" class="num">Age</th>
      <th scope="col" class="num">Calls</th><th scope="col" class="num">Tokens</th><th scope="col" class="num">Cost</th></tr></thead>
    <tbody>${before ? gap(before) : null}${keyed(rows.slice(first, last), (run) => run.run_id, (run, at) => row(context, runs, run, first + at + 2))}${after ? gap(after) : null}</tbody></table>
    ${reader.error ? html`<p class="bad small after">${reader.error.code}: ${reader.error.message}</p>` : null}
    ${reader.next ? html`<p class="small muted after">${reader.isFull ? `The newest ${grouped(rows.length)} are shown; filters find older ones.` : html`<button class="link" @click=${() => reader.more()}>Read older runs</button>`}</p>` : null}`;
}

function row(context, runs, run, index) {
  const name = run.title || `run ${tail(run.run_id)}`;
  const tokens = (run.usage?.input_tokens ?? 0) + (run.usage?.output_tokens ?? 0);
  const at = latestOf(run);
  const why = run.reason && !["answered", "partial"].includes(run.reason) ? oneLine(run.reason, 60) : "";
  return html`<tr aria-rowindex=${index} class=${run.run_id === runs.at ? "selected" : ""} data-run=${run.run_id}><td class="title ${run.depth ? "child" : ""}" title="${name}, ${run.run_id}">${run.depth ? html`${icon("child", "muted")} ` : null}${run.is_tainted ? html`${icon("drop", "taint")}<span class="aloud">tainted</span> ` : null}<a class="plain" href=${href("run", [run.run_id])}>${name}</a></td>
    <td title=${run.reason ?? ""}>${phase(run)}${why ? html` <span class="wide-only">${why}</span>` : null}</td><td class="wide-only"><a class="plain" href=${href("runs", [], { ...context.route.query, agent: run.agent })}>${run.agent}</a></td>
    <td class="wide-only"><a class="plain" href=${href("runs", [], { ...context.route.query, principal: run.principal })}>${run.principal}</a></td>
    <td class="mono wide-only">${run.latest_kind ?? ""}</td><td class="num wide-only" title=${moment(at)}>${span(context.now() - at)}</td><td class="num wide-only">${run.tool_calls}</td>
    <td class="num wide-only">${grouped(tokens)}</td><td class="num">${exact(run.cost_usd_micros)}</td></tr>`;
}

// --- Scrolling ----------------------------------------------------------------------------------

function scrolled(context, runs, { scrollTop, clientHeight, scrollHeight }) {
  Object.assign(runs, { top: scrollTop, height: clientHeight });
  if (scrollTop + clientHeight > scrollHeight - NEAR * runs.row) void runs.reader.more();
  context.store.touch();
}

/** Rows have one height; which one, the look decides. */
function measure(context, runs) {
  const row = document.querySelector("#runs tbody tr[data-run]")?.offsetHeight;
  const height = document.getElementById("runs")?.clientHeight;
  if (!row || (Math.abs(row - runs.row) < 0.5 && height === runs.height)) return;
  Object.assign(runs, { row, height });
  context.store.touch();
}

function select(context, find) {
  const { runs } = context.store.state;
  const rows = runs.reader?.rows ?? [];
  const at = rows.findIndex((run) => run.run_id === runs.at);
  const to = find(rows, at);
  if (!rows[to]) return;
  runs.at = rows[to].run_id;
  const element = document.getElementById("runs");
  const [top, bottom] = [to * runs.row, (to + 2) * runs.row]; // the heading stays above
  if (top < element.scrollTop) element.scrollTop = top;
  else if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight;
  context.store.touch();
  const { title: name, phase: state } = rows[to];
  context.announce(`${name || tail(runs.at)}, ${state}`);
}

const isFailure = (run) => run.phase === "failed" || run.phase === "stranded" || run.reason === "partial";

export const keys = (context) => {
  const by = (step) => () => select(context, (rows, at) => Math.max(0, Math.min(rows.length - 1, at + step)));
  const page = () => Math.max(1, Math.floor(context.store.state.runs.height / context.store.state.runs.row) - 2);
  return [
    { key: "j", what: "Next run", act: by(1) }, { key: "ArrowDown", what: "Next run", act: by(1) },
    { key: "k", what: "Previous run", act: by(-1) }, { key: "ArrowUp", what: "Previous run", act: by(-1) },
    { key: "PageDown", what: "A page on", act: () => by(page())() }, { key: "PageUp", what: "A page back", act: () => by(-page())() },
    { key: "Home", what: "First run", act: () => select(context, () => 0) },
    { key: "End", what: "Last run that was read", act: () => select(context, (rows) => rows.length - 1) },
    { key: "e", what: "Next failure", act: () => select(context, (rows, at) => rows.findIndex((run, index) => index > at && isFailure(run))) },
    { key: "E", what: "Previous failure", act: () => select(context, (rows, at) => rows.findLastIndex((run, index) => index < at && isFailure(run))) },
    { key: "Enter", what: "Open the run", act: (event) => {
      const { at } = context.store.state.runs;
      if (!at || event.target.closest("a, button, input, select")) return false;
      context.go(href("run", [at]));
      return true;
    } },
    { key: "/", what: "Find by title", act: () => document.getElementById("find")?.focus() },
    LEAVE,
  ];
};
