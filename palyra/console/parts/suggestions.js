// Rules that would have answered what people answered the same way, each with its proof; those written can be undone.

import { grouped, many, sentence, tail } from "../fold/text.js";
import { moment } from "../fold/time.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { section } from "./section.js";
import { empty } from "./states.js";

const CALLS = 5;

export function suggestionsView(context, { suggested }, { query }, acts, sure) {
  const { suggestions, proof, applied = [] } = suggested;
  const may = context.may("policies:write");
  const min = Number(query.min) || 3;
  const params = (each) => ({ suggestion_id: each.suggestion_id, min_answers: min, folders: Boolean(query.folders) });
  const set = (patch) => href("rules", ["suggestions"], { ...query, ...patch });
  return html`<h1>${suggestions.length ? `${sentence(many(suggestions.length, "rule"))} would ask people less.` : "No rule is suggested."}</h1>
    <p class="soft">A rule is suggested when people allowed at least ${min} calls that it covers, and never one that a person denied. ${proof.decisions ? `${grouped(proof.decisions)} recorded decisions were tried.` : "No decision is recorded yet."}</p>
    <p class="after legend"><a href=${set({ min: min === 2 ? null : 2 })}>${min === 2 ? "at least three answers" : "two answers are enough"}</a><a href=${set({ folders: query.folders ? null : "1" })}>${query.folders ? "without whole folders" : "also for whole folders"}</a></p>
    ${suggestions.length ? null : empty("Nothing to ask less about", "As soon as the same kind of call was allowed several times, the narrowest rule for it is here, with the calls that it would have answered.", "palyra policy suggest")}
    ${keyed(suggestions, (each) => each.suggestion_id, (each) => html`<section class="sec" aria-label=${each.title}><header><h2>${each.title}</h2><span class="right">${grouped(each.answers)} answers in ${many(each.runs, "run")}</span></header>
      <p class="small muted after">${each.tool} of agent ${each.agent} for ${each.principal}</p><pre class="cmd">${each.cedar}</pre>
      <ul class="after">${each.calls.slice(0, CALLS).map((call) => html`<li class="small cut"><a href=${href("run", [call.run_id])} title=${moment(call.at_ms)}>run ${tail(call.run_id)}</a> <span class="mono">${call.summary}</span></li>`)}${each.answers > CALLS ? html`<li class="small muted">and ${grouped(each.answers - CALLS)} more</li>` : null}</ul>
      <p class="after">${sure({ key: each.suggestion_id, text: "Write this rule …", sure: "Write it: press again", label: each.title, look: "", isOff: !may }, () => acts.tell("policy.apply_suggestion", params(each), "The rule is written"))}</p></section>`)}
    ${proof.decisions ? section("The proof", "", null, html`<dl class="facts">${Object.entries(proof).filter(([, count]) => count).map(([name, count]) => html`<dt>${name}</dt><dd>${grouped(count)}</dd>`)}</dl>`) : null}
    ${applied.length ? section("Written rules", applied.length, null, keyed(applied, (each) => each.suggestion_id, (each) => html`<div class="after"><p class="spread"><span class="mono">${each.file}</span>
      ${each.is_edited ? html`<span class="wait">edited since: remove it by hand</span>` : sure({ key: each.suggestion_id, text: "Undo …", sure: "Undo it: press again", label: each.file, isOff: !may }, () => acts.tell("policy.undo", { suggestion_id: each.suggestion_id }, "The rule is removed"))}</p>
      <pre class="cmd">${each.cedar}</pre></div>`)) : null}`;
}
