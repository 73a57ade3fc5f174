// The panes of a run beside the selection: files and their undo, the context of a turn, facts and proofs.

import { grouped, many, oneLine, tail } from "../fold/text.js";
import { exact } from "../fold/money.js";
import { moment, took } from "../fold/time.js";
import { href } from "../route.js";
import { html } from "../view.js";
import { blocks } from "./blocks.js";
import { icon, phase, state } from "./icon.js";
import { section } from "./section.js";
import { failure, skeleton } from "./states.js";

const reading = () => ({ seen: new Set(), opened: new Set(), onSeen: () => {}, onOpen: () => {} });

/** `files` is {diff, undo, result, error, isBusy}. */
export function filesPane(context, run, act) {
  const { diff, undo, result, error, isBusy, view } = run.files;
  if (error && !diff) return failure(error, act.readFiles);
  if (!diff) return skeleton(5);
  const isNone = !diff.files?.length && !diff.blocks?.length;
  const shown = undo ?? diff;
  return html`${result ? html`<p class="note-line ok" role="status">${icon("check")} Undone: ${result.files?.length ? result.files.join(", ") : "nothing had to change"}.</p>` : null}
    ${isNone ? html`<p class="soft after">No file of the workspace differs by this run.</p>` : null}
    ${diff.unknown?.length ? html`<p class="note-line wait">${icon("warn")} ${diff.unknown.join(". ")}.</p>` : null}
    ${error ? failure(error, act.readFiles) : null}
    ${isNone || !context.may("runs:write") ? null : html`<div class="undo">${undo ? confirmUndo(context, undo, act, isBusy) : html`<button class="button" ?disabled=${isBusy || !context.isLive() || !run.reader.isOver} @click=${act.previewUndo}>Undo …</button>
      <span class="muted small">${run.reader.isOver ? "shows first what would change" : "when the run has ended"}</span>`}</div>`}
    ${isNone ? null : section(undo ? "What the undo would change" : "Changed by this run", shown.blocks?.length ?? "", "", html`
      ${(shown.files ?? []).filter((each) => each.standing && each.standing !== "changed").map((each) => html`<p class="note-line">${each.path}: ${each.standing}${each.problem ? `, ${each.problem}` : ""}</p>`)}
      ${blocks(shown.blocks ?? [], view)}${shown.cut ? html`<p class="muted small">${grouped(shown.cut)} lines more.</p>` : null}`)}`;
}

function confirmUndo(context, undo, act, isBusy) {
  const files = undo.files ?? [];
  const { conflicts = [], unusable = [] } = undo;
  return html`<p>${files.length ? `${many(files.length, "file")} would be as before this run: ${files.join(", ")}.` : "Nothing would change."}</p>
    ${conflicts.length ? html`<p class="wait">${icon("warn")} Changed since by others: ${conflicts.join(", ")}. These changes would be lost.</p>` : null}
    ${unusable.length ? html`<p class="bad">${unusable.map((each) => `${each.path}: ${each.problem || each.standing}`).join("; ")}</p>` : null}
    <p class="after"><button class="button ${conflicts.length ? "bad" : ""}" id="undo-now" ?disabled=${isBusy || !context.isLive() || !files.length} @click=${() => act.undo(conflicts.length > 0)}>${conflicts.length ? "Undo and lose them" : `Undo ${many(files.length, "file")}`}</button>
      <button class="button quiet" @click=${act.readFiles}>Back</button></p>`;
}

/** What the model saw in the turn at the selection. */
export function contextPane(run, act) {
  const { found, error, turn } = run.prompt;
  if (error) return failure(error, act.readContext);
  if (!found) return turn === null ? html`<p class="soft after">No turn had begun at this event.</p>` : skeleton(6);
  const { budget } = found;
  const most = Math.max(1, ...found.segments.map((each) => each.tokens));
  return html`<div class="head"><h2 class="title">Turn ${found.turn}</h2><span class="right muted">${grouped(found.input_tokens)} tokens</span></div>
    <p class="muted small">what ${found.model} saw, attempt ${found.attempt}. The selection in the timeline chooses the turn.</p>
    ${budget?.window ? html`<svg class="meter" viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label="${grouped(budget.needed ?? 0)} of ${grouped(budget.available)} tokens"><rect class="ground" width="100" height="4"></rect><rect class="used" width=${Math.min(100, (100 * (budget.needed ?? 0)) / budget.available)} height="4"></rect></svg>
      <p class="muted small">${grouped(budget.needed ?? 0)} of ${grouped(budget.available)} that fit; window ${grouped(budget.window)}, answer ${grouped(budget.reserved)}, tools ${grouped(budget.tools)}</p>` : null}
    ${section("Layers", found.segments.length, "tokens", html`<ul class="layers">${found.segments.map((each) => html`<li class=${each.kept ? "" : "left-out"}><svg class="parts" viewBox="0 0 96 8" preserveAspectRatio="none" aria-hidden="true"><rect class="ground" width="96" height="8"></rect><rect class="s1" width=${(96 * each.tokens) / most} height="8"></rect></svg>
      <span class="cut" title=${each.name || each.layer}>${each.layer}${each.name ? html` <span class="muted">${oneLine(each.name, 60)}</span>` : null}</span><span class="num">${each.kept ? grouped(each.tokens) : "left out"}</span>
      ${detail(each) ? html`<span class="sub ${each.findings?.length ? "taint" : ""}">${detail(each)}</span>` : null}</li>`)}</ul>`)}`;
}

function detail({ messages, runs, stubs, why = "", note, trust, findings = [] }) {
  return [messages != null && many(messages, "message"), runs != null && many(runs, "run"), stubs && many(stubs, "stub"), trust && trust !== "trusted_local" && trust,
    why.replace(/_/g, " "), note, findings.length && `suspicious: ${findings.join(", ")}`].filter(Boolean).join("; ");
}

/** Facts, family, and the proofs. */
export function runPane(context, run, act) {
  const { reader, proof, family } = run;
  const { view } = reader;
  const used = view.usage ?? {};
  return html`${section("Facts", "", "", html`<dl class="facts"><dt>Run</dt><dd class="mono">${view.run_id}</dd><dt>Session</dt><dd><a href=${href("session", [view.session_id])}>${tail(view.session_id)}</a></dd>
      <dt>Principal</dt><dd>${view.principal}</dd><dt>Accepted</dt><dd>${moment(view.created_ms)}</dd><dt>Took</dt><dd>${took((view.finished_ms ?? context.now()) - view.created_ms)}</dd>
      <dt>Used</dt><dd>${many(view.turns, "turn")}, ${many(view.tool_calls, "call")}, ${grouped(used.input_tokens ?? 0)} tokens in, ${grouped(used.output_tokens ?? 0)} out</dd>
      <dt>Cost</dt><dd>${exact(view.cost_usd_micros)}${view.unpriced_calls ? `, and ${many(view.unpriced_calls, "call")} without a price` : ""}</dd><dt>Tape</dt><dd>${grouped(reader.tape.head + 1)} events${reader.tape.floor ? `, from ${grouped(reader.tape.floor)} on` : ""}</dd></dl>`)}
    ${section("Family", "", "", html`<ul class="rows-plain">${view.parent_run_id ? html`<li>from <a href=${href("run", [view.parent_run_id])}>run ${tail(view.parent_run_id)}</a></li>` : null}
      ${(family ?? []).map((each) => html`<li class="cut">${phase(each)} <a href=${href("run", [each.run_id])}>run ${tail(each.run_id)}</a> <span class="muted">${each.agent} ${oneLine(each.title, 60)}</span></li>`)}
      ${!view.parent_run_id && family?.length === 0 ? html`<li class="soft">It stands alone.</li>` : null}</ul>`)}
    ${section("Proofs", "", "", html`<p class="after proofs"><button class="button" ?disabled=${!context.isLive()} @click=${act.verify}>Verify</button>
      <button class="button" ?disabled=${!context.isLive()} @click=${act.replay}>Replay</button>
      <button class="button" ?disabled=${!context.isLive()} @click=${act.exportTape}>Export</button></p>
      ${proof.error ? failure(proof.error) : null}
      ${proof.verified ? html`<p>${lamp(proof.verified)} ${grouped(proof.verified.checked_events)} events were checked${proof.verified.first_break ? `; ${proof.verified.first_break.detail}` : ""}.</p>` : null}
      ${proof.replayed ? html`<p role="status">${proof.replayed.matched ? state("check", "Replay matches", "ok") : state("cross", "Replay differs", "bad")} ${proof.replayed.first_divergence ? html`at <a href=${act.at(proof.replayed.first_divergence.seq)}>event ${proof.replayed.first_divergence.seq}</a>: ${proof.replayed.first_divergence.field}` : html`over ${grouped(proof.replayed.events)} events`}</p>` : null}
      ${proof.exported ? html`<p role="status" class="muted">${proof.exported}</p>` : null}`)}`;
}

/** Whether the chain of the tape is whole. */
export function lamp(report) {
  if (!report) return null;
  return report.first_break ? state("warn", `broken${report.first_break.seq == null ? "" : ` at ${report.first_break.seq}`}`, "bad") : state("check", "intact", "ok");
}

export const freshFiles = () => ({ diff: null, undo: null, result: null, error: null, isBusy: false, view: reading() });
