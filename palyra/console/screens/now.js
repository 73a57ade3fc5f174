// Now: does somebody have to act, is it well, what happens.  The first line is the answer.
//
// State: `now` = {runs (open ones), last (run_id -> event), titles, wrong, sessions, models, error}; the rest is overview.js's.

import { isOpen } from "../overview.js";
import { exact } from "../fold/money.js";
import { clock, moment, span } from "../fold/time.js";
import { isTainted, objectOf } from "../fold/question.js";
import { tree } from "../fold/runs.js";
import { grouped, many, oneLine, sentence, tail } from "../fold/text.js";
import { icon, phase, state as labelled } from "../parts/icon.js";
import { section } from "../parts/section.js";
import { failure, skeleton } from "../parts/states.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { roster } from "../parts/roster.js";

export const title = "Now";

const DAY_MS = 86_400_000;
const SOON_MS = 300_000;
const EVERY_MS = 4_000;
const ROWS = 8;
const NEAR = 0.8; // of a budget, spent
const ORDER = ["awaiting_approval", "stranded", "in_progress", "recovering", "queued"];

let timer;
let watch;
let isReading = false;

export function open(context) {
  close();
  void read(context);
  timer = setInterval(() => document.hidden || void read(context), EVERY_MS);
  void follow(context, (watch = context.wire.watchRuns()));
}

export function close() {
  clearInterval(timer);
  watch?.close();
}

/** Open runs come by themselves, at most a few times a second each. */
async function follow({ store, isLive, ask }, watched) {
  try {
    for await (const _ of watched) {
      const runs = tree(watched.runs.values(), byNeed);
      store.set({ now: { ...store.state.now, runs, error: null } });
      await describe({ store, ask }, runs.slice(0, ROWS));
    }
  } catch (error) {
    if (isLive()) store.set({ now: { ...store.state.now, error } });
  }
}

/** The last event and the message of the runs that are shown. */
async function describe({ store, ask }, runs) {
  const { last = {}, titles = {} } = store.state.now ?? {};
  const [events, texts] = await Promise.all([lastEvents({ ask }, runs, last), messages({ ask }, runs, titles)]);
  store.set({ now: { ...store.state.now, last: events, titles: texts } });
}

async function read(context) {
  if (isReading || !context.isLive()) return;
  isReading = true;
  const { store, ask } = context;
  try {
    const [ended, sessions, models] = await Promise.all([
      ask("run.list", { states: ["done", "failed"], limit: 200 }),
      ask("session.list", { limit: 50 }),
      ask("model.list").catch(() => ({ models: null })),
    ]);
    const wrong = ended.runs.filter((run) => isWrong(run) && endOf(run) > context.now() - DAY_MS);
    store.set({ now: { ...store.state.now, wrong, sessions: sessions.sessions, models: models.models, isRead: true } });
  } catch (error) {
    if (context.isLive()) store.set({ now: { ...store.state.now, error } });
  }
  isReading = false;
}

/** Those that wait for a person first, then by age. */
const byNeed = (left, right) => ORDER.indexOf(left.phase) - ORDER.indexOf(right.phase) || left.created_ms - right.created_ms;

async function lastEvents({ ask }, runs, known) {
  const found = await Promise.all(runs.map(async ({ run_id, head_seq }) => {
    if (known[run_id]?.seq >= head_seq) return [run_id, known[run_id]];
    const page = await ask("tape.read", { run_id, after_seq: head_seq - 1, limit: 1 }).catch(() => ({}));
    return [run_id, page.events?.[0]];
  }));
  return Object.fromEntries(found.filter(([, event]) => event));
}

/** The message of each run: what people know it by. */
async function messages({ ask }, runs, known) {
  const found = await Promise.all(runs.map(async ({ run_id, title: given }) => {
    if (given || known[run_id]) return [run_id, given || known[run_id]];
    const page = await ask("tape.read", { run_id, after_seq: -1, limit: 4 }).catch(() => ({}));
    const message = page.events?.find((event) => event.kind === "message.received");
    return [run_id, textOf(message?.data)];
  }));
  return Object.fromEntries(found.filter(([, text]) => text));
}

function textOf(data) {
  const text = data?.text ?? data?.message?.text ?? data?.message?.content;
  return typeof text === "string" ? oneLine(text, 200) : "";
}

const isWrong = (run) => run.state === "failed" || !["answered", null, undefined].includes(run.reason);
const endOf = (run) => run.finished_ms ?? run.created_ms;

// --- What is shown ------------------------------------------------------------------------------

export function view(context) {
  const { state } = context.store;
  const { now } = state;
  if (!now?.runs || !now.isRead || !state.status) return html`<div class="pad">${now?.error ? failure(now.error, () => open(context)) : skeleton(8)}</div>`;
  return html`<div class="now ${context.isLive() ? "" : "dim"}">
    <div class="pad">
      <h1>${answer(context, state)}</h1><p class="soft">${[second(state), unseen(state)].filter(Boolean).join(" ")}</p>
      <div class="pair">
        ${section("Waiting for you", waitingCount(state), html`<a href="#/inbox">Inbox</a>`, waiting(context, state))}
        ${section("Went wrong in 24 h", trouble(state).length, html`<a href="#/health/incidents">Health</a>`, wrong(context, state))}
      </div>
      ${section("Open runs", now.runs.length, html`<a href="#/runs">Runs</a>`, running(context, now))}
      ${section("Conversations", null, html`<a href="#/sessions">Sessions</a>`, roster(context, now))}
    </div>
    ${well(state)}
  </div>`;
}

/** The sentence that says whether somebody has to act; of what this role may not see it says nothing. */
function answer(context, { questions, incidents, status, now }) {
  const first = questions?.[0];
  const open = incidents?.filter(isOpen).length ?? 0;
  if (status && !status.is_writable) return "The journal cannot be written: no run goes on.";
  if (first) {
    const ends = clock(first.expires_ms - context.now());
    const waits = `${sentence(many(questions.length, "question"))} ${questions.length === 1 ? "waits" : "wait"}.`;
    return `${waits} ${questions.length === 1 ? "It" : "The first"} ends in ${ends}.`;
  }
  const calm = questions ? "No question waits. " : "";
  if (open) return `${calm}${sentence(many(open, "incident"))} ${open === 1 ? "is" : "are"} open.`;
  if (now.wrong.length) return `${calm}${sentence(many(now.wrong.length, "run"))} went wrong in 24 h.`;
  return questions && incidents ? "Nothing waits and nothing is wrong." : `${calm}Of the runs that this role may see, none went wrong in 24 h.`;
}

/** What this role may not see. */
function unseen({ questions, incidents }) {
  const hidden = [!questions && "questions", !incidents && "incidents"].filter(Boolean);
  return hidden.length ? `This role may not see ${hidden.join(" and ")}.` : "";
}

function second({ questions, incidents, now, pairings, candidates }) {
  const open = incidents?.filter(isOpen).length ?? 0;
  const asking = now.runs.filter((run) => run.phase === "awaiting_approval").length;
  const parts = [];
  if (open && questions?.length) parts.push(`${sentence(many(open, "incident"))} ${open === 1 ? "is" : "are"} open.`);
  const runs = `${sentence(many(now.runs.length, "run"))} ${now.runs.length === 1 ? "is" : "are"} open`;
  parts.push(asking ? `${runs}, ${many(asking, "of them", "of them")} ${asking === 1 ? "waits" : "wait"} for a person.` : `${runs}.`);
  if (pairings?.length && !questions?.length) parts.push(`${sentence(many(pairings.length, "sender"))} want to pair.`);
  if (candidates?.length && !questions?.length) parts.push(`${sentence(many(candidates.length, "candidate"))} of learning can be read.`);
  return parts.join(" ");
}

const waitingCount = ({ questions, pairings, candidates }) =>
  (questions?.length ?? 0) + (pairings?.length ?? 0) + (candidates?.length ? 1 : 0);

function waiting(context, state) {
  const { questions, pairings, candidates, refused } = state;
  if (!questions) return failure(refused?.["approval.list"] ?? { code: "forbidden", message: "this role may not read questions" });
  if (!waitingCount(state)) return html`<p class="muted quiet-line">Nothing waits. Questions will be here, the soonest first.</p>`;
  const rows = [
    ...questions.map((each, at) => ({ id: each.approval_id, view: () => question(context, each, at === 0) })),
    ...(pairings ?? []).map((each) => ({ id: each.pairing_id, view: () => pairing(context, each) })),
    ...(candidates?.length ? [{ id: "learning", view: () => learning(candidates) }] : []),
  ];
  return html`<ul>${keyed(rows.slice(0, ROWS), (row) => row.id, (row) => row.view())}</ul>
    ${rows.length > ROWS ? html`<p class="muted small quiet-line">and ${rows.length - ROWS} more in the <a href="#/inbox">Inbox</a></p>` : null}`;
}

function question(context, each, isFirst) {
  const left = each.expires_ms - context.now();
  const isHigh = ["high", "critical"].includes(each.risk);
  const { findings } = each.inspection ?? {};
  return html`<li class="ask ${isFirst ? "selected" : ""}">
    <span class="left ${left < SOON_MS ? "soon" : ""}">${clock(left)} left</span>
    <span class="what"><b>${each.tool}</b><span class="mono cut" title=${oneLine(each.summary, 600)}>${objectOf(each)}</span></span>
    <a class="act" href=${href("inbox", [each.approval_id])}>Review${isFirst ? html` <kbd>Enter</kbd>` : null}<span class="aloud"> ${each.tool}</span></a>
    <span class="sub cut">${isTainted(each) || findings ? labelled("drop", "tainted", "taint") : null}<b class=${isHigh ? "strong" : ""}>${sentence(each.risk)} risk.</b>
      ${each.agent || "an agent"} in run <a class="plain" href=${href("run", [each.run_id])} title=${each.run_id}>${tail(each.run_id)}</a>, of ${each.principal}</span></li>`;
}

function pairing(context, each) {
  return html`<li class="ask"><span class="left">${clock(each.expires_ms - context.now())} left</span>
    <span class="what"><b>Pairing</b><span class="mono cut" title=${each.sender}>${each.sender}</span></span>
    <a class="act" href="#/inbox?tab=pairings">Review<span class="aloud"> the pairing of ${each.sender}</span></a>
    <span class="sub cut">wants to write through channel ${each.channel} of principal ${each.principal}</span></li>`;
}

function learning(candidates) {
  const kinds = ["fact", "preference", "procedure"]
    .map((kind) => [kind, candidates.filter((each) => each.kind === kind).length])
    .filter(([, count]) => count)
    .map(([kind, count]) => `${count} ${kind}${count === 1 ? "" : "s"}`);
  return html`<li class="ask"><span class="left"></span>
    <span class="what"><b>Learning</b><span class="cut">${candidates.length} ${candidates.length === 1 ? "candidate" : "candidates"}</span></span>
    <a class="act" href="#/inbox?tab=learning">Review<span class="aloud"> what runs taught</span></a>
    <span class="sub cut">${kinds.join(", ")}. The newest: <q>${oneLine(candidates[0].text, 100)}</q></span></li>`;
}

/** Open incidents, then ended ones and runs, the newest first. */
function trouble({ incidents, now }) {
  const rows = [
    ...(incidents ?? []).map((each) => ({ id: each.incident_id, isOpen: isOpen(each), at: each.last_ms, incident: each })),
    ...now.wrong.map((run) => ({ id: run.run_id, isOpen: false, at: endOf(run), run })),
  ];
  return rows.sort((left, right) => right.isOpen - left.isOpen || right.at - left.at);
}

function wrong(context, state) {
  const rows = trouble(state);
  if (!rows.length) return html`<p class="muted quiet-line">${state.incidents ? "Nothing went wrong." : "No run went wrong; incidents are not for this role."}</p>`;
  return html`<ul class="trouble">${keyed(rows.slice(0, 5), (row) => row.id, (row) => html`<li>
      ${row.incident ? incident(row.incident) : ended(row.run)}
      <time class="when" title=${moment(row.at)}>${span(context.now() - row.at)}</time>
      <p class="cut" title=${row.incident?.summary ?? row.run.reason}>${row.incident
        ? `${oneLine(row.incident.summary)}${row.incident.count > 1 ? `; ${row.incident.count} times so far` : ""}`
        : html`${row.run.agent}, run <a href=${href("run", [row.run.run_id])}>${tail(row.run.run_id)}</a>${row.run.answer ? `: ${oneLine(row.run.answer.text)}` : ""}`}</p></li>`)}</ul>
    ${rows.length > 5 ? html`<p class="muted small quiet-line">and ${rows.length - 5} more in <a href="#/health/incidents">Health</a></p>` : null}`;
}

function incident(each) {
  const says = each.state === "open" ? "incident open" : each.state;
  const what = each.evidence?.kind ?? each.evidence?.failure ?? each.domain;
  return html`${icon(isOpen(each) ? "warn" : "check", isOpen(each) ? "bad" : "muted")}
    <b><a class="plain" href=${href("health", ["incidents", each.incident_id])}><span class=${isOpen(each) ? "bad" : ""}>${what}</span>, ${says}</a></b>`;
}

function ended(run) {
  const isFailed = run.state === "failed";
  return html`${icon(isFailed ? "cross" : "partial", isFailed ? "bad" : "")}<b class="cut" title=${run.reason}>Run ${isFailed ? "failed" : "partial"}, ${run.reason ?? "no reason"}</b>`;
}

function running(context, { runs, last = {}, titles = {} }) {
  if (!runs.length) return html`<p class="muted quiet-line">No run is open. Each will be one line here: message, agent, phase, last event, cost.</p>`;
  return html`<table class="runs"><thead><tr><th>Message</th><th>Agent</th><th>Phase</th><th>Last event</th><th class="num">Age</th>
      <th class="num">Turns</th><th class="num">Tokens</th><th class="num">Cost</th></tr></thead>
    <tbody>${keyed(runs.slice(0, ROWS), (run) => run.run_id, (run) => row(context, run, last[run.run_id], titles[run.run_id]))}</tbody></table>
    ${runs.length > ROWS ? html`<p class="muted small quiet-line">and ${runs.length - ROWS} more in <a href="#/runs?open=1">Runs</a></p>` : null}`;
}

function row(context, run, event, text) {
  const name = text || `run ${tail(run.run_id)}`;
  const tokens = (run.usage.input_tokens ?? 0) + (run.usage.output_tokens ?? 0);
  const at = event?.at_ms ?? run.started_ms ?? run.created_ms;
  return html`<tr><td class="title ${run.depth ? "child" : ""}" title=${name}>${run.depth ? html`${icon("child", "muted")} ` : null}<a class="plain" href=${href("run", [run.run_id])}>${name}</a></td>
    <td class="wide-only">${run.agent}</td><td>${phase(run)}</td><td class="mono wide-only">${event?.kind ?? ""}</td>
    <td class="num wide-only" title=${moment(at)}>${span(context.now() - at)}</td><td class="num wide-only">${run.turns}</td>
    <td class="num wide-only">${grouped(tokens)}</td><td class="num">${exact(run.cost_usd_micros)}</td></tr>`;
}

/** Well-being, in one line at the foot. */
function well({ status, now, accounts }) {
  if (!status) return null;
  const breakers = (now.models ?? []).filter((model) => model.breaker !== "closed");
  const near = (accounts ?? []).filter((each) => each.spent + each.reserved >= NEAR * (each.hard ?? each.soft ?? Infinity));
  const facts = [
    ["Journal", status.is_writable ? `writable, backlog ${status.journal_backlog ?? 0}` : "read only", !status.is_writable && "bad"],
    ["Breakers", breakers.map((each) => `${each.name} ${each.breaker}`).join(", ") || (now.models ? "closed" : "not known"), breakers.length > 0 && "wait"],
    ["Memory", status.embedder?.in_use ? "hybrid" : "lexical"],
    ["Connections", status.connections ?? 0],
    ...(status.stranded_runs ? [["Stranded runs", status.stranded_runs, "bad"]] : []),
    ...(status.suspension ? [["Suspended", `by ${status.suspension.by}`, "wait"]] : []),
    ...(status.problems ?? []).map((problem) => ["Problem", oneLine(problem, 90), "bad"]),
    ...near.map((each) => [`Budget ${each.subject || each.scope}, ${each.window}`, `${Math.round((100 * (each.spent + each.reserved)) / (each.hard ?? each.soft))} %`, "wait"]),
  ];
  return html`<dl class="well" aria-label="Well-being">${facts.map(([name, value, look]) => html`<div><dt>${name}</dt><dd class=${look || ""}>${value}</dd></div>`)}</dl>`;
}

export const keys = (context) => [
  { key: "Enter", what: "Review the first question", act: (event) => {
    const [first] = context.store.state.questions ?? [];
    if (!first || event.target.closest("a, button")) return false;
    context.go(href("inbox", [first.approval_id]));
    return true;
  } },
  { key: "n", what: "Next question", act: () => {
    const [first] = context.store.state.questions ?? [];
    if (first) context.go(href("inbox", [first.approval_id]));
  } },
];
