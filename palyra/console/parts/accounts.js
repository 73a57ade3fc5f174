// Accounts of budgets, and the form that sets one.
//
// `own` is {says, isBusy, sure} of the screen; `acts` is {save(event, budget), remove(budget)}.

import { amount, toField } from "../fold/usage.js";
import { span } from "../fold/time.js";
import { tail } from "../fold/text.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { section } from "./section.js";
import { empty, failure, skeleton } from "./states.js";

const NEAR = 0.8;
const SCOPES = ["global", "principal", "agent", "session", "run"];
const WINDOWS = ["hour", "day", "month", "run"];
const ACTIONS = ["block", "ask", "warn"];

/** Accounts, and budgets that nothing was counted against yet. */
export function accountsView(context, { accounts, budgets, failed }, query, form) {
  const error = failed["budget.status"] ?? failed["budget.list"];
  const set = (id) => href("usage", [], { ...query, budget: id });
  const aside = context.may("usage:write") ? html`<a class="act" href=${set("new")}>Set a budget <kbd>b</kbd></a>` : html`<span>setting one needs usage:write</span>`;
  if (!accounts || !budgets) return section("Accounts", "", null, error ? failure(error) : skeleton());
  const used = new Set(accounts.accounts.map((each) => each.budget_id));
  const rows = [...accounts.accounts, ...budgets.filter((each) => !used.has(each.budget_id)).map((each) => ({ ...each, spent: 0, reserved: 0, left: each.hard }))];
  const count = accounts.left_out ? `${rows.length}, ${accounts.left_out} more` : rows.length;
  return section("Accounts", count, aside, [form, rows.length ? table(context, rows, new Map(budgets.map((each) => [each.budget_id, each])), set)
    : form ? null : empty("No budget", "A budget limits tokens or money of a window: of everything, or of each principal, agent, session or run.", "palyra budget set day --metric usd_micros --window day --hard 5000000")]);
}

function table(context, rows, budgets, set) {
  return html`<div class="scrolls"><table class="grid-table accounts"><thead><tr><th>Budget</th><th>Subject</th><th>Window</th><th>At the limit</th><th class="num">Spent</th><th class="num">Reserved</th><th class="num">Left</th><th class="num">Limit</th><th class="num">Resets in</th><th><span class="aloud">Change</span></th></tr></thead>
    <tbody>${keyed(rows, (each) => `${each.budget_id} ${each.subject}`, (each) => {
      const near = each.hard && each.spent >= each.hard * NEAR;
      const metric = each.metric;
      return html`<tr><td>${each.budget_id}</td><td title=${each.subject}>${each.scope === "global" ? "everything" : `${each.scope} ${each.subject === "*" ? "each" : each.subject.length > 24 ? tail(each.subject) : each.subject}`}</td><td>${each.window}</td><td>${budgets.get(each.budget_id)?.action ?? ""}</td>
        <td class="num ${near ? "wait strong" : ""}">${amount(each.spent, metric)}</td><td class="num">${amount(each.reserved, metric)}</td><td class="num">${amount(each.left, metric)}</td><td class="num">${amount(each.hard, metric)}${metric === "tokens" ? " tokens" : ""}</td>
        <td class="num">${each.window === "run" ? "with the run" : each.rolls_ms ? span(each.rolls_ms - context.now()) : ""}</td><td class="num"><a href=${set(each.budget_id)} aria-label="Change ${each.budget_id}">Change</a></td></tr>`;
    })}</tbody></table></div>`;
}

/** The form of one budget; `budget` is null for a new one. */
export function budgetForm(context, budget, own, acts, back) {
  const isFile = budget?.revision === 0;
  const may = context.isLive() && context.may("usage:write") && !isFile && !own.isBusy;
  const metric = budget?.metric ?? own.metric ?? "usd_micros";
  const unit = metric === "tokens" ? "in tokens" : "in dollars";
  const field = (name, text, value, rest = "") => html`<label>${text}<input class="field" name=${name} value=${value} ?disabled=${!may} autocomplete="off" placeholder=${rest}></label>`;
  const choice = (name, text, values, chosen, change) => html`<label>${text}<select class="field" name=${name} ?disabled=${!may} @change=${change}>${values.map((each) => html`<option value=${each} ?selected=${each === chosen}>${each === "usd_micros" ? "money" : each}</option>`)}</select></label>`;
  return html`<form class="budget" aria-label=${budget ? `Budget ${budget.budget_id}` : "New budget"} @submit=${(event) => acts.save(event, budget)}>
    <h3>${budget ? `Budget ${budget.budget_id}` : "New budget"}</h3>
    ${isFile ? html`<p class="wait">It stands in palyra.toml and is changed there; the change counts within seconds.</p>` : null}
    <div class="fields-row">
    ${budget ? null : [field("budget_id", "Name", "", "day"), choice("scope", "Of", SCOPES, "global"), field("subject", "Subject, * for each", "*"), choice("metric", "Counts", ["usd_micros", "tokens"], metric, (event) => acts.metric(event.target.value)), choice("window", "In each", WINDOWS, "day")]}
    ${field("soft", `Warns at, ${unit}`, toField(budget?.soft, metric), "never")}${field("hard", `Limit, ${unit}`, toField(budget?.hard, metric), "none")}${choice("action", "At the limit", ACTIONS, budget?.action ?? "block")}</div>
    <p class="after"><button class="button go" ?disabled=${!may}>Save</button> <a class="button quiet" href=${back}>Back <kbd>Esc</kbd></a>
      ${budget && !isFile ? html`<button class="button quiet" type="button" ?disabled=${!may} @click=${() => acts.remove(budget)}>${own.sure === budget.budget_id ? "Delete it: press again" : "Delete …"}</button>` : null}</p>
    ${own.says ? html`<p class="after bad" role="alert">${own.says}</p>` : null}</form>`;
}
