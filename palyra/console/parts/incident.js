// The inspector of an incident: remedy and what it would change come before the evidence.
//
// `acts` is {mode(domain, mode), resolve(incident, reason), write()}; `own` is {says, isResolving} of the screen.

import { partsOf } from "../fold/health.js";
import { grouped, sentence, tail } from "../fold/text.js";
import { moment, span } from "../fold/time.js";
import { isOpen } from "../overview.js";
import { href } from "../route.js";
import { html } from "../view.js";
import { stateOf } from "./lanes.js";
import { section } from "./section.js";

const PLACES = { run: "run", ses: "session", apr: "inbox", mem: "memory" };

/** An id that has a screen of its own is a link to it. */
export function linked(text) {
  const [prefix] = String(text).split("_");
  return PLACES[prefix] && /^[a-z]{3}_[\w-]{8,}$/.test(text) ? html`<a href=${href(PLACES[prefix], [text])} title=${text}>${prefix} ${tail(text)}</a>` : text;
}

export function incidentView(context, incident, { modes, own, acts, others, query }) {
  const { kind, subject } = partsOf(incident.key);
  const now = context.now();
  return html`<aside class="inspector" aria-label="Incident">
    <p class="only-narrow"><a href=${href("health", ["incidents"], query)}>All incidents</a></p>
    <div class="head"><h1>${kind}</h1><span class="right">${stateOf(incident)}</span></div>
    <p>${sentence(incident.summary)}</p>${subject ? html`<p class="small muted">${linked(subject)}</p>` : null}
    ${section("Remedy", "", null, html`<dl class="facts">${remedy(incident, modes)}</dl>${isOpen(incident) ? actions(context, incident, modes, own, acts) : null}`)}
    ${section("Evidence", "", html`<time title=${moment(incident.last_ms)}>last time, ${span(now - incident.last_ms)} ago</time>`, html`<dl class="facts">${Object.entries(incident.evidence)
      .map(([name, value]) => html`<dt>${name}</dt><dd class="mono">${typeof value === "number" ? grouped(value) : linked(value)}</dd>`)}</dl>`)}
    ${section("Course", "", null, html`<dl class="facts"><dt>Opened</dt><dd title=${moment(incident.opened_ms)}>${span(now - incident.opened_ms)} ago</dd><dt>Count</dt><dd>${grouped(incident.count)}</dd>
      <dt>${incident.resolved_ms ? "Ended" : "Ends"}</dt><dd>${end(incident, now)}</dd></dl>`)}
    ${others.length ? section("Also open", others.length, null, html`<ul>${others.map((each) => html`<li class="after"><a class="bad" href=${href("health", ["incidents", each.incident_id], query)}><b>${partsOf(each.key).kind}</b></a> ${each.state}
      <p class="small muted">${each.summary}</p></li>`)}</ul>`) : null}</aside>`;
}

function remedy({ domain, attempts = 0, remedy: named, remedied, remedies = [], may_change: blast }, modes) {
  const next = named || remedies[Math.min(attempts, remedies.length - 1)];
  const rows = [
    ["Mode", modes?.[domain] ? `${modes[domain]} for ${domain}` : ""],
    [attempts ? "Last attempt" : "In auto", next || "no remedy: it is left to a person"],
    ["Would change", blast],
    ["Attempts", remedies.length ? `${attempts} of ${remedies.length}` : ""],
    ["Outcome", remedied],
  ];
  return rows.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`);
}

function actions(context, incident, modes, own, acts) {
  const may = context.isLive() && context.may("incidents:write");
  const mode = modes?.[incident.domain];
  const other = mode === "auto" ? "observe_only" : "auto";
  const submit = (event) => {
    event.preventDefault();
    acts.resolve(incident, event.target.elements.reason.value.trim());
  };
  return html`<p class="after">${mode && incident.remedies?.length ? html`<button class="button" ?disabled=${!may} @click=${() => acts.mode(incident.domain, other)}>${other === "auto" ? `Attempt remedies of ${incident.domain}` : `Only observe ${incident.domain}`}</button>` : null}
      <button class="button quiet" ?disabled=${!may} aria-expanded=${own.isResolving ? "true" : "false"} @click=${acts.write}>Resolve …</button></p>
    ${own.isResolving ? html`<form class="after" @submit=${submit}><label>Reason, which is recorded <input class="field" name="reason" maxlength="1000" required></label><p class="after"><button class="button go" ?disabled=${!may}>Resolve</button></p></form>` : null}
    ${own.says ? html`<p class="after bad" role="alert">${own.says}</p>` : null}
    ${context.may("incidents:write") ? null : html`<p class="after small muted">This role lacks the scope incidents:write.</p>`}`;
}

function end({ resolved_ms: ended, by, reason, resolves_itself: isByItself }, now) {
  if (ended) return `${span(now - ended)} ago by ${by}: ${reason}`;
  return isByItself ? "by itself, when its cause has ended" : "when it is treated, or somebody resolves it";
}
