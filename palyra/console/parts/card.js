// The card of one question (docs/console.md): the daemon's object whole, why it is asked, arm and confirm.
//
// `card` is the state that screens/inbox.js keeps: {id, record, preview, error, reach, history, arm, scope, ttl_ms,
// reason, reply (to a question of the model), seen, opened, version, result, says}; `act` has what the card can ask for: {press, choose, again, later, next, ...}.

import { choicesOf, fieldsOf, wordsOf } from "../fold/question.js";
import { clock, moment, span, timeOfDay } from "../fold/time.js";
import { many, oneLine, sentence, tail } from "../fold/text.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { blocks, nameOf } from "./blocks.js";
import { icon } from "./icon.js";
import { failure, skeleton } from "./states.js";

const SOON_MS = 300_000;
const TTLS = [[300_000, "5 min"], [900_000, "15 min"], [3_600_000, "1 h"], [28_800_000, "8 h"]];
const HIGH = ["high", "critical"];

/** What stands between this card and *allow*; "" if nothing does. */
export function obstacle(context, card) {
  const { record, preview, error, seen } = card;
  if (!context.isLive()) return "Not connected: nothing can be answered.";
  if (!context.may("approvals:write")) return "This role lacks the scope approvals:write: the question can be read, not answered.";
  if (!isAnswerable(context, record)) return "It is answered or expired.";
  if (error) return "What is not shown is not approved. Deny works; allow waits for a preview.";
  if (!preview) return "The object is read.";
  if (preview.stale?.length) return "What the question is about has changed since: the call would not run like this. Deny it; a new one is asked about anew.";
  const unseen = preview.blocks.filter((_, at) => !seen.has(at));
  if (unseen.length) return `${unseen.length} of ${preview.blocks.length} not seen yet: ${unseen.map(nameOf).join(", ")}`;
  const choices = choicesOf(record);
  const missing = fieldsOf(record).filter(({ name, isRequired }) => isRequired && card.values[name] === undefined);
  if (missing.length) return `Fill in: ${missing.map(({ name, rule }) => rule.title ?? name).join(", ")}.`;
  return !choices || card.reply.trim() ? "" : choices.length ? `Choose one of the answers: 1 to ${choices.length}.` : "Write the answer: r goes to it.";
}

/** True while an answer can count. */
export const isAnswerable = (context, record) => record?.state === "pending" && record.expires_ms > context.now();

export function cardView(context, card, act) {
  const { record, preview, error } = card;
  if (!record) return html`<article class="card" aria-label="Question"><div class="pad">${card.failed ? failure(card.failed, act.again) : skeleton(6)}</div></article>`;
  return html`<article class="card" tabindex="-1" aria-label="Question ${record.tool} ${tail(record.approval_id)}" @keydown=${act.press} data-armed=${card.arm.armed}>
    ${top(context, card, act)}
    <div class="object" tabindex="0" role="group" aria-label="What it lets through">${error ? unseenObject(error, act) : preview ? object(card, act) : skeleton(8)}</div>
    ${record.state === "pending" && !card.result ? answering(context, card, act) : answered(context, card, act)}
  </article>`;
}

function top(context, { record, preview, history, cancelling, place, isRaw }, act) {
  const left = record.expires_ms - context.now();
  const isOpen = isAnswerable(context, record);
  const files = preview?.blocks.filter((block) => block.type === "file").length;
  return html`<div class="top">
    <a class="only-narrow" href="#/inbox">${icon("left")} ${place}</a>
    <div class="head"><h1>${record.tool} <span class="muted only-wide">${wordsOf(record).says ?? ""}${files ? `changes ${files === 1 ? "a file" : `${files} files`}` : ""}</span></h1>
      <span class="right clock ${isOpen && left < SOON_MS ? "" : "calm"}">${record.state !== "pending" ? record.state : left > 0 ? `${clock(left)} left` : "expired"}</span></div>
    <p class="meta"><span><b class="risk ${HIGH.includes(record.risk) ? "bad" : ""}">${sentence(record.risk)} risk</b></span>
      <span>agent <b>${record.agent || "none"}</b></span>
      <span>run ${record.parent_run_id ? html`<a href=${href("run", [record.parent_run_id])}>${tail(record.parent_run_id)}</a> › ` : null}<a href=${href("run", [record.run_id])} title=${record.run_id}>${tail(record.run_id)}</a></span>
      <span>principal <b>${record.principal}</b></span>${record.workspace && record.workspace !== "default" ? html`<span>workspace <b>${record.workspace}</b></span>` : null}
      <span title=${moment(record.requested_ms)}>asked ${span(context.now() - record.requested_ms)} ago</span>
      <span class="right">${isOpen ? html`<button class="link act" @click=${act.later}>Later</button>
        <button class="link act" @click=${act.cancel}>${cancelling ? "Really cancel the run" : "Cancel the run …"}</button>` : null}</span></p>
    <dl class="why">
      ${preview?.taint?.length ? html`<dt>Taint</dt><dd>${tainted(record, preview.taint)}</dd>` : null}
      <dt>Policy</dt><dd>${record.policy_reason} <span class="muted">${before(record, history)}</span></dd>
      <dt class="only-wide">Digest</dt><dd class="only-wide"><span class="mono">${record.digest.replace(/(.{4})(?=.)/g, "$1 ")}</span>
        <button class="link" @click=${act.copy}>copy</button></dd>
      <dt class="only-wide">Call</dt><dd class="only-wide">${conditions(record)} <button class="link" @click=${act.raw} aria-expanded=${String(Boolean(isRaw))}>raw arguments</button></dd>
    </dl></div>`;
}

function tainted(record, sources) {
  return html`<span class="taint">${icon("drop")} <b>Untrusted text with findings reached this run.</b></span> ${sources.map((source, at) => html`${at ? "; " : ""}${source.tool || source.kind} brought it in
    <a href=${href("run", [record.run_id, "seq", source.seq])}>event ${source.seq}</a>${source.findings?.length ? `: ${source.findings.join(", ")}` : ""}`)}.`;
}

/** How questions with the same key were answered. */
function before({ grant_key: key, tool, approval_id: id }, history) {
  const alike = (history ?? []).filter((each) => each.tool === tool && key && each.grant_key === key && each.approval_id !== id);
  if (!alike.length) return "";
  const count = (state) => alike.filter((each) => each.state === state).length;
  return `Answers for ${oneLine(key, 60)} so far: allowed ${count("allowed")}, denied ${count("denied")} times.`;
}

/** What must be unchanged when the call runs. */
function conditions({ inspection }) {
  const found = inspection ?? {};
  const parts = [found.binary && `runs ${found.binary} in ${found.cwd}`, ...(found.profile ?? "").split("; ")].filter(Boolean);
  const operands = Object.entries(found.operands ?? {}).map(([path, digest]) => `${path} ${digest === "missing" ? "is missing" : `as it is (${String(digest).slice(0, 8)}…)`}`);
  return html`<span class="soft">${[...parts, ...operands].join(", ") || "nothing else has to be as it is"}</span>`;
}

function unseenObject(error, act) {
  return html`<div class="pad"><p class="calm-word state bad">${icon("warn")}<span>The object cannot be shown</span></p>
    <p>${error.message}</p><p class="after"><button class="button" @click=${act.again}>Try again</button></p></div>`;
}

function object(card, act) {
  const { record, preview, seen, opened, isRaw, version } = card;
  const done = preview.blocks.filter((_, at) => seen.has(at)).length;
  const hidden = preview.hidden ?? [];
  return html`${preview.blocks.length > 1 ? html`<nav class="files" aria-label="Parts">${preview.blocks.map((block, at) => html`<button class="link" @click=${() => act.show(at)}>${seen.has(at) ? icon("check", "ok") : icon("queued", "muted")}<span class="cut">${nameOf(block)}</span></button>`)}
      <span class="right small muted nowrap">${done} of ${preview.blocks.length} seen</span></nav>` : null}
    ${(preview.stale ?? []).map((what) => html`<p class="note bad">${icon("warn")} Changed since it was asked: ${what}</p>`)}
    ${preview.blocks.length ? null : html`<p class="note muted">This call has nothing but its arguments.</p>`}
    ${hidden.length ? html`<p class="note taint">${icon("warn")} ${hidden.map((each) => `${each.count} × ${each.name}`).join(", ")}: characters that hide or turn text are spelled out.</p>` : null}
    ${keyed([preview], () => version, () => blocks(preview.blocks, { seen, opened, onSeen: act.see, onOpen: act.open }, hidden))}
    ${isRaw || !preview.blocks.length ? html`<section class="file" aria-label="Raw arguments"><header><span class="path">arguments</span></header><pre class="raw">${JSON.stringify(record.arguments, null, 2)}</pre></section>` : null}`;
}

// --- The answer ---------------------------------------------------------------------------------

function answering(context, card, act) {
  const { record, preview, arm, scope, says } = card;
  const why = obstacle(context, card);
  const mayDeny = context.isLive() && context.may("approvals:write") && isAnswerable(context, record);
  const isWide = scope !== "once";
  const scopes = (preview ?? record).scopes;
  const isAsked = choicesOf(record) !== null;
  return html`<div class="answer">
    <fieldset aria-label=${isAsked ? "Answer" : "How far an allow reaches"} ?disabled=${Boolean(arm.armed)}>${isAsked ? replyField(card, act) : scopes.map((each) => scopeRow(context, card, act, each))}
      ${scopes.length === 1 && record.once_because && !isAsked ? html`<p class="muted only-wide scope-why">A wider answer is not offered: ${record.once_because}.</p>` : null}</fieldset>
    ${why || says ? html`<p class="obstacle ${says ? "bad" : "wait"}" role="status">${icon(says ? "warn" : "ask")} <span>${says || why}</span></p>` : null}
    <div class="decide">${decide(context, card, act, { isWide, why, mayDeny })}</div>
    <p class="muted small only-wide">${wordsOf(record).foot}</p></div>`;
}

/** Armed: *Back* is where the hand was, the confirmation at the other side. */
function decide(context, card, act, { isWide, why, mayDeny }) {
  const { arm, scope, reason, record } = card;
  const words = wordsOf(record);
  const back = html`<button class="button back" @click=${act.back}>Back</button>`;
  const field = html`<input class="field reason" aria-label="Reason of a deny" ?disabled=${arm.armed === "allow"} placeholder="Reason: the model is told this" maxlength="2000"
    .value=${reason} @input=${(event) => act.choose({ reason: event.target.value })}>`;
  const confirm = (look, text) => html`<button class="button ${look} armed" id="confirm" @click=${(event) => act.tap("confirm", event)}>${text} <kbd>Enter</kbd></button>`;
  const word = html`<span class="armed-word only-wide">${arm.armed === "allow" && isWide ? "Wider than once: Enter twice. " : ""}Any other key disarms</span>`;
  if (arm.armed === "allow") return html`${confirm(isWide ? "wide" : "go", labelOf(scope, card))}${word}${field}${back}`;
  if (arm.armed === "deny") return html`${back}${field}${word}${confirm("refuse", words.refuse)}`;
  return html`<button class="button bad" ?disabled=${!mayDeny} @click=${(event) => act.tap("deny", event)}>${words.deny} <kbd>d</kbd></button>${field}
    <button class="button" ?disabled=${Boolean(why)} @click=${(event) => act.tap("allow", event)}>${labelOf(scope, card)} <kbd>a</kbd></button>`;
}

function labelOf(scope, { record, preview, ttl_ms: ttl }) {
  const files = preview?.blocks.filter((block) => block.type === "file").length;
  if (scope === "session") return "Allow for this session";
  if (scope === "timeboxed") return `Allow for ${TTLS.find(([ms]) => ms === ttl)[1]}`;
  return files > 1 ? `Allow once, ${files} files` : wordsOf(record).allow;
}

/** The answer to a question of the model: one of its choices, or any text. */
function replyField(card, act) {
  const { record, reply } = card;
  const fields = fieldsOf(record);
  if (fields.length) return fields.map((each) => formField(each, card, act));
  const choices = choicesOf(record);
  if (!choices.length) return html`<textarea class="field reply" aria-label="Answer" rows="2" maxlength="8000" placeholder="The answer, for the model" .value=${reply} @input=${(event) => act.choose({ reply: event.target.value })}></textarea>`;
  return choices.map((each, at) => html`<div class="scope"><input type="radio" name="reply" id="reply-${at}" .checked=${reply === each} @change=${() => act.choose({ reply: each })}><label for="reply-${at}"><kbd>${at + 1}</kbd> ${each}</label></div>`);
}

/** One field of a form; an empty one is left out of the answer. */
function formField({ name, rule, isRequired }, { values }, act) {
  const label = `${rule.title ?? name}${isRequired ? "" : " (optional)"}`;
  const options = rule.type === "boolean" ? [true, false] : rule.enum;
  const put = (value) => {
    if (value === undefined) delete values[name];
    else values[name] = value;
    act.choose({ reply: JSON.stringify(values) });
  };
  const typed = ({ target: { value } }) => put(value === "" ? undefined : rule.type === "string" ? value : Number(value));
  return html`<label class="row-field"><span>${label} <span class="muted small">${rule.description ?? ""}</span></span>${options
    ? html`<select class="field reply" @change=${(event) => put(options[event.target.value])}><option value="">–</option>${options.map((each, at) => html`<option value=${at} ?selected=${values[name] === each}>${String(each)}</option>`)}</select>`
    : html`<input class="field reply" type=${rule.type === "string" ? "text" : "number"} step=${rule.type === "number" ? "any" : null} min=${rule.minimum} max=${rule.maximum} maxlength=${rule.maxLength} .value=${String(values[name] ?? "")} @input=${typed}>`}</label>`;
}

function scopeRow(context, card, act, scope) {
  const { record, reach } = card;
  const found = reach?.reaches.find((each) => each.scope === scope);
  const covered = record.covers?.length ? record.covers.join(", ") : record.grant_key;
  const what = html`${record.tool} of ${record.agent || "any agent"}${covered ? html` for <span class="mono">${covered}</span>` : null}`;
  const ends = `until ${timeOfDay(context.now() + card.ttl_ms).slice(0, 5)}`;
  const says = {
    once: html`<b>Once.</b> ${wordsOf(record).once}`,
    session: html`<b>This session.</b> ${what}, until the session is reset.`,
    timeboxed: html`<b>For ${ttlChoice(card, act)}.</b> ${what} in each session of ${record.principal}, ${ends}.`,
  }[scope];
  return html`<div class="scope ${scope === "once" ? "" : "wider"}"><input type="radio" name="scope" id="scope-${scope}" aria-label=${scope} ?checked=${card.scope === scope}
      .checked=${card.scope === scope} @change=${() => act.choose({ scope })}><label for="scope-${scope}">${says}
      ${found && scope !== "once" && card.scope === scope ? html` <span class="muted">${reached(reach.looked_at, found)}</span>` : null}</label></div>`;
}

/** How many recent calls a scope would have answered, and what else it covers. */
function reached(lookedAt, { calls, asked, beyond = [] }) {
  const past = lookedAt ? `Of the last ${lookedAt} calls it would have answered ${calls}, ${asked} of them asked. ` : "";
  return `${past}${beyond.length ? `It also covers: ${beyond.join("; ")}.` : ""}`;
}

function ttlChoice({ ttl_ms: ttl }, act) {
  return html`<select aria-label="How long" @change=${(event) => act.choose({ ttl_ms: Number(event.target.value), scope: "timeboxed" })}>${TTLS.map(([ms, text]) => html`<option value=${ms} ?selected=${ms === ttl}>${text}</option>`)}</select>`;
}

/** An answered or expired card stays until it is left. */
function answered(context, { record, result }, act) {
  const isAllowed = record.state === "allowed";
  const scope = { once: "once", session: "for the session", timeboxed: "for a time" }[record.scope] ?? "";
  const by = record.by || "its deadline";
  const words = wordsOf(record);
  const word = { allowed: `${words.allowed} ${record.call_id && choicesOf(record) === null ? `${scope} ` : ""}by ${by}`, denied: `${words.denied} by ${by}`, aborted: "The run ended before an answer" }[record.state] ?? "Answered";
  const late = result && !result.won;
  return html`<div class="answer" role="status"><p class="calm-word state">${icon(isAllowed ? "check" : "denied", isAllowed ? "ok" : "bad")}<span>${word}</span></p>
    <p class="soft">${record.resolved_ms ? html`<time title=${moment(record.resolved_ms)}>${timeOfDay(record.resolved_ms)}</time>. ` : ""}${late ? "That answer counts; yours changed nothing. " : ""}${record.reason ? html`${isAllowed && choicesOf(record) ? "" : "Reason: "}${record.reason}. ` : ""}${record.uses ? `The grant was used ${many(record.uses, "time")}.` : ""}</p>
    <p class="after"><a class="button" href=${href("session", [record.session_id])}>The conversation</a> <button class="button quiet" @click=${act.next}>Next question <kbd>n</kbd></button></p></div>`;
}

