// Tests of the modules without DOM, run by node: `node --test tests/console/pure.mjs`.

import assert from "node:assert/strict";
import { test } from "node:test";

import { GUARD_MS, isNeutral, kindOf, shown, take } from "../../palyra/console/fold/arm.js";
import { addDelta, asBlock, fold, isInReference } from "../../palyra/console/fold/conversation.js";
import { along, changedWords } from "../../palyra/console/fold/difference.js";
import { answer, isUnwell, lanes, rowsOf, rowsWith } from "../../palyra/console/fold/health.js";
import { parse } from "../../palyra/console/fold/markdown.js";
import { exact, headline } from "../../palyra/console/fold/money.js";
import { PAGE, Tape } from "../../palyra/console/fold/tape.js";
import { callOf, gist } from "../../palyra/console/fold/rows.js";
import { grouped, many, pieces, tail, visible } from "../../palyra/console/fold/text.js";
import { group } from "../../palyra/console/fold/roster.js";
import { filterOf, tree, windowOf } from "../../palyra/console/fold/runs.js";
import { clock, span } from "../../palyra/console/fold/time.js";
import { columnsOf, fromField, namesOf, PERIODS, startOf, ticksOf } from "../../palyra/console/fold/usage.js";
import { href, parse as parseRoute } from "../../palyra/console/route.js";

const CARD = { isOpen: true, mayAllow: true, isWide: false };
const act = (kind, rest = {}) => ({ kind, isTrusted: true, isRepeat: false, isTyping: false, isOnConfirm: false, ...rest });
const LATE = GUARD_MS + 1;

function play(acts, card = CARD, from = LATE) {
  let state = shown(0);
  let answer;
  acts.forEach((each, at) => {
    const outcome = take(state, each, card, from + at * 1_000);
    state = outcome.state;
    answer ??= outcome.answer;
  });
  return { answer, armed: state.armed };
}

test("an answer takes two acts", () => {
  assert.deepEqual(play([act("allow"), act("enter")]), { answer: "allow", armed: null });
  assert.deepEqual(play([act("deny"), act("enter")]), { answer: "deny", armed: null });
  assert.deepEqual(play([act("allow")]), { answer: undefined, armed: "allow" });
  assert.deepEqual(play([act("enter"), act("confirm")]), { answer: undefined, armed: null });
});

test("any other key disarms, the other answer arms that one", () => {
  assert.deepEqual(play([act("allow"), act("other"), act("enter")]), { answer: undefined, armed: null });
  assert.deepEqual(play([act("allow"), act("deny"), act("enter")]), { answer: "deny", armed: null });
});

test("repeated, synthetic and typed keys neither arm nor answer", () => {
  for (const no of [{ isRepeat: true }, { isTrusted: false }, { isTyping: true }]) {
    assert.deepEqual(play([act("allow", no), act("enter")]), { answer: undefined, armed: null });
    assert.deepEqual(play([act("allow"), act("enter", no)]), { answer: undefined, armed: "allow" });
  }
});

test("nothing counts before the card has stood still, and the next moment it does", () => {
  assert.equal(take(shown(0), act("allow"), CARD, GUARD_MS - 1).state.armed, null);
  assert.equal(take(shown(0), act("allow"), CARD, GUARD_MS).state.armed, "allow");
});

test("allow needs an object that was seen, deny does not; a closed card takes neither", () => {
  assert.equal(play([act("allow"), act("enter")], { ...CARD, mayAllow: false }).answer, undefined);
  assert.equal(play([act("deny"), act("enter")], { ...CARD, mayAllow: false }).answer, "deny");
  assert.equal(play([act("deny"), act("enter")], { ...CARD, isOpen: false }).answer, undefined);
});

test("a wider scope is confirmed on the confirmation itself", () => {
  const wide = { ...CARD, isWide: true };
  assert.equal(play([act("allow"), act("enter")], wide).answer, undefined);
  assert.equal(play([act("allow"), act("enter"), act("enter", { isOnConfirm: true })], wide).answer, "allow");
});

test("the second tap of a double tap is no confirmation", () => {
  const armed = take(shown(0), act("allow"), CARD, 1_000).state;
  assert.equal(take(armed, act("confirm"), CARD, 1_100).answer, undefined);
  assert.equal(take(armed, act("confirm"), CARD, 1_400).answer, "allow");
});

test("y, space and n are no answers", () => {
  for (const key of ["y", "Y", " ", "n", "A", "D"]) assert.equal(kindOf(key), "other");
  assert.ok(isNeutral("Shift") && !isNeutral("x"));
});

test("hostile characters are spelled out, and those of a script or an emoji stay", () => {
  assert.equal(visible("a\u202eb\u0000\u2028\u200b"), "a\\u202eb\\u0000\\u2028\\u200b");
  assert.equal(pieces("x\u202e")[1].name, "RIGHT-TO-LEFT OVERRIDE");
  for (const text of ["Kündigungsfristen", "日本語", "👩‍👩‍👧 ❤️", "می‌خواهم", "line\n\ttab"]) assert.equal(visible(text), text);
  assert.equal(visible("a\u200db"), "a\\u200db");
});

test("Markdown is a tree without markup of its own", () => {
  const text = JSON.stringify(parse('<img src=x onerror=alert(1)>\n\n[x](javascript:alert(1)) ![p](https://a.example/p.png) **b**\n\n```html\n<script>\n```'));
  assert.ok(!/"address":"javascript/.test(text));
  assert.ok(text.includes('"address":"https://a.example/p.png"'));
  assert.deepEqual(parse("<b>x</b>"), [{ type: "paragraph", spans: [{ type: "text", text: "<b>x</b>" }] }]);
  assert.equal(parse("- a\n- b\n\n1. c")[0].items.length, 2);
});

test("the changed words of a line are found, and a line is cut along them without loss", () => {
  const { before, after } = changedWords("LIMIT = 200", "LIMIT = 50_000");
  assert.deepEqual([before, after], [[[8, 11]], [[8, 14]]]);
  assert.equal(along("LIMIT = 50_000", after).map((piece) => piece.text).join(""), "LIMIT = 50_000");
});

test("money above zero is never zero; spans, clocks, counts and ids read as they should", () => {
  assert.deepEqual([exact(0), exact(1), exact(312_700), headline(1), headline(1_840_000)], ["$0.0000", "<$0.0001", "$0.3127", "<$0.0001", "$1.84"]);
  assert.deepEqual([span(200), span(41_000), span(7_300_000), clock(191_000), clock(0)], ["0.2 s", "41 s", "2 h", "3:11", "0:00"]);
  assert.deepEqual([grouped(248_210), many(2, "question"), tail("run_01a21cfe-19dc-74f8-94d5-bb699921b1c1")], ["248\u2009210", "two questions", "…9921b1c1"]);
});

test("an address survives its way through the parser", () => {
  const to = href("run", ["run_1/..", "seq", 4], { view: "raw", q: "a&b=c #", none: "" });
  assert.deepEqual(parseRoute(to), { screen: "run", parts: ["run_1/..", "seq", "4"], query: { view: "raw", q: "a&b=c #" } });
  assert.equal(parseRoute("#/%").parts.length, 0);
});

test("a tree is rows, and a filter keeps those above", () => {
  const actor = (id, children = [], rest = {}) => ({ id, state: "running", children, ...rest });
  const rows = rowsOf(actor("daemon", [actor("work", [actor("run:1", [], { mailbox_depth: 8, mailbox_capacity: 10 })]), actor("edge")]));
  assert.deepEqual(rows.map((row) => [row.path, row.level]), [["daemon", 1], ["daemon/work", 2], ["daemon/work/run:1", 3], ["daemon/edge", 2]]);
  assert.deepEqual(rowsWith(rows, isUnwell).map((row) => row.id), ["daemon", "work", "run:1"]);
  assert.equal(answer(0, rows), "No incident is open. One actor crashed lately or has a full mailbox.");
  assert.equal(answer(null, rows.slice(0, 1)), "Every actor is well."); // nothing is claimed of what was not read
  assert.equal(answer(null, []), "Health");
});

test("incidents at the same time stand in tracks of their lane, within the day", () => {
  const one = (opened_ms, resolved_ms) => ({ domain: "run", opened_ms, resolved_ms });
  const [lane] = lanes([one(0, 50), one(40, null), one(60, 70), one(-500, -400)], 0, 100);
  assert.deepEqual(lane.bars.map((bar) => [bar.track, Math.round(bar.left + bar.width)]), [[0, 1], [1, 50], [0, 100], [1, 70]]);
  assert.equal(lane.tracks, 2);
});

test("columns hold all of each hour, whatever was cut of its parts", () => {
  const HOUR = 3_600_000;
  const now = 100 * HOUR + 5;
  const from = startOf(PERIODS["24h"], now);
  assert.equal(from, 77 * HOUR);
  const sum = (key, cost, from_ms) => ({ key, cost_usd_micros: cost, from_ms });
  const names = namesOf([sum("a", 5), sum("b", 9), sum("c", 1), sum("d", 1), sum("e", 1)], "cost");
  assert.deepEqual(names, ["b", "a", "c"]);
  const columns = columnsOf(PERIODS["24h"], from, [sum("", 20, 100 * HOUR)], [sum("b", 9, 100 * HOUR), sum("a", 5, 100 * HOUR)], names, "cost");
  assert.equal(columns.length, 24);
  assert.deepEqual(columns.at(-1), { start: 100 * HOUR, total: 20, parts: [9, 5, 0, 6] });
});

test("ticks are round and reach the top", () => {
  for (const top of [1, 7, 95, 1_234, 500_000]) {
    const ticks = ticksOf(top);
    assert.ok(ticks.length <= 5 && ticks.at(-1) >= top, `${top}: ${ticks}`);
  }
  assert.deepEqual(ticksOf(0), []);
});

test("amounts of budgets are dollars or whole tokens", () => {
  assert.equal(fromField("$2.50", "usd_micros"), 2_500_000);
  assert.equal(fromField("0.000001", "usd_micros"), 1);
  assert.equal(fromField("200 000", "tokens"), 200_000);
  assert.equal(fromField(" ", "tokens"), null);
  for (const [text, metric] of [["2,5", "usd_micros"], ["-1", "tokens"], ["1.5", "tokens"], ["1e9", "usd_micros"]]) assert.throws(() => fromField(text, metric), RangeError);
});

test("a run folds to its messages, calls and end; the text that arrives is last until its event comes", () => {
  const event = (seq, kind, data) => ({ seq, at_ms: seq, kind, data });
  const events = [
    event(1, "message.received", { text: "go", by: "eve" }), event(2, "turn.completed", { text: "look", calls: [] }),
    event(3, "tool.proposed", { call_id: "c", tool: "shell", arguments: {} }), event(4, "tool.decided", { call_id: "c", verdict: "deny", reason: "no" }),
    event(5, "tool.completed", { call_id: "c", status: "denied", output: "x".repeat(5_000) }),
  ];
  const live = fold(events, { partial: { item: "turn:2", text: "and" } });
  assert.deepEqual(live.entries.map(({ type }) => type), ["user", "agent", "calls", "agent"]);
  assert.ok(live.entries.at(-1).isLive);
  const [call] = live.entries[2].calls;
  assert.deepEqual([call.status, call.error, call.output.length, call.more], ["denied", "no", 4_096, 904]);
  const done = fold([...events, event(6, "turn.completed", { text: "and now" }), event(7, "message.completed", { text: "and now" }), event(8, "run.done", { reason: "answered" })], { partial: { text: "and" } });
  assert.deepEqual(done.entries.filter(({ type }) => type === "agent").map(({ text }) => text), ["look", "and now"]);
});

test("pieces of a text are shown once, and a gap is shown as one", () => {
  const add = (before, delta, offset, item = "turn:1") => addDelta(before, { item, delta, offset });
  const two = add(add(null, "a\u{1f600}", 0), "b", 2);
  assert.equal(two.text, "a\u{1f600}b");
  assert.equal(add(two, "b", 2).text, two.text);
  assert.equal(add(two, "d", 5).text, `${two.text}\n…\nd`);
  assert.equal(add(null, "late", 7).text, "… late");
  assert.equal(add(two, "new", 0, "turn:2").text, "new");
});

test("a file is code whatever it holds, and half a reference is not looked up", () => {
  assert.equal(asBlock("a`@x.md", "```\n@file:x\n````"), "a__x.md:\n`````\n```\n@file:x\n````\n`````");
  assert.deepEqual(["@file:a", "see @url:https://a", "a@b.example", "@file:a ", "x"].map(isInReference), [true, true, false, false, false]);
});

test("conversations are grouped by who waits for whom, questions by their end", () => {
  const session = (id, more = {}) => ({ session_id: id, updated_ms: 1, title: id, ...more });
  const run = (id, phase, more = {}) => ({ run_id: `${id}${phase}`, session_id: id, phase, created_ms: 1, ...more });
  const runs = [run("a", "done"), run("b", "queued"), run("b", "in_progress"), run("c", "awaiting_approval"), run("d", "awaiting_approval"), run("e", "awaiting_approval", { depth: 1 }), run("f", "done")];
  const questions = [{ session_id: "d", expires_ms: 5 }, { session_id: "c", expires_ms: 9 }];
  const groups = group(["a", "b", "c", "d", "e"].map((id) => session(id)).concat(session("f", { archived_ms: 1 })), runs, questions);
  assert.deepEqual(groups.map((rows) => rows.map((row) => row.session.session_id)), [["d", "c"], ["b"], ["a", "e"]]);
  assert.equal(groups[1][0].run.phase, "in_progress");
});

test("rows of a table: filters of the address, children below their parent, the part in view", () => {
  assert.deepEqual(filterOf({ phase: "failed,no_such", tainted: "no", q: "x", session: "ses_1" }), { phases: ["failed"], tainted: false, text: "x", session_id: "ses_1" });
  assert.equal(filterOf({ open: "1" }).phases.length, 5);
  const run = (run_id, created_ms, more = {}) => ({ run_id, created_ms, ...more });
  const rows = tree([run("a", 1), run("b", 3), run("c", 9, { depth: 1, parent_run_id: "a" }), run("d", 4, { depth: 1, parent_run_id: "gone" }), run("fork", 5, { parent_run_id: "a" })], (left, right) => right.created_ms - left.created_ms);
  assert.deepEqual(rows.map(({ run_id }) => run_id), ["fork", "d", "b", "a", "c"]);
  for (const top of [0, 5_000, 99_999_999]) {
    const { first, last, before, after } = windowOf(1_000, { top, height: 700, row: 28 });
    assert.ok(last - first <= 46 && before + (last - first) * 28 + after === 28_000, `${top}`);
  }
});

const KINDS = ["tool.attested", "tool.completed", "tool.proposed", "turn.completed", "turn.started"];
const event = (seq, kind, data = {}) => ({ seq, kind, at_ms: seq, data });
const tapeOf = (kinds, floor = 0) => new Tape({ floor, kinds: KINDS, codes: kinds.map((kind) => String.fromCharCode(256 + 4 * KINDS.indexOf(kind) + 1)).join("") });

test("rows of a tape have their place before an event is read", () => {
  const tape = tapeOf(["turn.started", "turn.completed", "tool.proposed", "tool.completed", "tool.attested"], 10);
  assert.deepEqual([tape.head, tape.kindOf(12), tape.rows("raw").length, tape.rows("raw").at(2)], [14, "tool.proposed", 5, 12]);
  const story = tape.rows("story");
  assert.deepEqual([story.length, story.at(0), story.at(1), story.find(14), story.find(10)], [2, 11, 12, 1, -1]);
  assert.deepEqual([tape.rows("calls").length, tape.back(13, "turn.started"), tape.sameFamily(12, 1)], [1, 10, 13]);
});

test("a tape grows by the next event alone, and gives back what the daemon has lost", () => {
  const tape = tapeOf(["turn.started"]);
  const [raw, story] = [tape.rows("raw"), tape.rows("story")];
  for (const seq of [2, 1, 1]) tape.append(event(seq, "turn.completed"));
  tape.append(event(2, "run.new_kind"));
  assert.deepEqual([tape.head, raw.length, story.length, tape.kindOf(2), tape.kindOf(9)], [2, 3, 1, "run.new_kind", "unknown"]);
  tape.discard(0);
  assert.deepEqual([tape.head, raw.length, story.length, tape.event(1)], [0, 1, 0, undefined]);
  tape.append(event(1, "turn.completed", { text: "again" }));
  assert.equal(tape.event(1).data.text, "again");
});

test("pages are missing until they are whole, and old ones go", () => {
  const length = 60 * PAGE;
  const tape = tapeOf(Array(length).fill("turn.started"));
  assert.deepEqual(tape.missing(PAGE - 1, PAGE), [{ first: 0, end: PAGE - 1 }, { first: PAGE, end: 2 * PAGE - 1 }]);
  for (let seq = 0; seq < length; seq++) tape.put([event(seq, "turn.started")]);
  assert.deepEqual(tape.missing(length - 1, length + 50), []);
  assert.equal(tape.missing(0, 0).length, 1);
});

test("a call is made of its events, wherever they are between others", () => {
  const tape = tapeOf(["tool.proposed", "tool.proposed", "tool.completed", "tool.completed", "tool.attested"]);
  tape.put([["tool.proposed", "a"], ["tool.proposed", "b"], ["tool.completed", "b"], ["tool.completed", "a"], ["tool.attested", "a"]].map(([kind, call_id], seq) =>
    event(seq, kind, { call_id, tool: "shell", arguments: { command: "ls" }, status: call_id === "a" ? "failed" : "succeeded", output: "one\ntwo", error: "" })));
  assert.deepEqual([tape.proposalOf(3), tape.proposalOf(2), tape.call(0).length, tape.call(1).length], [0, 1, 3, 2]);
  const found = callOf(tape.call(0));
  assert.deepEqual([found.tool, found.object, found.state, found.isLoud, found.excerpt], ["shell", "ls", "failed", true, "one\ntwo"]);
  assert.equal(gist({ call_id: "call_1", status: "failed", output: "a\nb", nested: {} }), "status failed · output a b");
});
