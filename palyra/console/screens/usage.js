// Usage: what was spent, by whom, when, and against which limit.
//
// State: `usage` = {stamp (what the figures are of), from, sums, totals, split, accounts, budgets, failed, own}.
// Figures stay while others of the same question are read, and never across a change of it.

import { columnsOf, fromField, namesOf, nearest, PERIODS, shown, startOf, ticksOf, valueOf } from "../fold/usage.js";
import { headline } from "../fold/money.js";
import { grouped, tail } from "../fold/text.js";
import { minute, moment } from "../fold/time.js";
import { dayAccount } from "../overview.js";
import { accountsView, budgetForm } from "../parts/accounts.js";
import { empty, failure, skeleton } from "../parts/states.js";
import { plotTable, shade, timePlot } from "../parts/time-plot.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";

export const title = "Usage";

const EVERY_MS = 5_000;
const KINDS = ["model", "agent", "principal", "session"];
const MOST = 500;

let timer;
let isReading = false;
let isStaleAgain = false;
let wantsForm = false; // the focus goes to the form that a person opened

export function open(context, route) {
  close();
  context.store.state.usage ??= { failed: {}, own: {} };
  timer = setInterval(() => document.hidden || void read(context), EVERY_MS);
  moved(context, route);
}

export function close() {
  clearInterval(timer);
}

export function moved(context, { query }) {
  const { usage } = context.store.state;
  if (!usage) return;
  wantsForm = Boolean(query.budget) && usage.form !== query.budget;
  usage.form = query.budget;
  usage.own = {};
  void read(context);
}

const asked = ({ query }) => ({ by: KINDS.includes(query.by) ? query.by : "model", since: PERIODS[query.since] ? query.since : "24h" });

async function read(context) {
  if (!context.isLive()) return;
  if (isReading) return void (isStaleAgain = true);
  isReading = true;
  isStaleAgain = false;
  const { usage } = context.store.state;
  const { by, since } = asked(context.route);
  const stamp = `${by} ${since}`;
  const from = startOf(PERIODS[since], Math.round(context.now()));
  const step = PERIODS[since].by;
  const get = async (method, params = {}) => {
    try {
      const found = await context.ask(method, params);
      delete usage.failed[method];
      return found;
    } catch (error) {
      if (context.isLive()) usage.failed[method] = error;
      return null;
    }
  };
  const [sums, totals, split, accounts, budgets] = await Promise.all([
    get("usage.summary", { by, since_ms: from, limit: MOST }), get("usage.summary", { by: step, since_ms: from, limit: MOST }), get("usage.summary", { by: step, split: by, since_ms: from, limit: MOST }),
    get("budget.status", { limit: MOST }), get("budget.list"),
  ]);
  if (sums && totals && split) Object.assign(usage, { stamp, from, sums, totals: totals.groups, split: split.groups });
  Object.assign(usage, { accounts, budgets: budgets?.budgets });
  isReading = false;
  context.store.touch();
  if (isStaleAgain) void read(context);
}

const actsOf = (context) => {
  const { own } = context.store.state.usage;
  const leave = () => context.go(href("usage", [], { ...context.route.query, budget: null }));
  const tell = async (method, params, says) => {
    own.isBusy = true;
    try {
      await context.ask(method, params);
      context.announce(says);
      leave();
      void context.refresh();
    } catch (error) {
      own.says = `${error.code}: ${error.message}`;
    }
    own.isBusy = false;
    await read(context);
  };
  return {
    metric: (metric) => void ((own.metric = metric), context.store.touch()),
    save: (event, budget) => {
      event.preventDefault();
      const given = Object.fromEntries(new FormData(event.target));
      const { budget_id, scope, subject, metric, window, window_ms } = budget ?? given;
      try {
        const amounts = { soft: fromField(given.soft, metric), hard: fromField(given.hard, metric) };
        void tell("budget.set", { budget_id, scope, subject, metric, window, window_ms, action: given.action, ...amounts }, `Budget ${budget_id} is set`);
      } catch (error) {
        own.says = error.message;
        context.store.touch();
      }
    },
    remove: ({ budget_id: id }) => {
      if (own.sure === id) return void tell("budget.delete", { budget_id: id }, `Budget ${id} is deleted`);
      own.sure = id;
      context.store.touch();
    },
  };
};

// --- What is shown ------------------------------------------------------------------------------

export function view(context, route) {
  const { usage } = context.store.state;
  if (!usage) return html`<div class="pad"></div>`;
  const { by, since } = asked(route);
  const tabs = (rows, chosen, name, says) => html`<nav class="tabs" aria-label=${says}>${rows.map(([key, text]) => html`<a class="plain" href=${href("usage", [], { ...route.query, [name]: key })} aria-current=${key === chosen ? "page" : null}>${text}</a>`)}</nav>`;
  return html`<div class="pad usage ${context.isLive() ? "" : "dim"}"><div class="head"><h1>Usage</h1><span class="right choices">
      ${tabs(Object.entries(PERIODS).map(([key, each]) => [key, each.says]), since, "since", "Period")}${tabs(KINDS.map((each) => [each, `by ${each}`]), by, "by", "Grouped")}</span></div>
    ${figures(context, usage, since)}${spent(context, usage, route, by, since)}${accountsView(context, usage, route.query, form(context, usage, route))}</div>`;
}

function form(context, usage, { query }) {
  if (!query.budget || !usage.budgets) return null;
  const budget = usage.budgets.find((each) => each.budget_id === query.budget);
  if (!budget && query.budget !== "new") return failure({ code: "not_found", message: `There is no budget ${query.budget}.` });
  if (wantsForm) requestAnimationFrame(focusForm);
  return budgetForm(context, budget ?? null, usage.own, actsOf(context), href("usage", [], { ...query, budget: null }));
}

function focusForm() {
  const field = document.querySelector("form.budget input:not([disabled])");
  if (!wantsForm || !field) return;
  wantsForm = false;
  field.focus();
}

/** What was spent, today's part of its limit, what open calls hold, and the account nearest to its limit. */
function figures(context, usage, since) {
  const { today, accounts } = context.store.state;
  const known = usage.accounts?.accounts ?? accounts;
  const list = known ?? [];
  const day = dayAccount(list);
  const near = nearest(list);
  const reserved = Math.max(0, ...list.filter((each) => each.metric === "usd_micros").map((each) => each.reserved));
  const share = near ? near.spent / near.hard : 0;
  const isNear = share >= 0.8;
  const of = near && (near.scope === "global" ? "everything" : `${near.scope} ${near.subject.length > 24 ? tail(near.subject) : near.subject}`);
  const figure = (says, value, look = "") => html`<div><p class=${look || "muted"}>${says}</p><p class="figure ${look}">${value}</p></div>`;
  const isKnown = usage.stamp?.endsWith(` ${since}`);
  return html`<div class="figures">${figure(`Last ${PERIODS[since].says}`, isKnown ? headline(usage.sums.total.cost_usd_micros ?? 0) : "…")}
    ${figure(day?.hard ? `Today, of ${headline(day.hard)}` : "Today, since midnight UTC", today ? headline(today.cost_usd_micros ?? 0) : "…")}
    ${figure("Reserved by open calls", known ? headline(reserved) : "…", "muted")}
    ${near ? figure(`${near.budget_id}, ${of}`, `${Math.floor(share * 100)} %`, isNear ? "wait" : "") : figure("Of a limit", known ? "none set" : "…", "muted")}</div>`;
}

function spent(context, usage, { query }, by, since) {
  const error = usage.failed["usage.summary"];
  if (usage.stamp !== `${by} ${since}`) return error ? failure(error, () => read(context)) : skeleton(8);
  const { sums, from } = usage;
  if (!sums.total.calls) return empty("No call", `No model was asked in the last ${PERIODS[since].says}. Each call is counted here by hour, with its tokens and its cost.`, "palyra run '/say hello'");
  const of = query.of ?? (sums.total.cost_usd_micros ? "cost" : "tokens");
  const names = namesOf(sums.groups, of);
  const columns = columnsOf(PERIODS[since], from, usage.totals, usage.split, names, of);
  const step = PERIODS[since].by;
  const plot = { columns, names, step: PERIODS[since].step, ticks: ticksOf(Math.max(...columns.map((each) => each.total))), show: (value) => shown(value, of),
    says: `${of === "tokens" ? "Tokens" : "Cost"} by ${step}, stacked by ${by}; the table has the same figures` };
  const isTable = query.as === "table";
  const link = (patch, text) => html`<a href=${href("usage", [], { ...query, ...patch })}>${text}</a>`;
  return [html`<p class="legend spaced"><span>${of === "tokens" ? "Tokens" : "Cost"} by ${step}, since <time title=${moment(from, true)}>${minute(from)}</time></span>
      ${link({ of: of === "tokens" ? "cost" : "tokens" }, of === "tokens" ? "show cost" : "show tokens")} <span class="right">${link({ as: isTable ? null : "table" }, html`${isTable ? "as a plot" : "as a table"} <kbd>t</kbd>`)}</span></p>`,
    isTable ? plotTable(plot) : timePlot(plot), table(sums, names, by)];
}

const LINKS = { session: (key) => href("session", [key]), agent: (key) => href("runs", [], { agent: key }), principal: (key) => href("runs", [], { principal: key }) };

function table({ groups, total, is_cut: isCut }, names, by) {
  const cells = (each) => html`<td class="num">${grouped(each.calls ?? 0)}</td><td class="num">${grouped(each.input_tokens ?? 0)}</td><td class="num">${grouped(each.cached_tokens ?? 0)}</td><td class="num">${grouped(each.output_tokens ?? 0)}</td><td>${aloud(each)}</td><td class="num">${shown(each.cost_usd_micros ?? 0, "cost")}</td>`;
  const shadeOf = (key) => shade(names.includes(key) ? names.indexOf(key) : 3);
  return html`<section class="sec scrolls" aria-label="Sums"><table class="grid-table models sums"><thead><tr><th>${by.charAt(0).toUpperCase() + by.slice(1)}</th><th class="num">Calls</th><th class="num">Input</th><th class="num">of it cached</th><th class="num">Output</th><th>Said aloud</th><th class="num">Cost</th></tr></thead>
    <tbody>${keyed(groups, (each) => each.key, (each) => html`<tr><td title=${each.key}><span class="key">${shadeOf(each.key)}${LINKS[by] && each.key ? html`<a href=${LINKS[by](each.key)}>${by === "session" ? tail(each.key) : each.key}</a>` : each.key || "none"}</span></td>${cells(each)}</tr>`)}</tbody>
    <tfoot><tr><td>Sum${isCut ? html` <span class="muted">of all, the largest ${groups.length} above</span>` : null}</td>${cells(total)}</tr></tfoot></table></section>`;
}

/** What a sum leaves out or guesses. */
function aloud({ unpriced_calls: unpriced, estimated_calls: estimated, broken_calls: broken }) {
  const parts = [unpriced && html`<span class="wait">${grouped(unpriced)} unpriced: not in the sum</span>`, estimated && html`<span class="muted">${grouped(estimated)} estimated</span>`, broken && html`<span class="muted">${grouped(broken)} not completed</span>`];
  return parts.filter(Boolean).map((each, at) => [at ? ", " : "", each]);
}

const change = (context, patch) => context.go(href("usage", [], { ...context.route.query, ...patch }));

export const keys = (context) => [
  { key: "t", what: "Table instead of plot", act: () => change(context, { as: context.route.query.as ? null : "table" }) },
  { key: "b", what: "Set a budget", act: () => change(context, { budget: "new" }) },
  { key: "[", what: "The grouping before", act: () => change(context, { by: turn(context, -1) }) },
  { key: "]", what: "The next grouping", act: () => change(context, { by: turn(context, 1) }) },
  { key: "Escape", what: "Leave the form", act: () => context.route.query.budget ? change(context, { budget: null }) : false },
];

const turn = (context, by) => KINDS[(KINDS.indexOf(asked(context.route).by) + by + KINDS.length) % KINDS.length];
