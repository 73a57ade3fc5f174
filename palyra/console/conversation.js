// What the page knows of one session: its record, queue and grants, and its runs with their events.
//
// Ended runs are read, open ones are followed; which runs are open comes by a watch, so that a message of
// another page or program appears here as its own would.  A run of more than 600 events is shown by its
// beginning and its end.

import { addDelta, fold, isShown } from "./fold/conversation.js";

const RUNS = 10; // read at once; earlier ones when they are asked for
const PAGE = 300;
const TOOL_CHARS = 2_048; // kept of what a call prints while it runs
const SOON_MS = 150;
const ENDED = new Set(["done", "failed", "cancelled"]);

export class Conversation {
  record = null;
  queue = null;
  grants = [];
  shown = null; // segments of the newest turn (context.explain)
  error = null;
  runs = new Map(); // run_id -> {view, events, partial, outputs, folded, isCut, error}
  isRead = false;
  earlier = null; // the cursor of older runs
  onEnd = () => {};
  #context;
  #watch;
  #following = new Map();
  #notices;
  #timer;
  #isClosed = false;
  #since_ms;

  constructor(context, session_id) {
    this.#context = context;
    this.#since_ms = context.now();
    this.session_id = session_id;
  }

  /** Read everything, then follow it.  Called again after each new connection. */
  async open() {
    this.error = null;
    if (!this.#watch) {
      void this.#listen((this.#notices = this.#context.wire.notices()));
      void this.#follow((this.#watch = this.#context.wire.watchRuns({ session_id: this.session_id })));
    }
    await Promise.all([this.refresh(), this.#readRuns()]);
    this.isRead = true;
    this.#touch();
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#watch?.close();
    this.#notices?.close();
    for (const subscription of this.#following.values()) subscription.close();
  }

  /** The runs in the order of their messages. */
  get ordered() {
    const waiting = this.queue?.waiting ?? [];
    const place = ({ view }) => (view.phase === "queued" && waiting.includes(view.run_id) ? 8e15 + waiting.indexOf(view.run_id) : view.created_ms);
    return [...this.runs.values()].sort((left, right) => place(left) - place(right));
  }

  /** The run that answers now, if one does. */
  get active() {
    return this.ordered.find(({ view }) => !ENDED.has(view.state) && view.phase !== "queued")?.view ?? null;
  }

  /** The newest to-do list. */
  get todos() {
    return this.ordered.map((run) => this.fold(run).todos).findLast(Boolean) ?? null;
  }

  /** The entries of a run; folded again when something has changed. */
  fold(run) {
    run.folded ??= fold(run.events, run);
    return run.folded;
  }

  /** Read record, queue and grants again. */
  async refresh() {
    const { session_id } = this;
    try {
      const [record, queue, grants] = await Promise.all([
        this.#context.ask("session.get", { session_id }),
        this.#context.ask("session.queue", { session_id }),
        this.#context.ask("approval.grants", { limit: 500 }).catch(() => ({ grants: [] })),
      ]);
      const holds = (each) => (each.scope === "session" ? each.session_id === session_id && each.epoch === (record.epoch ?? 0) : each.principal === record.principal && (each.workspace ?? "default") === (record.workspace ?? "default"));
      Object.assign(this, { record, queue, grants: grants.grants.filter(holds) });
    } catch (error) {
      if (this.#context.isLive()) this.error = error;
    }
    this.#touch();
  }

  async readEarlier() {
    await this.#readRuns(this.earlier);
  }

  /** Show a run that was just started, before the watch says so. */
  expect({ run_id, session_id }, text) {
    if (session_id !== this.session_id || this.runs.has(run_id)) return;
    this.#put({ run_id, session_id, state: "accepted", phase: "queued", created_ms: this.#context.now(), agent: "", tool_calls: 0, cost_usd_micros: 0, title: text });
  }

  async #readRuns(cursor) {
    try {
      const page = await this.#context.ask("run.list", { session_id: this.session_id, limit: RUNS, ...(cursor ? { cursor } : {}) });
      if (cursor || !this.isRead) this.earlier = page.next_cursor ?? null;
      await Promise.all(page.runs.map((view) => this.#put(view)));
      void this.#explain();
    } catch (error) {
      if (this.#context.isLive()) this.error ??= error;
    }
    this.#touch();
  }

  /** Take up the view of a run; read or follow its events. */
  async #put(view) {
    if (view.depth || this.#isClosed) return; // a delegated run is a call of its parent
    const run = this.runs.get(view.run_id) ?? { view, events: [], partial: null, outputs: new Map(), folded: null };
    const isKnown = this.runs.has(view.run_id);
    run.view = { ...run.view, ...view };
    this.runs.set(view.run_id, run);
    this.#touch();
    if (!ENDED.has(view.state)) void this.#followRun(run);
    else if (!isKnown || run.error) {
      const isNews = this.isRead && !isKnown && view.created_ms > this.#since_ms; // begun and ended between two looks
      await this.#readRun(run);
      if (isNews) this.#ended(run);
    }
  }

  #ended(run) {
    this.onEnd(run);
    void this.refresh();
    void this.#explain();
  }

  async #readRun(run) {
    const { run_id, head_seq } = run.view;
    const read = async (after_seq) => (await this.#context.ask("tape.read", { run_id, after_seq, limit: PAGE })).events;
    try {
      const first = await read(-1);
      const seen = first.at(-1)?.seq ?? head_seq;
      const rest = seen < head_seq ? await read(Math.max(seen, head_seq - PAGE)) : [];
      run.isCut = rest.length > 0 && rest[0].seq > seen + 1;
      run.events = [...first, ...rest].filter(({ kind }) => isShown(kind));
      run.error = null;
    } catch (error) {
      if (this.#context.isLive()) run.error = error;
    }
    this.#changed(run);
  }

  async #followRun(run) {
    const { run_id } = run.view;
    if (this.#following.has(run_id)) return;
    const subscription = this.#context.wire.events(run_id);
    this.#following.set(run_id, subscription);
    run.events = [];
    try {
      for await (const item of subscription) {
        if (item.type === "event") this.#take(run, item);
        else if (item.type === "progress") this.#progress(run, item);
        else if (item.type === "discarded") run.events = run.events.filter(({ seq }) => seq <= item.after_seq);
        this.#changed(run);
      }
      run.view = { ...run.view, ...(await this.#context.ask("run.get", { run_id })) };
      this.#ended(run);
    } catch (error) {
      if (!this.#isClosed && this.#context.isLive()) run.error = error;
    }
    this.#following.delete(run_id);
    this.#touch();
  }

  #take(run, event) {
    if (isShown(event.kind)) run.events.push(event);
    if (["turn.started", "turn.completed", "turn.failed", "message.completed"].includes(event.kind)) run.partial = null;
    if (event.kind === "tool.completed") run.outputs.delete(event.data.call_id);
    if (["approval.resolved", "run.started"].includes(event.kind)) this.#soon();
  }

  #progress(run, { kind, item, delta, offset }) {
    if (kind === "text") run.partial = addDelta(run.partial, { item, delta, offset });
    else if (kind === "tool_output") run.outputs.set(item, ((run.outputs.get(item) ?? "") + delta).slice(-TOOL_CHARS));
  }

  /** Which runs are open, and what has become of them. */
  async #follow(watched) {
    try {
      for await (const { runs, gone } of watched) {
        for (const view of runs) void this.#put(view);
        for (const run_id of gone ?? []) if (this.runs.has(run_id)) void this.#reread(run_id);
      }
    } catch (error) {
      if (!this.#isClosed && this.#context.isLive()) this.error ??= error;
    }
  }

  async #reread(run_id) {
    const view = await this.#context.ask("run.get", { run_id }).catch(() => null);
    if (view) void this.#put(view);
  }

  async #listen(notices) {
    try {
      for await (const { method, params } of notices) {
        const isOurs = params.session_id === this.session_id;
        if (method === "session.updated" && isOurs) this.record = { ...this.record, ...params };
        if (isOurs || method === "approval.resolved") this.#soon();
      }
    } catch {
      // the end of the connection for good: the lamp says it
    }
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.refresh(), SOON_MS);
  }

  /** What the model was shown at the newest turn. */
  async #explain() {
    const newest = this.ordered.findLast(({ view }) => view.turns > 0);
    if (!newest) return;
    this.shown = await this.#context.ask("context.explain", { run_id: newest.view.run_id }).catch(() => this.shown);
    this.#touch();
  }

  #changed(run) {
    run.folded = null;
    this.#touch();
  }

  #touch() {
    if (!this.#isClosed) this.#context.store.touch();
  }
}
