// What `test_node_client.py` runs in Node: each scenario prints its name when it has passed.
import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

const [folder, home, base, python] = process.argv.slice(2);
const { connect, PalyraError, webSocket } = await import(join(folder, "client.js"));
const { childDaemon, localDaemon } = await import(join(folder, "node.js"));

const CALLS = Array.from({ length: 10 }, (_, n) => `/call echo {"text": "x${n}"}`).join("\n/then\n");
const WRITE = (path) => `/call write_file {"path": "${path}", "content": "hello"}`;
const ENDLESS = "/delay 3600000\n/say late";
const ANOTHER = "run_01890a5d-ac96-774b-bcce-b302099a8057";

const sockets = []; // newest last
globalThis.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    sockets.push(this);
  }
};
/** The connection of the shared client. */
const current = () => sockets.findLast(({ readyState }) => readyState === WebSocket.OPEN);

/** End it as a broken network does: what is on its way is lost. */
function drop() {
  const socket = current();
  const { onclose } = socket;
  socket.onmessage = socket.onclose = null;
  socket.close();
  onclose({ code: 1006, reason: "" });
}

const isError = (code, field) => (error) =>
  error instanceof PalyraError && error.code === code && (field === undefined || error.field === field);

/** The durable events of a run; what was discarded is taken back. */
async function collect(items, onEvent = () => {}) {
  let events = [];
  for await (const item of items) {
    if (item.type === "discarded") events = events.filter(({ seq }) => seq <= item.after_seq);
    if (item.type === "event") events.push(item);
    if (item.type === "event") await onEvent(item);
  }
  return events;
}
const seqs = (events) => events.map(({ seq }) => seq);
const upTo = (count) => Array.from({ length: count }, (_, at) => at);

const scenarios = {
  async calls_and_errors(client) {
    assert.equal(client.welcome.role, "operator");
    assert.ok((await client.call("ping")).now_ms > 0);
    await assert.rejects(client.call("run.get", { run_id: ANOTHER }), isError("not_found"));
    await assert.rejects(client.call("run.start", { text: "x", colour: "red" }), isError("invalid_params", "colour"));
    await assert.rejects(client.call("run.start", { text: "\ud800" }), isError("parse_error"));
    await assert.rejects(client.call("run.start", { text: "x".repeat(2 ** 20) }), isError("too_large"));
  },

  async watch_of_runs(client) {
    const agent = "default";
    const watch = client.watchRuns({ agent });
    const items = watch[Symbol.asyncIterator]();
    assert.deepEqual((await items.next()).value.gone, []);
    const run = await client.runs.start({ text: ENDLESS });
    const until = async (test) => {
      for (;;) {
        const { value } = await items.next();
        if (test(value)) return value;
      }
    };
    await until(({ runs }) => runs.some(({ run_id }) => run_id === run.run_id));
    assert.ok(watch.runs.has(run.run_id));
    drop();
    await run.cancel(); // on the next connection: the end is news, or the run is gone
    await until(({ runs, gone }) => gone.includes(run.run_id) || runs.some((one) => one.run_id === run.run_id && one.state === "cancelled"));
    assert.ok(!watch.runs.has(run.run_id));
    watch.close();
    assert.ok((await items.next()).done);
  },

  async run_and_stream(client) {
    const run = await client.runs.start({ text: CALLS });
    const events = await collect(run);
    assert.deepEqual(seqs(events), upTo(events.length));
    assert.deepEqual([events[0].kind, events.at(-1).kind], ["run.accepted", "run.done"]);
    assert.equal((await run.wait()).state, "done");
    const later = await collect(run.events({ after_seq: events.at(-3).seq }));
    assert.deepEqual(later, events.slice(-2));
  },

  async break_ends_the_subscription(client) {
    const run = await client.runs.start({ text: CALLS });
    const subscription = run.events();
    for await (const item of subscription) if (item.type === "event" && item.seq === 3) break;
    assert.deepEqual(await collect(subscription), []);
    assert.ok(subscription.cursor <= 3, "what was not consumed is not behind the cursor");
    const [next] = await collect(run.events({ after_seq: subscription.cursor }));
    assert.equal(next.seq, subscription.cursor + 1);
  },

  async approvals(client) {
    const asked = [];
    const answers = { "a.txt": "allow", "b.txt": { decision: "deny", reason: "not that one" } };
    for (const path of Object.keys(answers)) {
      const onApproval = (approval) => (asked.push(approval.arguments.path), answers[path]);
      const run = await client.runs.start({ text: WRITE(path) }, { onApproval });
      const resolved = (await collect(run)).find(({ kind }) => kind === "approval.resolved");
      assert.equal(resolved.data.decision, path === "a.txt" ? "allow" : "deny");
    }
    assert.deepEqual(asked, ["a.txt", "b.txt"]);
  },

  async failed_answers_are_reported(client) {
    const { promise: reported, resolve: onError } = Promise.withResolvers();
    const other = await connect(localDaemon({ home }), { onError });
    other.onApproval(() => Promise.reject(new RangeError("a bug of the program")));
    const run = await client.runs.start({ text: WRITE("c.txt") });
    assert.ok((await reported) instanceof RangeError);
    await other.close();
    assert.equal((await client.call("run.get", { run_id: run.run_id })).pending_approvals, 1);
    await run.cancel();
  },

  async resumes_after_a_drop(client) {
    const before = sockets.length;
    const run = await client.runs.start({ text: CALLS });
    const events = await collect(run, async ({ seq }) => {
      if (![0, 5].includes(seq)) return;
      await client.call("ping"); // connected (again)
      drop();
    });
    assert.deepEqual(seqs(events), upTo(events.length));
    assert.equal(events.at(-1).kind, "run.done");
    await client.call("ping");
    assert.equal(sockets.length, before + 2);
  },

  async mutations_survive_a_drop(client) {
    const { session_id } = await client.call("session.resolve", { session_key: "drop" });
    const socket = current();
    const send = socket.send.bind(socket);
    socket.send = (text) => (send(text), drop());
    const run = await client.runs.start({ session_id, text: "hello" });
    assert.notEqual(current(), socket);
    assert.equal((await run.wait()).state, "done");
    assert.equal((await client.call("run.list", { session_id })).runs.length, 1);
    current().send = () => drop();
    assert.equal((await client.call("run.get", { run_id: run.run_id })).state, "done");
  },

  async approvals_survive_a_drop(client) {
    const run = await client.runs.start({ text: WRITE("d.txt") });
    await collect(stopAfter(run.events(), "approval.requested"));
    drop();
    client.onApproval(() => "allow", { run_id: run.run_id });
    assert.equal((await run.wait()).state, "done");
  },

  async signals_and_cancel(client) {
    const run = await client.runs.start({ text: ENDLESS });
    await assert.rejects(run.wait({ signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
    const controller = new AbortController();
    const following = collect(run.events({ signal: controller.signal }));
    controller.abort(new RangeError("enough"));
    await assert.rejects(following, RangeError);
    assert.equal((await run.cancel("enough")).state, "cancelled");
    assert.equal((await collect(run)).at(-1).kind, "run.cancelled");
  },

  async notices_arrive(client) {
    const notices = client.notices();
    const run = await client.runs.start({ text: WRITE("e.txt") });
    for await (const { method, params } of notices)
      if (method === "approval.requested" && params.run_id === run.run_id) break;
    await run.cancel();
  },

  async bounded_calls(client) {
    const run = await client.runs.start({ text: ENDLESS });
    const waits = Array.from({ length: 1_200 }, () => client.call("run.wait", { run_id: run.run_id, timeout_ms: 60_000 }));
    const refused = waits.map((wait) => wait.then(() => "", (error) => error.code));
    const other = await connect(localDaemon({ home }));
    await other.runs.get(run.run_id).cancel();
    await other.close();
    const codes = await Promise.all(refused);
    assert.equal(codes.filter((code) => code === "overloaded").length, 1_200 - 1_024 - (client.hello.limits.max_inflight - 1));
    assert.equal(codes.filter((code) => !["overloaded", ""].includes(code)).length, 0);
  },

  async refusals() {
    const { url } = await localDaemon({ home })();
    await assert.rejects(connect({ url, token: "wrong" }), isError("unauthenticated"));
    await assert.rejects(connect({ url: "127.0.0.1:9", token: "x" }), isError("unavailable"));
    await assert.rejects(connect(localDaemon({ home: join(base, "none") })), isError("unavailable"));
    assert.throws(() => webSocket("ftp://127.0.0.1"), isError("invalid_params", "url"));
    const signal = AbortSignal.abort(new RangeError("too late"));
    await assert.rejects(connect(localDaemon({ home }), { signal }), RangeError);
  },

  async close_ends_everything() {
    const client = await connect(localDaemon({ home }));
    const run = await client.runs.start({ text: ENDLESS });
    const following = collect(run);
    const waiting = run.wait();
    await client.close();
    await assert.rejects(following, isError("unavailable"));
    await assert.rejects(waiting, isError("unavailable"));
    await assert.rejects(client.call("ping"), isError("unavailable"));
    assert.equal(client.isConnected, false);
  },

  async stdio() {
    const [own, workspace] = [join(base, "own"), join(base, "work")];
    mkdirSync(workspace);
    const command = [python, "-m", "palyra"];
    const child = childDaemon({ command, home: own, workspace, stderr: "ignore" });
    const pids = [];
    const open = async (receiver) => {
      const transport = await child.open(receiver);
      pids.push(transport.pid);
      return transport;
    };
    const client = await connect({ ...child, open });
    const second = await announced(localDaemon({ home: own }));
    const { instance_id } = second.hello;
    const run = await client.runs.start({ text: WRITE("f.txt") });
    let isKilled = false; // the event comes again if it was not durable
    const events = await collect(run, ({ kind }) => {
      if (kind !== "approval.requested" || isKilled) return;
      isKilled = true;
      process.kill(pids[0], "SIGKILL"); // the client starts another, which continues the run
      client.onApproval(() => "allow", { run_id: run.run_id });
    });
    assert.deepEqual(seqs(events), upTo(events.length));
    assert.equal(events.at(-1).kind, "run.done");
    assert.equal(pids.length, 2);
    assert.equal((await second.wait(run.run_id)).state, "done");
    assert.notEqual(second.hello.instance_id, instance_id); // found again at another port
    await second.close();
    await client.close();
    for (const pid of pids) assert.throws(() => process.kill(pid, 0), { code: "ESRCH" });
    await assert.rejects(connect(childDaemon({ command: ["no-such-program"] })), isError("unavailable"));
  },
};

/** Connect as soon as the daemon has announced its address, which follows its `hello` to the parent. */
async function announced(to) {
  for (;;) {
    try {
      return await connect(to);
    } catch (error) {
      if (error.code !== "unavailable") throw error;
    }
  }
}

async function* stopAfter(items, kind) {
  for await (const item of items) {
    yield item;
    if (item.kind === kind) return;
  }
}

const client = await connect(localDaemon({ home }));
for (const [name, scenario] of Object.entries(scenarios)) {
  await scenario(client);
  console.log(name);
}
await client.close();
