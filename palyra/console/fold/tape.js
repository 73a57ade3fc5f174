// One tape as the page holds it: the kind of each event, the events of the pages that were read, the rows of the views.  Pure.
//
// `codes` of `tape.outline` name the kind of every event, so rows have their place before anything is read.
// Events live in pages of 200; the ones that were used last stay, within two bounds.

export const PAGE = 200;
const MOST_PAGES = 50;
const MOST_CHARS = 16_777_216; // 32 MiB
const FIRST_CODE = 256; // see tape.outline
const CALL_SPAN = 400; // events in which a call is looked for behind its proposal
const CALLS = new Set(["tool.proposed"]);
const STORY = new Set([
  "message.received", "conversation.inherited", "turn.completed", "turn.failed", "tool.proposed", "tool.rejected", "steer.received", "guard.warned",
  "guard.blocked", "budget.exceeded", "answer.rejected", "item.refused", "route.changed", "context.compacted", "compaction.applied",
  "run.recovered", "run.done", "run.failed", "run.cancelled", "run.undone", "run.purged",
]);
export const VIEWS = ["story", "calls", "raw"];

export class Tape {
  #kinds;
  #codes;
  #pages = new Map(); // number -> {events, count, chars}; the last used is the last
  #rows = new Map(); // view -> seqs
  #calls = new Map(); // seq of a proposal -> its events, once they are all there

  constructor({ floor, kinds, codes }) {
    this.floor = floor;
    this.#kinds = [...kinds];
    this.#codes = new Array(codes.length);
    for (let at = 0; at < codes.length; at++) this.#codes[at] = codes.charCodeAt(at) - FIRST_CODE;
  }

  get head() {
    return this.floor + this.#codes.length - 1;
  }

  kindOf(seq) {
    const code = this.#codes[seq - this.floor] ?? -1;
    return this.#kinds[code >> 2] ?? "unknown";
  }

  /** The rows of a view; they grow and shrink with the tape. */
  rows(view) {
    if (view === "raw") return range(this.floor, this.#codes);
    if (!this.#rows.has(view)) {
      const wanted = view === "calls" ? CALLS : STORY;
      const isWanted = this.#kinds.map((kind) => wanted.has(kind));
      const seqs = [];
      this.#codes.forEach((code, at) => isWanted[code >> 2] && seqs.push(this.floor + at));
      this.#rows.set(view, seqs);
    }
    return listed(this.#rows.get(view));
  }

  event(seq) {
    return this.#pages.get(this.#pageOf(seq))?.events[(seq - this.floor) % PAGE];
  }

  /** Add the events of a page that was read. */
  put(events) {
    for (const event of events) if (event.seq >= this.floor && event.seq <= this.head) this.#keep(event);
    this.#trim();
  }

  /** Add an event behind the others; what is known already is passed over. */
  append(event) {
    if (event.seq !== this.head + 1) return;
    let at = this.#kinds.indexOf(event.kind);
    if (at < 0) at = this.#kinds.push(event.kind) - 1;
    this.#codes.push(4 * at);
    for (const [view, seqs] of this.#rows) if ((view === "calls" ? CALLS : STORY).has(event.kind)) seqs.push(event.seq);
    this.#keep(event);
    this.#trim();
  }

  /** Forget everything after `after`: the daemon has lost it. */
  discard(after) {
    for (const page of this.#pages.values())
      page.events.forEach((event, at) => {
        if (event.seq <= after) return;
        delete page.events[at];
        page.count -= 1;
      });
    this.#codes.length = Math.max(0, Math.min(this.#codes.length, after + 1 - this.floor));
    for (const seqs of this.#rows.values()) while (seqs.at(-1) > after) seqs.pop();
    this.#calls.clear();
  }

  /** The pages between two events that are not whole, by their first and last seq. */
  missing(from, to) {
    const found = [];
    const last = this.#pageOf(Math.min(to, this.head));
    for (let number = this.#pageOf(Math.max(from, this.floor)); number <= last; number++) {
      const [first, end] = [this.floor + number * PAGE, Math.min(this.head, this.floor + number * PAGE + PAGE - 1)];
      const page = this.#pages.get(number);
      if (page) {
        this.#pages.delete(number);
        this.#pages.set(number, page);
      }
      if ((page?.count ?? 0) < end - first + 1) found.push({ first, end });
    }
    return found;
  }

  /** The nearest event of one of the kinds before (or at) a seq, by codes alone; undefined if there is none. */
  back(seq, ...kinds) {
    for (let at = Math.min(seq, this.head); at >= this.floor; at--) if (kinds.includes(this.kindOf(at))) return at;
    return undefined;
  }

  /** The next event of the same family in a direction. */
  sameFamily(seq, step) {
    const family = this.kindOf(seq).split(".")[0];
    for (let at = seq + step; at >= this.floor && at <= this.head; at += step) if (this.kindOf(at).split(".")[0] === family) return at;
    return undefined;
  }

  /** The events of the call proposed at `seq` that are there, in order. */
  call(seq) {
    const known = this.#calls.get(seq);
    if (known) return known;
    const id = this.event(seq)?.data.call_id;
    const found = [];
    for (let at = seq; id !== undefined && at <= Math.min(this.head, seq + CALL_SPAN); at++) {
      const event = this.event(at);
      if (event?.data?.call_id !== id) continue;
      found.push(event);
      if (event.kind === "tool.attested") {
        this.#calls.set(seq, found);
        break;
      }
    }
    return found;
  }

  /** Events of a call that lie far behind its proposal. */
  setCall(seq, events) {
    this.#calls.set(seq, events);
  }

  /** The seq of the proposal of the call that an event is of. */
  proposalOf(seq) {
    const id = this.event(seq)?.data?.call_id;
    if (id === undefined) return undefined;
    for (let at = seq; at >= Math.max(this.floor, seq - CALL_SPAN); at--) {
      const event = this.event(at);
      if (event?.kind === "tool.proposed" && event.data.call_id === id) return at;
    }
    return undefined;
  }

  #pageOf(seq) {
    return Math.floor((seq - this.floor) / PAGE);
  }

  #keep(event) {
    const number = this.#pageOf(event.seq);
    if (!this.#pages.has(number)) this.#pages.set(number, { events: [], count: 0, chars: 0 });
    const page = this.#pages.get(number);
    const at = (event.seq - this.floor) % PAGE;
    if (!page.events[at]) page.count += 1;
    page.events[at] = event;
    page.chars += weight(event.data, 4);
  }

  #trim() {
    let chars = 0;
    for (const page of this.#pages.values()) chars += page.chars;
    for (const [number, page] of this.#pages) {
      if ((this.#pages.size <= MOST_PAGES && chars <= MOST_CHARS) || this.#pages.size <= 2) return;
      chars -= page.chars;
      this.#pages.delete(number);
      this.#calls.clear();
    }
  }
}

/** Rows that are the events themselves. */
function range(floor, codes) {
  return {
    get length() {
      return codes.length;
    },
    at: (index) => floor + index,
    find: (seq) => Math.min(seq - floor, codes.length - 1),
  };
}

/** Rows that are a list of seqs in order; `find` is the row of a seq, or the last one before it. */
export function listed(seqs) {
  return {
    get length() {
      return seqs.length;
    },
    at: (index) => seqs[index],
    find: (seq) => {
      let [low, high] = [0, seqs.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (seqs[middle] <= seq) low = middle + 1;
        else high = middle;
      }
      return low - 1;
    },
  };
}

function weight(value, depth) {
  if (typeof value === "string") return value.length + 16;
  if (value === null || typeof value !== "object" || !depth) return 16;
  let sum = 32;
  for (const name in value) sum += weight(value[name], depth - 1);
  return sum;
}
