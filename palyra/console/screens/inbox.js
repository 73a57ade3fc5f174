// Inbox: the queue of questions, the card of one of them, what was answered, pairings and learning.
//
// State: `inbox` = {card, history, failed (its error), later (ids hidden on this screen), lists}.  A card is chosen by a person
// and stays until it is left, whatever the queue does meanwhile; `parts/card.js` shows it.

import * as arming from "../fold/arm.js";
import { choicesOf, wordsOf } from "../fold/question.js";
import { isTyping } from "../keys.js";
import { cardView, isAnswerable, obstacle } from "../parts/card.js";
import { answeredList, queue } from "../parts/queue.js";
import { learningList, pairingList, readReview } from "../parts/review.js";
import { readRing, ringLine } from "../parts/ring.js";
import { empty, failure, skeleton } from "../parts/states.js";
import { href } from "../route.js";
import { html } from "../view.js";

export const title = "Inbox";

const MAX_LINES = 20_000; // the most that a preview may have
const TTL_MS = 900_000;
const HISTORY = 200;
const EVERY_MS = 5_000;

let unsubscribe;
let timer;
let wantsFocus = false;
let versions = 0; // of contents: nodes of one never show, or count as seen for, another

export function open(context, route) {
  close();
  const { store } = context;
  store.state.inbox ??= { later: new Set(), history: null, card: null, lists: {} };
  unsubscribe = store.subscribe(() => watch(context));
  timer = setInterval(() => document.hidden || void readHistory(context), EVERY_MS);
  void readHistory(context);
  void readRing(context);
  const { card } = store.state.inbox;
  if (card && card.id === route.parts[0]) void load(context, card); // connected again: read it again
  else moved(context, route);
}

export function close() {
  unsubscribe?.();
  clearInterval(timer);
}

export function moved(context, route) {
  const { inbox, questions } = context.store.state;
  const [id] = route.parts;
  const tab = route.query.tab ?? "questions";
  if (["learning", "pairings"].includes(tab)) void readReview(context, tab);
  const wanted = id ?? (inbox.card && isAnswerable(context, inbox.card.record) ? inbox.card.id : firstOf(questions, inbox)?.approval_id);
  wantsFocus = Boolean(id);
  if (wanted && wanted !== inbox.card?.id) choose(context, wanted);
  context.store.touch();
}

const firstOf = (questions, inbox) => questions?.find((each) => !inbox.later.has(each.approval_id));

function choose(context, id) {
  const known = context.store.state.questions?.find((each) => each.approval_id === id) ?? null;
  const card = {
    id, record: known, preview: null, error: null, reach: null, result: null, says: "", scope: "once", ttl_ms: TTL_MS,
    reason: "", reply: "", values: Object.create(null), seen: new Set(), opened: new Set(), isRaw: false, cancelling: false, version: ++versions, arm: arming.shown(performance.now()),
  };
  context.store.state.inbox.card = card;
  void load(context, card);
}

/** Read the question, and the object that its digest covers. */
async function load(context, card) {
  card.isLoading = true;
  try {
    card.record = await context.ask("approval.get", { approval_id: card.id });
    const preview = await context.ask("approval.preview", { approval_id: card.id, max_lines: MAX_LINES });
    if (preview.digest !== card.record.digest) throw Object.assign(new Error("the question changed while it was read"), { code: "digest_mismatch" });
    change(card, { preview, error: null });
  } catch (error) {
    if (!card.record) card.failed = error;
    else if (context.isLive()) change(card, { preview: null, error });
  }
  card.isLoading = false;
  context.store.touch();
  if (card.record?.state === "pending" && card.record.scopes.length > 1)
    context.ask("approval.reach", { approval_id: card.id }).then((reach) => {
      card.reach = reach;
      context.store.touch();
    }, () => {});
}

/** Other content needs to be read again, and nothing counts until it has stood still. */
function change(card, patch) {
  const isOther = JSON.stringify([patch.preview?.blocks, patch.preview?.stale]) !== JSON.stringify([card.preview?.blocks, card.preview?.stale]);
  Object.assign(card, patch);
  if (!isOther) return;
  card.seen.clear();
  card.opened.clear();
  card.version = ++versions;
  card.arm = arming.shown(performance.now());
}

/** The queue is news: it may end the question of this card, and changes nothing else of it. */
function watch(context) {
  const { inbox, questions } = context.store.state;
  const { card } = inbox;
  if (!context.isLive() && card?.arm.armed) card.arm = { ...card.arm, armed: null };
  if (!card && questions?.length && context.route.query.tab === undefined) {
    const first = firstOf(questions, inbox);
    if (first) choose(context, first.approval_id);
  }
  if (!card?.record || card.isLoading || !questions || !context.isLive()) return;
  const now = questions.find((each) => each.approval_id === card.id);
  if (now ? now.digest !== card.record.digest : card.record.state === "pending" && card.checked !== context.store.state.overview_ms) {
    card.checked = context.store.state.overview_ms;
    void load(context, card);
  }
}

async function readHistory(context) {
  if (!context.isLive()) return;
  const { inbox } = context.store.state;
  try {
    const { approvals } = await context.ask("approval.list", { pending_only: false, limit: HISTORY });
    inbox.failed = null;
    inbox.history = approvals.filter((each) => each.state !== "pending").sort((left, right) => right.resolved_ms - left.resolved_ms);
    context.store.touch();
  } catch (error) {
    inbox.failed = error;
    context.store.touch();
  }
}

// --- Answering ----------------------------------------------------------------------------------

function actsOf(context, card) {
  const touch = () => context.store.touch();
  const perform = (act) => {
    const found = { isOpen: context.isLive() && context.may("approvals:write") && isAnswerable(context, card.record), mayAllow: !obstacle(context, card), isWide: card.scope !== "once" };
    const outcome = arming.take(card.arm, act, found, performance.now());
    card.arm = outcome.state;
    if (outcome.wants === "confirm") document.getElementById("confirm")?.focus();
    if (outcome.answer) void answer(context, card, outcome.answer);
    touch();
    return outcome;
  };
  return {
    press: (event) => press(event, card, perform, (reply) => ((card.reply = reply), touch())),
    tap: (kind, event) => {
      perform({ kind, isTrusted: event.isTrusted });
      cardElement()?.focus({ preventScroll: true }); // the button is another one now
    },
    back: () => {
      card.arm = { ...card.arm, armed: null };
      cardElement()?.focus({ preventScroll: true });
      touch();
    },
    choose: (patch) => {
      Object.assign(card, patch, { arm: patch.reason === undefined ? { ...card.arm, armed: null } : card.arm });
      touch();
    },
    see: (at) => (card.seen.add(at), touch()),
    open: (at) => (card.opened.add(at), touch()),
    show: (at) => document.getElementById(`block-${at}`)?.scrollIntoView({ block: "start" }),
    raw: () => ((card.isRaw = !card.isRaw), touch()),
    copy: () => void navigator.clipboard?.writeText(card.record.digest),
    again: () => void load(context, card),
    next: () => next(context),
    later: () => {
      context.store.state.inbox.later.add(card.id);
      next(context);
    },
    cancel: () => {
      if (card.cancelling) void context.ask("run.cancel", { run_id: card.record.run_id, reason: "cancelled at its question" }).then(context.refresh, (error) => fail(card, error, touch));
      card.cancelling = true;
      touch();
    },
  };
}

/** A key within the card.  Keys on its other buttons and links are theirs. */
function press(event, card, perform, reply) {
  const { key, target } = event;
  if (event.repeat && (key === "Enter" || key === " ")) event.preventDefault(); // a held key presses no button
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target === cardElement() && scrolls(target.querySelector(".object"), key)) event.preventDefault();
  if (arming.isNeutral(key)) return;
  const isOnConfirm = target.id === "confirm";
  const choice = event.isTrusted && !isTyping(target) && !card.arm.armed && card.record && choicesOf(card.record)?.[key - 1];
  if (choice) reply(choice);
  else if (key === "Escape" && isTyping(target)) cardElement()?.focus();
  else if (key === "r" && !isTyping(target)) target.closest(".card").querySelector(".reply, input.reason")?.focus();
  else if (!isOnConfirm && (key === "Enter" || key === " ") && target.closest("button, a, input, summary")) return;
  else perform({ kind: arming.kindOf(key), isTrusted: event.isTrusted, isRepeat: event.repeat, isTyping: isTyping(target), isOnConfirm });
  if (!isTyping(target) && /^([adr]|Enter|Escape)$/.test(key)) event.preventDefault();
}

/** Keys that scroll the object while the card has the focus. */
function scrolls(object, key) {
  const page = object.clientHeight * 0.9;
  const by = { PageDown: page, PageUp: -page, ArrowDown: 40, ArrowUp: -40, End: object.scrollHeight, Home: -object.scrollHeight }[key];
  if (by) object.scrollBy(0, by);
  return Boolean(by);
}

async function answer(context, card, decision) {
  const { record, scope, ttl_ms: ttl, reason, reply } = card;
  const reach = decision === "deny" ? { reason } : { scope, ...(choicesOf(record) ? { answer: reply } : {}), ...(scope === "timeboxed" ? { ttl_ms: ttl } : {}) };
  const touch = () => context.store.touch();
  try {
    card.result = await context.ask("approval.resolve", { approval_id: record.approval_id, digest: record.digest, decision, ...reach });
    context.announce(card.result.won ? `${record.tool}: ${wordsOf(record)[decision === "allow" ? "allowed" : "denied"].toLowerCase()}` : "Somebody answered before; that answer counts", { isUrgent: !card.result.won });
    card.record = await context.ask("approval.get", { approval_id: card.id });
    void context.refresh();
    void readHistory(context);
  } catch (error) {
    fail(card, error, touch);
    if (error.code === "digest_mismatch") await load(context, card);
  }
  touch();
}

function fail(card, error, touch) {
  card.says = error.code === "digest_mismatch" ? "digest_mismatch: nothing was answered. The card shows the new state; read it again." : `${error.code}: ${error.message}`;
  card.cancelling = false;
  touch();
}

const cardElement = () => document.querySelector("article.card");

/** The question after this one, the soonest first. */
function next(context) {
  const { inbox, questions } = context.store.state;
  const open = (questions ?? []).filter((each) => !inbox.later.has(each.approval_id));
  const at = open.findIndex((each) => each.approval_id === inbox.card?.id);
  const after = open[at + 1] ?? open.find((each) => each.approval_id !== inbox.card?.id);
  if (after) context.go(href("inbox", [after.approval_id]));
  else context.announce("No other question waits");
}

// --- What is shown ------------------------------------------------------------------------------

export function view(context, route) {
  const { inbox, questions, refused } = context.store.state;
  const tab = route.query.tab ?? "questions";
  const { card } = inbox ?? {};
  if (!inbox || !questions) return html`<div class="pad">${refused?.["approval.list"] ? failure(refused["approval.list"]) : skeleton(8)}</div>`;
  if (wantsFocus && card?.record) requestAnimationFrame(focusCard);
  const isAlone = route.parts.length > 0;
  return html`<div class="split inbox ${isAlone ? "has-card" : ""} ${context.isLive() ? "" : "dim"}">
    <section class="queue" aria-label="Queue"><h1 class="aloud">Inbox</h1>${tabs(context, tab)}${{ questions: () => queue(context, inbox), answered: () => (inbox.history ? answeredList(context, inbox) : inbox.failed ? failure(inbox.failed, () => readHistory(context)) : skeleton()), learning: () => learningList(context), pairings: () => pairingList(context) }[tab]?.()}${ringLine(context)}</section>
    ${card ? cardView(context, Object.assign(card, { history: inbox.history, place: placeOf(context, card) }), actsOf(context, card)) : html`<div class="pad only-wide">${empty("No question waits", "A call that a policy asks about is here with all that it would do, until it is answered or its time is over.")}</div>`}
  </div>`;
}

/** The focus goes to the card that a person went to, once. */
function focusCard() {
  const element = cardElement();
  if (!wantsFocus || !element || document.querySelector("dialog[open]")) return;
  wantsFocus = false;
  if (!element.contains(document.activeElement)) element.focus({ preventScroll: true }); // a person may be in its field by now
}

function placeOf({ store: { state } }, card) {
  const at = state.questions.findIndex((each) => each.approval_id === card.id);
  return at < 0 ? "Questions" : `Question ${at + 1} of ${state.questions.length}`;
}

function tabs({ store: { state } }, tab) {
  const rows = [["questions", "Questions", state.questions?.length, "wait"], ["learning", "Learning", state.candidates?.length], ["pairings", "Pairings", state.pairings?.length], ["answered", "History"]];
  return html`<nav class="tabs" aria-label="Kinds">${rows.map(([name, text, count, look]) => html`<a class="plain" href=${href("inbox", [], name === "questions" ? {} : { tab: name })}
    aria-current=${name === tab ? "page" : null}>${text} ${count ? html`<span class="count ${look ?? ""}">${count}</span>` : null}</a>`)}</nav>`;
}

export const keys = (context) => [
  { key: "a", what: "Arm allow (with the card focused), then Enter" },
  { key: "d", what: "Arm deny (with the card focused), then Enter" },
  { key: "r", what: "Reason of a deny, or the answer; Esc leaves the field" },
  { key: "1", what: "Choose the first answer of a question of the model; 2 the second …" },
  { key: "PageDown", what: "Scroll the object" },
  { key: "n", what: "Next question", act: () => next(context) },
];
