// What the page knows of one run: its view, its outline, the parts of its tape that are looked at, and its end as it grows.
//
// An ended run is read; an open one is followed from the end of its outline.  After a lost connection the
// client goes on by itself, and events that the daemon has lost are taken back.

import { PAGE, Tape } from "./fold/tape.js";

const AT_ONCE = 2; // pages that are read
const SOON_MS = 300; // between readings of the head
const OUTLINE_MS = 2_000;
const RETRY_MS = 1_000;
const FOUND = 500;

export class RunReader {
  view = null;
  tape = null;
  outline = null;
  accepted = null; // the first event
  message = ""; // the first message
  error = null;
  onProgress = () => {};
  onEvent = () => {};
  #context;
  #wanted = [];
  #reading = new Set();
  #subscription;
  #timer;
  #outlineMs = 0;
  #isClosed = false;

  constructor(context, run_id) {
    this.#context = context;
    this.run_id = run_id;
  }

  get isOver() {
    return ["done", "failed", "cancelled"].includes(this.view?.state);
  }

  /** The highest seq that is durable. */
  get committed() {
    return this.#subscription ? this.#subscription.cursor : (this.tape?.head ?? -1);
  }

  /** Read what is needed to show it; follow it if it goes on. */
  async open() {
    this.error = null;
    try {
      const [view, outline, first] = await Promise.all([
        this.#ask("run.get"), this.#ask("tape.outline", { buckets: 400, codes: true }), this.#ask("tape.read", { limit: PAGE }),
      ]);
      Object.assign(this, { view, outline, tape: new Tape(outline) });
      this.accepted = first.events.find((event) => event.kind === "run.accepted")?.data ?? null;
      this.message = first.events.find((event) => event.kind === "message.received")?.data?.text ?? "";
      this.tape.put(first.events);
      this.#outlineMs = Date.now();
      if (!this.isOver || view.head_seq > outline.head) void this.#follow();
    } catch (error) {
      this.error = error;
    }
    this.#touch();
  }

  /** Read the head again, after a new connection and after news. */
  async refresh() {
    if (!this.tape) return await this.open();
    try {
      this.view = await this.#ask("run.get");
      if (Date.now() - this.#outlineMs > OUTLINE_MS || this.isOver) {
        this.outline = await this.#ask("tape.outline", { buckets: 400 });
        this.#outlineMs = Date.now();
      }
    } catch (error) {
      if (error.code === "not_found") this.error = error;
    }
    this.#touch();
    return undefined;
  }

  close() {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    this.#subscription?.close();
  }

  /** Have the events between two seqs read, if they are not there; an older wish is forgotten. */
  need(from, to) {
    this.#wanted = this.tape.missing(from, to);
    void this.#pump();
  }

  /** An event, read if it has to be; undefined if the tape has none. */
  async event(seq) {
    const [page] = this.tape.missing(seq, seq);
    if (page && seq <= this.tape.head) await this.#read(page).catch(() => {});
    return this.tape.event(seq);
  }

  /** All events of a call, wherever they are. */
  async call(seq) {
    const proposed = await this.event(seq);
    if (!proposed || this.tape.call(seq).at(-1)?.kind === "tool.attested") return;
    const { hits } = await this.#ask("tape.find", { call_id: proposed.data.call_id, from_seq: seq, limit: 50 });
    const events = [];
    for (const hit of hits) events.push(await this.event(hit.seq));
    if (events.at(-1)?.kind === "tool.attested") this.tape.setCall(seq, events.filter(Boolean));
    this.#touch();
  }

  /** The seq of the next event with a mark in a direction, or undefined. */
  async mark(marks, seq, isBackwards) {
    for (let from = isBackwards ? seq - 1 : seq + 1; from !== undefined && from >= 0; ) {
      const { hits, next_seq: next } = await this.#ask("tape.find", { marks, from_seq: from, backwards: isBackwards, limit: 1 });
      if (hits.length) return hits[0].seq;
      from = next ?? undefined;
    }
    return undefined;
  }

  /** Events that have a text, up to a number. */
  async find(text) {
    const found = [];
    let from;
    do {
      const page = await this.#ask("tape.find", { text, from_seq: from, limit: FOUND - found.length });
      found.push(...page.hits);
      from = page.next_seq ?? undefined;
    } while (from !== undefined && found.length < FOUND);
    return { hits: found, isCut: from !== undefined };
  }

  async #follow() {
    this.#subscription?.close();
    const subscription = (this.#subscription = this.#context.wire.events(this.run_id, { after_seq: this.tape.head }));
    try {
      for await (const item of subscription) {
        if (this.#isClosed) return;
        if (item.type === "progress") this.onProgress(item);
        else this.#take(item);
      }
    } catch (error) {
      if (!this.#isClosed) this.error = error;
    }
    if (!this.#isClosed) await this.refresh();
  }

  #take(item) {
    if (item.type === "event") {
      this.tape.append(item);
      this.onEvent(item);
    } else if (item.type === "discarded") this.tape.discard(item.after_seq);
    else if (item.type === "reset") return void this.open();
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      if (!this.#isClosed) void this.refresh();
    }, SOON_MS);
    this.#touch();
  }

  async #pump() {
    while (this.#reading.size < AT_ONCE && !this.#isClosed) {
      const page = this.#wanted.find(({ first }) => !this.#reading.has(first));
      if (!page) return;
      this.#wanted = this.#wanted.filter((each) => each !== page);
      void this.#read(page).then(() => this.#pump(), () => setTimeout(() => this.#touch(), RETRY_MS)); // a new look asks again
    }
  }

  async #read({ first, end }) {
    this.#reading.add(first);
    try {
      for (let after = first - 1; after < end; ) {
        const { events, next_after_seq: next } = await this.#ask("tape.read", { after_seq: after, limit: Math.min(PAGE, end - after) });
        this.tape.put(events);
        this.#touch();
        if (!events.length) return;
        after = next ?? events.at(-1).seq;
      }
    } finally {
      this.#reading.delete(first);
    }
  }

  #ask(method, params = {}) {
    return this.#context.ask(method, { run_id: this.run_id, ...params });
  }

  #touch() {
    this.version = (this.version ?? 0) + 1;
    this.#context.store.touch();
  }
}
