// What the rules say of a call: the form, the verdict, and what a person would be offered.
//
// `rules.verdict` is {stamp, result, error}; nothing is executed, and nothing is kept.

import { grouped, many, sentence, tail } from "../fold/text.js";
import { href } from "../route.js";
import { html } from "../view.js";
import { icon } from "./icon.js";
import { section } from "./section.js";
import { empty, failure, skeleton } from "./states.js";

const ANSWERS = {
  allow: ["check", "ok", "allow: it runs without a question"],
  ask: ["ask", "wait", "ask: a person decides"],
  deny: ["denied", "bad", "deny: it does not run"],
};

/** The question of an address, as the daemon takes it.  Throws for arguments that are not an object. */
export function questionOf({ tool, args, agent, session }) {
  const given = args?.trim() ? JSON.parse(args) : {};
  if (given === null || typeof given !== "object" || Array.isArray(given)) throw new TypeError("the arguments are one JSON object");
  return { tool, arguments: given, ...(agent ? { agent } : {}), ...(session ? { session_id: session } : {}) };
}

export function explainView(context, rules, { query }) {
  const { tools, agents, sessions } = rules;
  const submit = (event) => {
    event.preventDefault();
    context.go(href("rules", ["explain"], Object.fromEntries(new FormData(event.target))));
    rules.again?.();
    document.querySelector(".rules > .pad")?.scrollIntoView({ block: "nearest" }); // below the form on a narrow page
  };
  const { form } = rules;
  const chosen = tools?.find((each) => each.name === form.tool);
  const typed = (event) => {
    form[event.target.name] = event.target.value;
    context.store.touch();
  };
  const list = (id, rows) => html`<datalist id=${id}>${rows?.map(([value, text]) => html`<option value=${value}>${text}</option>`)}</datalist>`;
  const enter = (event) => {
    if (event.key !== "Enter" || event.shiftKey) return;
    event.preventDefault();
    event.target.form.requestSubmit();
  };
  return html`<div class="split rules"><form class="form" @submit=${submit} @input=${typed}><h1>Explain a verdict</h1>
      <p class="muted">What would come of this call in a run of yours that nothing untrusted has reached.</p>
      <label for="ex-tool">Tool</label><input class="field" id="ex-tool" name="tool" list="ex-tools" required autocomplete="off" .value=${form.tool}>${list("ex-tools", tools?.map((each) => [each.name, `${each.risk} risk`]))}
      <label for="ex-args">Arguments, a JSON object</label><textarea class="field code" id="ex-args" name="args" rows="4" spellcheck="false" placeholder=${example(chosen)} .value=${form.args} @keydown=${enter}></textarea>
      ${chosen ? html`<p class="small muted after">${takes(chosen)}</p>` : null}
      <label for="ex-agent">Agent</label><input class="field" id="ex-agent" name="agent" list="ex-agents" autocomplete="off" placeholder="default" .value=${form.agent}>${list("ex-agents", agents?.map((each) => [each.name, ""]))}
      <label for="ex-session">Session, whose grants count</label><input class="field" id="ex-session" name="session" list="ex-sessions" autocomplete="off" placeholder="none" .value=${form.session}>${list("ex-sessions", sessions?.map((each) => [each.session_id, each.title || each.key || ""]))}
      <p class="after"><button class="button go" ?disabled=${!context.isLive()}>Explain <kbd>Enter</kbd></button></p></form>
    <section class="pad" aria-label="Verdict" aria-live="polite">${verdict(context, rules, query)}</section></div>`;
}

const example = (tool) => `{${(tool?.parameters?.required ?? []).map((name) => `"${name}": …`).join(", ")}}`;

function takes({ parameters, description }) {
  const required = new Set(parameters?.required);
  const names = Object.keys(parameters?.properties ?? {}).map((name) => (required.has(name) ? name : `${name}?`));
  return `${description.split(/\.(?:\s|$)/)[0].slice(0, 160)}. Takes ${names.join(", ") || "nothing"}.`;
}

function verdict(context, rules, query) {
  if (!query.tool) return empty("No call yet", "Name a tool and its arguments: here is what the policies answer, which of them decides, and what a person would be offered. Nothing is executed.", "palyra policy explain shell command='git log'");
  const { result, error } = rules.verdict ?? {};
  if (error) return failure(error);
  if (!result) return skeleton(6);
  const [sign, look, says] = ANSWERS[result.answer];
  const held = (rules.grants ?? []).filter((each) => each.tool === query.tool && (each.scope === "timeboxed" || each.session_id === query.session));
  return html`<div class="verdict"><h1 class="state ${look}">${icon(sign)}<span>${says}</span></h1></div><p class="soft">${result.reason}</p>
    ${section("How it came to that", "", html`<span class="mono" title="${result.version}: the digest of all rules">${result.version.slice(0, 12)}…</span>`, html`<ol class="chain">
      <li><span class="n">1</span>${icon("check", "muted")}<span class="mono">arguments</span><span class="soft">one object, read as the tool takes it</span></li>
      <li><span class="n">2</span>${icon(held.length ? "check" : "queued", "muted")}<span class="mono">grants</span><span class="soft">${!rules.grants ? "not known" : held.length ? `${held.length} in force for ${query.tool}: ${held.map((each) => `${each.decision} ${each.key}`).join(", ")}` : `none in force for ${query.tool}${query.session ? " in this session" : ""}`}</span></li>
      ${(result.policies.length ? result.policies : [result.reason_code]).map((name, at) => html`<li class="hit-rule says-${result.answer}"><span class="n">${at + 3}</span>${icon(sign, look)}<span class="mono">${name}</span><span class="soft">decides: ${result.answer}</span></li>`)}</ol>`)}
    ${result.answer === "ask" ? section("What a person would be offered", "", null, html`<dl class="facts"><dt>Risk</dt><dd class=${["high", "critical"].includes(result.risk) ? "bad" : ""}>${result.risk}</dd><dt>Scopes</dt><dd>${result.scopes.join(", ")}</dd>
      ${result.grant_key ? html`<dt>Wider ones hold for</dt><dd class="mono">${result.grant_key}</dd>` : null}</dl>`) : null}
    ${section("Would a rule help?", "", null, html`<p class="after">Calls that people answered the same way again and again make <a href="#/rules/suggestions">suggestions</a>; a rule among the user policies answers in their place.</p>`)}`;
}

/** Grants, with what ends each of them. */
export function grantsView(context, rules, { query }, acts, sure) {
  const { grants } = rules;
  const live = grants.filter((each) => !each.ended_ms);
  const may = context.may("approvals:write");
  if (!grants.length) return empty("No grant is in force.", "An approval given for a session or a time is a grant: it answers further calls, and is listed and ended here.");
  return html`<h1>${sentence(many(live.length, "grant", live.length ? "grants" : "grant"))} ${live.length > 1 ? "are" : "is"} in force.</h1><p class="soft">Each answers calls of one tool by one agent in place of a person. Revoking takes effect at the next call.</p>
    <p class="after"><a href=${href("rules", ["grants"], { all: query.all ? null : "1" })}>${query.all ? "only those in force" : "also those that ended"}</a></p>
    <div class="scrolls"><table class="grid-table grants"><thead><tr><th>Tool</th><th>Holds for</th><th>Scope</th><th>Agent</th><th>Given by</th><th class="num">Ends</th><th><span class="aloud">Revoke</span></th></tr></thead><tbody>${grants.slice(0, 200).map((each) => html`<tr>
      <td><b>${each.tool}</b>${each.decision === "deny" ? html` <span class="bad">deny</span>` : null}</td><td class="mono folds" title=${each.workspace ? `in workspace ${each.workspace}` : null}>${each.key}</td>
      <td>${each.scope === "session" ? html`<a href=${href("session", [each.session_id])}>session ${tail(each.session_id)}</a>` : "timeboxed"}</td><td>${each.agent}</td>
      <td><a href=${href("inbox", [each.approval_id])}>${each.by}</a>, ${acts.ago(each.granted_ms)}</td><td class="num">${each.ended_ms ? `ended by ${each.ended_by}` : each.expires_ms ? acts.left(each.expires_ms) : "at a reset"}</td>
      <td class="num">${each.ended_ms ? null : sure({ key: each.grant_id, text: "Revoke", sure: "Revoke it: press again", label: `${each.tool} ${each.key}`, isOff: !may }, () => acts.tell("approval.revoke", { grant_id: each.grant_id }, `Revoked: ${each.tool} ${each.key}`))}</td></tr>`)}</tbody></table></div>
    ${grants.length > 200 ? html`<p class="muted">The newest 200 of ${grouped(grants.length)}.</p>` : null}`;
}
