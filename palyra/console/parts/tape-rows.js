// The rows of a timeline: a turn, a call, an event, a hit of a search.

import { callOf, lineOf, signOf, turnOf } from "../fold/rows.js";
import { grouped } from "../fold/text.js";
import { timeOfDay, took } from "../fold/time.js";
import { html } from "../view.js";
import { icon } from "./icon.js";

const TURNS = new Set(["turn.completed", "message.received", "steer.received", "conversation.inherited"]);
const BEGAN_WITHIN = 40; // events between the begin and the end of a turn

/** The template of a row of `tape`; `durable()` is the highest seq that is committed. */
export function rowOf(tape, view, durable) {
  return (seq) => {
    const event = tape.event(seq);
    if (!event) return html`<div class="row lead waiting"><span class="seq">${seq}</span><span></span><span class="muted">${tape.kindOf(seq)}</span></div>`;
    const look = seq > durable() ? "open" : "";
    if (view === "raw") return raw(tape, event, look);
    if (event.kind === "tool.proposed") return call(callOf(tape.call(seq)), view, look);
    return TURNS.has(event.kind) ? turn(tape, event, look) : lead(event, look);
  };
}

/** The template of a hit: its excerpt, with the text that was found. */
export const hitOf = (hits, text) => (seq) => {
  const hit = hits.get(seq);
  const { excerpt = "", at = 0 } = hit;
  return html`<div class="row raw"><span class="seq">${seq}</span><span></span><span class="kind cut">${hit.kind}</span>
    <span class="arg cut">${excerpt.slice(Math.max(0, at - 24), at)}<mark>${excerpt.slice(at, at + text.length)}</mark>${excerpt.slice(at + text.length)}</span><span class="out">${hit.field ?? ""}</span></div>`;
};

function turn(tape, event, look) {
  const { title, cost, text, isCut } = turnOf(event, event.kind === "turn.completed" ? began(tape, event) : undefined);
  return html`<div class="turn ${look} ${event.kind === "turn.completed" ? "" : "said"}"><span class="seq">${event.seq}</span><b class="cut">${title}</b><span class="cost">${cost}</span>${text ? html`<span></span><p>${text}${isCut ? html`<span class="muted"> … whole in the inspector</span>` : null}</p>` : null}</div>`;
}

function began(tape, { seq, data }) {
  const at = tape.back(seq, "turn.started");
  const event = at !== undefined && seq - at < BEGAN_WITHIN ? tape.event(at) : undefined;
  return event?.data.turn === data.turn ? event : undefined;
}

function call(found, view, look) {
  const { tool, sign, look: colour, object, says, took_ms: ms, excerpt, isLoud, delegated, proposed } = found;
  return html`<div class="row ${look} ${isLoud ? "failed" : ""}"><span class="seq">${proposed.seq}</span>${icon(sign, colour)}<span class="tool cut" title=${tool}>${tool}</span><span class="arg cut">${object}</span>
    <span class="out ${found.state === "asked" ? "wait" : ""}">${says || (delegated ? `run ${delegated.data.run_id.slice(-6)}` : "")}</span><span class="out">${ms === undefined ? "" : took(ms)}</span></div>${excerpt && view === "story" ? html`<div class="excerpt">${excerpt}</div>` : null}`;
}

function lead(event, look) {
  const [sign, colour] = signOf(event);
  return html`<div class="row lead ${look} ${colour === "bad" ? "failed" : ""}"><span class="seq">${event.seq}</span>${icon(sign || "queued", colour || "muted")}<span class="cut"><b>${event.kind}</b> <span class="muted">${lineOf(event)}</span></span><span class="out">${timeOfDay(event.at_ms)}</span></div>`;
}

function raw(tape, event, look) {
  const [sign, colour] = signOf(event);
  const before = tape.event(event.seq - 1);
  const apart = before ? `+${took(Math.max(0, event.at_ms - before.at_ms))}` : timeOfDay(event.at_ms);
  return html`<div class="row raw ${look} ${colour === "bad" ? "failed" : ""}"><span class="seq">${event.seq}</span>${sign ? icon(sign, colour) : html`<span></span>`}<span class="kind cut">${event.kind}</span><span class="arg cut">${lineOf(event)}</span><span class="out" title=${timeOfDay(event.at_ms)}>${apart}</span></div>`;
}

/** What a list says when it has no rows. */
export const noRows = (view, tape) => (view === "calls" ? "This run has called no tool." : tape.head < 0 ? "This tape is empty." : `None of the ${grouped(tape.head + 1)} events is part of the story.`);
