// Sums of the ledger as columns of a plot; amounts of budgets as text and back.  Pure.

import { exact, headline } from "./money.js";
import { grouped } from "./text.js";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const SERIES = 3; // with a shade of their own; the rest is one more

export const PERIODS = {
  "24h": { says: "24 h", step: HOUR_MS, count: 24, by: "hour" },
  "7d": { says: "7 d", step: DAY_MS, count: 7, by: "day" },
  "30d": { says: "30 d", step: DAY_MS, count: 30, by: "day" },
};

/** The start of a period that ends with the present hour or day, in UTC as the ledger has it. */
export function startOf({ step, count }, now) {
  return now - (now % step) - (count - 1) * step;
}

export const valueOf = (sum, of) => (of === "tokens" ? (sum.input_tokens ?? 0) + (sum.output_tokens ?? 0) : (sum.cost_usd_micros ?? 0));
export const shown = (value, of) => (of === "tokens" ? grouped(value) : exact(value));

/** The names with a shade of their own, the largest first. */
export function namesOf(groups, of) {
  const rows = [...groups].sort((left, right) => valueOf(right, of) - valueOf(left, of));
  return rows.slice(0, rows.length === SERIES + 1 ? SERIES + 1 : SERIES).map((each) => each.key);
}

/** One column for each step: its parts in the order of `names`, then everything else. */
export function columnsOf({ step, count }, from, totals, split, names, of) {
  const whole = new Map(totals.map((each) => [each.from_ms, valueOf(each, of)]));
  const parts = new Map(split.map((each) => [`${each.from_ms} ${each.key}`, valueOf(each, of)]));
  return Array.from({ length: count }, (_, at) => {
    const start = from + at * step;
    const total = whole.get(start) ?? 0;
    const known = names.map((name) => parts.get(`${start} ${name}`) ?? 0);
    return { start, total, parts: [...known, Math.max(0, total - known.reduce((sum, each) => sum + each, 0))] };
  });
}

/** Round values for the axis, up to at least `top`: three or four of them. */
export function ticksOf(top) {
  if (!top) return [];
  const size = 10 ** Math.floor(Math.log10(top));
  const step = [0.25, 0.5, 1, 2, 2.5].map((each) => each * size).find((each) => top / each <= 4);
  return Array.from({ length: Math.ceil(top / step) }, (_, at) => (at + 1) * step);
}

// --- Budgets ------------------------------------------------------------------------------------

/** An amount in the metric of its budget. */
export function amount(value, metric) {
  if (value == null) return "";
  return metric === "tokens" ? grouped(value) : headline(value);
}

/** What a field shows: dollars or tokens, without a sign. */
export const toField = (value, metric) => (value == null ? "" : String(metric === "tokens" ? value : value / 1_000_000));

/** What a field says; null for none.  Throws for what is no amount. */
export function fromField(text, metric) {
  const bare = text.replace(/[$\s\u2009]/g, "");
  if (!bare) return null;
  if (!/^\d+(\.\d{1,6})?$/.test(bare) || (metric === "tokens" && bare.includes("."))) throw new RangeError(`${text} is not ${metric === "tokens" ? "a number of tokens" : "an amount in dollars, as 2.50"}`);
  return metric === "tokens" ? Number(bare) : Math.round(Number(bare) * 1_000_000);
}

/** The share of its limit that is spent, of the account that is nearest to it. */
export function nearest(accounts) {
  const share = (each) => (each.hard ? each.spent / each.hard : 0);
  return [...accounts].sort((left, right) => share(right) - share(left)).find(share);
}
