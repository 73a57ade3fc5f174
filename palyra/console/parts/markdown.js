// Text of a model as its Markdown (fold/markdown.js).  A link shows its address and opens after a second click.

import { parse } from "../fold/markdown.js";
import { html } from "../view.js";

const MOST_CHARS = 65_536; // a longer text is shown as it is

export function markdown(text) {
  return text.length > MOST_CHARS ? html`<pre class="prose">${text}</pre>` : parse(text).map(block);
}

const spans = (list) => list.map(span);

function block({ type, spans: inner, items, isOrdered, text, head, rows }) {
  switch (type) {
    case "heading": return html`<p class="heading">${spans(inner)}</p>`; // no heading of the page: its level would be the model's choice
    case "quote": return html`<blockquote>${spans(inner)}</blockquote>`;
    case "list": return isOrdered ? html`<ol>${items.map((item) => html`<li>${spans(item)}</li>`)}</ol>` : html`<ul>${items.map((item) => html`<li>${spans(item)}</li>`)}</ul>`;
    case "code": return html`<pre tabindex="0"><code>${text}</code></pre>`;
    case "table": return html`<div class="wide-table" tabindex="0" role="group" aria-label="Table"><table><thead><tr>${head.map((cell) => html`<th scope="col">${spans(cell)}</th>`)}</tr></thead>
      <tbody>${rows.map((row) => html`<tr>${row.map((cell) => html`<td>${spans(cell)}</td>`)}</tr>`)}</tbody></table></div>`;
    case "rule": return html`<hr>`;
    default: return html`<p>${spans(inner)}</p>`;
  }
}

function span({ type, text, address }) {
  switch (type) {
    case "code": return html`<code>${text}</code>`;
    case "strong": return html`<strong>${text}</strong>`;
    case "emphasis": return html`<em>${text}</em>`;
    case "link": return html`<a class="link-out" href=${address} target="_blank" rel="noopener noreferrer" @click=${confirmed} @auxclick=${confirmed}>${text}</a>${text === address ? null : html` <span class="address">(${address})</span>`}`;
    default: return text;
  }
}

/** The first click says where a link goes, the second one follows it; a double click is one, and any button counts. */
function confirmed(event) {
  const { dataset, href } = event.currentTarget;
  if (dataset.armed === href && event.detail < 2) return;
  event.preventDefault();
  dataset.armed = href;
  event.currentTarget.title = `Click again to open ${href}`;
}
