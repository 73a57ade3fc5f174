// Lists of conversations: beside an open one, and as a screen.

import { objectOf } from "../fold/question.js";
import { GROUPS } from "../fold/roster.js";
import { exact } from "../fold/money.js";
import { many, oneLine, tail } from "../fold/text.js";
import { clock, span } from "../fold/time.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { icon } from "./icon.js";
import { failure, skeleton } from "./states.js";

const SIGNS = {
  awaiting_approval: ["ask", "wait"], stranded: ["warn", "bad"], in_progress: ["run", "accent"], recovering: ["recover", "muted"], queued: ["queued", "muted"],
  done: ["check", "muted"], failed: ["cross", "bad"], cancelled: ["denied", "muted"],
};
const BESIDE = 30; // rows of a group beside an open conversation

export const nameOf = ({ title, key, session_id: id }) => oneLine(title || key || tail(id), 120);

/** The icon of a conversation. */
export function signOf({ run, question }) {
  if (question) return icon("ask", "wait");
  if (run?.phase === "done" && run.reason === "partial") return icon("partial", "muted");
  return icon(...(SIGNS[run?.phase] ?? ["queued", "muted"]));
}

/** What it waits for, does or did, in a line. */
export function standOf(context, { session, run, question }, isAside = false) {
  if (question) return `${isAside ? `${question.tool}, ` : ""}${clock(question.expires_ms - context.now())} left`;
  const age = span(context.now() - (run?.latest_ms ?? run?.finished_ms ?? session.updated_ms));
  if (!run) return `${age} ago`;
  if (run.state === "failed") return `failed: ${run.reason ?? "no reason"}, ${age}`;
  if (run.state === "done") return `${run.reason ?? "done"}, ${age}`;
  if (run.phase === "in_progress") return `turn ${run.turns || 1}, ${exact(run.cost_usd_micros)}`;
  return `${run.phase}, ${age}`;
}

/** Beside an open conversation. */
export function rosterList(context, roster, here) {
  if (!roster.sessions) return roster.error ? failure(roster.error, () => roster.read()) : skeleton(6);
  return roster.groups().map((rows, at) => (rows.length ? html`<h2 class="minor">${GROUPS[at]}</h2><ul>${keyed(rows.slice(0, BESIDE), ({ session }) => session.session_id, (row) => html`<li>
    <a class="plain" href=${href("session", [row.session.session_id])} aria-current=${row.session.session_id === here ? "true" : null}><span class="state">${signOf(row)}<span class="cut">${nameOf(row.session)}</span></span>
      <span class="small cut">${standOf(context, row, true)}</span></a></li>`)}</ul>` : null));
}

/** A row of the screen. */
export function sessionRow(context, row, isSelected, act) {
  const { session, question, run } = row;
  return html`<li class=${isSelected ? "selected" : ""}><a class="plain name" href=${href("session", [session.session_id])} aria-current=${isSelected ? "true" : null}>${signOf(row)}<span class="cut" title=${session.session_id}>${nameOf(session)}</span></a>
    <span class="muted cut what">${question ? html`<b class="wait">${question.tool}</b> <span class="mono">${objectOf(question)}</span>` : run ? `${run.agent}, ${many(run.tool_calls, "call")}, ${exact(run.cost_usd_micros)}` : ""}</span>
    <span class="muted cut">${standOf(context, row)}${session.waiting?.length ? `, ${session.waiting.length} queued` : ""}${session.paused_ms ? ", paused" : ""}</span>
    ${question ? html`<a href=${question.tool === "ask_user" ? href("session", [session.session_id]) : href("inbox", [question.approval_id])}>${question.tool === "ask_user" ? "Answer" : "Review"}<span class="aloud"> ${question.tool}</span></a>` : act ? html`<button class="link" @click=${() => act.archive(row)}>${act.isArming(row) ? "Really archive" : "Archive …"}<span class="aloud"> ${nameOf(session)}</span></button>` : html`<span></span>`}</li>`;
}
