// Stacked bars over time, and the table of the same figures.
//
// `plot` is {columns [{start, total, parts}], names (a shade each, then "others"), step, ticks, says, show(value)}.

import { minute, moment } from "../fold/time.js";
import { html, svg } from "../view.js";

const TOP_PX = 12;
const BASE_PX = 172;
const DAY_MS = 86_400_000;
const LABELS = 12; // at most, below the bars

const label = (ms, step) => (step < DAY_MS ? minute(ms).slice(11) : new Date(ms).toISOString().slice(5, 10));

/** The small square of a series. */
export const shade = (at) => html`<svg class="shade" viewBox="0 0 8 8" aria-hidden="true"><rect class="s${Math.min(at, 3) + 1}" width="8" height="8" rx="2"></rect></svg>`;

export function timePlot({ columns, ticks, step, says, show }) {
  const top = ticks.at(-1) || 1;
  const height = (value) => ((BASE_PX - TOP_PX) * value) / top;
  const width = 100 / columns.length;
  const every = Math.ceil(columns.length / LABELS);
  const isMidnight = (each, at) => at && step < DAY_MS && each.start % DAY_MS === 0;
  return html`<div class="bars" role="img" aria-label=${says}><svg class="axis">${[0, ...ticks].map((each) => svg`<text x="100%" dx="-8" y=${BASE_PX - height(each) + 4} text-anchor="end">${each ? show(each) : "0"}</text>`)}</svg>
    <svg>${[0, ...ticks].map((each) => svg`<line class=${each ? "rule" : "base"} x1="0" x2="100%" y1=${BASE_PX - height(each)} y2=${BASE_PX - height(each)}></line>`)}
      ${columns.map((each, at) => isMidnight(each, at) ? svg`<line class="base" x1="${at * width}%" x2="${at * width}%" y1="0" y2=${BASE_PX}></line><text x="${at * width}%" dx="4" y="10">${new Date(each.start).toISOString().slice(5, 10)} UTC</text>` : null)}
      ${columns.map((each, at) => column(each, at, { width, height, show, step }))}
      ${columns.map((each, at) => at % every === 0 ? svg`<text x="${(at + 0.5) * width}%" y="190" text-anchor="middle">${label(each.start, step)}</text>` : null)}</svg></div>`;
}

function column({ start, total, parts }, at, { width, height, show, step }) {
  let y = BASE_PX;
  return svg`<g><title>${label(start, step)}: ${show(total)}</title><rect class="hit-area" x="${at * width}%" y=${TOP_PX} width="${width}%" height=${BASE_PX - TOP_PX}></rect>
    ${parts.map((value, series) => {
      if (!value) return null;
      y -= height(value);
      return svg`<rect class="s${Math.min(series, 3) + 1}" x="${(at + 0.14) * width}%" y=${y} width="${width * 0.72}%" height=${height(value)}></rect>`;
    })}</g>`;
}

export function plotTable({ columns, names, step, show }) {
  const series = [...names, "others"].filter((_, at) => columns.some((each) => each.parts[at]));
  const rows = columns.filter((each) => each.total).reverse();
  return html`<div class="scrolls"><table class="grid-table"><thead><tr><th>${step < DAY_MS ? "Hour" : "Day, UTC"}</th>${series.map((name) => html`<th class="num">${name}</th>`)}<th class="num">Sum</th></tr></thead>
    <tbody>${rows.map((each) => html`<tr><td title=${moment(each.start, true)}>${step < DAY_MS ? minute(each.start).slice(5) : label(each.start, step)}</td>${series.map((name) => html`<td class="num">${show(each.parts[names.includes(name) ? names.indexOf(name) : names.length] ?? 0)}</td>`)}<td class="num strong">${show(each.total)}</td></tr>`)}</tbody></table></div>`;
}
