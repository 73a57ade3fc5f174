// Types of client.js.  The types of the protocol are in palyra.d.ts, which is generated.
import type {
  ApprovalRecord,
  ApprovalResolve,
  Cancelled,
  EventKind,
  Events,
  Hello,
  Method,
  Notifications,
  Params,
  ProgressItem,
  Result,
  RunStart,
  RunView,
  RunWaited,
  StartedRun,
  Steered,
  Welcome,
} from "./palyra.js";

export type * from "./palyra.js";

export const PROTOCOL: string;
export const VERSION: string;

/** An error of the daemon, or of the connection to it. */
export class PalyraError extends Error {
  constructor(code: string, message: string, more?: Partial<PalyraError>);
  /** See "Errors" in docs/protocol.md; `unavailable` also when the connection was lost. */
  readonly code: string;
  /** Whether the same request can succeed later without a change. */
  readonly retryable: boolean;
  readonly retry_after_ms?: number;
  /** The parameter that is wrong. */
  readonly field?: string;
  readonly details?: Record<string, unknown>;
}

/** Sends messages to the daemon. */
export interface Transport {
  send(text: string): void;
  /** Close it; resolves when it is closed. */
  close(): void | Promise<void>;
}

/** What an opened transport calls. */
export interface Receiver {
  /** With each message, a JSON text. */
  onMessage(text: string): void;
  /** Once, when it has ended; `code` is that of a WebSocket. */
  onClose(code: number | undefined, reason: string): void;
  /** Aborted when opening has taken too long. */
  signal: AbortSignal;
}

/** The address of a daemon, or another way to it. */
export type Endpoint =
  | { url: string; token: string }
  | { open(receiver: Receiver): Promise<Transport>; token?: string; open_within_ms?: number };

export interface ConnectOptions {
  /** Of this program, as the daemon logs it. */
  name?: string;
  /** Features of the protocol; `["batch"]` if it is left out. */
  want?: string[];
  /** Reconnecting is given up after so long without a connection; two minutes if it is left out. */
  patience_ms?: number;
  /** Gets errors that no caller waits for (an answer to an approval that failed); logs them by default. */
  onError?(error: unknown): void;
  /** Ends the attempt to connect. */
  signal?: AbortSignal;
}

export interface CallOptions {
  /** Ends the wait, as `AbortSignal.timeout(5000)` does; the request may have taken effect. */
  signal?: AbortSignal;
}

/** What a method takes: nothing need be written where nothing is required. */
export type Given<M extends Method> = {} extends Params<M> ? [params?: Params<M>, options?: CallOptions] : [params: Params<M>, options?: CallOptions];

/** An event of a run; `data` has the type that its `kind` says.  Pass over kinds you do not know. */
export type RunEvent = {
  [K in EventKind]: {
    type: "event";
    kind: K;
    data: Events[K];
    run_id: string;
    session_id: string;
    seq: number;
    at_ms: number;
  };
}[EventKind];

export type Item =
  | RunEvent
  /** Volatile: an event with the complete content follows. */
  | ({ type: "progress" } & ProgressItem)
  /** Everything that was committed when the subscription began has been delivered; sent once. */
  | { type: "caught_up"; through: number }
  /** Events after `after_seq` were delivered but never became durable: discard them. */
  | { type: "discarded"; run_id: string; after_seq: number }
  /** Events before `floor` are no longer stored: the tape continues there. */
  | { type: "reset"; reason: string; floor: number };

/** A notification outside subscriptions. */
export type Notice = { [N in keyof Notifications]: { method: N; params: Notifications[N] } }[keyof Notifications];

/** What `onApproval` returns; nothing, if somebody else decides. */
export type Answer =
  | "allow"
  | "deny"
  | Pick<ApprovalResolve, "decision" | "scope" | "ttl_ms" | "reason" | "idempotency_key">
  | undefined
  | void;
export type OnApproval = (approval: ApprovalRecord) => Answer | Promise<Answer>;

export interface FollowOptions extends CallOptions {
  /** The cursor of an earlier subscription; from the first event if it is left out. */
  after_seq?: number;
  /** Whether volatile progress is wanted; true if it is left out. */
  progress?: boolean;
}

/** Connect; a function is called for each connection again.  Rejects at once if the first one fails. */
export function connect(to: Endpoint | (() => Endpoint | Promise<Endpoint>), options?: ConnectOptions): Promise<Client>;

/** The transport that `{url, token}` uses. */
export function webSocket(url: string): (receiver: Receiver) => Promise<Transport>;

export class Client {
  private constructor();
  readonly runs: Runs;
  /** Of the newest connection. */
  readonly hello: Hello;
  readonly welcome: Welcome;
  readonly isConnected: boolean;
  /** The moment of the last message of the daemon, by `performance.now()`. */
  readonly receivedMs: number | undefined;
  /** Follow the connection: `up` now and after each loss, `down` at each loss, `ended` when there will be none.  Returns its end. */
  onConnection(listener: {
    up?: (hello: Hello) => void;
    down?: (reason: string) => void;
    ended?: (error: PalyraError) => void;
  }): () => void;
  /** Call a method.  An idempotency key is generated where the method takes one and none is given. */
  call<M extends Method>(method: M, ...given: Given<M>): Promise<Result<M>>;
  events(run_id: string, options?: FollowOptions): Subscription;
  /** Follow the open runs that pass the filter: first all of them, then those that have changed. */
  watchRuns(filter?: Params<"run.watch">, options?: CallOptions): RunWatch;
  /** Notifications outside subscriptions, from now on; those of a lost connection are missing. */
  notices(options?: CallOptions): AsyncIterable<Notice> & { close(): void };
  /** Answer approvals: of one run and those it delegates to, or all of this token.  Returns its end. */
  onApproval(answer: OnApproval, options?: { run_id?: string }): () => void;
  wait(run_id: string, options?: CallOptions): Promise<RunWaited>;
  close(): Promise<void>;
}

export interface Runs {
  /** Send a message; on return it is durable.  Approvals are answered until the end of the run is seen. */
  start(params: RunStart, options?: CallOptions & { onApproval?: OnApproval }): Promise<Run>;
  get(run_id: string): Run;
}

/** Iterating over it follows it to its end. */
export class Run implements AsyncIterable<Item> {
  private constructor();
  readonly run_id: string;
  /** The reply that started it. */
  readonly started?: StartedRun;
  [Symbol.asyncIterator](): AsyncIterator<Item>;
  events(options?: FollowOptions): Subscription;
  wait(options?: CallOptions): Promise<RunWaited>;
  cancel(reason?: string, options?: CallOptions): Promise<Cancelled>;
  steer(text: string, options?: CallOptions): Promise<Steered>;
}

/** The open runs of a watch.  It survives lost connections; slow consumers get the newest states only. */
export class RunWatch implements AsyncIterable<{ runs: RunView[]; gone: string[] }> {
  private constructor();
  /** The open runs now, by id. */
  readonly runs: ReadonlyMap<string, RunView>;
  /** Runs that have changed or ended, and the ids of those that are over or do not match any more. */
  [Symbol.asyncIterator](): AsyncIterator<{ runs: RunView[]; gone: string[] }>;
  close(): void;
}

/** The items of one run, once; it ends after the last event, by `break`, or by `close`. */
export class Subscription implements AsyncIterable<Item> {
  private constructor();
  readonly run_id: string;
  /** The `after_seq` with which another subscription continues. */
  readonly cursor: number;
  [Symbol.asyncIterator](): AsyncIterator<Item>;
  close(): void;
}
