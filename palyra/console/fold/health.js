// Health without a page: the tree as rows, what is not well in it, incidents in lanes.  Pure.

import { many, sentence } from "./text.js";

export const DOMAINS = ["run", "task", "approval", "provider", "store", "memory", "artifact", "tool_runtime", "edge"];

const CRASHED_MS = 600_000; // an actor that crashed within that time is not well, though it runs
const FULL = 0.8; // of a mailbox
const THINNEST = 0.8; // percent of the width, so that a short incident can be seen and pressed
const TRACKS = 3; // of one lane, for incidents at the same time

/** The tree as rows: each actor below its supervisor, with its level and its path. */
export function rowsOf(node, level = 1, above = "") {
  if (!node) return [];
  const path = above ? `${above}/${node.id}` : node.id;
  return [{ ...node, level, path }, ...(node.children ?? []).flatMap((child) => rowsOf(child, level + 1, path))];
}

/** True if somebody should look at the actor. */
export function isUnwell({ state, last_crash_age_ms: crashed, mailbox_depth: depth, mailbox_capacity: capacity }) {
  return !["running", "ended"].includes(state) || (crashed != null && crashed < CRASHED_MS) || isFull({ depth, capacity });
}

export const isFull = ({ depth, capacity }) => Boolean(capacity) && depth >= capacity * FULL;

/** The rows that `isWanted` holds for, and those above them. */
export function rowsWith(rows, isWanted) {
  const kept = new Set();
  for (const row of rows) {
    if (!isWanted(row)) continue;
    for (let { path } = row; path && !kept.has(path); path = path.slice(0, Math.max(0, path.lastIndexOf("/")))) kept.add(path);
  }
  return rows.filter(({ path }) => kept.has(path));
}

/** What a change of a row is seen by. */
export const stampOf = ({ state, incarnation, restarts }) => `${state} ${incarnation} ${restarts}`;

/** The first line of the screen; `open` is null for a role that may not see incidents, or before they were read. */
export function answer(open, rows) {
  const away = rows.filter((row) => !["running", "ended"].includes(row.state)).length;
  const crashed = rows.filter(isUnwell).length - away;
  const isKnown = open !== null;
  if (!open && !away && !crashed) return rows.length ? (isKnown ? "No incident is open and every actor is well." : "Every actor is well.") : isKnown ? "No incident is open." : "Health";
  const parts = open ? [`${sentence(many(open, "incident"))} ${open === 1 ? "is" : "are"} open.`] : isKnown ? ["No incident is open."] : [];
  if (away) parts.push(`${sentence(many(away, "actor"))} ${away === 1 ? "is" : "are"} not running.`);
  if (crashed) parts.push(`${sentence(many(crashed, "actor"))} crashed lately or ${crashed === 1 ? "has" : "have"} a full mailbox.`);
  return parts.join(" ");
}

/** Kind and subject of an incident's key. */
export function partsOf(key) {
  const [kind, ...rest] = key.split(":");
  return { kind, subject: rest.join(":") };
}

/** Incidents as bars of one lane for each domain, in percent of the time from `from` to `to`. */
export function lanes(incidents, from, to) {
  const share = (ms) => Math.min(100, Math.max(0, ((ms - from) / (to - from)) * 100));
  return DOMAINS.map((domain) => {
    const own = incidents.filter((each) => each.domain === domain).sort((left, right) => left.opened_ms - right.opened_ms);
    const ends = [];
    const bars = own.map((incident) => {
      const left = Math.min(share(incident.opened_ms), 100 - THINNEST);
      const width = Math.max(THINNEST, share(incident.resolved_ms ?? to) - left);
      const free = ends.findIndex((end) => end <= left);
      const track = free >= 0 ? free : Math.min(ends.length, TRACKS - 1);
      ends[track] = Math.max(ends[track] ?? 0, left + width);
      return { incident, left, width, track };
    });
    return { domain, bars, tracks: Math.max(1, ends.length) };
  });
}

/** The whole hours, `every` hours apart, between two moments. */
export function hours(from, to, every = 4) {
  const first = new Date(from);
  first.setMinutes(0, 0, 0);
  const found = [];
  for (let at = first.getTime(); at < to; at += 3_600_000) if (at >= from && new Date(at).getHours() % every === 0) found.push(at);
  return found;
}
