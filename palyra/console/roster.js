// All conversations as the page holds them: sessions, their open runs by a watch, and how each ended last.

import { group, matching } from "./fold/roster.js";

const PAGE = 100;
const LAST = 200; // newest runs that say how conversations ended
const SOON_MS = 200;
const KEPT = 2_000;

export class Roster {
  sessions = null;
  error = null;
  next = null; // cursor of older sessions
  #runs = new Map();
  #context;
  #watch;
  #notices;
  #timer;
  #isClosed = false;

  constructor(context) {
    this.#context = context;
  }

  /** Read the newest sessions, and follow what changes. */
  async open() {
    if (!this.#watch) {
      void this.#listen((this.#notices = this.#context.wire.notices()));
      void this.#follow((this.#watch = this.#context.wire.watchRuns()));
    }
    await this.read();
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#watch?.close();
    this.#notices?.close();
  }

  /** Needs you, working, done. */
  groups(text = "") {
    const questions = this.#context.store.state.questions ?? [];
    return group(this.sessions ?? [], this.#runs.values(), questions).map((rows) => matching(rows, text));
  }

  async read(cursor) {
    try {
      const [page, ended] = await Promise.all([
        this.#context.ask("session.list", { limit: PAGE, ...(cursor ? { cursor } : {}) }),
        cursor ? { runs: [] } : this.#context.ask("run.list", { limit: LAST }),
      ]);
      const known = new Map((this.sessions ?? []).map((each) => [each.session_id, each]));
      for (const each of page.sessions) known.set(each.session_id, each);
      this.sessions = [...known.values()].sort((left, right) => right.updated_ms - left.updated_ms);
      if (cursor || this.next === null) this.next = page.next_cursor ?? null;
      for (const run of ended.runs) this.#runs.set(run.run_id, run);
      this.error = null;
    } catch (error) {
      if (this.#context.isLive()) this.error = error;
    }
    this.#context.store.touch();
  }

  async #follow(watched) {
    try {
      for await (const { runs, gone } of watched) {
        for (const run of runs) this.#runs.set(run.run_id, run);
        if (gone?.length) this.#soon();
        for (const run_id of this.#runs.keys()) {
          if (this.#runs.size <= KEPT) break;
          if (!watched.runs.has(run_id)) this.#runs.delete(run_id);
        }
        if (!this.#isClosed) this.#context.store.touch();
      }
    } catch (error) {
      if (!this.#isClosed && this.#context.isLive()) this.error = error;
    }
  }

  async #listen(notices) {
    try {
      for await (const { method } of notices) if (method === "session.updated") this.#soon();
    } catch {
      // the end of the connection for good: the lamp says it
    }
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.read(), SOON_MS);
  }
}
