// The runs that a filter finds, as the page holds them: pages of `run.list`, kept new by a watch.

import { latestOf, tree } from "./fold/runs.js";

const PAGE = 200;
const KEPT = 2_000;
const SETTLE_MS = 1_000; // between two orders, so that rows do not jump

export class RunsReader {
  error = null;
  isRead = false;
  next = null; // cursor of older runs
  isHeld = false; // no new order while a hand is on the table
  #runs = new Map();
  #rows = [];
  #isStale = false;
  #sortedMs = -Infinity;
  #context;
  #watch;
  #isReading = false;
  #isClosed = false;

  constructor(context, filter) {
    this.#context = context;
    this.filter = filter;
  }

  /** The rows in their order: the latest event first, children below their parent. */
  get rows() {
    const isDue = performance.now() - this.#sortedMs > SETTLE_MS && !this.isHeld;
    if (this.#isStale && (isDue || !this.#rows.length)) {
      this.#rows = tree(this.#runs.values(), (left, right) => latestOf(right) - latestOf(left)).map((run) => run.run_id);
      this.#isStale = false;
      this.#sortedMs = performance.now();
    }
    return this.#rows.map((run_id) => this.#runs.get(run_id)).filter(Boolean);
  }

  get isFull() {
    return this.#runs.size >= KEPT;
  }

  async open() {
    if (!this.#watch) void this.#follow((this.#watch = this.#context.wire.watchRuns(this.filter)));
    await this.#read();
  }

  close() {
    this.#isClosed = true;
    this.#watch?.close();
  }

  /** Read the page of older runs, if there is one and room for it. */
  async more() {
    if (this.next && !this.isFull && !this.#isReading) await this.#read(this.next);
  }

  async #read(cursor) {
    this.#isReading = true;
    try {
      const page = await this.#context.ask("run.list", { ...this.filter, limit: PAGE, ...(cursor ? { cursor } : {}) });
      for (const run of page.runs) this.#runs.set(run.run_id, run);
      if (cursor || !this.isRead) this.next = page.next_cursor ?? null;
      this.isRead = true;
      this.error = null;
      this.#sortedMs = -Infinity; // a person asked for these
    } catch (error) {
      if (this.#context.isLive()) this.error = error;
    }
    this.#isReading = false;
    this.#changed();
  }

  async #follow(watched) {
    try {
      for await (const { runs, gone } of watched) {
        for (const run of runs) this.#runs.set(run.run_id, { ...this.#runs.get(run.run_id), ...run });
        await Promise.all((gone ?? []).filter((run_id) => this.#runs.has(run_id)).map((run_id) => this.#reread(run_id)));
        for (const run_id of this.#runs.keys()) {
          if (this.#runs.size <= KEPT) break;
          if (!watched.runs.has(run_id)) this.#runs.delete(run_id);
        }
        this.#changed();
      }
    } catch (error) {
      if (!this.#isClosed && this.#context.isLive()) this.error = error;
    }
  }

  /** A run has ended or fits no more. */
  async #reread(run_id) {
    const { phases } = this.filter;
    const view = await this.#context.ask("run.get", { run_id }).catch(() => null);
    if (!view || (phases && !phases.includes(view.phase))) this.#runs.delete(run_id);
    else this.#runs.set(run_id, { ...this.#runs.get(run_id), ...view });
  }

  #changed() {
    this.#isStale = true;
    if (!this.#isClosed) this.#context.store.touch();
  }
}
