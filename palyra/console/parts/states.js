// What a panel shows in place of its content: empty, forbidden, gone, failed, loading, stale.

import { html } from "../view.js";
import { icon } from "./icon.js";

const SCOPE = /scope ([\w:]+)/;

/** What would be here, and the one command that makes it. */
export function empty(title, says, command) {
  return html`<div class="panel"><p class="calm-word">${title}</p><p class="soft">${says}</p>
    ${command && html`<code class="cmd">${command}</code>`}</div>`;
}

/** An error of the daemon or of the connection; `retry` if trying again may help. */
export function failure(error, retry) {
  if (error.code === "forbidden") return forbidden(error);
  if (error.code === "not_found") return empty("not_found", error.message);
  return html`<div class="panel"><p class="calm-word bad state">${icon("warn")}<span>${error.code ?? "internal"}</span></p>
    <p>${error.message}</p>
    ${retry && error.retryable !== false && html`<p class="after"><button class="button" @click=${retry}>Try again</button></p>`}</div>`;
}

/** Names the scope that is missing. */
export function forbidden(error) {
  const scope = SCOPE.exec(error.message)?.[1];
  return html`<div class="panel"><p class="calm-word state">${icon("lock", "muted")}<span>forbidden</span></p>
    <p class="soft">${error.message}${scope && !error.message.includes(scope) ? ` (${scope})` : ""}</p></div>`;
}

/** Bars of about the height of what will come; shows itself after 200 ms. */
export function skeleton(rows = 4) {
  const widths = ["a", "b", "c", "b"];
  return html`<div class="panel loading" aria-label="loading" role="img">${Array.from({ length: rows }, (_, at) => html`<span class="skeleton ${widths[at % 4]}"></span>`)}</div>`;
}
