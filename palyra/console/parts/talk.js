// The messages of a conversation: what a person said, what the agent answered, its calls folded, what waits inline.

import { objectOf } from "../fold/question.js";
import { exact } from "../fold/money.js";
import { many, oneLine, size, tail } from "../fold/text.js";
import { clock, moment, took } from "../fold/time.js";
import { href } from "../route.js";
import { html, keyed, textNodes } from "../view.js";
import { icon, phase } from "./icon.js";
import { markdown } from "./markdown.js";
import { labelOfTrust } from "./trust.js";

const ASK = "ask_user";
const LOUD = new Set(["failed", "timed_out", "denied", "rejected", "unknown"]);
const SIGNS = { succeeded: ["check", "muted"], denied: ["denied", "bad"], failed: ["cross", "bad"], timed_out: ["cross", "bad"], rejected: ["cross", "bad"], cancelled: ["denied", "muted"] };
const LONG_CHARS = 16_384; // of a longer text the beginning is shown, the rest when it is asked for
const timeOf = (ms) => (ms ? html`<time title=${moment(ms)}>${new Date(ms).toLocaleTimeString("sv-SE").slice(0, 5)}</time>` : null);

/** One run of the conversation; `act` has answer(question, words), reread(run).  One that has ended is made once. */
export function runView(context, talk, run, act) {
  const { view } = run;
  const folded = talk.fold(run);
  const questions = (context.store.state.questions ?? []).filter((each) => each.run_id === view.run_id || each.parent_run_id === view.run_id);
  const isStill = folded.isOver && !questions.length && !run.error;
  if (isStill && run.drawn?.folded === folded && run.drawn.view === view) return run.drawn.template;
  const template = parts(context, run, folded.entries, questions, act);
  run.drawn = isStill ? { folded, view, template } : null;
  return template;
}

function parts(context, run, entries, questions, act) {
  const { view } = run;
  const answer = entries.findLast((each) => each.type === "agent");
  return html`<section class="run-of" aria-label="Run ${tail(view.run_id)}" data-phase=${view.phase}>
    ${entries.length ? null : html`<article class="message mine"><p class="by"><b>${view.principal ?? ""}</b></p><p>${run.error ? "" : oneLine(view.title, 200)}</p></article>`}
    ${run.isCut ? html`<p class="small muted after">The middle of this run is left out here: <a href=${href("run", [view.run_id])}>all ${view.head_seq + 1} events</a></p>` : null}
    ${keyed(entries, (entry) => `${entry.type} ${entry.seq}`, (entry) => ENTRIES[entry.type](entry, run, entry === answer))}
    ${run.error ? html`<p class="bad small" role="alert">${run.error.code}: ${run.error.message} <button class="link" @click=${() => act.reread(run)}>Read it again</button></p>` : null}
    ${keyed(questions, (each) => each.approval_id, (each) => (each.tool === ASK ? asked(context, each, act) : waits(context, each)))}
    ${state(run, entries, questions)}
  </section>`;
}

/** What goes on, where nothing else of the run says it. */
function state({ view }, entries, questions) {
  if (questions.length || ["done", "failed", "cancelled"].includes(view.state)) return null;
  if (view.phase === "queued") return html`<p class="ran muted">${icon("queued")} queued${view.behind?.paused ? ": the queue is paused" : view.behind?.approval_id ? html` behind <a href=${href("inbox", [view.behind.approval_id])}>a question</a>` : ""}</p>`;
  if (entries.at(-1)?.isLive) return null;
  return html`<p class="ran state muted">${phase(view)}</p>`;
}

const ENTRIES = {
  user: (entry, { view }) => html`<article class="message mine" aria-label="Message of ${entry.by || view.principal}"><p class="by"><b>${entry.by || view.principal}</b> ${timeOf(entry.at_ms)}
      ${entry.isSteer ? html`<span>while it worked</span>` : html`<a href=${href("run", [view.run_id])} title=${view.run_id}>run ${tail(view.run_id)}</a>`}</p>
    ${long(entry.text, (text) => html`<div class="said">${text}</div>`)}
    ${entry.attachments.map((each) => html`<p class="small muted">${icon("check")} ${each.name || each.type}${each.media_type ? `, ${each.media_type}` : ""}</p>`)}
    ${entry.sources.map((each) => html`<p class="small ${each.error ? "bad" : "muted"}"><span class="mono">${each.name}</span> ${each.error ? each.error : labelOfTrust(each.trust ?? "workspace")}${each.findings?.length ? html` <span class="taint">${each.findings.join(", ")}</span>` : null}</p>`)}</article>`,

  agent: (entry, { view }, isLast) => html`<article class="message ${entry.isLive ? "live" : ""}" aria-label="Answer of ${view.agent}" aria-busy=${entry.isLive ? "true" : null}>
    <p class="by"><b>${view.agent}</b> ${timeOf(entry.at_ms)} ${isLast && !entry.isLive ? summary(view) : null}</p>${entry.isLive ? markdown(entry.text.slice(-LONG_CHARS)) : long(entry.text, markdown)}</article>`,

  calls: ({ calls }, { view }) => {
    const loud = calls.filter((each) => LOUD.has(each.status));
    const open = calls.filter((each) => each.status === null);
    return html`<details class="calls"><summary><span class="state muted">${icon(open.length ? "run" : "check")}<span>${many(calls.length, "call")}: ${oneLine([...new Set(calls.map((each) => each.tool))].join(", "), 80)}${open.length ? `; ${oneLine(open[0].tool, 40)} is under way` : ""}</span></span></summary>
        <ul>${keyed(calls, (each) => each.call_id, (each) => call(each, view))}</ul></details>
      ${loud.map((each) => html`<p class="ran state">${icon("cross", "bad")}<span><b class="bad">${each.tool} ${each.status}</b>, ${oneLine(each.error || each.output, 240)} <a href=${href("run", [view.run_id, "seq", each.seq])}>event ${each.seq}</a></span></p>`)}`;
  },

  note: ({ look, text }) => html`<p class="ran state ${look}">${icon(look === "bad" ? "warn" : "queued", look || "muted")}<span>${text}</span></p>`,
};

function long(text, show) {
  if (text.length <= LONG_CHARS) return show(text);
  const rest = text.slice(LONG_CHARS);
  const open = ({ currentTarget: { open: isOpen, lastElementChild: pre } }) => isOpen && !pre.hasChildNodes() && pre.append(textNodes(rest));
  return html`${show(text.slice(0, LONG_CHARS))}<details class="calls" @toggle=${open}><summary>${size(new Blob([rest]).size)} more</summary><pre class="output" tabindex="0"></pre></details>`;
}

function summary(view) {
  if (!["done", "failed", "cancelled"].includes(view.state)) return null;
  return html`<span>${many(view.tool_calls ?? 0, "call")}, ${exact(view.cost_usd_micros ?? 0)}</span> ${view.reason === "answered" ? html`<span class="state">${icon("check")}<span>answered</span></span>` : phase(view)}`;
}

function call(each, view) {
  const [sign, look] = SIGNS[each.status] ?? ["run", ""];
  const by = each.decided && each.decided.decision !== "abort" ? `${each.decided.decision === "allow" ? "allowed" : "denied"} by ${each.decided.by}` : "";
  return html`<li><p class="state">${icon(sign, look)}<span><b>${each.tool}</b> <span class="mono">${oneLine(objectOf({ tool: each.tool, summary: JSON.stringify(each.arguments), arguments: each.arguments }), 160)}</span>
      <span class="muted">${each.status ?? "runs"}${each.duration_ms == null ? "" : `, ${took(each.duration_ms)}`}${by && `, ${by}`}</span> <a href=${href("run", [view.run_id, "seq", each.seq])}>event ${each.seq}</a></span></p>
    ${each.output ? html`<pre class="output" tabindex="0">${each.output}${each.more ? `\n… ${each.more} more characters in the event` : ""}</pre>` : null}</li>`;
}

// --- Questions ----------------------------------------------------------------------------------

function waits(context, each) {
  const left = each.expires_ms - context.now();
  return html`<p class="question" role="group" aria-label="Question ${each.tool}">${icon("ask", "wait")}<span><b>${each.tool}</b> <span class="mono">${objectOf(each)}</span><br>
    <span class="muted">${each.risk} risk. It waits for you, ${clock(left)} left.</span></span><a class="button" href=${href("inbox", [each.approval_id])}>Review</a></p>`;
}

/** A question of the model, answered in place with its words. */
function asked(context, each, act) {
  const { question = each.summary, choices = [] } = each.arguments ?? {};
  const isOff = !context.isLive() || !context.may("approvals:write") || each.expires_ms <= context.now();
  const says = act.saysOf(each);
  return html`<form class="question asked" aria-label="Question of ${each.agent || "the agent"}" @submit=${(event) => (event.preventDefault(), act.answer(each, new FormData(event.target).get("answer") ?? ""))}>
    <p>${icon("ask", "wait")} <b>${question}</b> <span class="muted small">${clock(each.expires_ms - context.now())} left</span></p>
    <fieldset aria-label="Answer" ?disabled=${isOff}>${choices.length
      ? choices.map((choice) => html`<label><input type="radio" name="answer" value=${choice} required> ${choice}</label>`)
      : html`<input class="field" name="answer" aria-label="Answer" maxlength="2000" autocomplete="off" required>`}</fieldset>
    <p class="row-of"><button class="button go" ?disabled=${isOff}>Answer</button><button class="button quiet" type="button" ?disabled=${isOff} @click=${() => act.answer(each, null)}>No answer</button>
      ${says ? html`<span class="bad" role="alert">${says}</span>` : context.may("approvals:write") ? null : html`<span class="muted">Answering needs the scope approvals:write.</span>`}</p></form>`;
}
