// The side of a session: its mode, what the model plans, the queue, grants, and what the model is shown.

import { grouped, oneLine } from "../fold/text.js";
import { clock } from "../fold/time.js";
import { html, keyed } from "../view.js";
import { icon } from "./icon.js";
import { section } from "./section.js";

export const MODES = {
  ask: "Policies decide which calls ask.",
  accept_edits: "Edits of files in the workspace are not asked about; everything else is.",
  plan: "It reads and proposes a plan; nothing is changed before the plan is accepted.",
};
const QUEUES = { followup: "each message waits its turn", collect: "waiting messages become one run", steer: "the running answer takes them up", interrupt: "a message ends the running answer", reject: "no message while a run answers" };
const TODO = { done: ["check", "muted"], in_progress: ["run", "accent"], pending: ["queued", "muted"] };

/** `act` has setMode, confirmMode, setQueue, revoke. */
export function side(context, talk, desk, act) {
  return html`<aside class="side" aria-label="About this session"><p class="only-aside after"><button class="link act" @click=${act.back}>Back to the conversation</button></p>${mode(context, talk, desk, act)}${todos(talk)}${queue(context, talk, act)}${grants(context, talk, desk, act)}${shown(talk)}
    ${desk.says ? html`<p class="bad small after" role="alert">${desk.says}</p>` : null}</aside>`;
}

function mode(context, { record }, { wanted }, act) {
  const now = record.mode ?? "ask";
  const mayChange = context.isLive() && context.may("approvals:write");
  return section("Mode", null, null, html`<div class="switch modes" role="group" aria-label="Mode of the session">${Object.keys(MODES).map((name) => html`<button aria-pressed=${String(name === now)} ?disabled=${!mayChange} @click=${() => act.setMode(name)}>${name}</button>`)}</div>
    <p class="small muted after">${MODES[now]}${record.mode_set && now !== "ask" ? ` Set by ${record.mode_set.by}.` : ""}${context.may("approvals:write") ? "" : " Changing it needs the scope approvals:write."}</p>
    ${wanted ? html`<p class="small after wait" role="group" aria-label="Confirm the mode">${MODES[wanted]} It holds until the session is reset. <button class="button wide" @click=${act.confirmMode}>Accept edits from now on</button> <button class="button quiet" @click=${() => act.setMode(now)}>Keep ${now}</button></p>` : null}`);
}

function todos({ todos: list }) {
  if (!list?.length) return null;
  return section("To do", `${list.filter((each) => each.state === "done").length} of ${list.length}`, null,
    html`<ul class="todos">${list.map((each) => html`<li class="state">${icon(...(TODO[each.state] ?? TODO.pending))}<span class=${each.state === "done" ? "muted" : ""}>${each.text}<span class="aloud">, ${each.state}</span></span></li>`)}</ul>`);
}

function queue(context, talk, act) {
  const { queue: found, runs } = talk;
  if (!found) return null;
  const may = context.isLive() && context.may("sessions:write");
  const { waiting, paused } = found;
  const move = (at) => act.setQueue({ order: [...waiting.slice(0, at - 1), waiting[at], waiting[at - 1], ...waiting.slice(at + 1)] });
  const messageOf = (id) => {
    const run = runs.get(id);
    return oneLine((run && talk.fold(run).entries[0]?.text) || run?.view.title || id, 120);
  };
  return section("Queue", waiting.length ? `${waiting.length} of ${found.cap}` : "", html`<button class="link" ?disabled=${!may} @click=${() => act.setQueue({ paused: !paused })}>${paused ? "Go on" : "Pause"}</button>`,
    html`${paused ? html`<p class="small wait after">Paused: messages wait until it goes on.</p>` : null}
    <label class="small muted queue-mode">Messages while it works <select class="field" aria-label="Queue mode" ?disabled=${!may} @change=${({ target }) => act.setQueue({ mode: target.value })}>${Object.entries(QUEUES).map(([name, says]) => html`<option value=${name} ?selected=${found.mode === name}>${name}: ${says}</option>`)}</select></label>
    ${waiting.length ? html`<ol class="waiting">${keyed(waiting, (id) => id, (id, at) => html`<li><span class="n muted">${at + 1}</span><span class="cut" title=${messageOf(id)}>${messageOf(id)}</span>
      ${at ? html`<button class="link" ?disabled=${!may} aria-label="Earlier: ${messageOf(id)}" @click=${() => move(at)}>up</button>` : html`<span></span>`}<button class="link" ?disabled=${!may} aria-label="Drop: ${messageOf(id)}" @click=${() => act.setQueue({ drop: [id] })}>drop</button></li>`)}</ol>` : null}`);
}

function grants(context, { grants: list, record }, desk, act) {
  if (!list.length) return null;
  const isTainted = desk.isTainted;
  return section("Grants", list.length, null, html`<ul class="grants">${keyed(list, (each) => each.grant_id, (each) => html`<li><p><b>${each.tool}</b> <span class="mono">${each.key}</span></p>
      <p class="small muted">${each.decision === "deny" ? "denied, " : ""}${each.expires_ms ? `${clock(each.expires_ms - context.now())} left` : "until the session is reset"}, ${each.by}${each.scope === "timeboxed" ? `, in each session of ${record.principal}` : ""}
        <button class="link act" aria-label="Revoke ${each.tool} ${each.key}" ?disabled=${!context.isLive() || !context.may("approvals:write")} @click=${() => act.revoke(each)}>Revoke</button></p></li>`)}</ul>
    ${isTainted ? html`<p class="small taint after">${icon("drop")} In a tainted run they do not apply to sensitive calls.</p>` : null}`);
}

/** Tokens by layer at the newest turn. */
function shown({ shown: found }) {
  if (!found) return null;
  const sums = new Map();
  for (const { layer, tokens, kept } of found.segments) if (kept && tokens) sums.set(layer, (sums.get(layer) ?? 0) + tokens);
  return section("Shown to the model", null, grouped(found.input_tokens), html`<dl class="facts">${[...sums].map(([layer, tokens]) => html`<dt>${layer.replaceAll("_", " ")}</dt><dd class="num">${grouped(tokens)}</dd>`)}</dl>`);
}
