// The page: connection, address, keys, and the table of screens.
//
// --- How a screen is written ----------------------------------------------------------------------
//
// A row of SCREENS and a module screens/NAME.js that exports
//
//     title                     of the window and of the history
//     open(context, route)      starts reading; called when the screen is entered, when its address
//                               changes (unless `moved` is there), and after each new connection
//     view(context, route)      a template (view.js) made of state alone; at most once a frame
//     close(context)            ends subscriptions and timers; called before the screen is left
//     moved(context, route)     optional: the address changed within the screen
//     keys                      optional: a table or a function of the context that returns one,
//                               rows {key, what, act(event)}; `act` returns false for "not mine"
//
// and takes all it needs from `context`:
//
//     wire                      the client (client.js): call, events, notices, runs; null before the first connection
//     ask(method, params)       wire.call; rejects with {code, message, retryable}
//     store.state, store.set    the state of the page; a screen keeps its own below its name:
//                               store.state.runs = {...}.  What all share is described in overview.js
//     store.touch()             state was changed in place: draw again in the next frame
//     route                     {screen, parts, query} of the address (route.js); href(...) makes one
//     go(href), replace(href)   another address, as an entry of the history or in place of this one; followed at once,
//                               so that a quick second key goes on from where the first has led
//     announce(text, {once, isUrgent})
//     now()                     the daemon's clock in ms; ages and expiries are against it
//     isLive()                  false while the socket is lost: nothing may be answered
//     may(scope)                whether this role has a scope, as `approvals:write`
//     refresh()                 read the shared lists of overview.js again
//
// A screen's root is one element (`html` with one outermost tag fills the middle: class `pad` for a
// page that scrolls, `split` with a class of the screen for columns, see console.css).  Parts:
// parts/icon.js (icon, state, phase), parts/states.js (empty, failure, skeleton), parts/section.js.
// Text in holes is safe by itself; never hand markup on.  No style attributes.

import { announce } from "./announce.js";
import { connect } from "./client.js";
import { frame, staleLine, titleOf } from "./frame.js";
import { Keys } from "./keys.js";
import { Overview } from "./overview.js";
import { openHelp } from "./parts/help.js";
import { openPalette } from "./parts/palette.js";
import { failure, skeleton } from "./parts/states.js";
import { href, parse } from "./route.js";
import { login } from "./screens/login.js";
import { endpoint, forgetLogin, hasLogin, logIn, takeCode } from "./session.js";
import { Store } from "./store.js";
import { html, render } from "./view.js";

// `key` is the letter after `g`; a row without one has no place in the navigation.  `under` names the
// screens that a row stands for.
export const SCREENS = [
  { name: "now", title: "Now", key: "n", isThumb: true, load: () => import("./screens/now.js") },
  { name: "inbox", title: "Inbox", key: "i", isThumb: true, load: () => import("./screens/inbox.js") },
  { name: "runs", title: "Runs", key: "r", isThumb: true, under: ["run"], load: () => import("./screens/runs.js") },
  { name: "run", title: "Run", load: () => import("./screens/run.js") },
  { name: "sessions", title: "Sessions", key: "s", under: ["session"], load: () => import("./screens/sessions.js") },
  { name: "session", title: "Session", load: () => import("./screens/session.js") },
  { name: "tasks", title: "Tasks", key: "t", load: () => import("./screens/tasks.js") },
  { name: "memory", title: "Memory", key: "m", isApart: true, load: () => import("./screens/memory.js") },
  { name: "documents", title: "Documents", key: "d", load: () => import("./screens/documents.js") },
  { name: "usage", title: "Usage", key: "u", load: () => import("./screens/usage.js") },
  { name: "health", title: "Health", key: "h", isThumb: true, load: () => import("./screens/health.js") },
  { name: "rules", title: "Rules", key: "p", load: () => import("./screens/rules.js") },
];

const RETRY_MS = { base: 500, cap: 30_000 };
const TICK_MS = 1_000;
const THEMES = ["system", "light", "dark"];

const store = new Store();
const context = {
  wire: null,
  store,
  route: parse(location.hash),
  announce,
  href,
  go: (to) => {
    location.hash = to;
    void follow();
  },
  replace: (to) => {
    location.replace(to);
    void follow();
  },
  ask: async (method, params = {}) => {
    if (!context.wire) throw Object.assign(new Error("not connected yet"), { code: "unavailable", retryable: true });
    return await context.wire.call(method, params);
  },
  now: () => Date.now() + (store.state.skew_ms ?? 0),
  isLive: () => Boolean(context.wire?.isConnected) && !store.state.ended,
  may: (scope) => Boolean(store.state.welcome?.scopes.some((each) => each === "*" || each === scope)),
  refresh: () => overview.refresh(),
  openPalette: () => openPalette(context, SCREENS),
  openHelp: () => openHelp(keys, [screen.row.title, "Everywhere"]),
  theme: () => `theme ${localStorage.getItem("palyra.theme") ?? "system"}`,
  density: () => localStorage.getItem("palyra.density") ?? "compact",
  toggleTheme: () => {
    const at = THEMES.indexOf(localStorage.getItem("palyra.theme") ?? "system");
    localStorage.setItem("palyra.theme", THEMES[(at + 1) % THEMES.length]);
    dress();
  },
  toggleDensity: () => {
    localStorage.setItem("palyra.density", context.density() === "compact" ? "calm" : "compact");
    dress();
  },
  logOut: async () => {
    await context.ask("console.logout").catch(() => {});
    forgetLogin();
    await context.wire?.close();
    location.reload();
  },
};
const overview = new Overview(context);
const screen = { row: SCREENS[0], module: null, error: null };
let followed; // the address that the screen has
const PAGE_KEYS = [
  ...SCREENS.filter((row) => row.key).map((row) => ({ key: `g ${row.key}`, what: row.title, act: () => context.go(`#/${row.name}`) })),
  { key: "Ctrl k", what: "Go to a run, session, id, screen, action", act: context.openPalette },
  { key: "?", what: "The keys of this screen", act: context.openHelp },
];
const keys = new Keys(() => [ownKeys(), PAGE_KEYS]);

function dress() {
  const { dataset } = document.documentElement;
  dataset.theme = localStorage.getItem("palyra.theme") ?? "system";
  dataset.density = context.density();
  store.touch();
}

/** The keys of the screen in view, once it is open. */
function ownKeys() {
  const own = context.wire && screen.module?.keys;
  return (typeof own === "function" ? own(context) : own) || [];
}

/** Follow the address, if it is another one. */
async function follow() {
  if (location.hash === followed) return;
  followed = location.hash;
  const before = context.route;
  context.route = parse(followed);
  store.touch();
  const row = SCREENS.find((each) => each.name === context.route.screen) ?? SCREENS[0];
  const isSame = row === screen.row && screen.module !== null;
  if (isSame && context.wire && screen.module.moved) return void screen.module.moved(context, context.route);
  screen.module?.close?.(context, before);
  if (!isSame) Object.assign(screen, { row, module: null, error: null });
  await enter(row);
}

async function enter(row) {
  try {
    const module = await row.load();
    if (screen.row !== row) return; // another one was chosen meanwhile
    Object.assign(screen, { module, error: null });
    if (context.wire) await module.open?.(context, context.route);
  } catch (error) {
    if (screen.row === row) screen.error = error;
  }
  store.touch();
}

function draw() {
  const { state } = store;
  document.title = titleOf(state, screen.module?.title ?? screen.row.title);
  if (document.hidden) return;
  render(state.needs_login ? login(state.needs_login, store) : frame(context, SCREENS, middle(state)), document.getElementById("app"));
}

function middle(state) {
  if (screen.error) return html`<div class="pad">${failure(screen.module ? screen.error : unread(context.isLive()), () => location.reload())}</div>`;
  if (!screen.module || !context.wire) return html`<div class="pad">${skeleton(8)}</div>`;
  try {
    return html`${staleLine(state)}${screen.module.view(context, context.route)}`;
  } catch (error) {
    console.error(error);
    return html`<div class="pad">${failure(error, () => location.reload())}</div>`;
  }
}

/** A screen whose file did not come. */
const unread = (isLive) => ({ code: "unavailable", retryable: isLive, message: isLive ? "The file of this screen could not be read." : "The daemon does not answer. This screen opens by itself once it does." });

/** Connect for as long as it takes; what cannot get better ends at the login. */
async function open() {
  for (let failures = 0; ; failures++) {
    try {
      return await connect(endpoint, { name: "palyra-console", want: ["batch"], patience_ms: Infinity });
    } catch (error) {
      if (["unauthenticated", "forbidden"].includes(error.code)) throw error;
      store.set({ lost_ms: store.state.lost_ms ?? Date.now() });
      const most = Math.min(RETRY_MS.cap, RETRY_MS.base * 2 ** failures);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * most));
    }
  }
}

function connected(hello) {
  const { state } = store;
  const isFirst = state.hello === undefined;
  const isOther = !isFirst && state.hello.instance_id !== hello.instance_id;
  store.set({
    hello,
    welcome: context.wire.welcome,
    lost_ms: undefined,
    restarted_ms: isOther ? Date.now() : state.restarted_ms,
    is_newer: !isFirst && state.first_version !== hello.version,
    first_version: state.first_version ?? hello.version,
  });
  if (!isFirst) announce(isOther ? "Connected again, the daemon was restarted" : "Connected again");
  void overview.refresh();
  if (screen.error) void enter(screen.row);
  else void screen.module?.open?.(context, context.route);
}

async function begin() {
  dress();
  store.subscribe(draw);
  setInterval(() => document.hidden || store.touch(), TICK_MS);
  document.addEventListener("visibilitychange", () => store.touch());
  const code = takeCode();
  globalThis.addEventListener("hashchange", () => void follow());
  await follow();
  try {
    if (code) await logIn(code).catch((error) => {
      if (!hasLogin()) throw error; // an old link does not end a login
      announce(error.message, { isUrgent: true });
    });
    if (!hasLogin()) return store.set({ needs_login: true });
    context.wire = await open();
  } catch (error) {
    return store.set({ needs_login: error.message });
  }
  context.wire.onConnection({
    up: connected,
    down: () => store.set({ lost_ms: Date.now() }),
    ended: (error) => store.set(["unauthenticated", "forbidden"].includes(error.code) ? { needs_login: error.message, ended: error } : { ended: error }),
  });
  overview.start(context.wire);
}

void begin();
