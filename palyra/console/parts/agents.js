// Agents with their versions and instructions; skills and text skills.

import { many, sentence } from "../fold/text.js";
import { moment } from "../fold/time.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { icon } from "./icon.js";
import { section } from "./section.js";
import { empty, failure, skeleton } from "./states.js";

export function agentsView(context, { agents, agent }, { parts }, acts) {
  const chosen = parts[1];
  const toolsOf = ({ tools }) => (!tools || tools.includes("*") ? "every tool" : tools.length ? tools.join(", ") : "none");
  return html`<h1>${sentence(many(agents.length, "agent"))}.</h1><p class="soft">An agent is instructions, a model and the tools that it may call; a change makes its next version, and a run keeps the one that it began with.</p>
    <div class="scrolls"><table class="grid-table models"><thead><tr><th>Agent</th><th>Version</th><th>Model</th><th>Tools</th><th>Labels</th><th>Memory</th><th class="num">Changed</th></tr></thead><tbody>
    ${keyed(agents, (each) => each.name, (each) => html`<tr class=${each.name === chosen ? "selected" : ""}><td><a href=${href("rules", ["agents", each.name])}>${each.name}</a></td><td>${each.version ? each.version : html`<span class="muted">built in</span>`}</td><td>${each.model ?? html`<span class="muted">default</span>`}</td>
      <td class="cut narrow-cell" title=${toolsOf(each)}>${toolsOf(each)}</td><td>${each.labels?.join(", ")}</td><td>${each.memory_scope}</td><td class="num" title=${moment(each.updated_ms)}>${each.updated_ms ? `${acts.ago(each.updated_ms)} ago` : ""}</td></tr>`)}</tbody></table></div>
    ${chosen ? section(`Instructions of ${chosen}`, agent?.name === chosen && agent.version ? `version ${agent.version}` : "", html`<a class="act" href=${href("runs", [], { agent: chosen })}>its runs</a>`, agent?.error ? failure(agent.error) : agent?.name === chosen ? html`<pre class="after">${agent.instructions}</pre>` : skeleton()) : null}`;
}

export function skillsView(context, { skills, audit }, { parts }, acts, sure) {
  const { skills: list, texts = [], obstacle } = skills;
  const chosen = list.find((each) => each.id === parts[1]);
  return html`<h1>${list.length || texts.length ? `${sentence(many(list.length, "skill"))} and ${many(texts.length, "text skill")}.` : "No skill is installed."}</h1>
    ${obstacle ? html`<p class="wait state">${icon("warn")}<span>${obstacle}</span></p>` : null}
    ${section("Skills", list.length, null, list.length ? html`<div class="scrolls"><table class="grid-table models"><thead><tr><th>Skill</th><th>State</th><th>Version</th><th>Publisher</th><th>Tools</th><th>May</th><th class="num">Changed</th></tr></thead><tbody>
      ${keyed(list, (each) => each.id, (each) => html`<tr class=${each === chosen ? "selected" : ""}><td><a href=${href("rules", ["skills", each.id])}>${each.id}</a></td><td>${each.state === "enabled" ? html`<span class="muted">enabled</span>` : html`<span class="bad">${each.state}</span>`}</td><td>${each.version}</td><td>${each.publisher}</td>
        <td>${each.tools.length}</td><td class="cut narrow-cell" title=${`${each.granted.join(", ")} of ${each.capabilities.join(", ")}`}>${each.granted.join(", ") || "nothing beyond its input"}</td><td class="num">${acts.ago(each.changed_ms)} ago by ${each.changed_by}</td></tr>`)}</tbody></table></div>`
      : empty("No skill", "A skill is a signed package of tools that run in WASM; each is one line here.", "palyra skills install FILE"))}
    ${parts[1] && !chosen ? failure({ code: "not_found", message: `There is no skill ${parts[1]}.` }) : null}
    ${chosen ? skillView(context, chosen, audit, acts, sure) : null}
    ${section("Text skills", texts.length, null, texts.length ? html`<ul>${keyed(texts, (each) => `${each.workspace} ${each.folder}`, (each) => html`<li class="after"><b>${each.name}</b> <span class="mono muted">${each.folder}</span>${each.problem ? html` <span class="bad">${each.problem}</span>` : null}<p class="small muted">${each.description}</p></li>`)}</ul>`
      : html`<p class="after muted">A folder with SKILL.md in the workspace is one line here.</p>`)}`;
}

function skillView(context, skill, audit, acts, sure) {
  const may = context.may("skills:write") && context.isLive();
  const quarantine = (event) => {
    event.preventDefault();
    void acts.tell("skill.quarantine", { id: skill.id, reason: event.target.elements.reason.value.trim() }, `${skill.id} is quarantined`);
  };
  const facts = [["Package", html`<span class="mono">${skill.package_sha256}</span>`], ["Key", html`<span class="mono">${skill.public_key}</span>`], ["Asks for", skill.capabilities.join(", ") || "nothing"], ["Granted", skill.granted.join(", ") || "nothing"], ["Reason", skill.reason]];
  return section(skill.id, skill.version, null, html`<p class="after soft">${skill.description}</p><dl class="facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>
    <ul class="after">${skill.tools.map((tool) => html`<li><b class="mono">${tool.name}</b> <span class="muted">${tool.risk} risk, ${tool.tool_class}</span> <span class="soft">${tool.description}</span></li>`)}</ul>
    <p class="after"><button class="button" ?disabled=${!context.isLive()} @click=${() => acts.audit(skill.id)}>Audit the package</button>
      ${skill.state === "enabled" ? null : sure({ key: skill.id, text: "Enable …", sure: "Enable it: press again", isOff: !may }, () => acts.tell("skill.enable", { id: skill.id }, `${skill.id} is enabled`))}</p>
    ${audit?.id === skill.id ? html`<p class="after ${audit.problems.length ? "bad" : "ok"}" role="status">${audit.problems.length ? audit.problems.join("; ") : "The package is unchanged and is what its manifest says."}</p>` : null}
    ${skill.state === "enabled" ? html`<form class="inline-form after" @submit=${quarantine}><input class="field" name="reason" aria-label="Reason of a quarantine" placeholder="Reason" maxlength="500" required ?disabled=${!may}><button class="button" ?disabled=${!may}>Quarantine</button></form>` : null}`);
}
