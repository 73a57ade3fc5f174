// Conversations by who waits for whom: needs you, working, done.

import { oneLine, tail } from "../fold/text.js";
import { span } from "../fold/time.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { icon } from "./icon.js";

const DONE = 6; // rows of those that are done
const GROUPS = [
  ["Needs you", "ask", "wait"],
  ["Working", "run", ""],
  ["Done", "check", "muted"],
];

/** `known` has sessions and their runs: open ones first. */
export function roster(context, { sessions, runs }) {
  if (!sessions.length) return html`<p class="muted quiet-line">No conversation yet. <a href="#/session/new">Write the first message</a>, or in a terminal: <code>palyra run "hello"</code></p>`;
  const waits = new Set(runs.filter((run) => run.phase === "awaiting_approval").map((run) => run.session_id));
  const works = new Set(runs.map((run) => run.session_id));
  const groups = [[], [], []];
  for (const session of sessions) {
    if (session.archived_ms && !works.has(session.session_id)) continue;
    groups[waits.has(session.session_id) ? 0 : works.has(session.session_id) ? 1 : 2].push(session);
  }
  groups[2] = groups[2].slice(0, DONE);
  return html`<div class="conversations">${groups.map((rows, at) => html`<section aria-label=${GROUPS[at][0]}>
    <h3>${icon(GROUPS[at][1], GROUPS[at][2])} ${GROUPS[at][0]} <span class="n">${rows.length}</span></h3>
    ${rows.length ? html`<ul>${keyed(rows, (row) => row.session_id, (row) => html`<li><a class="plain cut" href=${href("session", [row.session_id])}
      title=${row.session_id}>${oneLine(row.title || row.key || tail(row.session_id), 80)}</a><span class="muted small">${span(context.now() - row.updated_ms)}</span></li>`)}</ul>`
      : html`<p class="muted small">${["Nobody waits for you.", "Nothing is going on.", "None yet."][at]}</p>`}</section>`)}</div>`;
}
