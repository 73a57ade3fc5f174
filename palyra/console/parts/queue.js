// The queue of the inbox: questions by their end, and the last ones that were answered.

import { isTainted, objectOf } from "../fold/question.js";
import { tail } from "../fold/text.js";
import { clock, span } from "../fold/time.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { icon, state as labelled } from "./icon.js";

const SOON_MS = 300_000;
const SHOWN = 40; // answered ones

export function queue(context, inbox) {
  const { questions } = context.store.state;
  const open = questions.filter((each) => !inbox.later.has(each.approval_id));
  const hidden = questions.length - open.length;
  return html`${open.length ? html`<ul>${keyed(open, (each) => each.approval_id, (each) => question(context, each, inbox.card))}</ul>` : html`<p class="muted pad">No question waits.</p>`}
    ${hidden ? html`<p class="pad small muted">${hidden} for later. <button class="link" @click=${() => (inbox.later.clear(), context.store.touch())}>Show</button></p>` : null}
    ${inbox.history?.length ? html`<h2 class="minor">Answered</h2>${answeredList(context, inbox, 6)}` : null}`;
}

function question(context, each, card) {
  const left = each.expires_ms - context.now();
  return html`<li><a href=${href("inbox", [each.approval_id])} aria-current=${each.approval_id === card?.id ? "true" : null}>
    <b>${each.tool}</b><span class="t ${left < SOON_MS ? "" : "calm"}">${clock(left)}</span><span class="o cut" title=${each.summary}>${objectOf(each)}</span>
    <span class="m">${each.agent || tail(each.run_id)} ${isTainted(each) ? labelled("drop", "tainted", "taint") : "·"} ${each.risk}</span></a></li>`;
}

export function answeredList(context, inbox, most = SHOWN) {
  const rows = (inbox.history ?? []).slice(0, most);
  if (!rows.length) return html`<p class="muted pad">Nothing was answered yet.</p>`;
  return html`<ul>${keyed(rows, (each) => each.approval_id, (each) => html`<li><a href=${href("inbox", [each.approval_id], most === SHOWN ? { tab: "answered" } : {})} aria-current=${each.approval_id === inbox.card?.id ? "true" : null}>
    <b>${each.tool}</b><span class="t calm">${span(context.now() - each.resolved_ms)}</span><span class="o cut" title=${each.summary}>${objectOf(each)}</span>
    <span class="m">${outcome(each)}</span></a></li>`)}</ul>`;
}

function outcome({ state, scope, by, uses }) {
  if (state === "allowed") return html`${labelled("check", "allowed")} ${scope}${uses > 1 ? ` · used ${uses} times` : ""}${by ? ` by ${by}` : ""}`;
  return html`<span class="state bad">${icon("denied")}<span>${state}</span></span> ${by ? `by ${by}` : "no answer in time"}`;
}
