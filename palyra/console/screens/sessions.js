// Sessions: all conversations by who waits for whom.  `?q=` filters them by title, key or id.
//
// State: `sessions` = {roster (roster.js), at (index of the selected row), arming (id), says}.

import { GROUPS } from "../fold/roster.js";
import { LEAVE } from "../keys.js";
import { sessionRow } from "../parts/sessions.js";
import { empty, failure, skeleton } from "../parts/states.js";
import { section } from "../parts/section.js";
import { many, sentence } from "../fold/text.js";
import { Roster } from "../roster.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";

export const title = "Sessions";

const SHOWN = 200; // rows of a group; the text finds the others

export function open(context) {
  const { state } = context.store;
  state.sessions ??= { roster: new Roster(context), at: 0, arming: null, says: "" };
  void state.sessions.roster.open();
}

export function close(context) {
  context.store.state.sessions?.roster.close();
  context.store.state.sessions = undefined;
}

export function moved(context) {
  context.store.touch();
}

function shown(context) {
  return context.store.state.sessions.roster.groups(context.route.query.q ?? "").map((rows) => rows.slice(0, SHOWN));
}

function actsOf(context) {
  const { sessions } = context.store.state;
  return {
    isArming: ({ session }) => sessions.arming === session.session_id,
    archive: async ({ session: { session_id } }) => {
      if (sessions.arming !== session_id) sessions.arming = session_id;
      else {
        sessions.arming = null;
        sessions.says = "";
        await context.ask("session.archive", { session_id }).then(() => sessions.roster.read(), (error) => (sessions.says = `${error.code}: ${error.message}`));
      }
      context.store.touch();
    },
  };
}

export function view(context, { query }) {
  const { sessions } = context.store.state;
  const { roster } = sessions ?? {};
  if (!roster?.sessions) return html`<div class="pad">${roster?.error ? failure(roster.error, () => roster.open()) : skeleton(8)}</div>`;
  const groups = shown(context);
  const rows = groups.flat();
  const act = context.may("sessions:write") && context.isLive() ? actsOf(context) : null;
  return html`<div class="pad sessions ${context.isLive() ? "" : "dim"}"><div class="head"><h1>${answer(groups, query.q)}</h1><span class="right">${context.may("runs:write") ? html`<a class="button go" href="#/session/new">New conversation <kbd>c</kbd></a>` : null}</span></div>
    ${roster.sessions.length ? html`<p class="find"><input class="field" id="find" type="search" aria-label="Find a conversation" placeholder="Title, key or id" value=${query.q ?? ""} @input=${({ target }) => context.replace(href("sessions", [], { q: target.value }))}></p>` : null}
    ${sessions.says ? html`<p class="bad" role="alert">${sessions.says}</p>` : null}
    ${roster.sessions.length ? null : empty("No conversation yet", html`A message makes one: <a href="#/session/new">write it here</a>, or in a terminal.`, 'palyra run "hello"')}
    ${rows.length || !roster.sessions.length ? null : html`<p class="muted after">No conversation among the newest ${roster.sessions.length} has this in its title, key or id.</p>`}
    ${groups.map((each, at) => (each.length ? section(GROUPS[at], each.length, null, html`<ul class="talks">${keyed(each, ({ session }) => session.session_id, (row) => sessionRow(context, row, row === rows[sessions.at], at === 2 ? act : null))}</ul>`) : null))}
    ${roster.next ? html`<p class="after"><button class="button quiet" @click=${() => roster.read(roster.next)}>Show older conversations</button></p>` : null}</div>`;
}

function answer([needs, works, done], text) {
  if (text) return `${sentence(many(needs.length + works.length + done.length, "conversation"))} found`;
  if (needs.length) return `${sentence(many(needs.length, "conversation"))} ${needs.length === 1 ? "needs" : "need"} you.`;
  if (works.length) return `Nobody waits for you; ${many(works.length, "conversation")} ${works.length === 1 ? "is" : "are"} working.`;
  return done.length ? "Nobody waits for you and nothing is going on." : "Conversations";
}

function step(context, by) {
  const { sessions } = context.store.state;
  const most = shown(context).flat().length - 1;
  sessions.at = Math.max(0, Math.min(most, sessions.at + by));
  context.store.touch();
  requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector(".talks [aria-current]")?.scrollIntoView({ block: "nearest" })));
}

export const keys = (context) => [
  { key: "j", what: "Next conversation", act: () => step(context, 1) },
  { key: "ArrowDown", what: "Next conversation", act: () => step(context, 1) },
  { key: "k", what: "Previous conversation", act: () => step(context, -1) },
  { key: "ArrowUp", what: "Previous conversation", act: () => step(context, -1) },
  { key: "Enter", what: "Open it", act: (event) => {
    const row = shown(context).flat()[context.store.state.sessions.at];
    if (!row || event.target.closest("a, button, input")) return false;
    context.go(href("session", [row.session.session_id]));
    return true;
  } },
  { key: "c", what: "New conversation", act: () => context.go("#/session/new") },
  { key: "/", what: "Find", act: () => document.getElementById("find")?.focus() },
  LEAVE,
];
