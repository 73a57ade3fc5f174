// The blocks of a preview as the daemon made them: changed files, words of a command, texts, fields.
//
// Nothing here is made from arguments.  `reading` is {seen: Set, opened: Set, onSeen(at), onOpen(at)}: a block
// counts as seen when its end was on the screen, and one that is not shown whole when somebody said so.

import { along } from "../fold/difference.js";
import { size } from "../fold/text.js";
import { html } from "../view.js";
import { icon } from "./icon.js";
import "./seen-mark.js";

const SHOWN_LINES = 200; // of a block, before it is opened
const ESCAPE = /(\\u(?:[0-9a-f]{4}|\{[0-9a-f]+\}))/;

/** True if the daemon shows less than the whole of it. */
export const isPartial = (block) => Boolean(block.cut || block.is_binary || block.is_stale || hasCutLines(block));

const hasCutLines = ({ hunks = [] }) => hunks.some((hunk) => hunk.lines.some((line) => line.cut_chars));

/** The name of a block, in the words of its kind. */
export const nameOf = (block) => block.path ?? block.title;

/** All blocks, one below the other; `hidden` are the characters that the daemon spelled out. */
export function blocks(list, reading, hidden = []) {
  const codes = new Set(hidden.map((each) => each.character.slice(2).toLowerCase().padStart(4, "0")));
  return list.map((block, at) => html`<section class="file" id="block-${at}" aria-label=${nameOf(block)}>
    ${head(block)}${notes(block)}${content(block, at, reading, codes)}
    ${isPartial(block) ? partial(block, at, reading) : end(block, at, reading)}</section>`);
}

function head(block) {
  if (block.type !== "file") return html`<header><span class="path">${block.title}</span>${block.size_bytes ? html`<span class="right id">${size(block.size_bytes)}</span>` : null}</header>`;
  const { change, added, removed, before_mode: from, after_mode: to } = block;
  const modes = from && to && from !== to ? `${from} → ${to}` : (to ?? from ?? "");
  const digests = [block.before_sha256, block.after_sha256].map((each) => (each ? `${each.slice(0, 8)}…` : "nothing"));
  return html`<header><span class="path">${block.path}</span>
    <span>${change === "updated" ? null : `${change} `}${added ? html`<span class="plus">+${added}</span> ` : null}${removed ? html`<span class="minus">−${removed}</span>` : null}</span>
    <span class="right id only-wide" title="${block.before_sha256 ?? ""} → ${block.after_sha256 ?? ""}">${modes ? `${modes} · ` : ""}${digests.join(" → ")}</span></header>`;
}

function notes({ notes: list = [], is_redacted: isRedacted, is_stale: isStale }) {
  const all = [...list, isRedacted && "A secret in it is replaced by a mark.", isStale && "Its content is not the one that the question is about."];
  return all.filter(Boolean).map((note) => html`<p class="note">${icon("warn")} ${note}</p>`);
}

function content(block, at, reading, codes) {
  if (block.type === "fields") return html`<dl class="facts fields">${block.rows.map(([name, value]) => html`<dt>${name}</dt><dd class="mono">${spelled(value, codes)}</dd>`)}</dl>`;
  if (block.type === "words") return html`<ol class="words">${block.words.map((word) => html`<li class="mono">${word === "" ? html`<span class="muted">empty</span>` : html`<span>${spelled(word, codes)}</span>`}</li>`)}</ol>`;
  const rows = block.type === "text" ? block.lines.map((text, line) => ({ op: "same", text, new: line + 1 })) : fileRows(block);
  const isWhole = reading.opened.has(at) || rows.length <= SHOWN_LINES;
  return html`<div class="diff">${(isWhole ? rows : rows.slice(0, SHOWN_LINES)).map((row) => line(row, codes))}</div>
    ${isWhole ? null : html`<p class="note"><button class="button" @click=${() => reading.onOpen(at)}>Show ${rows.length - SHOWN_LINES} more lines</button></p>`}`;
}

/** Lines of all hunks, with a row for what is the same between two of them. */
function fileRows({ hunks = [] }) {
  let next = 1;
  return hunks.flatMap((hunk) => {
    const same = hunk.old_start - next;
    next = hunk.old_start + hunk.old_lines;
    return same > 0 ? [{ gap: same }, ...hunk.lines] : hunk.lines;
  });
}

const SIGNS = { added: ["add", "+", "ins"], removed: ["del", "−", "del"], same: ["", " ", ""] };

function line({ gap, op, text, old, new: now, spans, cut_chars: cut, no_newline: isOpenEnded }, codes) {
  if (gap) return html`<div class="hunk"><span></span><span></span><span></span><span>${gap} ${gap === 1 ? "line is" : "lines are"} the same</span></div>`;
  const [look, sign, tag] = SIGNS[op];
  return html`<div class=${look}><span>${old ?? ""}</span><span>${now ?? ""}</span><span>${sign}</span><span>${along(text, tag ? spans : [])
    .map((piece) => (piece.isChanged ? changed(tag, spelled(piece.text, codes)) : spelled(piece.text, codes)))}${cut
    ? html`<span class="wait"> … ${cut} characters more</span>` : null}${isOpenEnded ? html`<span class="muted"> (no line feed at the end)</span>` : null}</span></div>`;
}

const changed = (tag, content) => (tag === "ins" ? html`<ins>${content}</ins>` : html`<del>${content}</del>`);

/** The escapes of the daemon stand out; the same letters in ordinary source do not. */
function spelled(text, codes) {
  if (!codes.size || !text.includes("\\u")) return text;
  return text.split(ESCAPE).map((piece, at) => (at % 2 && codes.has(piece.replace(/[\\u{}]/g, "")) ? html`<span class="hostile">${piece}</span>` : piece));
}

function end(block, at, reading) {
  const rows = block.type === "file" ? (block.hunks ?? []).reduce((sum, hunk) => sum + hunk.lines.length, 0) : (block.lines?.length ?? 0);
  if (rows > SHOWN_LINES && !reading.opened.has(at)) return null;
  return html`<seen-mark class="tail" @seen=${() => reading.onSeen(at)}></seen-mark>`;
}

function partial(block, at, reading) {
  const what = block.is_binary ? `binary, ${size(block.before_bytes ?? 0)} before and ${size(block.after_bytes ?? 0)} after` : block.cut ? `${block.cut} more that are not shown` : "parts that are not shown";
  return html`<div class="note wait"><p>${icon("ask")} ${what}. ${block.after_sha256 ? html`SHA-256 after: <span class="mono">${block.after_sha256}</span>` : null}</p>
    <label><input type="checkbox" ?checked=${reading.seen.has(at)} ?disabled=${reading.seen.has(at)} @change=${(event) => event.isTrusted && reading.onSeen(at)}> I know that this is not shown whole</label></div>`;
}
