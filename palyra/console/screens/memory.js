// Memory: what is remembered, why a search finds it, where it comes from; correct, pin, forget.
//
// Address: `#/memory/mem_…?q=TEXT&kind=…&old=1`.  State: `memory` = {status, list, text (typed, not yet searched), item, origins,
// editing, forgetting, says}; `item` is {item, history} of the address, `origins` the events that it was made from.

import { along, changedWords } from "../fold/difference.js";
import { grouped, many, oneLine, sentence, tail } from "../fold/text.js";
import { moment, span, timeOfDay } from "../fold/time.js";
import { change, focusSoon, read, refusal, rowKeys, shown } from "../parts/reading.js";
import { section } from "../parts/section.js";
import { empty } from "../parts/states.js";
import { labelOfTrust } from "../parts/trust.js";
import { href } from "../route.js";
import { html, keyed, svg } from "../view.js";

export const title = "Memory";

const PAGE = 60;
const HITS = 20;
const KINDS = ["fact", "preference", "procedure", "decision", "note", "turn"];
const SERIES = [["lexical", 1], ["vector", 2], ["author", 3], ["date", 4], ["form", 4], ["session", 4], ["context", 4]];
const WIDTH = 96; // of a bar, for a score of 1

export function open(context, route) {
  const { state } = context.store;
  state.memory = { ...state.memory, listed: null };
  moved(context, route);
}

export function moved(context, { parts: [id], query }) {
  const place = context.store.state.memory;
  const listed = JSON.stringify(query);
  if (listed !== place.listed) {
    Object.assign(place, { listed, list: undefined });
    readList(context, query);
  }
  if (id !== place.id || !place.item) {
    Object.assign(place, { id, item: undefined, item_error: null, origins: undefined, editing: null, forgetting: null, says: null });
    if (id) readItem(context, id);
  }
}

const whose = ({ principal }) => (principal ? { principal } : {});

function readList(context, query) {
  const place = context.store.state.memory;
  const kinds = query.kind ? [query.kind] : [];
  void read(context, place, "status", context.ask("memory.status", whose(query)));
  void read(context, place, "list", query.q
    ? context.ask("memory.search", { query: query.q, kinds, limit: HITS, ...whose(query) })
    : context.ask("memory.list", { kinds, limit: PAGE, superseded: Boolean(query.old), hidden: true, ...whose(query) }));
}

async function more(context, query) {
  const { memory: place } = context.store.state;
  const before = place.list;
  const page = await change(context, place, "memory.list", { kinds: query.kind ? [query.kind] : [], limit: PAGE, superseded: Boolean(query.old), hidden: true, cursor: before.next_cursor, ...whose(query) });
  if (page && place.list === before) place.list = { ...page, items: [...before.items, ...page.items].slice(-200) };
}

function readItem(context, id) {
  const place = context.store.state.memory;
  const both = Promise.all([context.ask("memory.get", { memory_id: id }), context.ask("memory.history", { memory_id: id })]);
  void read(context, place, "item", both.then(([item, history]) => ({ item, history }))).then(() => {
    if (place.item?.item.lineage?.length) void read(context, place, "origins", Promise.all(place.item.item.lineage.slice(0, 12).map((from) => readOrigin(context, from, place.item.item.text))));
  });
}

/** The event that an item was made from, and the message that the run answered then. */
async function readOrigin({ ask }, { run_id, first_seq: first, last_seq: last }, text) {
  try {
    const named = first ? await ask("tape.read", { run_id, after_seq: first - 1, limit: 1 }) : null;
    const event = named?.events[0] ?? (await ask("tape.find", { run_id, text: text.slice(0, 100), limit: 1 })).hits[0];
    const seq = event?.seq ?? 0;
    const heard = (await ask("tape.find", { run_id, kinds: ["message.received"], ...(seq ? { from_seq: seq } : {}), backwards: Boolean(seq), limit: 1 })).hits[0];
    const message = heard && (await ask("tape.read", { run_id, after_seq: heard.seq - 1, limit: 1 })).events[0];
    return { run_id, seq, last, kind: event?.kind, at_ms: event?.at_ms, message };
  } catch (error) {
    return { run_id, seq: first ?? 0, last, error };
  }
}

// --- The list -----------------------------------------------------------------------------------

export function view(context, { parts: [id], query }) {
  const { memory: place, candidates } = context.store.state;
  if (!place) return html`<div class="pad"></div>`;
  const retry = () => readList(context, query);
  return html`<div class="split with-item memory ${id ? "has-item" : ""} ${context.isLive() ? "" : "dim"}"><div class="pad"><h1>Memory</h1>
    ${place.status_error ? shown(place, "status", retry) : html`<p class="soft">${place.status ? describe(place.status) : ""}</p>
    <form class="ask-memory" role="search" @submit=${(event) => search(context, query, event)}><input class="field" type="search" name="q" aria-label="Search the memory" placeholder="A question, or words" .value=${place.text ?? query.q ?? ""} @input=${({ target }) => (place.text = target.value)} maxlength="2000">
      <select class="field" name="kind" aria-label="Kind" @change=${(event) => event.target.form.requestSubmit()}><option value="">every kind</option>${KINDS.map((kind) => html`<option value=${kind} ?selected=${query.kind === kind}>${kind}</option>`)}</select>
      <label class="check"><input type="checkbox" name="old" ?disabled=${Boolean(query.q)} .checked=${Boolean(query.old)} @change=${(event) => event.target.form.requestSubmit()}> superseded too</label></form>
    ${section(query.q ? "Hits" : "Items", counted(place.list), query.q ? legend() : null, shown(place, "list", retry, (list) => (list.hits ? hits(context, list, id, query) : items(context, list, id, query))))}
    ${candidates?.length ? section("Wants to learn", candidates.length, html`<a href=${href("inbox", [], { tab: "learning" })}>Inbox</a>`, html`<p class="soft after">${sentence(many(candidates.length, "statement"))} from runs ${candidates.length === 1 ? "waits" : "wait"} for an answer.</p>`) : null}`}
    </div>${id ? inspector(context, id, query) : null}</div>`;
}

function describe({ principal, items: count, pinned, never_recall: never, superseded, without_vector: bare, mode, degraded }) {
  const parts = [pinned && `${many(pinned, "is", "are")} pinned`, never && `${many(never, "is", "are")} never recalled`, superseded && `${many(superseded, "was", "were")} superseded`].filter(Boolean);
  const search = degraded ? `Searched by words: ${degraded}.` : mode === "lexical" ? "Searched by words." : bare ? `${sentence(many(bare, "has", "have"))} no vector yet.` : "All have a vector.";
  return `${grouped(count)} ${count === 1 ? "item" : "items"} of principal ${principal}. ${parts.length ? `${sentence(parts.join(", "))}. ` : ""}${search}`;
}

function search(context, query, event) {
  event.preventDefault();
  const { q, kind, old } = event.target.elements;
  context.store.state.memory.text = null; // the address has it
  context.go(href("memory", [], { ...query, q: q.value.trim(), kind: kind.value, old: old.checked && !q.value.trim() ? 1 : "" }));
  if (document.activeElement === q) q.blur();
}

const counted = (list) => (list?.hits ? `${list.hits.length}, ${list.mode}` : list && `${list.items.length}${list.next_cursor ? " or more" : ""}`);

const legend = () => html`<span class="legend">${[["lexical", 1], ["vector", 2], ["author", 3], ["date, form, session", 4]].map(([name, at]) => html`<span class="key"><svg viewBox="0 0 8 8" aria-hidden="true"><rect class="s${at}" width="8" height="8" rx="2"/></svg>${name}</span>`)}</span>`;

function hits(context, { hits: found }, id, query) {
  if (!found.length) return html`<p class="muted quiet-line">Nothing that is remembered fits.</p>`;
  return html`<ol>${keyed(found, (hit) => hit.memory_id, (hit) => row(context, hit, id, query, html`<span class="score">${hit.score.toFixed(3)}</span>${bar(hit)}`, ` · ${sum(hit)}`))}</ol>`;
}

function items(context, list, id, query) {
  if (!list.items.length) return empty("Nothing is remembered", "What people add and runs retain is here, with its source.", 'palyra memory add "The staging port is 9090" --kind fact');
  return html`<ol class="plain-hits">${keyed(list.items, (item) => item.memory_id, (item) => row(context, item, id, query, null, [item.pinned && " · pinned", item.never_recall && " · never recalled", item.superseded_by && " · superseded", item.author && ` · by ${item.author}`].filter(Boolean).join("")))}</ol>
    ${list.next_cursor ? html`<p class="after"><button class="button" @click=${() => void more(context, query)}>Show more</button></p>` : null}`;
}

function row(context, item, id, query, front, says) {
  return html`<li><a class="plain hit ${item.memory_id === id ? "selected" : ""}" data-row href=${href("memory", [item.memory_id], query)} aria-current=${item.memory_id === id ? "true" : null}>${front}<span><span>${oneLine(item.text, 300)}</span><br><span class="sub"><span class=${item.trust === "external_untrusted" ? "taint" : ""}>${item.kind} · ${item.trust}</span>${says}</span></span><span class="muted small" title=${moment(item.at_ms)}>${span(context.now() - item.at_ms)}</span></a></li>`;
}

/** The parts of a score side by side; the sum beside it says the same in words. */
function bar({ parts, score }) {
  const scale = WIDTH / Math.max(1, score);
  let at = 0;
  return html`<svg class="parts" viewBox="0 0 ${WIDTH} 8" aria-hidden="true"><rect class="ground" width=${WIDTH} height="8" rx="2"/>${SERIES.filter(([name]) => parts[name] > 0).map(([name, look]) => {
    const [x, width] = [at, parts[name] * scale];
    at += width;
    return svg`<rect class="s${look}" x=${x.toFixed(1)} width=${width.toFixed(1)} height="8"/>`;
  })}</svg>`;
}

const sum = ({ parts, score }) => `${score.toFixed(3)} = ${SERIES.filter(([name]) => Math.abs(parts[name] ?? 0) >= 0.0005).map(([name], at) => `${at ? (parts[name] < 0 ? "− " : "+ ") : ""}${name} ${Math.abs(parts[name]).toFixed(3)}`).join(" ") || "0"}`;

// --- One item -----------------------------------------------------------------------------------

function inspector(context, id, query) {
  const place = context.store.state.memory;
  return html`<aside class="inspector" aria-label="Memory ${tail(id)}"><a class="only-page" href=${href("memory", [], query)}>All memories</a>
    ${shown(place, "item", () => readItem(context, id), ({ item, history }) => html`<div class="head"><h1>${item.text}</h1></div>
      <p class="muted small"><span title=${item.memory_id}>mem_${tail(item.memory_id)}</span>, ${item.kind}, revision ${item.revision}, ${labelOfTrust(item.trust)}${item.pinned ? ", pinned" : ""}${item.never_recall ? ", never recalled" : ""}${item.scope && item.scope !== "principal" ? `, in its ${item.scope} alone` : ""}${item.tags?.length ? `, ${item.tags.join(", ")}` : ""}</p>
      ${item.superseded_by ? html`<p class="wait after">Superseded by <a href=${href("memory", [item.superseded_by], query)}>mem_${tail(item.superseded_by)}</a>: no search finds it.</p>` : null}
      ${section("Where it comes from", null, null, origins(place, item))}
      ${section("Versions", history.versions.length + (history.superseded?.length ?? 0), null, versions(context, history, query))}
      ${context.may("memory:write") ? section("Change", null, null, changes(context, place, item, history, query)) : null}`)}</aside>`;
}

function origins(place, item) {
  const by = { client: "given by", tool: "retained by a tool for", learning: "learned for", conversation: "taken from a conversation of", import: "imported by" }[item.source];
  return html`<ul class="line-of"><li class="here"><b>This item</b><br><span class="muted small">${by} ${item.changed_by}, ${moment(item.created_ms)}${item.author ? `, statement of ${item.author}` : ""}</span></li>
    ${item.lineage?.length ? shown(place, "origins", null, (list) => list.map(origin)) : html`<li><span class="muted">No run: ${item.source === "import" ? "it was imported" : "somebody added it"}.</span></li>`}</ul>`;
}

function origin({ run_id: run, seq, last, kind, message, error }) {
  return html`${message?.seq === seq ? null : html`<li><a href=${href("run", [run, "seq", seq])}>event ${seq}${last && last !== seq ? ` to ${last}` : ""}</a> of run ${tail(run)}<br><span class="muted small">${error ? `${error.code}: ${error.message}` : (kind ?? "the run as a whole")}</span></li>`}
    ${message ? html`<li><a href=${href("run", [run, "seq", message.seq])}>event ${message.seq}</a> of run ${tail(run)}<br><span class="muted small">message${message.data.by ? ` of ${message.data.by}` : ""}, ${timeOfDay(message.at_ms).slice(0, 5)}: <q>${oneLine(message.data.text, 300)}</q></span></li>` : null}`;
}

function versions(context, { versions: list, superseded = [] }, query) {
  const newest = list.at(-1);
  const told = (text, marks, tag) => along(text, marks).map(({ text: piece, isChanged }) => (isChanged ? (tag === "ins" ? html`<ins>${piece}</ins>` : html`<del>${piece}</del>`) : piece));
  return html`<ul class="line-of">${list.map((each, at) => html`<li class=${each === newest ? "here" : ""}>${told(each.text, at ? changedWords(list[at - 1].text, each.text).after : [], "ins")}<br><span class="muted small">${each.action} by ${each.changed_by}, ${span(context.now() - each.changed_ms)} ago${each === newest && !each.superseded_by ? ", in force" : ""}</span></li>`).reverse()}
    ${superseded.map((each) => html`<li><a class="plain muted" href=${href("memory", [each.memory_id], query)}>${told(each.text, changedWords(each.text, newest.text).before, "del")}</a><br><span class="muted small">superseded ${span(context.now() - each.superseded_ms)} ago</span></li>`)}</ul>`;
}

function changes(context, place, item, history, query) {
  const id = item.memory_id;
  const done = async (method, params, says) => {
    if (!(await change(context, place, method, { memory_id: id, ...params }, says))) return;
    place.editing = null;
    readItem(context, id);
    readList(context, query);
  };
  const set = (patch) => (Object.assign(place, patch), context.store.touch());
  if (place.editing !== null && place.editing !== undefined) return html`<form @submit=${(event) => (event.preventDefault(), void done("memory.edit", { text: place.editing }, "Corrected"))}>
    <textarea class="field after" rows="4" aria-label="Corrected text" .value=${place.editing} @input=${(event) => (place.editing = event.target.value)}></textarea>
    <p class="after"><button class="button">Save the correction</button> <button class="button quiet" type="button" @click=${() => set({ editing: null })}>Back</button></p>${refusal(place)}</form>`;
  if (place.forgetting) return forgetting(context, place, item, history, query, set);
  return html`<p class="after"><button class="button" @click=${() => (set({ editing: item.text }), focusSoon("textarea"))} aria-keyshortcuts="c">Correct …</button>
    <button class="button quiet" @click=${() => void done("memory.pin", { pinned: !item.pinned }, item.pinned ? "No longer pinned" : "Pinned")}>${item.pinned ? "Unpin" : "Pin"}</button>
    <button class="button quiet" @click=${() => void done("memory.never_recall", { never_recall: !item.never_recall }, "Changed")}>${item.never_recall ? "Recall again" : "Never recall"}</button>
    ${history.versions.length > 1 ? html`<button class="button quiet" @click=${() => void done("memory.undo", {}, "Undone")}>Undo</button>` : null}
    <button class="button quiet bad" @click=${() => void ask(context, place, id)}>Forget …</button></p>${refusal(place)}`;
}

/** What would be forgotten comes from the daemon, before anything is. */
async function ask(context, place, id) {
  place.forgetting = (await change(context, place, "memory.forget", { memory_id: id, dry_run: true }))?.memory_ids ?? null;
  focusSoon(".forget");
}

function forgetting(context, place, item, { superseded = [] }, query, set) {
  const texts = new Map([item, ...superseded].map((each) => [each.memory_id, each.text]));
  const confirm = async () => {
    if (!(await change(context, place, "memory.forget", { memory_id: item.memory_id }, "Forgotten"))) return;
    place.listed = null;
    context.go(href("memory", [], query));
  };
  return html`<p class="after"><b>${sentence(many(place.forgetting.length, "item"))} will be gone for good</b>, with every version, from every search and document. Tapes of runs keep what was said.</p>
    <ul class="after">${place.forgetting.map((id) => html`<li>${texts.get(id) ?? ""} <span class="muted small">mem_${tail(id)}</span></li>`)}</ul>
    <p class="after"><button class="button" @click=${() => set({ forgetting: null })}>Keep</button> <button class="button bad forget" @click=${() => void confirm()}>Forget ${many(place.forgetting.length, "item")}</button></p>${refusal(place)}`;
}

const press = (name) => () => [...document.querySelectorAll(".inspector button")].find((each) => each.textContent.startsWith(name))?.click();

export const keys = (context) => [
  ...rowKeys(() => context.go(href("memory", [], context.route.query))),
  { key: "c", what: "Correct the open memory", act: press("Correct") },
  { key: "p", what: "Pin it, or no longer", act: press(context.store.state.memory?.item?.item.pinned ? "Unpin" : "Pin") },
];
