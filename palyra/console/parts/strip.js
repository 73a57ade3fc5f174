// The strip: a whole tape in 400 buckets, with its marks; a slider over its events.

import { grouped, many } from "../fold/text.js";
import { html, svg } from "../view.js";

const [WIDTH, FOOT] = [800, 31];
const MODEL = new Set(["turn", "message", "context", "compaction", "answer", "route"]);
const SIGNS = { approval: "m-ask", failure: "m-bad", denial: "m-bad", guard: "m-guard", recovery: "m-guard", taint: "m-taint" };
const RANK = ["taint", "guard", "recovery", "approval", "denial", "failure"];
const drawn = new WeakMap(); // outline -> paths

/** `sight` is [first, last] of the events in view; `go(seq)` goes there. */
export function strip(outline, { sight, seq, go }) {
  if (!drawn.has(outline)) drawn.set(outline, draw(outline));
  const { bars, marks, taintX, says } = drawn.get(outline);
  const { floor, head, width, buckets } = outline;
  const step = WIDTH / Math.max(buckets.length, 1);
  const x = (at) => Math.max(0, Math.min(WIDTH, ((at - floor) / width) * step));
  const [from, to] = sight ?? [floor, floor];
  const at = seq ?? from;
  const press = (event) => {
    const move = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
    const target = event.key === "Home" ? floor : event.key === "End" ? head : move && Math.max(floor, Math.min(head, at + move * Math.max(1, width)));
    if (target === undefined) return;
    event.preventDefault();
    go(target);
  };
  const point = ({ currentTarget, clientX }) => {
    const box = currentTarget.getBoundingClientRect();
    go(Math.max(floor, Math.min(head, floor + Math.floor(((clientX - box.left) / box.width) * buckets.length * width))));
  };
  return html`<svg class="strip" viewBox="0 0 800 40" preserveAspectRatio="none" role="slider" tabindex="0" aria-label="Whole tape: ${says}" aria-valuemin=${floor} aria-valuemax=${head} aria-valuenow=${at}
    aria-valuetext="event ${at}" @keydown=${press} @click=${point}>
    <rect class="view" x=${x(from)} y="0" width=${Math.max(2, x(to + 1) - x(from))} height="40"></rect><rect class="view-edge" x=${x(from)} y="38" width=${Math.max(2, x(to + 1) - x(from))} height="2"></rect>
    <path class="f-model" d=${bars.model}></path><path class="f-tool" d=${bars.tool}></path><path class="f-frame" d=${bars.frame}></path><path class="f-ask" d=${bars.ask}></path><path class="f-bad" d=${bars.bad}></path>
    ${taintX === undefined ? null : svg`<rect class="tainted" x=${taintX} y="34" width=${WIDTH - taintX} height="2"></rect>`}
    <path class="m-ask" d=${marks["m-ask"]}></path><path class="m-bad" d=${marks["m-bad"]}></path><path class="m-guard" d=${marks["m-guard"]}></path><path class="m-taint" d=${marks["m-taint"]}></path>
    ${seq === undefined ? null : svg`<rect class="cursor" x=${x(seq)} y="8" width="2" height="32"></rect>`}</svg>`;
}

function draw({ buckets, marks, floor }) {
  const step = WIDTH / Math.max(buckets.length, 1);
  const bars = { model: "", tool: "", frame: "", ask: "", bad: "" };
  const signs = { "m-ask": "", "m-bad": "", "m-guard": "", "m-taint": "" };
  const loud = new Map();
  for (const { mark, bucket } of marks) if (RANK.indexOf(mark) > RANK.indexOf(loud.get(bucket))) loud.set(bucket, mark);
  const most = Math.max(1, ...buckets.map((each) => Object.values(each).reduce((sum, count) => sum + count, 0)));
  buckets.forEach((bucket, at) => {
    const families = Object.entries(bucket).sort((left, right) => right[1] - left[1]);
    const sum = families.reduce((total, [, count]) => total + count, 0);
    const mark = loud.get(at);
    const look = mark === "approval" ? "ask" : ["failure", "denial"].includes(mark) ? "bad" : !families.length ? "frame" : MODEL.has(families[0][0]) ? "model" : ["tool", "delegation"].includes(families[0][0]) ? "tool" : "frame";
    const height = Math.round(4 + 14 * (sum / most) * (0.4 + 0.6 * Math.min(1, families.length / 4)) + (mark && look !== "frame" ? 2 : 0));
    bars[look] += `M${(at * step).toFixed(2)} ${FOOT}v-${height}h${Math.min(12, Math.max(0.8, step * 0.75)).toFixed(2)}v${height}z`;
  });
  for (const [bucket, mark] of loud) {
    const x = bucket * step + Math.min(6, step * 0.375);
    const sign = SIGNS[mark];
    signs[sign] += sign === "m-bad" ? `M${x - 2.5} 2.5l5 5m0-5l-5 5` : sign === "m-guard" ? `M${x - 2.5} 2h5v3l-2.5 3l-2.5-3z` : sign === "m-taint" ? `M${x} 1l2.5 4a2.6 2.6 0 0 1-5 0z` : `M${x} 1l3.5 4l-3.5 4l-3.5-4z`;
  }
  const tainted = marks.find((each) => each.mark === "taint");
  const sums = counts(marks);
  const says = Object.entries(sums).map(([name, count]) => many(count, name)).join(", ") || "no marks";
  return { bars, marks: signs, taintX: tainted && tainted.bucket * step, says: `${says}${tainted ? `, tainted from event ${grouped(tainted.seq)}` : ""}; first event ${floor}` };
}

/** How many events have each mark. */
export function counts(marks) {
  const sums = {};
  for (const { mark, count } of marks) sums[mark] = (sums[mark] ?? 0) + count;
  return sums;
}
