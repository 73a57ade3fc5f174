// The keys of the screen in view and of the page.

import { html, keyed, render } from "../view.js";

/** Open the list of keys. */
export function openHelp(keys, titles) {
  const dialog = document.createElement("dialog");
  dialog.className = "help";
  dialog.setAttribute("aria-label", "Keys");
  const close = () => dialog.close();
  const draw = () =>
    render(
      html`<header class="head"><h1>Keys</h1><button class="button quiet right" @click=${close}>Close <kbd>Esc</kbd></button></header>
        <div class="help-tables">${keys.tables.map((table, at) => html`<section><h2>${titles[at]}</h2><dl class="facts">${keyed(
          table.filter((row) => row.what), (row) => row.key,
          (row) => html`<dt>${row.key.split(" ").map((key) => html`<kbd>${named(key)}</kbd> `)}</dt><dd>${row.what}</dd>`,
        )}</dl></section>`)}</div>
        <p class="after"><label><input type="checkbox" ?checked=${!keys.isOff} @change=${() => keys.toggle()}> Single letters act</label></p>`,
      dialog,
    );
  dialog.addEventListener("close", () => dialog.remove());
  document.getElementById("dialogs").append(dialog);
  draw();
  dialog.showModal();
}

const named = (key) => ({ ArrowDown: "↓", ArrowUp: "↑", Escape: "Esc" })[key] ?? key;
