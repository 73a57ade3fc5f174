// Session: one conversation with its runs, what waits in it, its queue and grants, and the composer.  `#/session/new` begins one.
//
// State: `session` = {talk (conversation.js), roster, draft, desk: {says, wanted, isRenaming, answers, ...}}; a draft outlives a reload.

import { Conversation } from "../conversation.js";
import { oneLine, tail } from "../fold/text.js";
import { composer, Draft } from "../parts/composer.js";
import { icon, state as labelled } from "../parts/icon.js";
import { MODES, side } from "../parts/session-side.js";
import { rosterList } from "../parts/sessions.js";
import { failure, skeleton } from "../parts/states.js";
import { runView } from "../parts/talk.js";
import { Roster } from "../roster.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";

export const title = "Session";

const NEAR_END = 60; // pixels from the end that still count as the end
const EXAMPLE = 'Write a greeting into a file.\n/call write_file {"path": "hello.md", "content": "# Hello\\n\\nWritten by palyra.\\n"}\n/then\n/say I wrote **hello.md**.';

export function open(context, route) {
  const { state } = context.store;
  const id = route.parts[0] ?? "new";
  const { session } = state;
  if (session?.id === id) {
    void session.talk?.open();
    void session.roster.open();
    return;
  }
  const talk = id === "new" ? null : new Conversation(context, id);
  const roster = new Roster(context);
  state.session = { id, talk, roster, draft: new Draft(context, id), desk: { says: "", wanted: null, isRenaming: false, answers: new Map(), isAtEnd: true }, offers: null };
  if (talk) {
    talk.onEnd = (run) => announceEnd(context, talk, run);
    void talk.open();
  } else void readOffers(context, state.session);
  void roster.open();
}

export function close(context) {
  const { session } = context.store.state;
  session?.talk?.close();
  session?.roster.close();
  context.store.state.session = undefined;
}

/** Another conversation, within the screen. */
export function moved(context, route) {
  if (context.store.state.session?.id === (route.parts[0] ?? "new")) return;
  close(context);
  if (context.wire) open(context, route);
}

/** What a new conversation can choose from. */
async function readOffers(context, session) {
  const [agents, workspaces, models] = await Promise.all([
    context.ask("agent.list").catch(() => ({ agents: [] })), context.ask("workspace.list").catch(() => ({ workspaces: [] })), context.ask("model.list").catch(() => ({ models: [] })),
  ]);
  session.offers = { agents: agents.agents.filter((each) => !each.deleted_ms), workspaces: workspaces.workspaces, isScripted: models.models.find((each) => each.is_default)?.provider === "scripted" };
  context.store.touch();
}

function announceEnd(context, talk, run) {
  const answer = talk.fold(run).entries.findLast((entry) => entry.type === "agent");
  context.announce(answer ? `${run.view.agent} answers: ${oneLine(answer.text, 200)}` : `The run ended: ${run.view.reason ?? run.view.state}`, { once: run.view.run_id });
}

// --- What is done -------------------------------------------------------------------------------

function actsOf(context, session) {
  const { talk, draft, desk, id } = session;
  const touch = () => context.store.touch();
  const change = async (method, params) => {
    desk.says = "";
    try {
      const found = await context.ask(method, params);
      await talk.refresh();
      return found;
    } catch (error) {
      desk.says = `${error.code}: ${error.message}`;
    }
    touch();
    return undefined;
  };
  return {
    send: async () => {
      const isNew = id === "new";
      const to = isNew
        ? { agent: draft.agent || undefined, workspace: draft.workspace || undefined, ...(draft.sessionMode === "ask" ? {} : { mode: draft.sessionMode }) }
        : { session_id: id, ...(talk.active ? { queue_mode: draft.mode } : {}) };
      const text = draft.text;
      const started = await draft.send(to);
      if (!started) return;
      desk.isAtEnd = true;
      if (isNew) context.go(href("session", [started.session_id]));
      else talk.expect(started, text);
      if (started.disposition === "queued") context.announce(`The message waits its turn, place ${started.position ?? 1}`);
    },
    cancel: async () => {
      if (!draft.isCancelling) draft.isCancelling = true;
      else {
        draft.isCancelling = false;
        if (talk.active) await change("run.cancel", { run_id: talk.active.run_id, reason: "cancelled in the conversation" });
      }
      touch();
    },
    answer: async (question, words) => {
      const decision = words === null ? { decision: "deny", reason: "no answer" } : { decision: "allow", reason: String(words) };
      try {
        const done = await context.ask("approval.resolve", { approval_id: question.approval_id, digest: question.digest, ...decision });
        desk.answers.delete(question.approval_id);
        if (!done.won) context.announce("Somebody answered before; that answer counts", { isUrgent: true });
        void context.refresh();
      } catch (error) {
        desk.answers.set(question.approval_id, `${error.code}: ${error.message}`);
      }
      touch();
    },
    saysOf: (question) => desk.answers.get(question.approval_id),
    reread: () => void talk.open(),
    setMode: (mode) => {
      desk.wanted = null;
      if (mode === "accept_edits" && talk.record.mode !== mode) desk.wanted = mode;
      else if (mode !== talk.record.mode) void change("session.set_mode", { session_id: id, mode });
      touch();
    },
    confirmMode: () => {
      const mode = desk.wanted;
      desk.wanted = null;
      void change("session.set_mode", { session_id: id, mode });
    },
    setQueue: (patch) => void change("session.queue", { session_id: id, ...patch }),
    back: () => ((desk.isAside = false), touch()),
    revoke: ({ grant_id }) => void change("approval.revoke", { grant_id }),
    rename: async (text) => {
      desk.isRenaming = false;
      if (text.trim() !== talk.record.title) await change("session.rename", { session_id: id, title: text.trim() });
      touch();
    },
    compact: () => void change("session.compact", { session_id: id }).then((done) => done && context.announce(done.reason ? `Nothing was condensed: ${done.reason}` : `Condensed from ${done.before_tokens} to ${done.after_tokens} tokens`)),
  };
}

// --- What is shown ------------------------------------------------------------------------------

export function view(context) {
  const { session } = context.store.state;
  if (!session) return html`<div class="pad">${skeleton(6)}</div>`;
  const { talk, roster, desk } = session;
  const act = actsOf(context, session);
  requestAnimationFrame(() => stick(desk));
  return html`<div class="split session ${desk.isAside ? "about" : ""} ${context.isLive() ? "" : "dim"}">
    <nav class="roster" aria-label="Conversations"><p class="new"><a class="button" href="#/session/new">New conversation</a></p>${rosterList(context, roster, session.id)}</nav>
    ${talk ? conversation(context, session, act) : beginning(context, session, act)}
    ${talk?.record ? side(context, talk, Object.assign(desk, { isTainted: talk.ordered.at(-1)?.view.is_tainted }), act) : html`<aside class="side" aria-label="About this session"></aside>`}
  </div>`;
}

function conversation(context, session, act) {
  const { talk, draft, desk } = session;
  if (talk.error && !talk.record) return html`<section class="talk"><div class="pad">${failure(talk.error, () => talk.open())}</div></section>`;
  if (!talk.record || !talk.isRead) return html`<section class="talk"><div class="pad">${skeleton(8)}</div></section>`;
  const runs = talk.ordered;
  const { active } = talk;
  return html`<section class="talk" aria-label="Conversation">${head(context, session, runs, act)}
    <div class="messages" id="messages" tabindex="0" role="log" aria-live="off" aria-label="Messages" @scroll=${({ target }) => follow(context, desk, target)}>
      ${talk.earlier ? html`<p class="after"><button class="button quiet" @click=${() => talk.readEarlier()}>Show earlier messages</button></p>` : null}
      ${runs.length ? keyed(runs, ({ view }) => view.run_id, (run) => runView(context, talk, run, act)) : html`<p class="muted after">No message yet.</p>`}
    </div>
    <div class="below">${desk.isAtEnd ? null : html`<button class="button to-end" @click=${() => toEnd(context, desk)}>To the end <kbd>f</kbd></button>`}
    ${talk.record.archived_ms ? html`<div class="composer"><p class="muted">This session is archived: it can be read, not continued.</p></div>` : composer(context, draft, { active, act, note: note(talk, draft, active) })}</div></section>`;
}

function note({ queue }, { mode }, active) {
  const place = (queue?.waiting.length ?? 0) + 1;
  return active && mode === "followup" ? html`<span class="muted nowrap">place ${place}</span>` : queue?.paused && !active ? html`<span class="wait">the queue is paused</span>` : null;
}

function head(context, { talk, desk }, runs, act) {
  const { record } = talk;
  const name = record.title || record.key || `Session ${tail(record.session_id)}`;
  const last = runs.at(-1)?.view;
  const may = context.may("sessions:write") && context.isLive();
  const editor = html`<form class="rename" @submit=${(event) => (event.preventDefault(), act.rename(event.target.elements.title.value))}>
    <input class="field" name="title" id="rename" aria-label="Title of the conversation" maxlength="100" value=${record.title ?? ""} @keydown=${(event) => event.key === "Escape" && ((desk.isRenaming = false), context.store.touch())}><button class="button">Rename</button></form>`;
  return html`<header><a class="only-narrow back" href="#/sessions">${icon("left")} Conversations</a><div class="head">${desk.isRenaming ? editor : html`<h1 class="cut" title=${name}>${name}</h1>`}
      <span class="right nowrap">${may && !desk.isRenaming ? html`<button class="link act" @click=${() => rename(context, desk)}>Rename</button>&ensp;<button class="link act only-wide" @click=${act.compact}>Compact</button>` : null}
        <button class="link act only-aside" aria-expanded=${String(Boolean(desk.isAside))} @click=${() => ((desk.isAside = !desk.isAside), context.store.touch())}>Mode and queue</button></span></div>
    <p class="meta">${last?.agent ? html`<span>agent <b>${last.agent}</b></span>` : null}<span>${runs.length}${talk.earlier ? "+" : ""} ${runs.length === 1 ? "run" : "runs"}</span>
      ${talk.shown ? html`<span class="only-wide">${talk.shown.input_tokens.toLocaleString("en").replaceAll(",", "\u2009")} tokens shown to the model</span>` : null}
      ${record.workspace && record.workspace !== "default" ? html`<span>workspace <b>${record.workspace}</b></span>` : null}
      ${(record.mode ?? "ask") === "ask" ? null : html`<span class="wait">mode ${record.mode}</span>`}
      ${last?.is_tainted ? labelled("drop", "tainted", "taint") : null}</p></header>`;
}

function rename(context, desk) {
  desk.isRenaming = true;
  context.store.touch();
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("rename")?.select()));
}

/** A conversation that begins with the next message. */
function beginning(context, { draft, offers }, act) {
  const agents = offers?.agents ?? [];
  const choose = (name) => ({ target }) => ((draft[name] = target.value), context.store.touch());
  const choices = html`<div class="choices">${agents.length > 1 ? html`<label>Agent <select class="field" @change=${choose("agent")}>${agents.map(({ name }) => html`<option value=${name === "default" ? "" : name} ?selected=${draft.agent === (name === "default" ? "" : name)}>${name}</option>`)}</select></label>` : null}
    ${(offers?.workspaces.length ?? 0) > 1 ? html`<label>Workspace <select class="field" @change=${choose("workspace")}>${offers.workspaces.map(({ name }) => html`<option value=${name === "default" ? "" : name} ?selected=${draft.workspace === (name === "default" ? "" : name)}>${name}</option>`)}</select></label>` : null}
    ${context.may("approvals:write") ? html`<label>Mode <select class="field" @change=${choose("sessionMode")}>${Object.keys(MODES).map((name) => html`<option value=${name} ?selected=${draft.sessionMode === name}>${name}</option>`)}</select></label>` : null}
    <span class="small muted">${MODES[draft.sessionMode]}</span></div>`;
  return html`<section class="talk" aria-label="New conversation"><header><a class="only-narrow back" href="#/sessions">${icon("left")} Conversations</a><h1>New conversation</h1>
      <p class="soft">The agent works in ${offers?.workspaces[0] ? html`<span class="mono">${offers.workspaces.find((each) => each.name === (draft.workspace || "default"))?.path ?? ""}</span>` : "the workspace"} and asks before it changes something.</p></header>
    <div class="messages">${offers?.isScripted ? html`<p class="after">No model is set up yet, so the <b>scripted model</b> answers: it follows lines that begin with a slash. <code>palyra models add</code> sets up a real one.</p>
      <p class="after"><button class="button" @click=${() => (draft.write(EXAMPLE), document.getElementById("message")?.focus())}>Try it: have it write a file</button></p>
      <p class="small muted after">It asks first: review the change, then allow or deny it.</p>` : html`<p class="muted after">Say what shall be done. Before a file is changed or a program runs, a question with the whole change is shown here.</p>`}</div>
    <div class="below">${composer(context, draft, { active: null, act, choices })}</div></section>`;
}

// --- The end of the list is followed until a person scrolls up ----------------------------------

function stick(desk) {
  const element = document.getElementById("messages");
  if (element && desk.isAtEnd && element.scrollTop + element.clientHeight < element.scrollHeight - 1) element.scrollTop = element.scrollHeight;
}

function follow({ store }, desk, { scrollTop, clientHeight, scrollHeight }) {
  const isAtEnd = scrollTop + clientHeight > scrollHeight - NEAR_END;
  if (isAtEnd === desk.isAtEnd) return;
  desk.isAtEnd = isAtEnd;
  store.touch();
}

function toEnd({ store }, desk) {
  desk.isAtEnd = true;
  store.touch();
}

function step(by) {
  const all = [...document.querySelectorAll("#messages .message")];
  const { top } = document.getElementById("messages")?.getBoundingClientRect() ?? {};
  const at = all.findIndex((each) => each.getBoundingClientRect().top >= top - 1);
  const next = by > 0 ? all.find((each) => each.getBoundingClientRect().top > top + 20) : all[(at < 0 ? all.length : at) - 1];
  next?.scrollIntoView({ block: "start" });
}

export const keys = (context) => [
  { key: "c", what: "Write a message; Ctrl Enter sends, Esc leaves the field", act: () => document.getElementById("message")?.focus() },
  { key: "n", what: "The first question that waits here", act: () => {
    const found = document.querySelector("#messages .question a, #messages .question input");
    found?.scrollIntoView({ block: "center" });
    found?.focus();
  } },
  { key: "f", what: "To the end, and follow it", act: () => toEnd(context, context.store.state.session.desk) },
  { key: "j", what: "Next message", act: () => step(1) },
  { key: "k", what: "Previous message", act: () => step(-1) },
  { key: "r", what: "Rename", act: () => rename(context, context.store.state.session.desk) },
];
