// One run as a part of a conversation: messages, answers, calls, and what went wrong.  Pure.
//
// `fold(events, live)` makes the entries {type, seq, at_ms, …}: "user" {text, by, isSteer, attachments, sources},
// "agent" {text}, "calls" {calls}, "note" {look, text}, and what is known of the run beside them: {entries, todos, live}.
// A call is {call_id, tool, arguments, status, output, error, duration_ms, approval_id, decided}.

import { oneLine } from "./text.js";

const KEPT = new Set([
  "message.received", "context.gathered", "run.started", "turn.started", "turn.completed", "turn.failed", "tool.proposed", "tool.rejected",
  "tool.decided", "tool.completed", "approval.requested", "approval.resolved", "steer.received", "todos.changed", "message.completed",
  "budget.exceeded", "guard.blocked", "answer.rejected", "compaction.applied", "run.recovered", "run.done", "run.failed", "run.cancelled", "run.undone", "run.purged",
]);
const OUTPUT_CHARS = 4_096;

/** True for kinds that a conversation shows. */
export const isShown = (kind) => KEPT.has(kind);

/** The entries of one run.  `partial` is {text, item} of the answer that arrives, `outputs` (call_id -> text) of calls that run. */
export function fold(events, { partial = null, outputs = new Map() } = {}) {
  const state = { entries: [], calls: new Map(), todos: null, isOver: false };
  for (const event of events) FOLDS[event.kind]?.(state, event.data ?? {}, event);
  for (const [id, text] of outputs) if (state.calls.get(id)?.status === null) state.calls.get(id).output = text;
  if (partial?.text && !state.isOver) state.entries.push({ type: "agent", seq: Infinity, at_ms: null, text: partial.text, isLive: true });
  return state;
}

function call(state, { call_id, tool, arguments: given }, event) {
  if (state.calls.has(call_id)) return;
  const made = { call_id, tool, arguments: given, seq: event.seq, status: null, output: "", error: null, duration_ms: null, approval_id: null, decided: null };
  state.calls.set(call_id, made);
  const last = state.entries.at(-1);
  if (last?.type === "calls") last.calls.push(made);
  else state.entries.push({ type: "calls", seq: event.seq, at_ms: event.at_ms, calls: [made] });
}

const update = (state, { call_id }, patch) => Object.assign(state.calls.get(call_id) ?? {}, patch);
const note = (state, { seq, at_ms }, look, text) => state.entries.push({ type: "note", seq, at_ms, look, text });
const user = (state, data, { seq, at_ms }, isSteer) =>
  state.entries.push({ type: "user", seq, at_ms, text: data.text ?? "", by: data.by, attachments: data.attachments ?? [], sources: [], isSteer });

function agent(state, text, { seq, at_ms }) {
  const last = state.entries.at(-1);
  if (!text?.trim() || (last?.type === "agent" && last.text === text)) return;
  state.entries.push({ type: "agent", seq, at_ms, text });
}

const FOLDS = {
  "message.received": (state, data, event) => user(state, data, event, false),
  "steer.received": (state, data, event) => user(state, data, event, true),
  "run.started": (state, { todos }) => todos?.length && (state.todos = todos),
  "todos.changed": (state, { todos }) => (state.todos = todos),
  "context.gathered": (state, { layer, sources = [] }) => {
    const of = state.entries.findLast((entry) => entry.type === "user");
    if (layer === "references" && of) of.sources.push(...sources);
  },
  "turn.completed": (state, { text }, event) => agent(state, text, event),
  "turn.failed": (state, { class: what, detail, retry }, event) => retry || note(state, event, "bad", `The model failed: ${what}. ${oneLine(detail, 300)}`),
  "message.completed": (state, { text }, event) => agent(state, text, event),
  "tool.proposed": call,
  "tool.rejected": (state, data, event) => {
    if (!state.calls.has(data.call_id)) call(state, { ...data, tool: data.tool ?? "a call" }, event);
    update(state, data, { status: "rejected", error: data.reason });
  },
  "tool.decided": (state, data) => update(state, data, data.verdict === "deny" ? { status: "denied", error: data.reason, approval_id: data.approval_id } : { approval_id: data.approval_id }),
  "approval.requested": (state, data) => update(state, data, { approval_id: data.approval_id }),
  "approval.resolved": (state, data) => update(state, data, { decided: { decision: data.decision, by: data.by, scope: data.scope, reason: data.reason } }),
  "tool.completed": (state, { call_id, status, output = "", error, duration_ms, artifact }) =>
    update(state, { call_id }, { status, error: error || state.calls.get(call_id)?.error, duration_ms, artifact, output: output.slice(0, OUTPUT_CHARS), more: Math.max(0, output.length - OUTPUT_CHARS) }),
  "budget.exceeded": (state, data, event) => note(state, event, "bad", `The budget of ${data.scope} ${data.subject} is spent (${data.action}).`),
  "guard.blocked": (state, data, event) => note(state, event, "bad", `Ended because of a repetition: ${data.rule} of ${data.call}, ${data.count} times.`),
  "answer.rejected": (state, data, event) => note(state, event, "", `The model was asked for another answer: ${data.reason}`),
  "compaction.applied": (state, data, event) => note(state, event, "", "Earlier messages were condensed into a summary."),
  "run.recovered": (state, data, event) => note(state, event, "", `Went on after a restart, attempt ${data.attempt}.`),
  "run.done": (state, { reason, cause, missing }, event) => {
    state.isOver = true;
    if (reason !== "answered") note(state, event, "bad", `Ended in part: ${cause || reason}. ${missing ?? ""}`.trim());
  },
  "run.failed": (state, data, event) => {
    state.isOver = true;
    note(state, event, "bad", `Failed (${data.class}): ${data.reason} ${data.action ?? ""}`.trim());
  },
  "run.cancelled": (state, data, event) => {
    state.isOver = true;
    note(state, event, "", `Cancelled by ${data.by}${data.reason ? `: ${data.reason}` : ""}.`);
  },
  "run.undone": (state, data, event) => note(state, event, "", `${data.by} put ${data.files.length} files back.`),
  "run.purged": (state, data, event) => note(state, event, "", `${data.by} removed the content of this run for good.`),
};

// --- Text that arrives --------------------------------------------------------------------------

const LIVE_CHARS = 262_144; // kept of an answer that arrives

/** Add a piece to what was shown of its item; a piece that was seen or that follows a gap is not shown twice or as if there were none. */
export function addDelta(before, { item, delta, offset }) {
  const shown = before?.item === item ? before : { item, text: "", end: offset ?? 0, hasGap: Boolean(offset) };
  const at = offset ?? shown.end;
  if (at < shown.end) return shown;
  const text = `${shown.text}${at > shown.end ? "\n…\n" : !shown.text && shown.hasGap ? "… " : ""}${delta}`;
  return { item, text: text.length > LIVE_CHARS ? `… ${text.slice(-LIVE_CHARS / 2)}` : text, end: at + Array.from(delta).length, hasGap: shown.hasGap };
}

// --- Files of a message -------------------------------------------------------------------------

const TICKS = /`{3,}/g;

/** A text file as a part of a message: a block of code, in which nothing is a reference. */
export function asBlock(name, text) {
  const most = Math.max(2, ...(text.match(TICKS) ?? []).map((each) => each.length));
  const fence = "`".repeat(most + 1);
  return `${name.replace(/[`\r\n@]/g, "_")}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
}

/** True while the caret is behind a reference that may go on. */
export const isInReference = (before) => /(^|[^\w@/])@\S*$/.test(before);
