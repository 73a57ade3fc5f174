// The head of a run: what it was asked, its state, the strip, and the tools of the timeline.

import { grouped, many, oneLine, tail } from "../fold/text.js";
import { exact } from "../fold/money.js";
import { VIEWS } from "../fold/tape.js";
import { href } from "../route.js";
import { html } from "../view.js";
import { icon, phase, state } from "./icon.js";
import { lamp } from "./run-panes.js";
import { counts, strip } from "./strip.js";

const WORDS = { story: "Story", calls: "Calls", raw: "Raw" };

export function head(context, run, act) {
  const { reader } = run;
  const { view, accepted } = reader;
  const name = oneLine(reader.message.trim().split("\n")[0] || view.title, 300) || `Run ${tail(view.run_id)}`;
  return html`<div class="run-head">
    ${view.parent_run_id ? html`<p class="small chain">${icon("child", "muted")} <a href=${href("run", [view.parent_run_id])}>run ${tail(view.parent_run_id)}</a> <span class="muted">${view.depth ? "delegated this one" : "was forked here"}</span></p>` : null}
    <div class="head"><h1 class="cut" title=${name}>${name}</h1></div>
    <div class="head"><p class="meta"><span class="strong">${phase(view)}</span>${view.reason && view.state !== "done" ? html`<span class="bad cut reason" title=${view.reason}>${view.reason}</span>` : null}
        <span><b>${view.agent || "no agent"}${accepted?.agent_version ? `@${accepted.agent_version}` : ""}</b></span><span>${view.model}</span>
        <span title=${view.unpriced_calls ? `${many(view.unpriced_calls, "call")} without a price` : ""}><b>${exact(view.cost_usd_micros)}</b>${view.unpriced_calls ? " and more" : ""}</span>
        ${view.is_tainted ? html`<span class="taint">${state("drop", "tainted")}</span>` : null}${verified(run, act)}
        ${run.family?.length ? html`<a href=${act.address({ pane: "run", open: 1 })}>${many(run.family.length, "child", "children")}</a>` : null}</p>
      <span class="actions">${actions(context, run, act)}</span></div>
    ${strip(reader.outline, { sight: run.sight, seq: run.seq, go: (seq) => act.select(seq, { q: null }) })}
    ${tools(context, run, act)}</div>`;
}

function verified({ proof }, act) {
  if (proof.isBusy) return html`<span class="muted">verifying …</span>`;
  if (proof.verified) return html`<span title="${grouped(proof.verified.checked_events)} events were checked">${lamp(proof.verified)}</span>`;
  return html`<span><button class="link" @click=${act.verify}>verify</button></span>`;
}

function actions(context, run, act) {
  const { reader, cancel } = run;
  const mayWrite = context.may("runs:write") && context.isLive();
  if (cancel?.isArmed) return html`<button class="button refuse armed" id="cancel-now" @click=${act.cancelNow}>Cancel the run <kbd>Enter</kbd></button><button class="button quiet" @click=${act.keep}>Back</button>`;
  return html`<a class="button quiet plain only-wide" href=${act.address({ pane: "files", open: 1 })}>Files</a><a class="button quiet plain only-wide" href=${act.address({ pane: "context", open: 1 })}>Context</a>
    <a class="button quiet plain" href=${act.address({ pane: "run", open: 1 })}>More</a>
    ${reader.isOver ? null : html`<button class="button quiet bad" ?disabled=${!mayWrite || cancel?.isBusy} @click=${act.cancel}>${cancel?.isBusy ? "Cancelling …" : "Cancel"} <kbd class="only-wide">c</kbd></button>`}`;
}

function tools(context, run, act) {
  const sums = counts(run.reader.outline.marks);
  const failures = (sums.failure ?? 0) + (sums.denial ?? 0);
  return html`<div class="tools"><span class="switch" role="group" aria-label="View">${VIEWS.map((name) => html`<button aria-pressed=${run.view === name ? "true" : "false"} @click=${() => context.go(act.address({ view: name === "story" ? null : name, q: null }))}>${WORDS[name]}</button>`)}</span>
    <form class="find" @submit=${act.ask}><input class="field" id="find" name="find" type="search" aria-label="Search this tape, or : and a number" placeholder="Search  /   jump  :" autocomplete="off" maxlength="256" .value=${run.draft ?? run.query.q ?? ""} @input=${(event) => (run.draft = event.target.value)}></form>
    <span class="right">${failures ? html`<button class="link act" @click=${() => act.mark(["failure", "denial"], false)}>${many(failures, "failure")} <kbd>e</kbd></button>` : null}
      ${sums.approval ? html`<button class="link act" @click=${() => act.mark(["approval"], false)}>${many(sums.approval, "approval")} <kbd>p</kbd></button>` : null}
      ${run.reader.isOver ? null : html`<button class="link act only-wide" aria-pressed=${run.follow ? "true" : "false"} @click=${act.toEnd}>${run.follow ? "Following" : "Follow"} <kbd>f</kbd></button>`}</span></div>`;
}

