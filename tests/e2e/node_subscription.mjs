// Order, gaps, duplicates and bounds of a subscription, without a daemon; see `test_node_client.py`.
import assert from "node:assert/strict";
import { join } from "node:path";

const { Subscription } = await import(join(process.argv[2], "client.js"));

/** A subscription, and the daemon in its place: `opened` counts requests to open it again. */
function make(after_seq = -1) {
  const owner = { opened: 0, open: () => owner.opened++, close: () => {} };
  const feed = new Subscription("run_1", after_seq, true, undefined, owner);
  return { feed, owner };
}
function event(feed, seq, { committed = seq, kind = "turn.started", text = `${seq}` } = {}) {
  feed.take("tape.event", { subscription: "sub", run_id: "run_1", session_id: "ses_1", seq, at_ms: seq, kind, data: { text }, committed });
}
const open = (feed, through, instance = "one", ended = false) =>
  feed.open({ subscription: "sub", from: 0, through, floor: 0, ended }, instance);
const brief = ({ type, seq, after_seq, floor, data }) => [type, seq ?? after_seq ?? floor, data?.text].filter((each) => each !== undefined);

/** Everything that is buffered, or the rest of an ended one. */
async function read(feed, count = Infinity) {
  const items = [];
  const iterator = feed[Symbol.asyncIterator]();
  while (items.length < count) {
    const { value, done } = await iterator.next();
    if (done) break;
    items.push(brief(value));
  }
  return items;
}

const scenarios = {
  async ends_after_the_durable_end() {
    const { feed } = make();
    open(feed, -1);
    event(feed, 0);
    feed.take("tape.caught_up", { subscription: "sub", through: 0 });
    event(feed, 1, { kind: "run.done", committed: 0 });
    feed.take("tape.committed", { run_id: "run_1", committed: 1 });
    assert.deepEqual(await read(feed), [["event", 0, "0"], ["caught_up"], ["event", 1, "1"]]);
  },

  async nothing_ends_at_an_end_that_is_not_durable() {
    const { feed } = make();
    open(feed, -1);
    feed.take("tape.caught_up", { subscription: "sub", through: -1 });
    event(feed, 0, { kind: "run.done", committed: -1 });
    const rest = read(feed);
    assert.equal(await Promise.race([rest, new Promise((resolve) => setImmediate(resolve, "open"))]), "open");
    assert.equal(feed.cursor, -1);
    feed.take("tape.committed", { run_id: "run_1", committed: 0 });
    assert.deepEqual(await rest, [["caught_up"], ["event", 0, "0"]]);
  },

  async duplicates_of_a_resume_are_passed_over() {
    const { feed } = make();
    open(feed, 0);
    event(feed, 0);
    event(feed, 1, { committed: 0 });
    feed.detach();
    assert.equal(feed.makeParams().after_seq, 0);
    open(feed, 1);
    event(feed, 1);
    event(feed, 2);
    assert.deepEqual(await read(feed, 3), [["event", 0, "0"], ["event", 1, "1"], ["event", 2, "2"]]);
  },

  async a_lost_tail_is_discarded() {
    const { feed } = make();
    open(feed, 0);
    event(feed, 0);
    event(feed, 1, { committed: 0 });
    feed.detach();
    open(feed, 0, "another");
    event(feed, 1, { text: "other" });
    assert.deepEqual(await read(feed, 4), [["event", 0, "0"], ["event", 1, "1"], ["discarded", 0], ["event", 1, "other"]]);
  },

  async another_event_voids_what_was_delivered() {
    const { feed } = make();
    open(feed, 0);
    event(feed, 0);
    event(feed, 1, { committed: 0 });
    feed.detach();
    open(feed, 2, "another");
    event(feed, 1, { text: "other" });
    assert.deepEqual((await read(feed, 4)).slice(2), [["discarded", 0], ["event", 1, "other"]]);
  },

  async a_gap_is_asked_for_once() {
    const { feed, owner } = make();
    open(feed, 3);
    event(feed, 0);
    event(feed, 2);
    event(feed, 3);
    assert.equal(owner.opened >= 1, true);
    open(feed, 3);
    event(feed, 2);
    await assert.rejects(read(feed), { code: "protocol_error", message: /does not send seq 1/ });
  },

  async a_reset_moves_the_floor() {
    const { feed } = make();
    open(feed, 9);
    feed.take("tape.reset", { subscription: "sub", run_id: "run_1", reason: "below_floor", floor: 5 });
    event(feed, 5);
    assert.deepEqual(await read(feed, 2), [["reset", 5], ["event", 5, "5"]]);
  },

  async a_truncated_tape_voids_what_was_delivered() {
    const { feed } = make();
    open(feed, 2);
    for (const seq of [0, 1, 2]) event(feed, seq);
    feed.take("tape.reset", { subscription: "sub", run_id: "run_1", reason: "truncated", floor: 2 });
    event(feed, 2, { text: "other" });
    assert.deepEqual((await read(feed, 5)).slice(3), [["discarded", 1], ["event", 2, "other"]]);
  },

  async an_end_in_doubt_is_no_end() {
    const { feed } = make();
    open(feed, -1);
    feed.take("tape.caught_up", { subscription: "sub", through: -1 });
    event(feed, 0, { kind: "run.done", committed: -1 });
    const items = read(feed);
    feed.detach();
    open(feed, 0, "another");
    await new Promise((resolve) => setImmediate(resolve));
    event(feed, 0, { kind: "run.cancelled" });
    assert.deepEqual(await items, [["caught_up"], ["event", 0, "0"], ["discarded", -1], ["event", 0, "0"]]);
  },

  async a_full_buffer_drops_and_opens_again_when_it_is_empty() {
    const { feed, owner } = make();
    open(feed, -1);
    for (let seq = 0; seq < 3_000; seq++) event(feed, seq);
    assert.equal(feed.cursor, -1);
    const items = read(feed, 3_000);
    await new Promise((resolve) => setImmediate(resolve));
    assert.equal(owner.opened, 1);
    const { after_seq } = feed.makeParams();
    assert.equal(after_seq, 2_047);
    open(feed, 2_999);
    for (let seq = after_seq + 1; seq < 3_000; seq++) event(feed, seq);
    assert.deepEqual((await items).map(([, seq]) => seq), Array.from({ length: 3_000 }, (_, seq) => seq));
  },

  async progress_leaves_room_for_events() {
    const { feed, owner } = make();
    open(feed, -1);
    for (let order = 0; order < 5_000; order++) feed.take("progress", { run_id: "run_1", item: "turn:1", order, kind: "text", delta: "x" });
    event(feed, 0);
    const items = await read(feed, 1_025);
    assert.deepEqual(items.at(-1), ["event", 0, "0"]);
    assert.equal(owner.opened, 0);
  },

  async large_events_fill_it_too() {
    const { feed } = make();
    open(feed, -1);
    for (let seq = 0; seq < 12; seq++) event(feed, seq, { text: "x".repeat(1_000_000) });
    assert.equal(feed.makeParams().after_seq, 8);
  },
};

for (const [name, scenario] of Object.entries(scenarios)) {
  await scenario();
  console.log(name);
}
