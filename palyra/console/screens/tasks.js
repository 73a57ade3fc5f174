// Tasks: work outside of conversations, and the schedules that submit it.
//
// Address: `#/tasks/tsk_…`, `#/tasks/sch_…`, `#/tasks/new?state=…`.  State: `tasks` = {counts, list, schedules, id, item, draft,
// confirming, says}; `item` is {task} or {schedule, next, list} of the address, `draft` the schedule that is being written.

import { many, oneLine, sentence, tail } from "../fold/text.js";
import { moment, span, took } from "../fold/time.js";
import { state as labelled } from "../parts/icon.js";
import { change, focusSoon, listen, read, refusal, rowKeys, shown } from "../parts/reading.js";
import { section } from "../parts/section.js";
import { empty } from "../parts/states.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";

export const title = "Tasks";

const PAGE = 100;
const SIGNS = { running: ["run", ""], queued: ["queued", ""], paused: ["partial", "wait"], failed: ["cross", "bad"], succeeded: ["check", ""], cancelled: ["denied", "muted"], expired: ["warn", "bad"] };
const OPEN = ["queued", "running", "paused"];
const TIMINGS = [["cron", "by cron"], ["every", "every"], ["at", "once at"]];

let stop = () => {};

export function open(context, route) {
  stop();
  const { state } = context.store;
  state.tasks = { ...state.tasks, listed: null };
  moved(context, route);
  stop = listen(context, /^task\./, () => reload(context));
}

export const close = () => stop();

export function moved(context, { parts: [id], query }) {
  const place = context.store.state.tasks;
  if (place.listed !== JSON.stringify(query)) readLists(context, query);
  if (id !== place.id || !place.item) {
    Object.assign(place, { id, item: undefined, item_error: null, confirming: null, says: null });
    if (id === "new") place.draft ??= { name: "", text: "", kind: "cron", cron: "0 9 * * MON-FRI", every: "60", at: "", zone: Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC", missed: "once", overlap: "forbid" };
    if (id === "new") void foresee(context, place);
    else if (id) readItem(context, id);
  }
}

function reload(context) {
  const { id } = context.store.state.tasks;
  readLists(context, context.route.query);
  if (id && id !== "new") readItem(context, id);
}

function readLists(context, query) {
  const place = context.store.state.tasks;
  if (place.listed && place.listed !== JSON.stringify(query)) place.list = undefined;
  place.listed = JSON.stringify(query);
  void read(context, place, "counts", context.ask("task.counts"));
  void read(context, place, "schedules", context.ask("schedule.list").then((found) => found.schedules));
  void read(context, place, "list", context.ask("task.list", { states: query.state ? [query.state] : null, limit: PAGE }));
}

function readItem(context, id) {
  const { ask, store } = context;
  const found = id.startsWith("sch_")
    ? Promise.all([ask("schedule.get", { schedule_id: id }), ask("schedule.next", { schedule_id: id }), ask("task.list", { schedule_id: id, limit: 10 })]).then(([schedule, next, list]) => ({ schedule, next, list: list.tasks }))
    : ask("task.get", { task_id: id }).then((task) => ({ task }));
  void read(context, store.state.tasks, "item", found);
}

// --- The lists ----------------------------------------------------------------------------------

export function view(context, { parts: [id], query }) {
  const place = context.store.state.tasks;
  if (!place) return html`<div class="pad"></div>`;
  const retry = () => readLists(context, query);
  return html`<div class="split with-item ${id ? "has-item" : ""} ${context.isLive() ? "" : "dim"}"><div class="pad"><h1>Tasks</h1>
    ${place.counts_error ? shown(place, "counts", retry) : html`<p class="soft">${place.counts ? describe(place.counts, context) : ""}</p>
    ${section("Schedules", place.schedules?.length, context.may("tasks:write") ? html`<a href=${href("tasks", ["new"], query)}>New schedule …</a>` : null, shown(place, "schedules", retry, (list) => schedules(context, list, id, query)))}
    ${section("Tasks", place.list && `${place.list.tasks.length}${place.list.next_cursor ? " or more" : ""}`, filter(context, query), shown(place, "list", retry, ({ tasks }) => (tasks.length ? rows(context, tasks, id, query) : empty("No task", query.state ? `No task is ${query.state}.` : "What the daemon does outside of conversations is here: prompts for later, what schedules submit, its own upkeep.", 'palyra tasks submit prompt --text "hello"'))))}`}
    </div>${id ? html`<aside class="inspector" aria-label="Selected"><a class="only-page" href=${href("tasks", [], query)}>All tasks</a>${id === "new" ? draft(context, place, query) : shown(place, "item", () => readItem(context, id), (item) => (item.task ? oneTask(context, place, item.task, query) : oneSchedule(context, place, item, query)))}</aside>` : null}</div>`;
}

function describe({ running, due, oldest_due_ms: oldest, failed }, context) {
  const waits = due ? `${many(due, "is", "are")} due${oldest ? ` since ${span(context.now() - oldest)}` : ""}` : "none waits";
  return `${sentence(many(running, "task runs", "tasks run"))}, ${waits}. ${failed ? `${sentence(many(failed, "task"))} failed within a day.` : "None failed within a day."}`;
}

function filter(context, query) {
  return html`<select class="field state-of" aria-label="State" @change=${(event) => context.go(href("tasks", [], { ...query, state: event.target.value }))}><option value="">every state</option>${Object.keys(SIGNS).map((name) => html`<option value=${name} ?selected=${query.state === name}>${name}</option>`)}</select>`;
}

const link = (id, isHere, query, content) => html`<li><a class="plain hit ${isHere ? "selected" : ""}" data-row href=${href("tasks", [id], query)} aria-current=${isHere ? "true" : null}>${content}</a></li>`;

function rows(context, tasks, id, query) {
  return html`<ol class="plain-hits">${keyed(tasks, (each) => each.task_id, (each) => link(each.task_id, each.task_id === id, query, html`<span><span>${labelOf(each)} ${titleOf(each)}</span><br>
    <span class="sub">${each.kind} · attempt ${each.attempts} of ${each.max_attempts}${each.error ? html` · <span class="bad">${oneLine(each.error, 160)}</span>` : null}</span></span>
    <span class="muted small" title=${moment(each.created_ms)}>${each.state === "queued" && each.not_before_ms > context.now() ? `in ${span(each.not_before_ms - context.now())}` : span(context.now() - (each.finished_ms ?? each.created_ms))}</span>`))}</ol>`;
}

const labelOf = ({ state }) => labelled(SIGNS[state][0], state, SIGNS[state][1]);

const titleOf = ({ payload, kind, task_id: id, name }) => name ?? oneLine(payload?.text ?? `${kind} of ${tail(payload?.session_id ?? payload?.run_id ?? id)}`, 160);

function schedules(context, list, id, query) {
  if (!list.length) return html`<p class="muted quiet-line">No schedule: nothing is submitted by itself.</p>`;
  return html`<ol class="plain-hits">${keyed(list, (each) => each.schedule_id, (each) => link(each.schedule_id, each.schedule_id === id, query, html`<span><span>${each.name} ${each.paused ? labelled("partial", "paused", "wait") : null}</span><br>
    <span class="sub">${timing(each)}${each.problem ? html` · <span class="bad">${each.problem}</span>` : null}</span></span>
    <span class="muted small" title=${moment(each.next_ms)}>${each.next_ms && !each.paused ? `in ${span(each.next_ms - context.now())}` : ""}</span>`))}</ol>`;
}

const timing = ({ cron, zone, every_ms: every, at_ms: at }) => (cron ? `${cron}, ${zone ?? "UTC"}` : every ? `every ${span(every)}` : `once at ${moment(at)}`);

// --- One of them --------------------------------------------------------------------------------

function acts(context, place, list, query) {
  if (!context.may("tasks:write")) return null;
  return section("Change", null, null, html`<p class="after">${list.filter(Boolean).map(([word, method, params, isFinal]) => {
    const isArmed = place.confirming === method;
    const press = async () => {
      if (isFinal && !isArmed) return Object.assign(place, { confirming: method }), context.store.touch();
      place.confirming = null;
      const done = await change(context, place, method, params, `${word}: done`);
      if (!done) return;
      if (method === "schedule.remove") return (place.listed = null), context.go(href("tasks", [], query));
      if (method === "task.retry" || method === "task.submit") context.go(href("tasks", [done.task_id], query));
      reload(context);
    };
    return html`<button class="button ${isFinal ? "quiet bad" : ""}" @click=${() => void press()}>${isFinal ? (isArmed ? `Really ${word.toLowerCase()}` : `${word} …`) : word}</button> `;
  })}</p>${refusal(place)}`);
}

const facts = (list) => html`<dl class="facts after">${list.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;

const given = ({ text, ...rest } = {}) => html`${text ? html`<p class="after said">${text}</p>` : null}${Object.keys(rest).length ? html`<pre class="after wraps">${JSON.stringify(rest, null, 1)}</pre>` : null}`;

function oneTask(context, place, task, query) {
  const { task_id: id, state, firing } = task;
  const one = { task_id: id };
  const [schedule, instant] = firing?.split("@") ?? [];
  return html`<div class="head"><h1>${titleOf(task)}</h1></div><p class="muted small"><span title=${id}>tsk_${tail(id)}</span>, ${task.kind}, ${labelOf(task)}</p>
    ${task.error ? html`<p class="bad after">${task.error}</p>` : null}
    ${facts([["Run", task.run_id && html`<a href=${href("run", [task.run_id])}>run ${tail(task.run_id)}</a>`], ["Attempts", `${task.attempts} of ${task.max_attempts}`], ["Principal", task.principal], ["Priority", String(task.priority)], ["Submitted", moment(task.created_ms)],
      ["Not before", task.not_before_ms > task.created_ms ? moment(task.not_before_ms) : ""], ["Expires", moment(task.expires_ms)], ["Ended", task.finished_ms && `${moment(task.finished_ms)}, after ${took(task.finished_ms - task.created_ms)}`],
      ["Schedule", schedule && html`<a href=${href("tasks", [schedule], query)}>${tail(schedule)}</a>, instant of ${moment(Number(instant))}`], ["Repeats", task.retry_of && html`<a href=${href("tasks", [task.retry_of], query)}>task ${tail(task.retry_of)}</a>`]])}
    ${section("Work", null, null, given(task.payload))}
    ${task.result && Object.keys(task.result).length ? section("Result", null, null, given(task.result)) : null}
    ${acts(context, place, [state === "queued" && ["Pause", "task.pause", one], state === "paused" && ["Resume", "task.resume", one], ["failed", "expired"].includes(state) && ["Retry", "task.retry", one], OPEN.includes(state) && ["Cancel the task", "task.cancel", { ...one, reason: "cancelled in the console" }, true]], query)}`;
}

function oneSchedule(context, place, { schedule, next, list }, query) {
  const one = { schedule_id: schedule.schedule_id };
  const { kind, payload = {}, priority, max_attempts } = schedule;
  return html`<div class="head"><h1>${schedule.name}</h1></div><p class="muted small"><span title=${one.schedule_id}>sch_${tail(one.schedule_id)}</span>, ${kind}, ${timing(schedule)}</p>
    ${schedule.problem ? html`<p class="bad after">${schedule.problem}</p>` : null}${schedule.paused ? html`<p class="wait after">Paused: no instant fires until it is resumed.</p>` : null}
    ${section("Next times", next.instants.length, next.zone, instants(next.instants, next.zone))}
    ${section("Work", null, null, given(payload))}
    ${facts([["Fired", many(schedule.fired ?? 0, "time")], ["Left out", schedule.left_out ? many(schedule.left_out, "time") : ""], ["Missed times", schedule.missed], ["Overlap", schedule.overlap], ["Principal", schedule.principal]])}
    ${section("Its tasks", list.length, null, list.length ? rows(context, list, null, query) : html`<p class="muted quiet-line">It has not fired yet.</p>`)}
    ${acts(context, place, [["Run now", "task.submit", { kind, payload, priority, max_attempts }], schedule.paused ? ["Resume", "schedule.resume", one] : ["Pause", "schedule.pause", one], ["Remove the schedule", "schedule.remove", one, true]], query)}`;
}

function instants(list, zone) {
  if (!list.length) return html`<p class="muted quiet-line">It does not fire any more.</p>`;
  const day = new Intl.DateTimeFormat("en-GB", { timeZone: zone, weekday: "short" });
  const time = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "short" });
  return html`<ol class="instants">${list.map((at) => html`<li title=${moment(at, true)}>${day.format(at)} ${time.format(at)}</li>`)}</ol>`;
}

// --- A new schedule -----------------------------------------------------------------------------

/** What `schedule.add` and `schedule.preview` take for the timing. */
function timingOf({ kind, cron, zone, every, at }) {
  if (kind === "cron") return { cron: cron.trim(), zone: zone.trim() || null };
  return kind === "every" ? { every_ms: Math.round(Number(every) * 60_000) } : { at_ms: new Date(at).getTime() || 0 };
}

async function foresee(context, place) {
  await read(context, place, "foreseen", context.ask("schedule.preview", timingOf(place.draft)));
}

function draft(context, place, query) {
  const wanted = place.draft;
  if (!wanted) return null;
  const set = (name, isTiming) => (event) => {
    wanted[name] = event.target.value;
    clearTimeout(place.timer);
    if (isTiming) place.timer = setTimeout(() => void foresee(context, place), 200);
    context.store.touch();
  };
  const field = (name, label, type = "text", more = false) => html`<label class="row-field"><span>${label}</span><input class="field" type=${type} .value=${wanted[name]} @input=${set(name, more)} required></label>`;
  const choice = (name, label, options, more = false) => html`<label class="row-field"><span>${label}</span><select class="field" @change=${set(name, more)}>${options.map(([value, text]) => html`<option value=${value} ?selected=${wanted[name] === value}>${text ?? value}</option>`)}</select></label>`;
  const add = async (event) => {
    event.preventDefault();
    const { name, text, missed, overlap } = wanted;
    const done = await change(context, place, "schedule.add", { name, payload: { text }, missed, overlap, ...timingOf(wanted) }, "Added");
    if (!done) return;
    place.draft = undefined;
    place.listed = null;
    context.go(href("tasks", [done.schedule_id], query));
  };
  return html`<div class="head"><h1>New schedule</h1></div><form class="stack" @submit=${(event) => void add(event)}>
    ${field("name", "Name")}
    <label class="row-field"><span>Message of each run</span><textarea class="field" rows="3" required .value=${wanted.text} @input=${set("text")}></textarea></label>
    ${choice("kind", "When", TIMINGS, true)}
    ${{ cron: () => html`${field("cron", "Cron: minute hour day month weekday", "text", true)}${field("zone", "Zone", "text", true)}`, every: () => field("every", "Minutes between", "number", true), at: () => field("at", "Moment, local time", "datetime-local", true) }[wanted.kind]()}
    ${choice("missed", "Times that were missed", [["once", "fire the newest"], ["skip", "fire none"], ["all", "fire the newest three"]])}
    ${choice("overlap", "While its task still runs", [["forbid", "leave the time out"], ["queue", "submit another"], ["replace", "cancel the earlier"]])}
    ${section("It would fire at", place.foreseen_error ? null : place.foreseen?.instants.length, place.foreseen?.zone, place.foreseen_error ? html`<p class="bad after" role="alert">${place.foreseen_error.message}</p>` : place.foreseen ? instants(place.foreseen.instants, place.foreseen.zone) : null)}
    <p class="after"><button class="button go" ?disabled=${Boolean(place.foreseen_error)}>Add the schedule</button></p>${refusal(place)}</form>`;
}

export const keys = (context) => [
  ...rowKeys(() => context.go(href("tasks", [], context.route.query))),
  { key: "+", what: "New schedule", act: () => (context.go(href("tasks", ["new"], context.route.query)), focusSoon(".stack input")) },
];
