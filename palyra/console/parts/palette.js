// The palette: go to a screen, a run, a session or any id; the few actions of the page.

import { oneLine, tail } from "../fold/text.js";
import { href } from "../route.js";
import { html, keyed, render } from "../view.js";

const MOST = 12;
const IDS = [
  [/^run_[\w-]+$/, "run"], [/^ses_[\w-]+$/, "session"], [/^apr_[\w-]+$/, "inbox"], [/^mem_[\w-]+$/, "memory"],
  [/^(?:tsk|sch)_[\w-]+$/, "tasks"],
];

/** Open it; the focus goes back to where it was when it closes. */
export function openPalette(context, screens) {
  const dialog = document.createElement("dialog");
  dialog.className = "palette";
  dialog.setAttribute("aria-label", "Go to");
  const view = { text: "", at: 0, found: [] };
  const fixed = [
    ...screens.filter((each) => each.key).map((each) => ({ id: each.name, title: each.title, says: `g ${each.key}`, href: `#/${each.name}` })),
    ...(context.may("runs:write") ? [{ id: "new", title: "New conversation", says: "", href: "#/session/new" }] : []),
    { id: "theme", title: "Switch the theme", says: context.theme(), act: context.toggleTheme },
    { id: "density", title: "Switch the density", says: context.density(), act: context.toggleDensity },
    { id: "keys", title: "Keys of this screen", says: "?", act: context.openHelp },
    { id: "logout", title: "Log out", says: "", act: context.logOut },
  ];
  let known = fixed;

  const choose = (row) => {
    dialog.close();
    if (!row) return;
    if (row.href) location.hash = row.href;
    else row.act();
  };
  const draw = () => {
    view.found = matches(view.text, known);
    view.at = Math.min(view.at, Math.max(0, view.found.length - 1));
    render(template(view, choose, change), dialog);
  };
  const change = (patch) => {
    Object.assign(view, patch);
    draw();
  };
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) change({ at: (view.at + step + view.found.length) % Math.max(1, view.found.length) });
    else if (event.key === "Enter") choose(view.found[view.at]);
    else return;
    event.preventDefault();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.getElementById("dialogs").append(dialog);
  draw();
  dialog.showModal();
  void readKnown(context).then((rows) => {
    known = [...fixed, ...rows];
    if (dialog.isConnected) draw();
  });
}

function template(view, choose, change) {
  return html`<input class="field" role="combobox" aria-label="Go to a run, session, id" aria-expanded="true"
      aria-controls="palette-rows" aria-activedescendant=${view.found.length ? `palette-${view.at}` : null}
      placeholder="Run, session, id, screen, action" autofocus @input=${(event) => change({ text: event.target.value, at: 0 })}>
    <ul id="palette-rows" role="listbox" aria-label="Places">${keyed(view.found, (row) => row.id, (row, at) => html`
      <li role="option" id="palette-${at}" aria-selected=${at === view.at ? "true" : "false"} @click=${() => choose(row)}>
        <span class="cut">${row.title}</span><span class="muted small">${row.says}</span></li>`)}</ul>
    ${view.found.length ? null : html`<p class="muted pad">Nothing here has that name.</p>`}`;
}

function matches(text, rows) {
  const wanted = text.trim().toLowerCase();
  const id = IDS.find(([form]) => form.test(wanted));
  const direct = id ? [{ id: wanted, title: wanted, says: id[1], href: href(id[1], [wanted]) }] : [];
  const parts = wanted.split(/\s+/);
  const found = rows.filter((row) => parts.every((part) => `${row.title} ${row.id} ${row.says}`.toLowerCase().includes(part)));
  return [...direct, ...found.filter((row) => row.id !== wanted)].slice(0, MOST);
}

async function readKnown(context) {
  const [runs, sessions] = await Promise.all([
    context.ask("run.list", { limit: 100 }).catch(() => ({ runs: [] })),
    context.ask("session.list", { limit: 100 }).catch(() => ({ sessions: [] })),
  ]);
  return [
    ...runs.runs.map((run) => ({
      id: run.run_id, title: oneLine(run.title || `run ${tail(run.run_id)} of ${run.agent}`, 90), says: `run, ${run.phase}`, href: href("run", [run.run_id]),
    })),
    ...sessions.sessions.map((session) => ({
      id: session.session_id, title: oneLine(session.title || session.key || `session ${tail(session.session_id)}`, 90), says: "session", href: href("session", [session.session_id]),
    })),
  ];
}
