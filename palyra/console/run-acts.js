// What a person does on the screen of a run.  Each takes the context and the run first.

import { moment } from "./fold/time.js";
import { freshFiles } from "./parts/run-panes.js";

const LINES = 2_000; // of a difference
const EXPORT_ROWS = 1_000;

/** Do something of the daemon; its error is kept in `place.error`. */
async function attempt(context, place, act) {
  Object.assign(place, { isBusy: true, error: null });
  context.store.touch();
  try {
    return await act();
  } catch (error) {
    place.error = error;
    return undefined;
  } finally {
    place.isBusy = false;
    context.store.touch();
  }
}

// --- Steering and ending --------------------------------------------------------------------------

export function steer(context, run, event) {
  event.preventDefault();
  const field = event.target.elements.text;
  const text = field.value.trim();
  if (!text) return;
  void attempt(context, run.steer, () => context.ask("run.steer", { run_id: run.id, text })).then((result) => {
    const { error } = run.steer;
    run.steer.isBad = Boolean(error);
    run.steer.says = error ? `${error.code}: ${error.message}` : `Taken as event ${result.seq}: the model sees it with its next turn.`;
    if (!error && field.value.trim() === text) field.value = "";
    context.announce(run.steer.says, { isUrgent: Boolean(error) });
  });
}

/** Arm; the confirmation has the focus, and a held key is no answer. */
export function cancel(context, run) {
  if (run.reader.isOver || run.cancel?.isBusy || !context.may("runs:write")) return;
  run.cancel = { isArmed: true };
  context.store.touch();
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("cancel-now")?.focus()));
}

export function keep(context, run) {
  run.cancel = null;
  context.store.touch();
}

export async function cancelNow(context, run, event) {
  if (!event.isTrusted) return;
  const place = (run.cancel = {});
  const result = await attempt(context, place, () => context.ask("run.cancel", { run_id: run.id, reason: "cancelled in the console" }));
  if (result) {
    place.result = result;
    await run.reader.refresh();
    context.announce(endOf(run));
    document.querySelector("tape-list")?.focus();
  } else {
    Object.assign(run.steer, { says: `${place.error.code}: ${place.error.message}`, isBad: true });
  }
  context.store.touch();
}

/** The end of a run in a sentence; after a cancel the event that is committed. */
export function endOf({ reader: { view }, cancel: asked }) {
  const when = view.finished_ms ? `, ${moment(view.finished_ms)}` : "";
  const at = asked?.result ? ` The end is event ${asked.result.applied_seq}, and it is committed.` : "";
  const word = { done: view.reason === "partial" ? "Ended with a part of an answer" : "Done", failed: `Failed: ${view.reason ?? "unknown"}`, cancelled: "Cancelled" }[view.state] ?? view.state;
  return `${word}${when}.${at}`;
}

export async function fork(context, run, event) {
  event.preventDefault();
  const text = event.target.elements.text.value.trim();
  run.fork = {};
  const made = await attempt(context, run.fork, () => context.ask("run.fork", { run_id: run.id, at_seq: run.seq, ...(text ? { text } : {}) }));
  if (made) context.go(context.href("run", [made.run_id]));
}

// --- Files ----------------------------------------------------------------------------------------

export async function readFiles(context, run) {
  const { result, view } = run.files;
  run.files = { ...freshFiles(), result };
  view.seen.clear();
  const { files } = run;
  files.view.onOpen = (at) => (files.view.opened.add(at), context.store.touch());
  const diff = await attempt(context, files, () => context.ask("run.diff", { run_id: run.id, max_lines: LINES }));
  if (diff) files.diff = diff;
}

/** What an undo would change now; nothing changes by it. */
export async function previewUndo(context, run) {
  const { files } = run;
  files.result = null;
  const undo = await attempt(context, files, () => context.ask("run.undo", { run_id: run.id, dry_run: true, max_lines: LINES }));
  if (!undo) return;
  files.undo = undo;
  requestAnimationFrame(() => requestAnimationFrame(() => document.getElementById("undo-now")?.focus()));
}

/** Undo what the preview has shown, and nothing else: its digest goes along. */
export async function undo(context, run, isForced) {
  const { files } = run;
  const { digest } = files.undo;
  const result = await attempt(context, files, () => context.ask("run.undo", { run_id: run.id, digest, force: isForced }));
  if (!result) return void (files.undo = null);
  files.result = result;
  context.announce(`Undone: ${result.files?.length ?? 0} files`);
  await readFiles(context, run);
  await run.reader.open();
  return undefined;
}

// --- Context and proofs ---------------------------------------------------------------------------

/** What the model saw in the turn at the selection, or in the last one. */
export async function readContext(context, run) {
  const { reader, prompt, seq } = run;
  const at = reader.tape.back(seq ?? reader.tape.head, "turn.started", "context.assembled");
  const begun = at === undefined ? undefined : await reader.event(at);
  const turn = begun?.data.turn ?? null;
  if (prompt.turn === turn && (prompt.found || turn === null)) return;
  run.prompt = { turn };
  if (turn === null) return context.store.touch();
  const place = run.prompt;
  place.found = await attempt(context, place, () => context.ask("context.explain", { run_id: run.id, turn }));
  context.store.touch();
}

export async function verify(context, run) {
  run.proof.verified = await attempt(context, run.proof, () => context.ask("tape.verify", { run_id: run.id }));
}

export async function replay(context, run) {
  run.proof.replayed = await attempt(context, run.proof, () => context.ask("run.replay", { run_id: run.id }));
}

/** The tape with its proof, as the file that `palyra tape export` writes. */
export async function exportTape(context, run) {
  const parts = [];
  await attempt(context, run.proof, async () => {
    let after = -1;
    let page;
    do {
      page = await context.ask("tape.export", { run_id: run.id, after_seq: after, limit: EXPORT_ROWS });
      parts.push(page.ndjson);
      after = page.next_after_seq;
      run.proof.exported = `${parts.length} ${parts.length === 1 ? "page" : "pages"} read …`;
      context.store.touch();
    } while (after != null);
    parts.push(sealOf(run.id, parts, page));
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(new Blob(parts, { type: "text/plain" })), download: `${run.id}.ndjson` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    run.proof.exported = `Saved as ${run.id}.ndjson.`;
  });
}

function sealOf(run_id, parts, { public_key, signature, former_keys = [] }) {
  const { seq } = JSON.parse(parts.findLast((part) => part).trimEnd().split("\n").at(-1));
  return `${JSON.stringify({ seal: "palyra.export.v1", run_id, seq, public_key, signature, ...(former_keys.length ? { former_keys } : {}) })}\n`;
}

/** Copy the address of the selected event. */
export async function copy(context, run) {
  const to = new URL(context.href("run", [run.id, ...(run.seq === undefined ? [] : ["seq", run.seq])]), location.href).href;
  try {
    await navigator.clipboard.writeText(to);
    context.announce("Address copied");
  } catch {
    context.announce("The browser did not copy; the address is in its address bar", { isUrgent: true });
  }
}

// --- Rows -----------------------------------------------------------------------------------------

/** The rows as the address has them, drawn or not. */
const rowsOf = (run) => run.found?.rows ?? run.reader.tape.rows(run.view);

/** Select the next row, or the one before. */
export function step(context, run, by, select) {
  const rows = rowsOf(run);
  if (!rows.length) return;
  const at = run.seq === undefined ? (by > 0 ? rows.find(run.sight?.[0] ?? 0) - 1 : rows.find(run.sight?.[1] ?? 0) + 1) : rows.find(rowSeq(run));
  toRow(context, run, Math.max(0, Math.min(rows.length - 1, at + by)), select);
}

/** The seq of the row that stands for the selection. */
const rowSeq = (run) => (run.found || run.view === "raw" ? run.seq : (run.reader.tape.proposalOf(run.seq) ?? run.seq));

export function toRow(context, run, index, select) {
  const rows = rowsOf(run);
  if (rows.length) select(context, run, rows.at(index < 0 ? rows.length - 1 : index));
}

export function family(context, run, by, select) {
  if (run.seq === undefined) return step(context, run, by, select);
  const seq = run.reader.tape.sameFamily(run.seq, by);
  if (seq !== undefined) select(context, run, seq);
  return undefined;
}

/** Leave the innermost of what is open. */
export function leave(context, run, event, address, isTyping) {
  const list = document.querySelector("tape-list");
  if (run.cancel?.isArmed) keep(context, run);
  else if (isTyping(event.target)) {
    if (event.target.id === "find") run.draft = undefined;
    list?.focus();
  }
  else if (run.query.q) context.go(address(run, { q: null }));
  else if (run.query.open) context.go(address(run, { open: null, pane: null }));
  else if (run.seq !== undefined) context.go(context.href("run", [run.id], run.query));
  else return false;
  return undefined;
}
