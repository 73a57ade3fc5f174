// Rules: what would be decided, which grants hold, what asks too often, who may connect.
//
// State: `rules` = {tools, agents, sessions, grants, suggested, skills, tokens (of the tab in view), failed (tab ->
// error), form (of what to explain, as typed), verdict, agent, audit, made, own {sure, says, isBusy}}.

import { clock, span } from "../fold/time.js";
import { LEAVE } from "../keys.js";
import { agentsView, skillsView } from "../parts/agents.js";
import { explainView, grantsView, questionOf } from "../parts/explain.js";
import { failure, skeleton } from "../parts/states.js";
import { suggestionsView } from "../parts/suggestions.js";
import { sure } from "../parts/sure.js";
import { tokensView } from "../parts/tokens.js";
import { href } from "../route.js";
import { html } from "../view.js";

export const title = "Rules";

const EVERY_MS = 5_000;
const MOST = 500;

// What each tab reads: state below `rules`, method, params, and the part of the answer.
const TABS = {
  explain: { says: "Explain", reads: [["tools", "tool.list", () => ({}), "tools"], ["agents", "agent.list", () => ({}), "agents"], ["sessions", "session.list", () => ({ limit: 200 }), "sessions"], ["grants", "approval.grants", () => ({ limit: MOST }), "grants"]] },
  grants: { says: "Grants", isLive: true, view: grantsView, reads: [["grants", "approval.grants", ({ query }) => ({ live_only: !query.all, limit: MOST }), "grants"]] },
  suggestions: { says: "Suggestions", view: suggestionsView, reads: [["suggested", "policy.suggest", ({ query }) => ({ min_answers: Number(query.min) || 3, folders: Boolean(query.folders) })]] },
  agents: { says: "Agents", isLive: true, view: agentsView, reads: [["agents", "agent.list", () => ({}), "agents"]] },
  skills: { says: "Skills", isLive: true, view: skillsView, reads: [["skills", "skill.list", () => ({})]] },
  tokens: { says: "Tokens", isLive: true, view: tokensView, reads: [["tokens", "token.list", () => ({}), "tokens"]] },
};

let timer;

const tabOf = ({ parts }) => (Object.hasOwn(TABS, parts[0] ?? "") ? parts[0] : "explain");

export function open(context, route) {
  clearInterval(timer); // connected again: what was made stays until it is left
  context.store.state.rules = { ...context.store.state.rules, failed: {}, own: {} };
  timer = setInterval(() => document.hidden || (TABS[tabOf(context.route)].isLive && void read(context)), EVERY_MS);
  moved(context, route);
}

export function close({ store: { state } }) {
  clearInterval(timer);
  if (state.rules) delete state.rules.made; // a secret is not kept
}

export function moved(context, route) {
  const { rules } = context.store.state;
  if (!rules) return;
  const tab = tabOf(route);
  if (rules.tab !== tab) delete rules.made;
  rules.tab = tab;
  rules.own = {};
  const { tool = "", args = "", agent = "", session = "" } = route.query;
  rules.form = { tool, args, agent, session };
  void read(context);
  if (tab === "agents" && route.parts[1]) void readAgent(context, route.parts[1]);
  if (tab === "explain") void explain(context, route);
  rules.again = () => void explain(context, context.route);
}

async function read(context) {
  if (!context.isLive()) return;
  const { rules } = context.store.state;
  const { route } = context;
  const tab = tabOf(route);
  await Promise.all(TABS[tab].reads.map(async ([name, method, params, part]) => {
    try {
      const found = await context.ask(method, params(route));
      if (context.route !== route) return; // another question was asked meanwhile
      rules[name] = part ? found[part] : found;
      rules.failed = { ...rules.failed, [name]: undefined };
    } catch (error) {
      if (context.isLive()) rules.failed = { ...rules.failed, [name]: error };
    }
  }));
  context.store.touch();
}

async function readAgent(context, name) {
  const { rules } = context.store.state;
  try {
    rules.agent = await context.ask("agent.get", { name });
  } catch (error) {
    rules.agent = { name, error };
  }
  context.store.touch();
}

async function explain(context, { query }) {
  const { rules } = context.store.state;
  if (!query.tool) return;
  const stamp = JSON.stringify(query);
  if (rules.verdict?.stamp !== stamp) rules.verdict = { stamp };
  try {
    const result = await context.ask("policy.explain", questionOf(query));
    if (rules.verdict.stamp === stamp) rules.verdict = { stamp, result };
  } catch (error) {
    const isOurs = error instanceof SyntaxError || error instanceof TypeError;
    rules.verdict = { stamp, error: isOurs ? { code: "invalid_params", message: `The arguments are not a JSON object: ${error.message}`, retryable: false } : error };
  }
  context.store.touch();
}

function actsOf(context) {
  const { rules } = context.store.state;
  const { own } = rules;
  const doing = async (act) => {
    own.isBusy = true;
    own.says = null;
    try {
      await act();
      await read(context);
    } catch (error) {
      own.says = `${error.code}: ${error.message}`;
    }
    own.isBusy = false;
    context.store.touch();
  };
  return {
    ago: (ms) => span(context.now() - ms),
    left: (ms) => (ms - context.now() < 3_600_000 ? clock(ms - context.now()) : span(ms - context.now())),
    tell: (method, params, says) => doing(async () => {
      await context.ask(method, params);
      context.announce(says);
    }),
    make: (method, params, shown) => doing(async () => {
      rules.made = shown(await context.ask(method, params));
    }),
    audit: (id) => doing(async () => {
      rules.audit = { ...(await context.ask("skill.audit", { id })), id };
    }),
    forget: () => {
      delete rules.made;
      context.store.touch();
    },
  };
}

// --- What is shown ------------------------------------------------------------------------------

export function view(context, route) {
  const { rules } = context.store.state;
  const tab = tabOf(route);
  return html`<div class="rules-page ${context.isLive() ? "" : "dim"}"><nav class="tabs" aria-label="Kinds">${Object.entries(TABS).map(([name, each]) => html`<a class="plain" href=${href("rules", [name])} aria-current=${name === tab ? "page" : null}>${each.says}</a>`)}</nav>
    ${rules ? (tab === "explain" ? explainView(context, rules, route) : panel(context, rules, route, TABS[tab])) : null}</div>`;
}

function panel(context, rules, route, { reads: [[name]], view: of, says }) {
  const error = rules.failed[name];
  const isShown = rules[name] && !error;
  return html`<div class="pad">${rules.own.says ? html`<p class="bad" role="alert">${rules.own.says}</p>` : null}
    ${isShown ? of(context, rules, route, actsOf(context), (button, act) => sure(context, rules.own, button, act)) : html`<h1>${says}</h1>${error ? failure(error, () => read(context)) : skeleton(6)}`}</div>`;
}

function turn(context, by) {
  const names = Object.keys(TABS);
  context.go(href("rules", [names[(names.indexOf(tabOf(context.route)) + by + names.length) % names.length]]));
}

const focus = (selector) => () => document.querySelector(selector)?.focus() ?? undefined;

export const keys = (context) => [
  { key: "]", what: "Next tab", act: () => turn(context, 1) },
  { key: "[", what: "The tab before", act: () => turn(context, -1) },
  { key: "/", what: "The tool to explain", act: focus("#ex-tool") },
  { key: "c", what: "Make a token", act: focus(".rules-page form[aria-label='Make a token'] input") },
  LEAVE,
];
