// The frame: top bar with the lamp and the gauges, navigation, and the screen in the middle.

import { dayAccount, isOpen } from "./overview.js";
import { headline } from "./fold/money.js";
import { clock, span, timeOfDay } from "./fold/time.js";
import { icon } from "./parts/icon.js";
import { html, keyed } from "./view.js";

const SOON_MS = 300_000;
const NEW_MS = 10_000; // "restarted" is said for so long

/** The whole page but for dialogs. */
export function frame(context, screens, main) {
  const { state } = context.store;
  return html`
    <a class="skip" href="#main" @click=${skip}>Skip to the content</a>
    <header class="bar">
      <span class="brand">palyra <span>${location.hostname}</span></span>
      ${lamp(context)}
      <button class="go-to" @click=${context.openPalette}>${icon("search")}Go to a run, session, id<kbd>Ctrl K</kbd></button>
      ${gauges(context, state)}
    </header>
    <nav class="nav" aria-label="Screens">
      ${keyed(screens.filter((each) => each.key), (each) => each.name, (each) => link(each, context))}
      <button class="more" @click=${context.openPalette}>More</button>
      ${who(context, state)}
    </nav>
    <main class="main" id="main" tabindex="-1">${main}</main>`;
}

/** Skipping moves the focus and leaves the address alone. */
function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function link({ name, title, isThumb, isApart, under = [] }, context) {
  const isHere = context.route.screen === name || under.includes(context.route.screen);
  const { questions, incidents } = context.store.state;
  const count = { inbox: questions?.length, health: incidents?.filter(isOpen).length }[name];
  const says = { inbox: "questions wait", health: "incidents are open" }[name];
  return html`<a class="plain ${isThumb ? "thumb" : ""} ${isApart ? "apart" : ""}" href="#/${name}"
    aria-current=${isHere ? "page" : null}><span>${title}</span>${count
      ? html`<span class="count ${name === "inbox" ? "wait" : "bad"}" title="${count} ${says}">${count}</span>`
      : null}</a>`;
}

/** The state of the connection: word, colour and age. */
export function lamp(context) {
  const [word, says, look] = describeLamp(context);
  return html`<span class="lamp ${look}"><b>${word}</b> ${says}${look === "new"
    ? html` <button class="link" @click=${() => location.reload()}>reload</button>`
    : null}</span>`;
}

function describeLamp({ wire, store: { state } }) {
  if (state.ended) return ["closed", state.ended.message, "stale"];
  if (!wire) return ["connecting", state.lost_ms ? "no answer yet" : "", "wait"];
  if (state.lost_ms) return ["stale", `since ${timeOfDay(state.lost_ms)}`, "stale"];
  if (state.is_newer) return ["new version", "", "new"];
  if (state.catching !== undefined) return ["catching up", `${Math.floor(state.catching * 100)} %`, "wait"];
  if (state.status?.state === "draining") return ["draining", "no new runs", "stale"];
  if (state.restarted_ms > Date.now() - NEW_MS) return ["restarted", "everything is read again", ""];
  return ["live", span(performance.now() - (wire.receivedMs ?? 0)), ""];
}

function gauges(context, { questions, incidents, today, accounts }) {
  const open = incidents?.filter(isOpen) ?? [];
  const first = questions?.[0];
  const left = first && first.expires_ms - context.now();
  const account = dayAccount(accounts);
  return html`<nav class="gauges ${context.isLive() ? "" : "dim"}" aria-label="What needs attention">
    ${first && html`<a href="#/inbox"><b class=${left < SOON_MS ? "wait" : "wait calm"}>${questions.length} ${questions.length === 1 ? "waits" : "wait"}</b><span class="only-wide">, first ends in ${clock(left)}</span></a>`}
    ${open.length ? html`<a class="only-wide" href="#/health/incidents"><b class="bad">${open.length} ${open.length === 1 ? "incident" : "incidents"}</b></a>` : null}
    ${today && html`<a class="only-wide" href="#/usage">today <b class="strong">${headline(today.cost_usd_micros ?? 0)}</b>${account?.hard ? ` of ${headline(account.hard)}` : ""}</a>`}
  </nav>`;
}

function who(context, { welcome, hello }) {
  if (!welcome) return null;
  return html`<div class="who"><span title=${welcome.principal}>${welcome.principal === welcome.role ? welcome.role : `${welcome.principal}, ${welcome.role}`}</span>
    <span><button class="link" @click=${context.toggleTheme}>${context.theme()}</button></span>
    <span><button class="link" @click=${context.toggleDensity}>${context.density()} rows</button> · <button class="link" @click=${context.openHelp} aria-keyshortcuts="?">keys</button></span>
    <span><button class="link" @click=${context.logOut}>log out</button> · version ${hello?.version}</span></div>`;
}

/** The title of the window carries the count. */
export function titleOf({ questions }, screen) {
  const count = questions?.length;
  return `${count ? `(${count}) ` : ""}${screen} · palyra`;
}

/** A line above the screen while figures are old. */
export function staleLine({ lost_ms, ended }) {
  if (ended || !lost_ms) return null;
  return html`<p class="stale-line">${icon("warn")}<span><b>stale since ${timeOfDay(lost_ms)}</b>. The page connects again by itself; until then nothing can be answered.</span></p>`;
}
