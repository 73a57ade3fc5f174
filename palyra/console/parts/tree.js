// The supervision tree as a tree-grid, and the inspector of one actor.
//
// `look` is {rows (all of them), shown, from, chosen (path), changed (paths), href(path), page(from)}.

import { isFull, isUnwell, partsOf } from "../fold/health.js";
import { grouped } from "../fold/text.js";
import { span, took } from "../fold/time.js";
import { html, keyed } from "../view.js";
import { icon } from "./icon.js";
import { linked } from "./incident.js";
import { section } from "./section.js";

export const PAGE = 100; // rows in the page at once: drawing them stays below 50 ms

const LOOKS = { running: "", ended: "check", starting: "recover", stopping: "recover", down: "warn" };

export function tree(look) {
  const page = look.shown.slice(look.from, look.from + PAGE);
  return html`<table class="tree" role="treegrid" aria-label="Supervision tree" aria-rowcount=${look.shown.length + 1} @keydown=${(event) => move(event)}>
    <thead><tr><th>Actor</th><th>State</th><th class="num">Incarn.</th><th class="num">Restarts</th><th>Depth / peak / capacity</th><th class="num">Last</th><th>Waits for</th></tr></thead>
    <tbody>${keyed(page, (row) => row.path, (row, at) => line(row, at, look))}</tbody></table>
    ${look.shown.length > PAGE ? pages(look) : null}`;
}

function line(row, at, look) {
  const level = Math.min(row.level - 1, 6);
  const look_ = `l${level} ${isUnwell(row) ? "unwell" : ""} ${look.changed.has(row.path) ? "flash" : ""}`;
  const isChosen = look.chosen === row.path;
  return html`<tr class="${look_} ${isChosen ? "selected" : ""}" aria-level=${row.level} aria-rowindex=${look.from + at + 2} aria-selected=${isChosen ? "true" : "false"} tabindex=${isChosen || (at === 0 && !look.isChosenShown) ? "0" : "-1"} data-path=${row.path} @click=${() => (location.hash = look.href(row.path))}>
    <td title=${row.id}>${short(row.id)}</td><td>${stateOf(row)}</td><td class="num">${row.incarnation}</td><td class="num ${row.restarts ? "strong" : ""}">${row.restarts}</td>
    <td>${mailbox(row)}</td><td class="num">${ageOf(row)}</td><td class=${row.waits_for ? "wait" : ""}>${row.waits_for}</td></tr>
    ${row.last_crash && isUnwell(row) ? html`<tr class="crash l${level} unwell" aria-level=${row.level}><td colspan="7">${row.last_crash}</td></tr>` : null}`;
}

const ageOf = ({ last_message_age_ms: last, age_ms: age }) => (last ?? age) == null ? "" : took(last ?? age);

function stateOf({ state }) {
  const sign = LOOKS[state];
  return sign ? html`<span class="state ${state === "down" ? "bad" : state === "ended" ? "" : "wait"}">${icon(sign)}<span>${state}</span></span>` : state;
}

/** `run:run_0199…` by its tail. */
function short(id) {
  const { kind, subject } = partsOf(id);
  return subject.length > 16 ? `${kind}:${subject.slice(0, 4)}…${subject.slice(-9)}` : id;
}

function mailbox({ mailbox_depth: depth, mailbox_peak: peak, mailbox_capacity: capacity }) {
  if (!capacity) return null;
  const width = (count) => (count ? Math.max(1, (48 * count) / capacity) : 0);
  return html`<svg class="depth" viewBox="0 0 48 8" aria-hidden="true"><rect class="ground" width="48" height="8" rx="2"></rect><rect class="peak" width=${width(peak)} height="8" rx="2"></rect><rect class=${isFull({ depth, capacity }) ? "full" : "now"} width=${width(depth)} height="8" rx="2"></rect></svg>${grouped(depth)} / ${grouped(peak)} / ${grouped(capacity)}`;
}

function pages({ shown, from, page }) {
  const to = Math.min(from + PAGE, shown.length);
  return html`<p class="after muted">Rows ${from + 1} to ${to} of ${grouped(shown.length)}
    <button class="button quiet" ?disabled=${!from} @click=${() => page(from - PAGE)}>Before</button><button class="button quiet" ?disabled=${to === shown.length} @click=${() => page(from + PAGE)}>After</button></p>`;
}

/** Keys of the grid: rows up and down, the ends, and Enter for the inspector. */
function move(event) {
  const row = event.target.closest("tr[data-path]");
  if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...row.parentElement.querySelectorAll("tr[data-path]")];
  const at = rows.indexOf(row);
  const to = { ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (event.key === "Enter") row.click();
  else if (rows[to]) focusRow(rows, rows[to]);
  else return;
  event.preventDefault();
  event.stopPropagation();
}

function focusRow(rows, row) {
  for (const each of rows) each.tabIndex = each === row ? 0 : -1;
  row.focus();
}

export function actorView(row, above, crashes) {
  const facts = [
    ["State", stateOf(row)], ["Incarnation", row.incarnation], ["Restarts", row.restarts], ["Mailbox", mailbox(row)],
    ["Last message", row.last_message_age_ms == null ? null : `${took(row.last_message_age_ms)} ago`],
    ["Age", row.age_ms == null ? null : took(row.age_ms)], ["Waits for", row.waits_for], ["Children", row.children?.length || null],
  ];
  const { subject } = partsOf(row.id);
  return html`<aside class="inspector" aria-label="Actor"><p class="only-narrow"><a href=${above}>The whole tree</a></p>
    <h1 class="breaks">${row.id}</h1><p class="small muted breaks">${row.path}</p>${subject ? html`<p>${linked(subject)}</p>` : null}
    ${section("Now", "", null, html`<dl class="facts">${facts.filter(([, value]) => value != null).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`)}
    ${section("Last crash", "", row.last_crash ? `${span(row.last_crash_age_ms ?? 0)} ago` : null, row.last_crash ? html`<pre class="after bad">${row.last_crash}</pre>` : html`<p class="after muted">It has not crashed since the daemon started.</p>`)}
    ${crashes.length ? section("Its incidents", crashes.length, null, crashes) : null}</aside>`;
}
