// One of the icons of icons.svg, beside a word that says the same.

import { html } from "../view.js";

const SPRITE = new URL("../icons.svg", import.meta.url).href;

/** `look` is a class of colour: ok, wait, bad, taint, muted. */
export function icon(name, look = "") {
  return html`<svg class="i ${look}" viewBox="0 0 12 12" aria-hidden="true"><use href="${SPRITE}#${name}"></use></svg>`;
}

/** An icon and its word, on one base line. */
export function state(name, word, look = "") {
  return html`<span class="state ${look}">${icon(name)}<span>${word}</span></span>`;
}

const PHASES = {
  awaiting_approval: ["ask", "wait"], in_progress: ["run", ""], queued: ["queued", ""], recovering: ["recover", ""],
  stranded: ["warn", "bad"], done: ["check", ""], failed: ["cross", "bad"], cancelled: ["denied", ""],
};

/** The phase of a run in the product's word; a partial end says so. */
export function phase({ phase: name, reason }) {
  if (name === "done" && reason === "partial") return state("partial", "partial");
  const [sign, look] = PHASES[name] ?? ["queued", ""];
  return state(sign, name, look);
}
