// A client of the Palyra daemon for browsers and Node (22 or newer), without dependencies.
//
//     const client = await connect({ url: "ws://127.0.0.1:7467", token });
//     const run = await client.runs.start({ text: "hello" });
//     for await (const item of run) console.log(item);
//     await client.close();
//
// A lost connection is replaced.  Requests with an idempotency key, and those of methods without an
// effect, are sent again on the next one; others are rejected with the code `unavailable`, since they may have taken effect.  Subscriptions
// go on after the last durable event, without a gap or a duplicate.  `client.d.ts` has the types.

export const PROTOCOL = "palyra.v1";
export const VERSION = "0.1.0";

const NODE = globalThis.process?.versions?.node;
const LEAST_NODE = 22;
if (NODE && Number.parseInt(NODE, 10) < LEAST_NODE)
  throw new Error(`palyra-client needs Node ${LEAST_NODE} or newer, and this is Node ${NODE}`);

const OPEN_WITHIN_MS = 10_000; // transport, hello and connect together
const SILENT_FOR_MS = 20_000; // then the peer is asked for a sign of life
const PONG_WITHIN_MS = 10_000;
const BACKOFF_MS = { base: 100, cap: 5_000 };
const MAX_READS = 5; // times that a read is sent: its reply may be what ends the connection
const STEADY_MS = 5_000; // a connection that lasted so long resets the count of failures
const PATIENCE_MS = 120_000; // reconnecting is given up after so long without a connection
const RETRY_MS = 250; // before a retry, if the daemon names no time
const WAIT_MS = 30_000; // of one `run.wait`
const MAX_WAITING = 1_024; // calls that wait for a place among the requests in progress
const MAX_ITEMS = 2_048; // of a subscription, before it waits for its consumer
const MAX_CHARS = 8_388_608;
const MAX_NOTICES = 1_024;
const TERMINAL = new Set(["run.done", "run.failed", "run.cancelled"]);
const ENDED = new Set(["done", "failed", "cancelled"]); // states

const BY_ORIGIN = globalThis.document
  ? ": if the daemon runs, its setting server.allowed_origins has to list the origin of this page"
  : "";

// Methods without an effect, sent again after a lost connection.
const READS = new Set([
  "connect",
  "ping",
  "system.status",
  "system.tree",
  "run.get",
  "run.list",
  "run.wait",
  "run.replay",
  "run.diff",
  "tape.read",
  "tape.find",
  "tape.outline",
  "tape.verify",
  "tape.export",
  "context.explain",
  "reference.preview",
  "approval.list",
  "approval.get",
  "approval.preview",
  "approval.reach",
  "approval.grants",
  "artifact.read",
  "checkpoint.list",
  "document.list",
  "document.get",
  "document.history",
  "session.get",
  "session.list",
  "session.checkpoints",
  "workspace.list",
  "agent.list",
  "agent.get",
  "channel.list",
  "pairing.list",
  "tool.list",
  "policy.explain",
  "policy.suggest",
  "policy.rule_for",
  "model.list",
  "skill.list",
  "skill.get",
  "skill.audit",
  "mcp.list",
  "mcp.resources",
  "mcp.prompts",
  "token.list",
  "usage.summary",
  "budget.list",
  "budget.status",
  "incident.list",
  "incident.get",
  "memory.search",
  "memory.get",
  "memory.list",
  "memory.history",
  "memory.status",
  "memory.audit",
  "memory.export",
  "memory.used",
  "learning.list",
  "learning.get",
  "backup.verify",
  "retention.preview",
  "task.get",
  "task.list",
  "task.counts",
  "schedule.get",
  "schedule.list",
  "schedule.next",
  "schedule.preview",
  "config.get",
  "secret.list",
  "push.key",
  "log.tail",
  "system.describe",
]);

// Methods that take an idempotency key; one is generated if the caller gives none.
const KEYED = new Set([
  "system.suspend",
  "system.resume",
  "run.start",
  "run.fork",
  "run.steer",
  "run.cancel",
  "run.undo",
  "approval.resolve",
  "approval.revoke",
  "checkpoint.restore",
  "session.resolve",
  "session.archive",
  "session.rename",
  "session.reset",
  "session.set_mode",
  "session.queue",
  "session.pin",
  "session.checkpoint",
  "session.restore",
  "session.purge",
  "session.compact",
  "agent.create",
  "agent.update",
  "agent.delete",
  "channel.set",
  "channel.delete",
  "pairing.approve",
  "pairing.revoke",
  "policy.apply_suggestion",
  "policy.allow_from",
  "policy.undo",
  "skill.install",
  "skill.quarantine",
  "skill.enable",
  "skill.remove",
  "token.create",
  "token.revoke",
  "budget.set",
  "budget.delete",
  "incident.resolve",
  "memory.add",
  "memory.import",
  "memory.edit",
  "memory.forget",
  "memory.undo",
  "memory.pin",
  "memory.never_recall",
  "memory.purge",
  "learning.accept",
  "learning.reject",
  "learning.edit",
  "learning.undo",
  "backup.create",
  "retention.apply",
  "retention.compact",
  "task.submit",
  "task.cancel",
  "task.pause",
  "task.resume",
  "task.retry",
  "schedule.add",
  "schedule.pause",
  "schedule.resume",
  "schedule.remove",
  "config.set",
]);

/** An error of the daemon, or of the connection to it; programs act on `code`. */
export class PalyraError extends Error {
  constructor(code, message, { retryable = false, retry_after_ms, field, details, cause } = {}) {
    super(message, cause && { cause });
    this.name = "PalyraError";
    this.code = code;
    this.retryable = retryable;
    this.retry_after_ms = retry_after_ms;
    this.field = field;
    this.details = details;
  }
}

/** The connection ended before the reply came.  Never leaves this module. */
class ConnectionLost extends Error {}

/** Open a client, on the first connection.  Rejects at once if that one fails. */
export function connect(to, options = {}) {
  return Client.open(to, options);
}

/** Return a function that opens a WebSocket; see `Transport` in client.d.ts. */
export function webSocket(url) {
  const address = toAddress(url);
  return ({ onMessage, onClose, signal }) =>
    new Promise((resolve, reject) => {
      const socket = new WebSocket(address, PROTOCOL);
      const close = () => socket.close();
      signal.addEventListener("abort", close, { once: true });
      socket.onopen = () => resolve({ send: (text) => socket.send(text), close });
      socket.onmessage = ({ data }) => onMessage(data);
      socket.onerror = () => reject(unavailable(`${address} is not reachable${BY_ORIGIN}`)); // no `close` may follow
      socket.onclose = ({ code, reason }) => {
        signal.removeEventListener("abort", close);
        onClose(code, reason);
        reject(unavailable(`${address} closed the connection${BY_ORIGIN}`));
      };
    });
}

/** Return the address of the protocol: `host:port` and http addresses are accepted, too. */
function toAddress(url) {
  const address = new URL(/^[a-z]+:\/\//i.test(url) ? url : `ws://${url}`);
  address.protocol = address.protocol.replace("http", "ws");
  if (!["ws:", "wss:"].includes(address.protocol))
    throw new PalyraError("invalid_params", `${url} is no WebSocket address (ws://host:port)`, { field: "url" });
  if (address.pathname === "/") address.pathname = "/v1/ws";
  return address.href;
}

// --- One connection ---------------------------------------------------------------------------

/** Handshake, requests by id, notifications, end.  It is never opened again. */
class Connection {
  hello;
  welcome;
  isOpen = true;
  ended; // resolves to {code, reason}
  #transport;
  #onNotice;
  #end;
  #greeted = Promise.withResolvers();
  #pending = new Map();
  #lastId = 0;
  #free = 1; // places for requests: `connect`; more once the limits are known
  #waiting = [];
  #receivedMs = performance.now();
  #timer;

  constructor(onNotice) {
    this.#onNotice = onNotice;
    ({ promise: this.ended, resolve: this.#end } = Promise.withResolvers());
    this.#greeted.promise.catch(() => {}); // `open` may have ended before it is rejected
  }

  /** Open the transport and introduce this client.  Rejects with the error that prevents it. */
  async open(endpoint, introduction) {
    const limit_ms = endpoint.open_within_ms ?? OPEN_WITHIN_MS;
    const late = new AbortController();
    const timer = setTimeout(() => late.abort(unavailable(`the daemon did not answer within ${limit_ms} ms`)), limit_ms);
    try {
      await abortable(this.#introduce(endpoint, introduction, late.signal), late.signal);
    } catch (error) {
      const reason = (await this.#verdict()) ?? error;
      late.abort(reason); // ends a transport that is not open yet
      void this.close();
      throw reason instanceof ConnectionLost ? unavailable(reason.message) : reason;
    } finally {
      clearTimeout(timer);
    }
    this.#timer = setInterval(() => void this.#check(), SILENT_FOR_MS);
    this.#timer.unref?.();
  }

  /** Send a request.  `onResult` gets the result before any later message is read. */
  async request(method, params, { signal, onResult } = {}) {
    signal?.throwIfAborted();
    await this.#takePlace(signal);
    try {
      return await this.#send(method, params, signal, onResult);
    } finally {
      this.#givePlace();
    }
  }

  /** Close the transport; resolves when it is closed, as far as the transport can say. */
  async close() {
    this.#finish(undefined, "closed by this client");
    await this.#transport?.close();
  }

  async #send(method, params, signal, onResult) {
    if (!this.isOpen) throw new ConnectionLost("the connection has ended");
    const id = ++this.#lastId;
    const text = JSON.stringify({ jsonrpc: "2.0", id, method, params });
    this.#checkSize(method, text);
    const { promise, resolve, reject } = Promise.withResolvers();
    this.#pending.set(id, { resolve, reject, onResult });
    try {
      this.#transport.send(text);
      return await abortable(promise, signal);
    } finally {
      this.#pending.delete(id);
    }
  }

  async #introduce(endpoint, introduction, signal) {
    const open = endpoint.open ?? webSocket(endpoint.url);
    const transport = await open({
      onMessage: (text) => this.#receive(text),
      onClose: (code, reason) => this.#finish(code, reason),
      signal,
    });
    this.#transport = transport;
    if (!this.isOpen) await transport.close();
    this.hello = await this.#greeted.promise;
    // One place stays free for requests that must not queue behind long waits.
    this.#free = Math.max(1, this.hello.limits.max_inflight - 1);
    this.welcome = await this.request("connect", { ...introduction, token: endpoint.token });
  }

  /** Return the error of an ended connection that rules out a retry. */
  async #verdict() {
    if (this.isOpen) return undefined;
    return verdict(await this.ended);
  }

  /** The moment of the last message, by `performance.now()`. */
  get receivedMs() {
    return this.#receivedMs;
  }

  #receive(text) {
    this.#receivedMs = performance.now();
    let messages;
    try {
      if (typeof text !== "string") throw new TypeError("a binary message");
      messages = [JSON.parse(text)].flat();
    } catch (error) {
      this.#fail(`the peer does not speak ${PROTOCOL}: ${error.message}`);
      return;
    }
    for (const message of messages) this.#accept(message);
  }

  #accept({ id, method, params = {}, result, error }) {
    if (method === "hello") this.#greeted.resolve(params);
    else if (method === "connection.closed") this.#finish(params.code, params.reason);
    else if (method !== undefined) this.#onNotice(method, params);
    else if (error && id == null) {
      // A message that could not be read (too deep, half a surrogate pair): it is one of these.
      for (const { reject } of this.#pending.values()) reject(toError(error));
    } else {
      const pending = this.#pending.get(id);
      if (error) pending?.reject(toError(error));
      else if (pending) {
        pending.onResult?.(result);
        pending.resolve(result);
      }
    }
  }

  #checkSize(method, text) {
    const limit = this.hello?.limits.max_message_bytes ?? Infinity;
    const size = text.length * 3 > limit ? new TextEncoder().encode(text).length : 0;
    if (size > limit)
      throw new PalyraError(
        "too_large",
        `${method} has ${size} bytes, and this daemon accepts at most ${limit} in a message: ` +
          "send less, or raise server.max_message_bytes there",
      );
  }

  async #takePlace(signal) {
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    if (this.#waiting.length >= MAX_WAITING)
      throw new PalyraError("overloaded", `${MAX_WAITING} calls of this client wait already: await some of them`, {
        retryable: true,
        retry_after_ms: RETRY_MS,
      });
    const place = Promise.withResolvers();
    this.#waiting.push(place);
    try {
      await abortable(place.promise, signal);
    } catch (error) {
      const at = this.#waiting.indexOf(place);
      if (at < 0) this.#givePlace(); // it was given in the same moment
      else this.#waiting.splice(at, 1);
      throw error;
    }
  }

  #givePlace() {
    const next = this.#waiting.shift();
    if (next) next.resolve();
    else this.#free += 1;
  }

  /** Ask a silent peer for a sign of life: TCP may not report a dead one for hours. */
  async #check() {
    if (performance.now() - this.#receivedMs < SILENT_FOR_MS) return;
    try {
      await this.#send("ping", {}, AbortSignal.timeout(PONG_WITHIN_MS)); // in the place kept free
    } catch {
      if (performance.now() - this.#receivedMs > PONG_WITHIN_MS) this.#fail("the peer stopped answering");
    }
  }

  #fail(reason) {
    this.#finish(undefined, reason);
    void this.#transport?.close();
  }

  #finish(code, reason) {
    if (!this.isOpen) return;
    this.isOpen = false;
    clearInterval(this.#timer);
    const lost = new ConnectionLost(reason || "the connection was lost");
    this.#greeted.reject(lost);
    for (const { reject } of this.#pending.values()) reject(lost);
    this.#end({ code, reason });
  }
}

function verdict({ code, reason }) {
  if (code === 4401) return new PalyraError("unauthenticated", `the daemon refused the token: ${reason || "unknown"}`);
  if (code === 4403) return new PalyraError("forbidden", `the token was revoked: ${reason || "ask its operator"}`);
  return undefined;
}

function toError({ message, data = {} }) {
  return new PalyraError(data.code ?? "internal", data.message ?? message, data);
}

function unavailable(message) {
  return new PalyraError("unavailable", message, { retryable: true });
}

// --- The client -------------------------------------------------------------------------------

/** Calls, runs, events and notifications over the current connection. */
export class Client {
  runs = new Runs(this);
  #to;
  #introduction;
  #patienceMs;
  #onError;
  #connection;
  #failure;
  #closing = new AbortController();
  #changed = Promise.withResolvers();
  #subscriptions = new Set();
  #listeners = new Set();

  static async open(to, { name = "palyra-js", want = ["batch"], patience_ms = PATIENCE_MS, onError, signal } = {}) {
    const client = new Client();
    client.#to = to;
    client.#introduction = { client: { name, version: VERSION }, want };
    client.#patienceMs = patience_ms;
    client.#onError = onError ?? ((error) => console.error(error));
    const connection = await abortable(client.#dial(), signal, (late) => late.close());
    void client.#serve(connection);
    return client;
  }

  /** The `hello` of the current connection. */
  get hello() {
    return this.#connection?.hello;
  }

  /** The reply to `connect`: principal, role, scopes, features. */
  get welcome() {
    return this.#connection?.welcome;
  }

  get isConnected() {
    return this.#connection?.isOpen ?? false;
  }

  /** The moment of the last message of the daemon, by `performance.now()`; its age is that of what is known. */
  get receivedMs() {
    return this.#connection?.receivedMs;
  }

  /**
   * Call `up(hello)` for the current connection and each later one, `down(reason)` when one is lost, and
   * `ended(error)` when there will be none.  Returns a function that ends it.
   */
  onConnection({ up = () => {}, down = () => {}, ended = () => {} }) {
    const listener = { notice: () => {}, connected: () => up(this.hello), lost: down, fail: ended };
    this.#listeners.add(listener);
    if (this.isConnected) up(this.hello);
    else if (this.#failure) ended(this.#failure);
    return () => void this.#listeners.delete(listener);
  }

  /** Call a method.  Rejects with a PalyraError, or with the reason of the signal. */
  async call(method, params = {}, { signal } = {}) {
    const given = KEYED.has(method) ? { ...params, idempotency_key: params.idempotency_key ?? makeKey() } : params;
    return await this.#ask(method, given, signal, given.idempotency_key != null);
  }

  /** Follow a run: everything after `after_seq`, then what happens. */
  events(run_id, { after_seq = -1, progress = true, signal } = {}) {
    const subscription = new Subscription(run_id, after_seq, progress, signal, {
      open: (one) => this.#resubscribe(one),
      close: (one) => this.#unsubscribe(one),
    });
    this.#subscriptions.add(subscription);
    this.#resubscribe(subscription);
    return subscription;
  }

  /** Follow the open runs: the first item has all of them, each other one those that have changed. */
  watchRuns(filter = {}, { signal } = {}) {
    const watch = new RunWatch(filter, signal, { close: (one) => this.#unsubscribe(one) });
    this.#subscriptions.add(watch);
    this.#resubscribe(watch);
    return watch;
  }

  /** Iterate over notifications outside subscriptions, from now on; the oldest are dropped. */
  notices({ signal } = {}) {
    return new Notices(this.#listeners, signal);
  }

  /** Answer approvals: those of one run, or all that this token may answer.  Returns a function that ends it. */
  onApproval(answer, { run_id } = {}) {
    const asked = new Set(); // the newest approvals: a list may repeat a notification
    const ask = async (approval) => {
      const isOurs = run_id === undefined || [approval.run_id, approval.parent_run_id].includes(run_id);
      if (!isOurs || asked.has(approval.approval_id)) return;
      asked.add(approval.approval_id);
      if (asked.size > MAX_NOTICES) asked.delete(asked.values().next().value);
      try {
        await this.#answer(approval, await answer(approval));
      } catch (error) {
        asked.delete(approval.approval_id); // it stays pending; the next connection asks again
        if (!this.#failure) this.#onError(error);
      }
    };
    const list = async () => {
      try {
        const { approvals } = await this.#ask("approval.list", { pending_only: true, limit: 500 }, undefined, true);
        if (this.#listeners.has(listener)) for (const approval of approvals) void ask(approval);
      } catch (error) {
        if (!this.#failure) this.#onError(error);
      }
    };
    const listener = {
      notice: (method, params) => method === "approval.requested" && void ask(params),
      connected: () => void list(),
      fail: () => {},
    };
    this.#listeners.add(listener);
    if (this.isConnected) void list();
    return () => void this.#listeners.delete(listener);
  }

  /** Wait until the run has ended, however long it takes. */
  async wait(run_id, { signal } = {}) {
    for (;;) {
      const view = await this.#ask("run.wait", { run_id, timeout_ms: WAIT_MS }, signal, true);
      if (!view.timed_out) return view;
    }
  }

  /** Close the connection; pending calls and iterators end with the code `unavailable`. */
  async close() {
    this.#giveUp(unavailable("this client was closed"));
    this.#closing.abort();
    await this.#connection?.close();
  }

  async #answer(approval, given) {
    if (given == null) return; // somebody else decides
    const { approval_id, digest } = approval;
    const answer = typeof given === "string" ? { decision: given } : given;
    await this.call("approval.resolve", { ...answer, approval_id, digest });
  }

  /** Send a request on the current or the next connection; `isRepeatable` ones, and a few times reads, on the next. */
  async #ask(method, params, signal, isRepeatable) {
    for (let sent = 1; ; sent++) {
      const connection = await this.#connected(signal);
      try {
        return await connection.request(method, params, { signal });
      } catch (error) {
        if (!(error instanceof ConnectionLost)) throw error;
        if (!isRepeatable && !(READS.has(method) && sent < MAX_READS))
          throw unavailable(`the connection was lost during ${method}: it may or may not have been executed`);
      }
    }
  }

  async #connected(signal) {
    for (;;) {
      if (this.#connection?.isOpen) return this.#connection;
      if (this.#failure) throw this.#failure;
      await abortable(this.#changed.promise, signal);
    }
  }

  async #dial() {
    const endpoint = await (typeof this.#to === "function" ? this.#to() : this.#to);
    const connection = new Connection((method, params) => this.#route(method, params));
    await connection.open(endpoint, this.#introduction);
    return connection;
  }

  /** Serve one connection after another, until refused, out of patience or closed. */
  async #serve(connection) {
    let failures = 0;
    while (connection) {
      const beganMs = performance.now();
      this.#setOpen(connection);
      const end = await connection.ended;
      for (const subscription of this.#subscriptions) subscription.detach();
      for (const listener of this.#listeners) listener.lost?.(end.reason);
      const refusal = verdict(end);
      if (refusal) this.#giveUp(refusal);
      failures = performance.now() - beganMs > STEADY_MS ? 1 : failures + 1;
      [connection, failures] = await this.#redial(failures);
    }
  }

  async #redial(failures) {
    const downMs = performance.now();
    for (; !this.#failure; failures++) {
      await this.#pause(Math.random() * Math.min(BACKOFF_MS.cap, BACKOFF_MS.base * 2 ** (failures - 1)));
      if (this.#failure) break;
      try {
        const connection = await this.#dial();
        if (!this.#failure) return [connection, failures];
        await connection.close();
      } catch (error) {
        const isFinal = ["unauthenticated", "forbidden"].includes(error.code);
        const isOver = performance.now() - downMs > this.#patienceMs;
        if (isFinal) this.#giveUp(error);
        else if (isOver) this.#giveUp(unavailable(`no daemon for ${this.#patienceMs} ms: ${error.message}`));
      }
    }
    return [undefined, failures];
  }

  /** Sleep, or until the client is closed. */
  async #pause(ms) {
    let timer;
    const slept = new Promise((resolve) => (timer = setTimeout(resolve, ms)));
    await abortable(slept, this.#closing.signal).catch(() => {});
    clearTimeout(timer);
  }

  #setOpen(connection) {
    this.#connection = connection;
    this.#noteChange();
    for (const subscription of this.#subscriptions) this.#resubscribe(subscription);
    for (const listener of this.#listeners) listener.connected();
  }

  #giveUp(error) {
    this.#failure ??= error;
    this.#noteChange();
    for (const subscription of this.#subscriptions) subscription.fail(this.#failure);
    for (const listener of this.#listeners) listener.fail(this.#failure);
  }

  #noteChange() {
    this.#changed.resolve();
    this.#changed = Promise.withResolvers();
  }

  /** Subscribe (again) from the cursor, on the current connection or else on the next one. */
  #resubscribe(subscription) {
    if (this.#failure) subscription.fail(this.#failure);
    if (!this.isConnected || subscription.isOpening) return;
    subscription.isOpening = true;
    void this.#openSubscription(this.#connection, subscription);
  }

  async #openSubscription(connection, subscription) {
    try {
      await release(connection, subscription);
      await connection.request(subscription.openMethod, subscription.makeParams(), {
        onResult: (reply) => subscription.open(reply, connection.hello.instance_id),
      });
      if (!this.#subscriptions.has(subscription)) await release(connection, subscription);
    } catch (error) {
      if (error instanceof ConnectionLost) return; // the next connection opens it again
      if (!subscription.wasOpened || !error.retryable) return subscription.fail(error);
      await this.#pause(error.retry_after_ms ?? RETRY_MS);
      subscription.isOpening = false;
      this.#resubscribe(subscription);
    }
  }

  #unsubscribe(subscription) {
    this.#subscriptions.delete(subscription);
    if (this.isConnected) void release(this.#connection, subscription).catch(() => {});
  }

  #route(method, params) {
    const isOfStream = method.startsWith("tape.") || method === "progress" || method === "run.updated";
    for (const one of isOfStream ? this.#subscriptions : []) if (one.isFor(params)) one.take(method, params);
    if (!isOfStream) for (const listener of this.#listeners) listener.notice(method, params);
  }
}

/** Close the daemon's subscription, if it has one. */
async function release(connection, subscription) {
  const route = subscription.route;
  subscription.route = undefined;
  if (route === undefined) return;
  try {
    await connection.request(subscription.closeMethod, { subscription: route });
  } catch (error) {
    if (error instanceof ConnectionLost) throw error;
  }
}

// --- Runs -------------------------------------------------------------------------------------

class Runs {
  #client;

  constructor(client) {
    this.#client = client;
  }

  /** Send a message; on return it is durable.  `onApproval` answers the approvals of the run. */
  async start(params, { onApproval, signal } = {}) {
    const started = await this.#client.call("run.start", params, { signal });
    const stop = onApproval ? this.#client.onApproval(onApproval, { run_id: started.run_id }) : () => {};
    return new Run(this.#client, started.run_id, { started, stop });
  }

  /** A run that exists. */
  get(run_id) {
    return new Run(this.#client, run_id);
  }
}

/** One run; iterating over it follows it from its first event to its last one. */
export class Run {
  #client;
  #stop;

  constructor(client, run_id, { started, stop = () => {} } = {}) {
    this.#client = client;
    this.#stop = stop;
    this.run_id = run_id;
    this.started = started;
  }

  [Symbol.asyncIterator]() {
    return this.#follow();
  }

  /** See `Client.events`. */
  events(options) {
    return this.#client.events(this.run_id, options);
  }

  /** Wait for the end; resolves to the run's view. */
  async wait(options) {
    const view = await this.#client.wait(this.run_id, options);
    this.#stop();
    return view;
  }

  /** Cancel it; resolves when the end is committed. */
  cancel(reason = "", options) {
    return this.#client.call("run.cancel", { run_id: this.run_id, reason }, options);
  }

  /** Send a message that the model gets before its next turn. */
  steer(text, options) {
    return this.#client.call("run.steer", { run_id: this.run_id, text }, options);
  }

  async *#follow() {
    yield* this.events();
    this.#stop();
  }
}

// --- Subscriptions ----------------------------------------------------------------------------

/**
 * The items of one run in order, across connections and restarts of the daemon.
 *
 * Events arrive before they are durable, so after a crash the daemon's tape may lack some that the
 * consumer has.  Three sets of events follow from this:
 *
 *     seq <= committed     durable; never change
 *     tail                 delivered by the current subscription, not known to be durable
 *     doubted              the tail of an earlier one, until the daemon sends it again
 *
 * A resume starts at the cursor: the highest seq that is delivered, durable and not doubted.  Rows
 * that are sent again are compared with what was delivered: an equal one is passed over, another
 * one voids what was delivered from there on (`discarded`).
 *
 * The buffer is bounded and nothing is lost: when it is full, further events are dropped, and once
 * it is empty the subscription is opened again from the cursor, so the tape is the buffer.
 */
export class Subscription {
  openMethod = "tape.subscribe";
  closeMethod = "tape.unsubscribe";
  isOpening = false; // a `tape.subscribe` is in progress
  wasOpened = false;
  route; // the daemon's id of it, on the current connection
  #owner;
  #signal;
  #progress;
  #instance; // of the daemon that opened it last
  #items = [];
  #chars = 0;
  #isLagging = false;
  #failure;
  #isClosed = false;
  #changed = Promise.withResolvers();
  #delivered; // the highest seq that was put in the buffer
  #committed;
  #tail = new Map();
  #doubted = new Map();
  #isCaughtUp = false;
  #terminal;
  #hasGap = false;
  #gapAt;

  constructor(run_id, after_seq, progress, signal, owner) {
    this.run_id = run_id;
    this.#delivered = this.#committed = after_seq;
    this.#progress = progress;
    this.#signal = signal;
    this.#owner = owner;
  }

  /** The `after_seq` from which another client can continue; excludes what is still buffered. */
  get cursor() {
    return Math.min(this.#certain, ...this.#items.map(({ item }) => validBefore(item)));
  }

  async *[Symbol.asyncIterator]() {
    try {
      while (!this.#isClosed) {
        const next = this.#items.shift();
        if (next) {
          this.#chars -= next.chars;
          yield next.item;
        } else if (this.#failure) throw this.#failure;
        else if (this.#isFinished) return;
        else await this.#wait();
      }
    } finally {
      this.close();
    }
  }

  /** End it; a `break` out of the iteration does the same. */
  close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#owner.close(this);
    this.#changed.resolve();
  }

  // What follows is for the client that owns it.

  makeParams() {
    return { run_id: this.run_id, after_seq: this.#certain, progress: this.#progress };
  }

  isFor({ subscription, run_id }) {
    return subscription === undefined ? run_id === this.run_id : subscription === this.route;
  }

  /** The daemon has accepted it; a restarted one has lost an uncommitted tail beyond its head. */
  open({ subscription, through, ended = false }, instance) {
    const isSame = this.#instance === undefined || this.#instance === instance;
    this.#instance = instance;
    this.route = subscription;
    this.isOpening = false;
    this.wasOpened = true;
    const cursor = this.#certain;
    this.#hasGap = false;
    for (const [seq, content] of this.#tail) this.#doubted.set(seq, content);
    this.#tail.clear();
    const isLost = through < (isSame ? cursor : this.#delivered);
    if (isLost) this.#committed = Math.min(cursor, through);
    this.#commit(through);
    if (isLost) this.#rewind(through);
    if (ended) this.#terminal = through;
    this.#changed.resolve();
  }

  detach() {
    this.isOpening = false;
    this.route = undefined;
  }

  fail(error) {
    this.isOpening = false;
    this.#failure ??= error;
    this.#changed.resolve();
  }

  take(method, params) {
    if (method === "tape.reset") this.#reset(params);
    else if (method === "progress") this.#takeProgress(params);
    else if (this.isOpening) return;
    else {
      if (method === "tape.event" && this.#isFull) this.#isLagging = true;
      if (this.#isLagging) return;
      if (method === "tape.event") this.#event(params);
      else if (method === "tape.committed") this.#commit(params.committed);
      else if (method === "tape.caught_up") this.#caughtUp(params.through);
    }
    if (this.#hasGap && !this.isOpening) this.#owner.open(this);
    this.#changed.resolve();
  }

  get #certain() {
    return Math.min(this.#delivered, this.#committed, ...[...this.#doubted.keys()].map((seq) => seq - 1));
  }

  get #isFinished() {
    if (this.#terminal === undefined || !this.#isCaughtUp || this.#doubted.size > 0) return false;
    return Math.min(this.#committed, this.#delivered) >= this.#terminal;
  }

  get #isFull() {
    return this.#items.length >= MAX_ITEMS || this.#chars >= MAX_CHARS;
  }

  async #wait() {
    if (this.#isLagging) {
      this.#isLagging = false;
      this.#owner.open(this);
    }
    this.#changed = Promise.withResolvers();
    await abortable(this.#changed.promise, this.#signal);
  }

  #push(item, chars = 64) {
    this.#items.push({ item, chars });
    this.#chars += chars;
  }

  #event({ subscription: _, committed, ...frame }) {
    const { seq, at_ms, kind, data } = frame;
    const content = JSON.stringify([at_ms, kind, data]);
    const known = this.#doubted.get(seq) ?? this.#tail.get(seq) ?? content;
    this.#doubted.delete(seq);
    if (known !== content) this.#rewind(seq - 1);
    if (seq === this.#delivered + 1) {
      this.#delivered = seq;
      if (TERMINAL.has(kind)) this.#terminal = seq;
      this.#push({ type: "event", ...frame }, content.length);
    } else if (seq > this.#delivered) this.#noteGap();
    if (this.#committed < seq && seq <= this.#delivered) this.#tail.set(seq, content);
    this.#commit(committed);
  }

  #takeProgress(params) {
    const hasRoom = !this.#isLagging && this.#items.length < MAX_ITEMS / 2;
    if (this.#progress && hasRoom) this.#push({ type: "progress", ...params }, 64 + params.delta.length);
  }

  #commit(seq) {
    if (seq <= this.#committed) return;
    this.#committed = seq;
    for (const at of this.#tail.keys()) if (at <= seq) this.#tail.delete(at);
  }

  #caughtUp(through) {
    this.#commit(through);
    if (this.#delivered < through) this.#noteGap();
    if (this.#hasGap || this.#isCaughtUp) return;
    this.#isCaughtUp = true;
    this.#push({ type: "caught_up", through });
  }

  #reset({ reason, floor }) {
    if (floor <= this.#delivered) this.#rewind(floor - 1);
    else if (floor > this.#delivered + 1) {
      this.#delivered = this.#committed = floor - 1;
      this.#tail.clear();
      this.#doubted.clear();
      this.#push({ type: "reset", reason, floor });
    }
  }

  #rewind(after_seq) {
    for (const events of [this.#tail, this.#doubted])
      for (const seq of events.keys()) if (seq > after_seq) events.delete(seq);
    this.#delivered = Math.min(this.#delivered, after_seq);
    if (this.#terminal > after_seq) this.#terminal = undefined;
    this.#push({ type: "discarded", run_id: this.run_id, after_seq });
  }

  /** Ask for a new subscription, once per position: a second gap there is an error of the daemon. */
  #noteGap() {
    if (this.#hasGap) return;
    if (this.#gapAt === this.#delivered) {
      this.fail(new PalyraError("protocol_error", `${this.run_id}: the daemon does not send seq ${this.#delivered + 1}`));
      return;
    }
    this.#hasGap = true;
    this.#gapAt = this.#delivered;
  }
}

/** The highest seq that is valid before that item is consumed. */
function validBefore(item) {
  if (item.type === "event") return item.seq - 1;
  return item.type === "discarded" ? item.after_seq : Infinity;
}

/** The open runs of a watch, and the changes of each. */
export class RunWatch {
  openMethod = "run.watch";
  closeMethod = "run.unwatch";
  runs = new Map(); // the open ones, by id
  isOpening = false;
  wasOpened = false;
  route;
  #filter;
  #signal;
  #close;
  #snapshot = new Map();
  #news = new Map();
  #gone = new Set();
  #hasNews = false;
  #isClosed = false;
  #failure;
  #changed = Promise.withResolvers();

  constructor(filter, signal, { close }) {
    this.#filter = filter;
    this.#signal = signal;
    this.#close = close;
  }

  async *[Symbol.asyncIterator]() {
    try {
      while (!this.#isClosed) {
        if (this.#hasNews) yield this.#take();
        else if (this.#failure) throw this.#failure;
        else {
          this.#changed = Promise.withResolvers();
          await abortable(this.#changed.promise, this.#signal);
        }
      }
    } finally {
      this.close();
    }
  }

  close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#changed.resolve();
    this.#close(this);
  }

  makeParams() {
    return this.#filter;
  }

  isFor({ subscription }) {
    return subscription !== undefined && subscription === this.route;
  }

  open({ subscription }) {
    this.route = subscription;
    this.isOpening = false;
    this.wasOpened = true;
    this.#snapshot.clear();
  }

  detach() {
    this.isOpening = false;
    this.route = undefined;
  }

  fail(error) {
    this.isOpening = false;
    this.#failure ??= error;
    this.#changed.resolve();
  }

  take(_method, { runs = [], gone = [], snapshot, complete }) {
    if (!snapshot) return this.#note(runs, gone);
    for (const view of runs) this.#snapshot.set(view.run_id, view);
    if (!complete) return;
    const whole = this.#snapshot;
    this.#snapshot = new Map();
    this.#note(whole.values(), [...this.runs.keys()].filter((run_id) => !whole.has(run_id)));
  }

  #take() {
    const item = { runs: [...this.#news.values()], gone: [...this.#gone] };
    this.#news.clear();
    this.#gone.clear();
    this.#hasNews = false;
    return item;
  }

  #note(runs, gone) {
    for (const run_id of gone) {
      this.runs.delete(run_id);
      this.#news.delete(run_id);
      this.#gone.add(run_id);
    }
    for (const view of runs) {
      this.#gone.delete(view.run_id);
      this.#news.delete(view.run_id);
      this.#news.set(view.run_id, view);
      if (ENDED.has(view.state)) this.runs.delete(view.run_id);
      else this.runs.set(view.run_id, view);
    }
    for (const run_id of this.#news.keys()) {
      if (this.#news.size <= this.runs.size + MAX_ITEMS) break;
      if (!this.runs.has(run_id)) this.#news.delete(run_id); // the oldest that has ended
    }
    this.#hasNews = true;
    this.#changed.resolve();
  }
}

/** Notifications since it was made. */
class Notices {
  #listeners;
  #signal;
  #items = [];
  #failure;
  #changed = Promise.withResolvers();
  #listener = {
    notice: (method, params) => {
      if (this.#items.length >= MAX_NOTICES) this.#items.shift();
      this.#items.push({ method, params });
      this.#changed.resolve();
    },
    connected: () => {},
    fail: (error) => {
      this.#failure = error;
      this.#changed.resolve();
    },
  };

  constructor(listeners, signal) {
    this.#listeners = listeners;
    this.#signal = signal;
    listeners.add(this.#listener);
  }

  async *[Symbol.asyncIterator]() {
    try {
      while (this.#listeners.has(this.#listener)) {
        if (this.#items.length > 0) yield this.#items.shift();
        else if (this.#failure) throw this.#failure;
        else {
          this.#changed = Promise.withResolvers();
          await abortable(this.#changed.promise, this.#signal);
        }
      }
    } finally {
      this.close();
    }
  }

  close() {
    this.#listeners.delete(this.#listener);
    this.#changed.resolve();
  }
}

// --- Promises ---------------------------------------------------------------------------------

/** Reject with the signal's reason as soon as it is aborted; a result that comes later is disposed of. */
function abortable(promise, signal, dispose = () => {}) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => {
      reject(signal.reason);
      promise.then(dispose, () => {});
    };
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** `crypto.randomUUID` exists in secure contexts only. */
function makeKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
