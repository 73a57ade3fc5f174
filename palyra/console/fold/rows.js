// What a row of a tape says: an event, a turn, a call from its proposal to its proof.  Pure.

import { objectOf } from "./question.js";
import { grouped, many, oneLine } from "./text.js";
import { exact } from "./money.js";
import { took } from "./time.js";

const TEXT_CHARS = 600;
const EXCERPT = { lines: 3, chars: 400 };
const STATES = {
  succeeded: ["check", "ok"], handed_over: ["check", "ok"], failed: ["cross", "bad"], timed_out: ["cross", "bad"], rejected: ["cross", "bad"],
  denied: ["denied", "bad"], cancelled: ["denied", "muted"], unknown: ["warn", "wait"], running: ["run", "accent"], asked: ["ask", "wait"], proposed: ["queued", "muted"],
};
const NAMES = { "delegation.started": "delegated", "delegation.ended": "returned" };
const LOUD = new Set(["failed", "timed_out", "rejected", "denied"]);
const SIGNS = {
  "guard.warned": ["guard", ""], "guard.blocked": ["guard", "bad"], "budget.exceeded": ["warn", "bad"], "turn.failed": ["cross", "bad"], "tool.rejected": ["cross", "bad"],
  "answer.rejected": ["cross", "bad"], "item.refused": ["cross", "bad"], "run.failed": ["cross", "bad"], "run.cancelled": ["denied", ""], "run.done": ["check", "ok"],
  "run.recovered": ["recover", "wait"], "run.undone": ["recover", ""], "run.purged": ["denied", ""], "approval.requested": ["ask", "wait"], "approval.resolved": ["ask", ""],
};

/** The sign of an event: the name of an icon, and a look. */
export function signOf({ kind, data }) {
  if (kind === "tool.completed") return STATES[data.status] ?? ["queued", ""];
  if (kind === "tool.decided") return data.verdict === "deny" ? STATES.denied : ["", ""];
  if (kind === "approval.resolved" && data.decision !== "allow") return STATES.denied;
  return SIGNS[kind] ?? ["", ""];
}

/** A call, made of its events: `{tool, state, sign, look, object, says, took_ms, excerpt, isLoud, …events by name}`. */
export function callOf(events) {
  const named = Object.fromEntries(events.map((event) => [NAMES[event.kind] ?? event.kind.replace(/^(tool|approval)\./, ""), event]));
  const { proposed, rejected, requested, resolved, decided, started: begun, completed } = named;
  const isAsked = requested && !resolved;
  const state = completed?.data.status ?? (decided?.data.verdict === "deny" ? "denied" : rejected ? "rejected" : isAsked ? "asked" : decided ? "running" : "proposed");
  const [sign, look] = STATES[state] ?? STATES.proposed;
  return {
    ...named, events, state, sign, look, isLoud: LOUD.has(state), tool: proposed.data.tool,
    object: objectOf({ tool: proposed.data.tool, summary: gist(proposed.data.arguments), arguments: proposed.data.arguments }),
    says: [wordOf(state, named), answerOf(requested, resolved)].filter(Boolean).join(", "),
    took_ms: completed && begun ? completed.data.duration_ms || completed.at_ms - begun.at_ms : undefined,
    excerpt: LOUD.has(state) ? excerpt(reasonOf(named)) : "",
  };
}

function wordOf(state, { completed, requested }) {
  if (state === "asked") return "waits for an answer";
  if (["failed", "timed_out", "cancelled", "unknown", "rejected"].includes(state)) return state;
  if (state === "denied") return requested ? "" : "denied by a policy";
  return completed?.data.findings?.length ? "hostile text" : "";
}

function answerOf(requested, resolved) {
  if (!resolved) return "";
  const { decision, scope, by } = resolved.data;
  const after = requested ? ` after ${took(resolved.at_ms - requested.at_ms)}` : "";
  return decision === "allow" ? `allowed ${scope === "once" ? "once" : scope} ${by ? `by ${by}` : ""}${after}` : `${decision === "deny" ? "denied" : "closed"} by ${by || "its deadline"}${after}`;
}

const reasonOf = ({ completed, decided, resolved, rejected }) =>
  completed?.data.error || completed?.data.output || resolved?.data.reason || decided?.data.reason || rejected?.data.reason || "";

/** The last lines of a text: what failed is said at its end. */
function excerpt(text) {
  const lines = text.trim().split("\n").filter((line) => line.trim());
  return lines.slice(-EXCERPT.lines).join("\n").slice(-EXCERPT.chars);
}

/** A turn or a message: `{title, cost, text, isCut}`. */
export function turnOf({ kind, data, at_ms }, began) {
  if (kind !== "turn.completed") return { title: kind === "steer.received" ? `Steered by ${data.by || "a person"}` : kind === "conversation.inherited" ? "Conversation so far" : data.by || "Message", cost: "", ...cut(data.text ?? many(data.messages?.length ?? 0, "message")) };
  const { input_tokens: input = 0, output_tokens: output = 0 } = data.usage ?? {};
  const parts = [`${grouped(input)} in, ${grouped(output)} out`, began && took(at_ms - began.at_ms), data.is_unpriced ? "no price" : exact(data.cost_usd_micros ?? 0)];
  return { title: `Turn ${data.turn}`, cost: parts.filter(Boolean).join(" · "), ...cut(data.text) };
}

const cut = (text = "") => ({ text: text.slice(0, TEXT_CHARS).trim(), isCut: text.length > TEXT_CHARS });

/** One line about any event. */
export function lineOf({ kind, data }) {
  if (!data || typeof data !== "object") return "";
  if (kind === "guard.warned" || kind === "guard.blocked") return `${data.rule}, ${many(data.count, "time")}: ${data.guidance ?? data.call}`;
  if (kind === "turn.failed") return `turn ${data.turn}, attempt ${data.attempt}: ${data.class}, ${data.detail}${data.retry ? "; tried again" : ""}`;
  if (kind === "run.done") return data.reason === "answered" ? "answered" : `${data.reason}: ${data.cause || data.missing || ""}`;
  if (kind === "route.changed") return `${data.from} → ${data.model}: ${data.text || data.reason}`;
  return gist(data);
}

const NOISE = /(^|_)(id|digest|hash|signature)$/; // names of values that the inspector shows

/** The plain values of an object, in one line. */
export function gist(data, chars = 200) {
  let text = "";
  for (const [name, value] of Object.entries(data ?? {})) {
    if (value === "" || value === null || typeof value === "object" || NOISE.test(name)) continue;
    text += `${text ? " · " : ""}${name} ${String(value).slice(0, chars)}`;
    if (text.length > chars) break;
  }
  return oneLine(text, chars);
}
