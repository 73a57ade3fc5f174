// A section: its name, its number, its hairline.

import { html } from "../view.js";

let sections = 0;
const ids = new Map();

/** `aside` stands at the right end of the heading. */
export function section(title, count, aside, content) {
  if (!ids.has(title)) ids.set(title, `section-${++sections}`);
  const id = ids.get(title);
  return html`<section class="sec" aria-labelledby="${id}"><header><h2 id="${id}">${title}</h2>
    <span class="n">${count ?? ""}</span><span class="right">${aside}</span></header>${content}</section>`;
}
