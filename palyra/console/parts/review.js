// The other tabs of the inbox: senders that want to pair, and what runs would teach.
//
// State: `inbox.lists` = {pairings, learning, error, says (id -> text)}.

import { clock, moment } from "../fold/time.js";
import { tail } from "../fold/text.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { labelOfTrust } from "./trust.js";
import { failure, skeleton } from "./states.js";

const SHOWN = 5; // pieces of evidence

/** Read the list of a tab. */
export async function readReview(context, tab) {
  const { lists } = context.store.state.inbox;
  try {
    if (tab === "pairings") lists.pairings = (await context.ask("pairing.list", { state: "pending" })).pairings;
    else lists.learning = (await context.ask("learning.list", { states: ["proposed"], limit: 100 })).candidates;
    lists.error = null;
  } catch (error) {
    lists.error = error;
  }
  context.store.touch();
}

export function pairingList(context) {
  const { lists } = context.store.state.inbox;
  if (!lists.pairings) return lists.error ? failure(lists.error, () => readReview(context, "pairings")) : skeleton();
  if (!lists.pairings.length) return html`<p class="muted pad">No sender wants to pair.</p>`;
  return html`<ul class="review">${keyed(lists.pairings, (each) => each.pairing_id, (each) => html`<li>
    <p><b class="mono">${each.sender}</b> <span class="wait">${clock(each.expires_ms - context.now())} left</span></p>
    <p class="small muted">wants to write through channel ${each.channel} of principal ${each.principal}; ${each.attempts} wrong codes so far</p>
    <form @submit=${(event) => pair(context, each, event)}><input class="field" name="code" aria-label="Code that ${each.sender} got" placeholder="Code that the sender got" autocomplete="off" required>
      <button class="button">Pair</button><button class="button quiet" type="button" @click=${() => change(context, "pairings", "pairing.revoke", { pairing_id: each.pairing_id }, each.pairing_id, "Refused")}>Refuse</button></form>
    ${says(lists, each.pairing_id)}</li>`)}</ul>`;
}

function pair(context, { pairing_id: id }, event) {
  event.preventDefault();
  void change(context, "pairings", "pairing.approve", { pairing_id: id, code: event.target.elements.code.value.trim() }, id, "Paired");
}

export function learningList(context) {
  const { lists } = context.store.state.inbox;
  if (!lists.learning) return lists.error ? failure(lists.error, () => readReview(context, "learning")) : skeleton();
  if (!lists.learning.length) return html`<p class="muted pad">Nothing to review: what runs would teach is here before it is remembered.</p>`;
  return html`<ul class="review">${keyed(lists.learning, (each) => each.candidate_id, (each) => html`<li>
    <p><b>${each.kind}</b> ${labelOfTrust(each.trust)} <time class="small muted" title=${moment(each.created_ms)}>${(each.score_bps / 100).toFixed(0)} of 100</time></p>
    <p>${each.text}</p>
    ${each.evidence.slice(0, SHOWN).map((proof) => html`<p class="small muted"><q>${proof.quote}</q> <a href=${href("run", [proof.run_id, "seq", proof.seq])}>event ${proof.seq} of ${tail(proof.run_id)}</a></p>`)}
    ${each.evidence.length > SHOWN ? html`<p class="small muted">and ${each.evidence.length - SHOWN} more</p>` : null}
    <p class="after"><button class="button" @click=${() => change(context, "learning", "learning.accept", { candidate_id: each.candidate_id }, each.candidate_id, "Accepted")}>Accept</button>
      <button class="button quiet" @click=${() => change(context, "learning", "learning.reject", { candidate_id: each.candidate_id }, each.candidate_id, "Rejected")}>Reject</button></p>
    ${says(lists, each.candidate_id)}</li>`)}</ul>`;
}

const says = (lists, id) => (lists.says?.[id] ? html`<p class="bad small" role="alert">${lists.says[id]}</p>` : null);

async function change(context, tab, method, params, id, done) {
  const { lists } = context.store.state.inbox;
  try {
    await context.ask(method, params);
    context.announce(done);
    document.querySelector(".queue .tabs [aria-current]")?.focus(); // the row goes, and with it the button
    void context.refresh();
    await readReview(context, tab);
  } catch (error) {
    lists.says = { ...lists.says, [id]: `${error.code}: ${error.message}` };
    context.store.touch();
  }
}
