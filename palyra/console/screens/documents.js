// Documents: MEMORY.md, PALYRA.md and USER.md of a workspace, by the blocks that the daemon maintains in them.
//
// Address: `#/documents/MEMORY.md?version=3&workspace=…`.  State: `documents` = {list, name, item, change, says}; `item` is
// {now, then, history} of the document in the address, `change` a preview of what restore, sync or fill would do.

import { along, changedWords } from "../fold/difference.js";
import { many, sentence, size } from "../fold/text.js";
import { moment, span } from "../fold/time.js";
import { icon } from "../parts/icon.js";
import { change, focusSoon, listen, read, refusal, rowKeys, shown } from "../parts/reading.js";
import { section } from "../parts/section.js";
import { labelOfTrust } from "../parts/trust.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";

export const title = "Documents";

const PAGE = 100; // versions that are kept

let stop = () => {};

export function open(context, route) {
  stop();
  context.store.state.documents = { ...context.store.state.documents, listed: null };
  moved(context, route);
  stop = listen(context, /^document\./, () => (readList(context, context.route.query), readItem(context, context.route)));
}

export const close = () => stop();

export function moved(context, route) {
  const place = context.store.state.documents;
  const [name] = route.parts;
  const item = JSON.stringify([name, route.query]);
  if (place.listed !== (route.query.workspace ?? "")) readList(context, route.query);
  if (item === place.at && place.item) return;
  Object.assign(place, { at: item, change: null, says: null }, name === place.name ? {} : { name, item: undefined });
  readItem(context, route);
}

const where = ({ workspace }) => (workspace ? { workspace } : {});

function readList(context, query) {
  const place = context.store.state.documents;
  place.listed = query.workspace ?? "";
  void read(context, place, "list", context.ask("document.list", where(query)));
}

function readItem(context, { parts: [document], query }) {
  if (!document) return;
  const get = (version) => context.ask("document.get", { document, ...where(query), ...(version ? { version } : {}) });
  const asked = Promise.all([get(), query.version ? get(Number(query.version)) : null, context.ask("document.history", { document, ...where(query), limit: PAGE })]);
  void read(context, context.store.state.documents, "item", asked.then(([now, then, history]) => ({ now, then, history })));
}

export function view(context, { parts: [name], query }) {
  const place = context.store.state.documents;
  if (!place) return html`<div class="pad"></div>`;
  return html`<div class="split with-item documents ${name ? "has-item" : ""} ${context.isLive() ? "" : "dim"}"><div class="pad"><h1>Documents</h1>
    ${shown(place, "list", () => readList(context, query), (list) => html`<p class="soft">Workspace ${list.workspace}. ${list.writes ? "The daemon may write its blocks." : "The daemon writes nothing by itself: documents.write is off."}</p>
      ${section("Files", list.documents.length, null, html`<ol class="plain-hits">${keyed(list.documents, (each) => each.document, (each) => row(each, name, query))}</ol>`)}
      ${name ? shown(place, "item", () => readItem(context, context.route), (item) => content(item, query)) : null}`)}
    </div>${name ? html`<aside class="inspector" aria-label=${name}><a class="only-page" href=${href("documents", [], where(query))}>All documents</a>${shown(place, "item", () => readItem(context, context.route), (item) => side(context, place, item, name, query))}</aside>` : null}</div>`;
}

function row(each, name, query) {
  const says = !each.exists ? "not there yet" : [size(each.size_bytes ?? 0), many(each.entries ?? 0, "entry", "entries"), `version ${each.version ?? 0}`].join(" · ");
  return html`<li><a class="plain hit ${each.document === name ? "selected" : ""}" data-row href=${href("documents", [each.document], where(query))} aria-current=${each.document === name ? "true" : null}><span><span class="mono">${each.document}</span><br><span class="sub">${says}${each.problem ? html` · <span class="bad">${each.problem}</span>` : null}</span></span>
    <span class="small">${each.flags ? html`<span class="bad">${each.flags} flagged</span> ` : null}${each.edits ? html`<span class="wait">${many(each.edits, "edit")} not adopted</span>` : null}</span></a></li>`;
}

/** Entries of a version, and how they differ from those in force. */
function content({ now, then }, query) {
  const shownOne = then ?? now;
  const blocks = shownOne.blocks ?? [];
  const [told, count] = then ? [compare(now, then), null] : [null, blocks.length];
  return section(then ? `Version ${then.version} against version ${now.version}` : `Version ${now.version || 0}`, count, null, html`
    ${blocks.length || then ? null : html`<p class="muted quiet-line">No managed block: the whole file is yours.</p>`}
    ${told ? (told.length ? told.map(difference) : html`<p class="muted quiet-line">The entries are the same.</p>`) : blocks.map(({ block, entries }) => html`<h3 class="after">${icon("lock", "muted")} Managed block <span class="mono">${block}</span></h3><ul class="entries">${entries.map((each) => html`<li>${each.text} <span class="muted small">${labelOfTrust(each.trust)}${each.by ? ` by ${each.by}` : ""}${each.has_conflict ? html` <b class="bad">conflict</b>` : null}</span>${each.pending ? html`<p class="small muted">not written: <q>${each.pending}</q></p>` : null}</li>`)}</ul>`)}
    ${(now.flags ?? []).map((flag) => html`<p class="bad after">${icon("warn")} ${flag.kind}${flag.line ? `, line ${flag.line}` : ""}: ${flag.reason}</p>`)}`);
}

/** What would have to change for the entries in force to become those of a version. */
function compare(now, then) {
  const entriesOf = ({ blocks = [] }) => new Map(blocks.flatMap(({ block, entries }) => entries.map((each) => [`${block}/${each.entry_id}`, { block, entry_id: each.entry_id, text: each.text }])));
  const [left, right] = [entriesOf(now), entriesOf(then)];
  return [...new Set([...left.keys(), ...right.keys()])].map((key) => ({ ...(left.get(key) ?? right.get(key)), before: left.get(key)?.text, after: right.get(key)?.text })).filter((each) => each.before !== each.after);
}

function difference({ block, before, after }) {
  const marks = before != null && after != null ? changedWords(before, after) : { before: [], after: [] };
  const line = (sign, look, text, spans) => html`<div class=${look}><span></span><span></span><span>${sign}</span><span>${along(text, spans).map((piece) => (piece.isChanged ? (look === "ins" || look === "add" ? html`<ins>${piece.text}</ins>` : html`<del>${piece.text}</del>`) : piece.text))} <span class="muted">${block}</span></span></div>`;
  return html`<div class="diff">${before != null ? line("−", "del", before, marks.before) : null}${after != null ? line("+", "add", after, marks.after) : null}</div>`;
}

// --- Versions, and what changes a document --------------------------------------------------------

function side(context, place, { now, then, history }, name, query) {
  const versions = history.versions ?? [];
  const mayWrite = context.may("documents:write");
  return html`<div class="head"><h1 class="mono">${name}</h1></div><p class="muted small">${size(now.size_bytes ?? 0)}, SHA-256 <span class="mono" title=${now.sha256}>${(now.sha256 ?? "").slice(0, 12)}…</span></p>
    ${section("Versions", versions.length, null, versions.length ? html`<ul class="line-of">${versions.map((each) => html`<li class=${each.version === (then ?? now).version ? "here" : ""}><a href=${href("documents", [name], { ...query, version: each.version === now.version ? "" : each.version })}>version ${each.version}</a> ${each.cause} by ${each.by}<br><span class="muted small" title=${moment(each.at_ms)}>${span(context.now() - each.at_ms)} ago, ${many(each.entries, "entry", "entries")}${each.is_pending ? ", not written yet" : ""}</span></li>`)}</ul>` : html`<p class="muted quiet-line">No version: the daemon has never written here.</p>`)}
    ${mayWrite ? section("Change", null, null, place.change ? confirm(context, place, query) : html`<p class="after">
      ${then ? html`<button class="button" @click=${() => void preview(context, place, "document.restore", { document: name, version: then.version, ...where(query) }, `Restore version ${then.version}`)}>Restore version ${then.version} …</button> ` : null}
      <button class="button quiet" @click=${() => void preview(context, place, "document.sync", { document: name, ...where(query) }, "Adopt the edits")}>Adopt edits …</button>
      <button class="button quiet" @click=${() => void preview(context, place, "document.fill", { document: name, ...where(query) }, "Write the pinned memories")}>Fill with pinned …</button></p>${refusal(place)}`) : null}`;
}

async function preview(context, place, method, params, word) {
  const found = await change(context, place, method, { ...params, dry_run: true });
  if (!found) return;
  place.change = { method, params, word, found };
  context.store.touch();
  focusSoon(".confirm");
}

function confirm(context, place, query) {
  const { method, params, word, found } = place.change;
  const rows = found.changes ?? [];
  const adopted = [...(found.adopted ?? []).map((each) => ({ ...each, before: each.is_new ? null : each.before, after: each.text })), ...(found.deleted ?? []).map((each) => ({ ...each, before: each.text, after: null }))];
  const all = method === "document.sync" ? adopted : rows;
  const drop = () => (Object.assign(place, { change: null }), context.store.touch());
  const perform = async () => {
    if (!(await change(context, place, method, params, `${word}: done`))) return;
    place.change = null;
    readList(context, query);
    if (query.version) context.go(href("documents", [params.document], where(query)));
    else readItem(context, context.route);
  };
  return html`<p class="after"><b>${all.length ? sentence(many(all.length, "entry changes", "entries change")) : "Nothing to do"}</b>${all.length ? "; text outside of the blocks stays byte for byte." : ": the file has these entries."}</p>
    ${all.map(difference)}${found.problem ? html`<p class="bad after">${found.problem}</p>` : null}
    <p class="after"><button class="button ${all.length ? "" : "confirm"}" @click=${drop}>Back</button> ${all.length ? html`<button class="button go confirm" @click=${() => void perform()}>${word}</button>` : null}</p>${refusal(place)}`;
}

export const keys = (context) => rowKeys(() => context.go(href("documents", [], where(context.route.query))));
