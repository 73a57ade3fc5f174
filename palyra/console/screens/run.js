// Run: one tape.  Head, strip, timeline in three views, the live turn, a composer, and the inspector.
//
// State: `run` = {id, reader, seq, query, goal, follow, sight, found, cancel, steer, …}.  The address has the run, the
// selected event, and as query `view`, `q` (a search), `pane` and `open` (of the inspector, where it is a page of its own).

import { listed, VIEWS } from "../fold/tape.js";
import { href } from "../route.js";
import { inspector } from "../parts/inspector.js";
import { LiveTurn } from "../parts/live-turn.js";
import { head } from "../parts/run-head.js";
import { contextPane, filesPane, freshFiles, runPane } from "../parts/run-panes.js";
import { empty, failure, skeleton } from "../parts/states.js";
import { hitOf, noRows, rowOf } from "../parts/tape-rows.js";
import "../parts/tape-list.js";
import { isTyping } from "../keys.js";
import { RunReader } from "../run-reader.js";
import { html } from "../view.js";
import * as acts from "../run-acts.js";

export const title = "Run";

const BEFORE = 10; // events before those in sight that are read, too: rows that are there and not in sight
const AHEAD = 80; // and behind: the ends of calls
const AUTO_VERIFY = 5_000; // events: a longer tape is verified when somebody asks

export function open(context, route) {
  const { run } = context.store.state;
  if (run && run.id === route.parts[0] && !run.isClosed) return void run.reader.refresh();
  begin(context, route);
}

export function close(context) {
  const { run } = context.store.state;
  if (!run) return;
  run.isClosed = true;
  run.reader.close();
}

export function moved(context, route) {
  const { run } = context.store.state;
  if (!run || run.isClosed || run.id !== route.parts[0]) {
    close(context);
    return begin(context, route);
  }
  const before = run.query;
  follow(run, route);
  if (before.q !== run.query.q) void search(context, run);
  if (run.seq !== undefined && run.seq !== run.shown) show(context, run);
  readPane(context, run);
  if (before.view !== run.query.view || before.q !== run.query.q) run.goal = { seq: run.seq ?? run.sight?.[0] };
  context.store.touch();
  return undefined;
}

function begin(context, route) {
  const id = route.parts[0];
  const run = { id, reader: new RunReader(context, id), follow: false, cancel: null, steer: {}, files: freshFiles(), prompt: {}, proof: {}, found: null };
  context.store.state.run = run;
  if (!id) return;
  follow(run, route);
  run.live = new LiveTurn(() => run.follow && list()?.scrollTo(0, 1e9));
  run.reader.onProgress = (item) => run.live.progress(item);
  run.reader.onEvent = (event) => {
    run.live.event(event);
    if (event.kind.startsWith("run.") && event.kind !== "run.started") context.announce(`${event.kind}, event ${event.seq}`, { once: `${id} ${event.seq}` });
  };
  void start(context, run);
}

/** Read it, and go to the event of the address, to the end of an open or a failed run, or to the beginning. */
async function start(context, run) {
  const { reader } = run;
  await reader.open();
  if (!reader.tape || run.isClosed) return;
  const began = reader.isOver ? undefined : reader.tape.back(reader.tape.head, "turn.started", "turn.completed", "turn.failed");
  if (began !== undefined) run.live.event((await reader.event(began)) ?? {});
  if (run.seq !== undefined) show(context, run);
  else if (!reader.isOver || reader.view.state === "failed") {
    run.goal = { end: true };
    run.follow = !reader.isOver;
  } else run.goal = { seq: reader.tape.floor };
  if (run.query.q) void search(context, run);
  readPane(context, run);
  if (reader.tape.head < AUTO_VERIFY) void acts.verify(context, run);
  run.family = await context.ask("run.list", { parent_run_id: run.id, limit: 50 }).then(({ runs }) => runs, () => null);
  context.store.touch();
}

function follow(run, { parts, query }) {
  run.query = query;
  run.view = VIEWS.includes(query.view) ? query.view : VIEWS[0];
  run.seq = parts[1] === "seq" && /^\d{1,15}$/.test(parts[2] ?? "") ? Number(parts[2]) : undefined;
}

/** Bring the selected event into sight, and read what the inspector says of it. */
function show(context, run) {
  const { reader, seq } = run;
  if (!reader.tape) return;
  run.shown = seq;
  run.follow = false;
  run.goal = { seq };
  void reader.event(seq).then(async () => {
    const at = reader.tape.proposalOf(seq);
    if (at === undefined || run.seq !== seq) return context.store.touch();
    if (run.view !== "raw" && at !== seq) run.goal = { seq: at };
    await reader.call(at);
    return context.store.touch();
  }, (error) => (reader.error = error));
}

async function search(context, run) {
  const text = run.query.q;
  run.found = text ? { text, isBusy: true, hits: new Map(), rows: listed([]) } : null;
  if (!text) return;
  try {
    const { hits, isCut } = await run.reader.find(text);
    if (run.query.q !== text) return;
    run.found = { text, isCut, hits: new Map(hits.map((hit) => [hit.seq, hit])), rows: listed(hits.map((hit) => hit.seq)) };
    context.announce(`${hits.length} found`);
  } catch (error) {
    run.found = { ...run.found, isBusy: false, error };
  }
  context.store.touch();
}

function readPane(context, run) {
  if (!run.reader.tape) return;
  if (run.query.pane === "files" && !run.files.diff && !run.files.isBusy) void acts.readFiles(context, run);
  if (run.query.pane === "context") void acts.readContext(context, run);
}

const list = () => document.querySelector("tape-list");

/** The address of this run with another event or query. */
function address(run, patch = {}, seq = run.seq) {
  return href("run", [run.id, ...(seq === undefined ? [] : ["seq", seq])], { ...run.query, ...patch });
}

/** Select an event; the history keeps one entry for all selections. */
function select(context, run, seq, patch) {
  context.replace(address(run, patch, seq));
}

/** What the screen's buttons, links and keys do. */
function actsOf(context, run) {
  const bound = Object.fromEntries(Object.entries(acts).map(([name, act]) => [name, (...rest) => act(context, run, ...rest)]));
  return {
    ...bound,
    address: (patch) => address(run, patch),
    at: (seq) => address(run, {}, seq),
    select: (seq, patch) => select(context, run, seq, patch),
    toEnd: () => setFollow(context, run, !run.follow),
    mark: (names, isBackwards) => toMark(context, run, names, isBackwards),
    leaveSearch: () => context.go(address(run, { q: null })),
    ask: (event) => void take(context, run, event),
  };
}

function setFollow(context, run, isOn) {
  run.follow = isOn;
  if (isOn) run.goal = { end: true };
  context.announce(isOn ? "Following the end" : "Not following");
  context.store.touch();
}

/** Go to the next event with a mark; a second wish begins where the first has led. */
function toMark(context, run, names, isBackwards) {
  run.marking = (run.marking ?? Promise.resolve()).then(() => mark(context, run, names, isBackwards));
}

async function mark(context, run, names, isBackwards) {
  const { reader } = run;
  const from = run.seq ?? (isBackwards ? reader.tape.head + 1 : reader.tape.floor - 1);
  try {
    const seq = await reader.mark(names, from, isBackwards);
    if (run.isClosed) return;
    if (seq === undefined) context.announce(`No ${isBackwards ? "earlier" : "later"} ${names[0]}`);
    else select(context, run, seq);
  } catch (error) {
    context.announce(error.message, { isUrgent: true });
  }
}

/** The field for a search or, after a colon, a jump. */
function take(context, run, event) {
  event.preventDefault();
  const field = event.target.elements.find;
  const text = field.value.trim();
  const jump = /^:\s*(\d{1,15})$/.exec(text);
  run.draft = undefined;
  if (jump) {
    const { floor, head: end } = run.reader.tape;
    select(context, run, Math.max(floor, Math.min(end, Number(jump[1]))), { q: null });
  } else context.go(address(run, { q: text || null }));
  list()?.focus();
}

export function view(context, route) {
  const { run } = context.store.state;
  if (!route.parts[0] || !run) return html`<div class="pad">${empty("No run is named", "Its address has the id of a run: #/run/run_…", "palyra runs list")}</div>`;
  const { reader } = run;
  if (!reader.tape) return html`<div class="pad">${reader.error ? failure(reader.error, () => void start(context, run)) : skeleton(8)}</div>`;
  const act = actsOf(context, run);
  return html`<div class="split run ${run.query.open ? "has-detail" : ""} ${context.isLive() ? "" : "dim"}">
    <div class="story">${head(context, run, act)}${timeline(context, run)}${compose(context, run, act)}</div>
    ${inspector(context, run, act, { files: () => filesPane(context, run, act), context: () => contextPane(run, act), run: () => runPane(context, run, act) })}</div>`;
}

function timeline(context, run) {
  const { reader, found, view: name } = run;
  const { tape } = reader;
  const isOther = run.rowsOf !== tape || run.rowsView !== name;
  if (isOther) Object.assign(run, { rowsOf: tape, rowsView: name, rows: tape.rows(name), template: rowOf(tape, name, () => reader.committed) });
  if (found && found.template === undefined) found.template = hitOf(found.hits, found.text);
  const rows = found ? found.rows : run.rows;
  const isLive = !found && !reader.isOver && name === "story";
  return html`<div class="tape-room">
    ${found ? html`<p class="note-line" role="status">${found.error ? html`<span class="bad">${found.error.message}</span>` : found.isBusy ? "Searching …" : html`${rows.length}${found.isCut ? " or more" : ""} ${rows.length === 1 ? "event has" : "events have"} <b>${found.text}</b>. <span class="muted"><kbd>Enter</kbd> shows it in the timeline, <kbd>Esc</kbd> ends the search.</span>`}</p>`
      : tape.floor ? html`<p class="note-line muted">Events before ${tape.floor} are gone: the tape was shortened.</p>`
      : reader.view.purged_ms ? html`<p class="note-line muted">What was said was removed from this tape; its chain is kept.</p>` : null}
    ${rows.length || isLive ? null : html`<p class="soft pad">${found ? "" : noRows(name, tape)}</p>`}
    <tape-list class="tape" .label=${found ? "Found events" : { story: "Story", calls: "Calls", raw: "Events" }[name]} .rows=${rows} .template=${found ? found.template : run.template} .version=${reader.version} .selected=${selectedRow(run, rows)}
      .goal=${run.goal} .follow=${run.follow && !found} .tail=${isLive ? run.live.element : null} .onSelect=${(seq) => select(context, run, seq, { open: 1 })}
      .onLeave=${() => setFollow(context, run, false)} .onSight=${(first, last) => sighted(context, run, first, last)}></tape-list></div>`;
}

/** The row that stands for the selected event. */
function selectedRow(run, rows) {
  if (run.seq === undefined || !rows.length) return undefined;
  const seq = run.found || run.view === "raw" ? run.seq : (run.reader.tape.proposalOf(run.seq) ?? run.seq);
  return rows.at(Math.max(0, rows.find(seq)));
}

function sighted(context, run, first, last) {
  if (!run.found) run.reader.need(first - BEFORE, last + AHEAD);
  if (run.sight?.[0] === first && run.sight[1] === last) return;
  run.sight = [first, last];
  context.store.touch();
}

function compose(context, run, act) {
  const { reader, steer } = run;
  const { view: found } = reader;
  if (reader.isOver) return html`<div class="compose"><p class="soft" role="status">${acts.endOf(run)}</p></div>`;
  const question = context.store.state.questions?.find((each) => each.run_id === run.id);
  const mayNot = context.may("runs:write") ? "" : "This role lacks the scope runs:write";
  return html`<div class="composer-run">${question ? html`<p class="note-line wait">This run waits for an answer: ${question.tool}. <a href=${href("inbox", [question.approval_id])}>Review</a></p>` : null}
    ${steer.says ? html`<p class="note-line ${steer.isBad ? "bad" : "muted"}" role="status">${steer.says}</p>` : null}
    <form class="compose" @submit=${act.steer}><input class="field" name="text" id="steer" aria-label="Steer this run" autocomplete="off" maxlength="100000" ?disabled=${Boolean(mayNot)} placeholder=${mayNot || `Steer this run: the model sees it with its next turn${found.phase === "queued" ? ", once it has begun" : ""}`}>
      <button class="button" ?disabled=${!context.isLive() || Boolean(mayNot) || steer.isBusy}>Steer</button></form></div>`;
}

export const keys = (context) => {
  const here = (act) => (event) => (context.store.state.run?.reader.tape ? act(context.store.state.run, event) : false);
  const step = (by) => here((run) => acts.step(context, run, by, select));
  const marked = (names, isBackwards) => here((run) => toMark(context, run, names, isBackwards));
  const field = (text) => here((run) => {
    const found = document.getElementById("find");
    run.draft = found.value = text;
    found.focus();
  });
  return [
    { key: "j", what: "Next row", act: step(1) }, { key: "k", what: "Row before", act: step(-1) }, { key: "ArrowDown", what: "Next row", act: here((run, event) => !isElsewhere(event) && acts.step(context, run, 1, select)) },
    { key: "ArrowUp", what: "Row before", act: here((run, event) => !isElsewhere(event) && acts.step(context, run, -1, select)) },
    { key: "Home", what: "First", act: here((run, event) => !isElsewhere(event) && acts.toRow(context, run, 0, select)) }, { key: "End", what: "Last", act: here((run, event) => !isElsewhere(event) && acts.toRow(context, run, -1, select)) },
    { key: "[", what: "Event before of the same family", act: here((run) => acts.family(context, run, -1, select)) }, { key: "]", what: "Next event of the same family", act: here((run) => acts.family(context, run, 1, select)) },
    { key: "e", what: "Next failure", act: marked(["failure", "denial"], false) }, { key: "E", what: "Failure before", act: marked(["failure", "denial"], true) },
    { key: "p", what: "Next approval", act: marked(["approval"], false) }, { key: "P", what: "Approval before", act: marked(["approval"], true) },
    { key: "/", what: "Search this tape", act: field("") }, { key: ":", what: "Jump to an event: : and its number", act: field(":") },
    { key: "v", what: "Story, Calls, Raw", act: here((run) => context.go(address(run, { view: VIEWS[(VIEWS.indexOf(run.view) + 1) % VIEWS.length] }))) },
    { key: "f", what: "Follow the end", act: here((run) => setFollow(context, run, !run.follow)) }, { key: "y", what: "Copy the address of the event", act: here((run) => acts.copy(context, run)) },
    { key: "s", what: "Steer", act: here(() => document.getElementById("steer")?.focus()) }, { key: "c", what: "Cancel the run, then Enter", act: here((run) => acts.cancel(context, run)) },
    { key: "Enter", what: "Open what is selected", act: here((run, event) => !isElsewhere(event) && run.seq !== undefined && context.go(address(run, { q: null, open: 1 }))) },
    { key: "Escape", what: "Leave the field, the search, the selection", act: here((run, event) => acts.leave(context, run, event, address, isTyping)) },
  ];
};

const isElsewhere = ({ target }) => Boolean(target.closest?.("button, a, input, textarea, select, summary, [role=slider], .inspector"));
