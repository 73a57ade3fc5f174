// Incidents over the last day: a lane for each domain, a table of the same, and a list for narrow pages.

import { hours, lanes as laid, partsOf } from "../fold/health.js";
import { moment, span } from "../fold/time.js";
import { isOpen } from "../overview.js";
import { href } from "../route.js";
import { html, keyed, svg } from "../view.js";
import { icon } from "./icon.js";

const DAY_MS = 86_400_000;
const LANE_PX = 20;
const WIDE = 5; // percent: its count stands on the bar

const to = ({ incident_id: id }, query) => href("health", ["incidents", id], query);
const kindOf = (incident) => partsOf(incident.key).kind;
const lasted = (incident, now) => span((incident.resolved_ms ?? now) - incident.opened_ms);

/** What a bar says to those who do not see it. */
const says = (incident, now) => `${kindOf(incident)}, ${incident.domain}, ${incident.severity}, ${incident.state}, ${incident.count === 1 ? "once" : `${incident.count} times`}, for ${lasted(incident, now)}`;

/** Lanes, with the bar of `chosen` framed. */
export function lanes(incidents, chosen, now, query) {
  const from = now - DAY_MS;
  const share = (ms) => ((ms - from) / DAY_MS) * 100;
  return html`<div class="lanes" role="group" aria-label="Incidents of 24 hours by domain; the same as the table">
    <div class="lane" aria-hidden="true"><span></span><svg>${hours(from, now - DAY_MS / 12).map((at) => svg`<text x="${share(at)}%" y="14" text-anchor=${share(at) < 3 ? "start" : "middle"}>${new Date(at).toTimeString().slice(0, 5)}</text>`)}<text x="100%" y="14" text-anchor="end">now</text></svg></div>
    ${laid(incidents, from, now).map(({ domain, bars, tracks }) => html`<div class="lane"><span class="name">${domain}</span>
      <svg role="group" aria-label=${domain}>${keyed(bars, (bar) => bar.incident.incident_id, (bar) => one(bar, tracks, bar.incident === chosen, now, query))}</svg></div>`)}</div>`;
}

function one({ incident, left, width, track }, tracks, isChosen, now, query) {
  const height = (LANE_PX - 8) / tracks;
  const y = 4 + track * height;
  const isWide = width >= WIDE && tracks === 1;
  return svg`<a class="bar-of" href=${to(incident, query)} aria-label=${says(incident, now)} aria-current=${isChosen ? "true" : null}>
    <title>${says(incident, now)}</title>
    <rect class="b-${incident.severity}" x="${left}%" y=${y} width="${width}%" height=${height - (tracks > 1 ? 1 : 0)} rx="2"></rect>
    ${isChosen ? svg`<rect class="sel" x="${left}%" y=${y - 1} width="${width}%" height=${height + 2} rx="3"></rect>` : null}
    ${incident.count > 1 && tracks === 1 ? svg`<text class=${isWide ? "on" : ""} x="${isWide ? left : left + width}%" dx="5" y="14">${incident.count}</text>` : null}</a>`;
}

/** The table of the same incidents. */
export function incidentTable(incidents, chosen, now, query) {
  return html`<div class="scrolls"><table class="grid-table incidents"><thead><tr><th>Incident</th><th>State</th><th>Domain</th><th class="num">Times</th><th class="num">Opened</th><th class="num">Lasted</th></tr></thead><tbody>
    ${keyed(incidents, (each) => each.incident_id, (each) => html`<tr class=${each === chosen ? "selected" : ""}><td class="cut kind"><a href=${to(each, query)} title=${each.summary}>${kindOf(each)}</a></td>
      <td>${stateOf(each)}</td><td>${each.domain}</td><td class="num">${each.count}</td><td class="num" title=${moment(each.opened_ms)}>${span(now - each.opened_ms)} ago</td><td class="num">${lasted(each, now)}</td></tr>`)}</tbody></table></div>`;
}

/** Severity and state in words; red for what is open. */
export function stateOf(incident) {
  return isOpen(incident)
    ? html`<span class="state ${incident.severity === "warning" ? "wait" : "bad"}">${icon("warn")}<span>${incident.severity}, ${incident.state}</span></span>`
    : html`<span class="state muted">${icon("check")}<span>${incident.severity}, resolved</span></span>`;
}

/** Narrow pages: one item for each incident. */
export function incidentList(incidents, now, query) {
  return html`<ul class="trouble only-narrow">${keyed(incidents, (each) => each.incident_id, (each) => html`<li>${icon(isOpen(each) ? "warn" : "check", isOpen(each) ? "bad" : "muted")}
    <a class="plain" href=${to(each, query)}><b class=${isOpen(each) ? "bad" : ""}>${kindOf(each)}</b></a><span class="when">${span(now - each.last_ms)}</span>
    <p class="cut">${each.domain}, ${each.severity}, ${each.state}: ${each.summary}</p></li>`)}</ul>`;
}
