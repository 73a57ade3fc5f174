// What every screen shows in the frame, and Now in whole: questions, pairings, learning, incidents, budgets.
//
// Notifications only say that something changed; the lists are read again, so that after a lost
// connection nothing is missing.  State: `questions` (soonest expiry first), `pairings`, `candidates`,
// `incidents` (unresolved or of the last day), `accounts`, `today` (a sum), `status`, `skew_ms` (of the
// daemon's clock against this one's), `overview_ms` (when it was read), `refused` (method -> error).

const DAY_MS = 86_400_000;
const EVERY_MS = 5_000;
const SOON_MS = 120;
const UNRESOLVED = ["open", "remediating", "escalated"];
const CHANGES = /^(approval|pairing|incident|budget|system)\./;

export class Overview {
  #context;
  #timer;
  #isReading = false;
  #isStaleAgain = false;

  constructor(context) {
    this.#context = context;
  }

  /** Read now, then every few seconds while the page is in sight, and after each notification. */
  start(wire) {
    this.refresh();
    setInterval(() => document.hidden || this.refresh(), EVERY_MS);
    this.#listen(wire).catch(() => {}); // the end of the connection for good: the lamp says it
  }

  /** Read it all again; several calls at once are one. */
  async refresh() {
    if (this.#isReading) {
      this.#isStaleAgain = true;
      return;
    }
    this.#isReading = true;
    try {
      this.#context.store.set(await this.#read());
    } catch {
      // The connection is gone: the lamp says so, the figures stay with their age.
    }
    this.#isReading = false;
    if (this.#isStaleAgain) {
      this.#isStaleAgain = false;
      void this.refresh();
    }
  }

  async #listen(wire) {
    for await (const { method, params } of wire.notices()) {
      if (method === "approval.requested")
        this.#context.announce(`Question: ${params.tool}, ${params.summary}`, { once: params.approval_id });
      if (!CHANGES.test(method)) continue;
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => void this.refresh(), SOON_MS);
    }
  }

  async #read() {
    const asked = Date.now();
    const midnight = asked - (asked % DAY_MS);
    const [status, approvals, pairings, candidates, incidents, accounts, today] = await Promise.all([
      this.#context.ask("system.status"),
      this.#may("approval.list", { pending_only: true, limit: 200 }),
      this.#may("pairing.list", { state: "pending" }),
      this.#may("learning.list", { states: ["proposed"], limit: 200 }),
      this.#may("incident.list", { limit: 200 }),
      this.#may("budget.status", {}),
      this.#may("usage.summary", { since_ms: midnight }),
    ]);
    const read = Date.now();
    return {
      status,
      skew_ms: status.now_ms - (asked + read) / 2,
      overview_ms: read,
      questions: approvals?.approvals.sort((left, right) => left.expires_ms - right.expires_ms) ?? null,
      pairings: pairings?.pairings ?? null,
      candidates: candidates?.candidates ?? null,
      incidents: incidents?.incidents.filter((each) => isOpen(each) || each.last_ms > asked - DAY_MS) ?? null,
      accounts: accounts?.accounts ?? null,
      today: today?.total ?? null,
    };
  }

  /** The answer, or null where this role may not ask. */
  async #may(method, params) {
    try {
      return await this.#context.ask(method, params);
    } catch (error) {
      if (!["forbidden", "method_not_found", "unimplemented"].includes(error.code)) throw error;
      (this.#context.store.state.refused ??= {})[method] = error;
      return null;
    }
  }
}

/** An incident that somebody may have to act on. */
export const isOpen = ({ state }) => UNRESOLVED.includes(state);

/** The account of today's money that the frame shows: everything's, or else this principal's. */
export function dayAccount(accounts) {
  const days = (accounts ?? []).filter((each) => each.window === "day" && each.metric === "usd_micros");
  return days.find((each) => each.scope === "global") ?? days.find((each) => each.scope === "principal");
}
