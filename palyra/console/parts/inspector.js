// The inspector of a run: what is selected, its files, the context of its turn, and facts of the run.

import { callOf, lineOf, signOf, turnOf } from "../fold/rows.js";
import { grouped, size, tail } from "../fold/text.js";
import { exact } from "../fold/money.js";
import { moment, took } from "../fold/time.js";
import { href } from "../route.js";
import { html } from "../view.js";
import { icon, state } from "./icon.js";
import { section } from "./section.js";
import { failure, skeleton } from "./states.js";
import "./value.js";

const PANES = [["", "Selected"], ["files", "Files"], ["context", "Context"], ["run", "Run"]];

/** `act` is what a person can do, `panes` the content of the other panes. */
export function inspector(context, run, act, panes) {
  const { pane = "" } = run.query;
  return html`<aside class="inspector" aria-label="Inspector" tabindex="0">
    <h1 class="aloud only-page">Run ${tail(run.id)}</h1><a class="only-page" href=${act.address({ pane: null, open: null })}>${icon("left")} Timeline</a>
    <nav class="tabs" aria-label="Panes">${PANES.map(([name, text]) => html`<a class="plain" href=${act.address({ pane: name || null, open: 1 })} aria-current=${name === pane ? "page" : null}>${text}</a>`)}</nav>
    ${pane ? panes[pane]?.() : selected(context, run, act)}</aside>`;
}

function selected(context, run, act) {
  const { seq, reader } = run;
  if (seq === undefined) return html`<p class="soft after">Nothing is selected. ${" "}<kbd>j</kbd> and <kbd>k</kbd> go through the rows.</p>`;
  const event = reader.tape.event(seq);
  if (!event) return seq > reader.tape.head || seq < reader.tape.floor ? html`<p class="soft after">This tape has no event ${grouped(seq)}: it has ${grouped(reader.tape.floor)} to ${grouped(reader.tape.head)}.</p>` : skeleton(6);
  const at = reader.tape.proposalOf(seq);
  const content = at !== undefined && reader.tape.event(at) ? call(context, run, callOf(reader.tape.call(at)), event, act) : plain(run, event, act);
  return html`${content}${forkForm(context, run, act)}`;
}

const copyLink = (act) => html`<button class="link act" @click=${act.copy}>copy link</button> <kbd>y</kbd>`;

function heading(title, sign, look, word) {
  return html`<div class="head"><h2 class="title cut" title=${title}>${title}</h2><span class="right">${word ? state(sign || "queued", word, look) : null}</span></div>`;
}

function plain(run, event, act) {
  const [sign, look] = signOf(event);
  const { data } = event;
  const isText = ["turn.completed", "message.received", "steer.received", "message.completed"].includes(event.kind);
  return html`${heading(event.kind === "turn.completed" ? turnOf(event).title : event.kind, sign, look, sign ? event.kind.split(".")[1] : "")}
    <p class="muted small">event ${grouped(event.seq)}, ${moment(event.at_ms)} ${copyLink(act)}</p>
    ${event.kind === "turn.completed" ? section("Usage", "", "", html`<dl class="facts"><dt>Tokens</dt><dd>${grouped(data.usage?.input_tokens ?? 0)} in, ${grouped(data.usage?.output_tokens ?? 0)} out${data.usage?.cached_tokens ? `, ${grouped(data.usage.cached_tokens)} from the cache` : ""}${data.usage?.source === "estimate" ? " (estimated)" : ""}</dd>
      <dt>Cost</dt><dd>${data.is_unpriced ? "no price is known" : exact(data.cost_usd_micros ?? 0)}</dd><dt>Ended</dt><dd>${data.finish_reason}</dd><dt>Saw</dt><dd><a href=${act.address({ pane: "context", open: 1 })}>its context</a></dd></dl>`) : null}
    ${isText && data.text ? section("Text", "", size(data.text.length), html`<div class="long"><json-value .value=${data.text}></json-value></div>`) : html`<p class="soft">${lineOf(event)}</p>`}
    ${section("Event", "", event.kind, html`<json-value .value=${isText ? withoutText(data) : data}></json-value>`)}`;
}

const rests = new WeakMap(); // one object for one event: a tree that is open stays open

function withoutText(data) {
  if (!rests.has(data)) rests.set(data, Object.fromEntries(Object.entries(data).filter(([name]) => name !== "text")));
  return rests.get(data);
}

function call(context, run, found, event, act) {
  const { proposed, decided, requested, resolved, completed, delegated, events } = found;
  const output = completed?.data.output ?? "";
  const first = events[0].at_ms;
  return html`${heading(found.tool, found.sign, found.look, found.state)}
    <p class="muted small">call ${tail(proposed.data.call_id)}, event ${grouped(event.seq)} ${copyLink(act)}</p>
    ${found.state === "asked" && context.store.state.questions?.some((each) => each.approval_id === requested.data.approval_id) ? html`<p class="after"><a class="button" href=${href("inbox", [requested.data.approval_id])}>Review the question</a></p>` : null}
    ${section("From proposal to proof", "", completed ? took(events.at(-1).at_ms - first) : "", html`<ul>${events.map((each, at) => html`<li class="path-line ${each.seq === event.seq ? "here" : ""}"><a class="seq" href=${act.at(each.seq)}>${each.seq}</a><span class="mark ${markOf(each)}"></span>
      <span class="cut">${each.kind} <span class="muted">${wordOf(each)}</span></span><span class="d">${at ? `+${took(each.at_ms - events[at - 1].at_ms)}` : ""}</span></li>`)}</ul>`)}
    ${delegated ? section("Delegated to", "", "", html`<p><a href=${href("run", [delegated.data.run_id])}>run ${tail(delegated.data.run_id)}</a> of ${delegated.data.agent}, ${found.returned?.data.state ?? "open"}</p>`) : null}
    ${section("Why", "", "", html`<dl class="facts"><dt>Verdict</dt><dd>${decided ? `${decided.data.verdict}: ${decided.data.reason || decided.data.reason_code}` : "none yet"}</dd>
      ${resolved ? html`<dt>Answer</dt><dd>${resolved.data.decision} ${resolved.data.scope} by ${resolved.data.by || "its deadline"}${resolved.data.reason ? `: ${resolved.data.reason}` : ""}</dd>` : null}
      ${requested ? html`<dt>Risk</dt><dd class=${["high", "critical"].includes(requested.data.risk) ? "bad" : ""}>${requested.data.risk}</dd>` : null}
      ${decided?.data.taint ? html`<dt>Taint</dt><dd class="taint">${icon("drop")} hostile text had reached the run</dd>` : null}
      ${decided?.data.policies?.length ? html`<dt>Policies</dt><dd>${decided.data.policies.join(", ")}</dd>` : null}
      <dt>Digest</dt><dd class="mono cut" title=${proposed.data.digest}>${proposed.data.digest}</dd>
      ${completed?.data.trust ? html`<dt>Trust</dt><dd>${completed.data.trust}${completed.data.findings?.length ? html`, <span class="taint">${completed.data.findings.join(", ")}</span>` : null}</dd>` : null}</dl>`)}
    ${section("Arguments", "", "", html`<json-value .value=${proposed.data.arguments}></json-value>`)}
    ${completed ? section("Output", "", size(output.length), html`${completed.data.error ? html`<p class="bad">${completed.data.error}</p>` : null}<div class="long mono"><json-value .value=${output || "(nothing)"}></json-value></div>${completed.data.truncated ? html`<p class="muted small">Cut for the model${completed.data.artifact ? `; whole as artifact ${completed.data.artifact}` : ""}.</p>` : null}`) : null}`;
}

const markOf = (event) => (event.kind === "tool.completed" ? (event.data.status === "succeeded" ? "o" : "b") : event.kind === "approval.requested" ? "w" : event.kind === "approval.resolved" && event.data.decision === "allow" ? "o" : "");

function wordOf({ kind, data }) {
  if (kind === "approval.resolved") return `${data.decision}, ${data.by || "its deadline"}`;
  return { "tool.decided": data.verdict, "tool.started": data.executor, "tool.completed": data.status }[kind] ?? "";
}

function forkForm(context, run, act) {
  if (!context.may("runs:write")) return null;
  const { fork } = run;
  return section("Fork here", "", "", html`<form class="fork" @submit=${act.fork}><p class="muted small">A new run with what was said and done up to event ${grouped(run.seq)}; files stay as they are now.</p>
    <input class="field" name="text" aria-label="Message of the fork" placeholder="Message instead; empty: the model goes on" maxlength="20000" autocomplete="off">
    <p class="after"><button class="button" ?disabled=${fork?.isBusy || !context.isLive()}>Fork at ${grouped(run.seq)}</button></p>${fork?.error ? failure(fork.error) : null}</form>`);
}
