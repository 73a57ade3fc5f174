// Models with their breakers, MCP servers, and everything that waits in a queue.

import { exact } from "../fold/money.js";
import { grouped, tail } from "../fold/text.js";
import { clock, span } from "../fold/time.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { icon } from "./icon.js";
import { section } from "./section.js";
import { empty, failure, skeleton } from "./states.js";

/** `health` is the state of the screen. */
export function modelsView(context, health, retry) {
  const { failed } = health;
  const panel = (method, value, content) => (value ? content(value) : failed[method] ? failure(failed[method], retry) : skeleton());
  const { models } = health;
  const unwell = health.servers?.filter((each) => each.problem).length;
  return [
    section("Models", models ? `${models.models.length}, routing ${models.routing}` : "", models?.failover.length ? `in place of one that fails: ${models.failover.join(", ")}` : null,
      panel("model.list", models, (found) => modelTable(found.models))),
    section("MCP servers", health.servers?.length ?? "", unwell ? html`<span class="bad">${unwell} with a problem</span>` : null, panel("mcp.list", health.servers, serverTable)),
    section("Queues", "", null, queues(context, health, panel)),
  ];
}

function modelTable(models) {
  return html`<div class="scrolls"><table class="grid-table models"><thead><tr><th>Model</th><th>Breaker</th><th class="num">Under way</th><th class="num">Waiting</th><th class="num">Window</th><th>Can</th><th class="num">A million in / out</th></tr></thead><tbody>
    ${keyed(models, (each) => each.name, (each) => html`<tr><td><span class="mono">${each.name}</span>${each.is_default ? html` <span class="muted">default</span>` : null}</td><td>${breaker(each)}</td>
      <td class="num">${each.under_way ?? ""}${each.parallel ? html`<span class="muted"> of ${each.parallel}</span>` : null}</td><td class="num ${each.waiting ? "wait" : ""}">${each.waiting ?? ""}</td>
      <td class="num">${each.window ? grouped(each.window) : ""}</td><td class="muted">${["vision", "tools", "json"].filter((name) => each[name]).join(", ")}</td>
      <td class="num">${each.input_usd_micros == null ? html`<span class="wait">unpriced</span>` : !each.input_usd_micros && !each.output_usd_micros ? html`<span class="muted">nothing</span>` : `${exact(each.input_usd_micros)} / ${exact(each.output_usd_micros ?? 0)}`}</td></tr>`)}</tbody></table></div>`;
}

function breaker({ breaker: state, opens_in_ms: left }) {
  if (state === "closed") return html`<span class="muted">closed</span>`;
  return html`<span class="state ${state === "open" ? "bad" : "wait"}">${icon("warn")}<span>${state}${left ? `, tries again in ${clock(left)}` : ""}</span></span>`;
}

function serverTable(servers) {
  if (!servers.length) return empty("No MCP server", "Each configured server is one line here: its problem, tools, resources and prompts.", "palyra mcp add NAME …");
  return html`<div class="scrolls"><table class="grid-table models"><thead><tr><th>Server</th><th>State</th><th class="num">Tools</th><th class="num">Resources</th><th class="num">Prompts</th><th class="num">Starts</th><th>Left out</th></tr></thead><tbody>
    ${keyed(servers, (each) => each.name, (each) => html`<tr><td class="mono" title=${each.title}>${each.name}</td><td class="folds">${each.problem ? html`<span class="bad">${each.problem}</span>` : html`<span class="muted">well${each.protocol ? `, ${each.protocol}` : ""}</span>`}</td>
      <td class="num">${each.tools ?? 0}</td><td class="num">${each.resources ?? 0}</td><td class="num">${each.prompts ?? 0}</td><td class="num">${each.starts ?? 0}</td>
      <td class="muted" title=${Object.entries(each.left_out ?? {}).map(([name, why]) => `${name}: ${why}`).join("\n")}>${Object.keys(each.left_out ?? {}).length || ""}</td></tr>`)}</tbody></table></div>`;
}

function queues(context, health, panel) {
  const { status, questions } = context.store.state;
  const calls = health.models?.models.reduce((sum, each) => sum + (each.waiting ?? 0), 0);
  const rows = [["Questions to people", questions?.length, "#/inbox"], ["Rows for the journal", status?.journal_backlog], ["Calls of models", calls], ["Runs that no start could resume", status?.stranded_runs, "#/runs?phase=stranded"]];
  return html`<dl class="facts">${rows.filter(([, count]) => count != null).map(([name, count, to]) => html`<dt>${name}</dt><dd class=${count ? "strong" : "muted"}>${to && count ? html`<a href=${to}>${grouped(count)}</a>` : grouped(count)}</dd>`)}
      <dt>Tasks</dt><dd>${panel("task.counts", health.tasks, (each) => html`<a href="#/tasks">${each.due} due</a>, ${each.running} running, ${each.failed ? html`<span class="bad">${each.failed} failed</span>` : "none failed"}${each.oldest_due_ms ? `, the oldest waits ${span(context.now() - each.oldest_due_ms)}` : ""}`)}</dd></dl>
    ${panel("session.list", health.sessions, (sessions) => conversations(sessions.filter((each) => each.waiting?.length || each.paused_ms)))}`;
}

function conversations(waiting) {
  if (!waiting.length) return html`<p class="after muted">No conversation has messages waiting.</p>`;
  return html`<ul class="after">${keyed(waiting, (each) => each.session_id, (each) => html`<li class="spread"><a href=${href("session", [each.session_id])}>${each.title || each.key || `session ${tail(each.session_id)}`}</a>
      <span class="wait">${each.waiting?.length ?? 0} waiting${each.paused_ms ? ", paused" : ""}</span></li>`)}</ul>`;
}
