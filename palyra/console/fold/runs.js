// Runs in a table: filters of the address, order, children below their parent, the part in view.  Pure.

export const OPEN = ["awaiting_approval", "in_progress", "queued", "recovering", "stranded"];
export const PHASES = [...OPEN, "done", "failed", "cancelled"];

/** The filter of `run.list` and `run.watch` that an address asks for. */
export function filterOf({ phase, open, agent, principal, session, tainted, q }) {
  const phases = phase ? phase.split(",").filter((each) => PHASES.includes(each)) : open ? OPEN : [];
  return {
    ...(phases.length ? { phases } : {}),
    ...(agent ? { agent } : {}),
    ...(principal ? { principal } : {}),
    ...(session ? { session_id: session } : {}),
    ...(tainted ? { tainted: tainted !== "no" } : {}),
    ...(q ? { text: q } : {}),
  };
}

/** When a run was heard of last. */
export const latestOf = (run) => run.latest_ms ?? run.finished_ms ?? run.started_ms ?? run.created_ms;

/** In the order of `compare`, each run that was delegated below its parent where that is there, too. */
export function tree(runs, compare) {
  const sorted = [...runs].sort(compare);
  const children = new Map();
  const ids = new Set(sorted.map((run) => run.run_id));
  const isBelow = (run) => Boolean(run.depth) && ids.has(run.parent_run_id);
  for (const run of sorted) if (isBelow(run)) children.set(run.parent_run_id, [...(children.get(run.parent_run_id) ?? []), run]);
  const withChildren = (run) => [run, ...(children.get(run.run_id) ?? []).flatMap(withChildren)];
  return sorted.filter((run) => !isBelow(run)).flatMap(withChildren);
}

/** The rows from `first` on that a scrolled view needs, and what stands before and after them in pixels. */
export function windowOf(count, { top, height, row, spare = 10 }) {
  const first = Math.max(0, Math.min(count, Math.floor(top / row) - spare));
  const last = Math.min(count, Math.ceil((top + height) / row) + spare);
  return { first, last: Math.max(first, last), before: first * row, after: Math.max(0, count - last) * row };
}
