"""The outbox: order, packing, bounds, and what is dropped first."""

import json
from typing import Any

import pytest
import trio.testing

from palyra.actors.hub import ProgressDelta, PublishedRow
from palyra.net.delivery.outbox import (
    ARRAY_BYTES,
    ENTRY_BYTES,
    REPLY,
    ROOM_BYTES,
    SEND_BYTES,
    Outbox,
)
from palyra.net.protocol.jsonrpc import encode_notification
from tests.net.api.fake_services import row
from tests.rows import every_row

Clock = trio.testing.MockClock


class Numbered:
    """A lane that marks what it finishes."""

    run_id = "run_1"

    def finish(self, body: bytes) -> bytes:
        return body + b"!"


class Fullness:
    """Counts overflows."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def make(limit_bytes: int = 10_000) -> tuple[Outbox, Fullness]:
    full = Fullness()
    return Outbox(limit_bytes, full), full


def delta(text: str, *, item: str = "t1", order: int = 0) -> ProgressDelta:
    return ProgressDelta("run_1", item, "text", order, text)


def encoded(seq: int, body: bytes) -> PublishedRow:
    return PublishedRow(row(seq), body)


def shown(message: bytes) -> dict[str, Any]:
    params: dict[str, Any] = json.loads(message)["params"]
    return params


def test_messages_keep_their_order() -> None:
    """Replies, notices and events leave in the order in which they were put."""
    outbox, _ = make()
    outbox.put(b"reply", REPLY)
    outbox.put_rows([encoded(0, b"a"), encoded(1, b"b")], Numbered())
    outbox.put(b"notice")
    assert [b"reply", b"a!", b"b!", b"notice"] == outbox.pack(is_batched=False)
    assert ("run_1", 1) == outbox.last_event
    assert 0 == outbox.waiting_bytes


def test_a_published_row_is_encoded_once() -> None:
    """Two connections queue the same bytes, of an event and of a delta."""
    published, progress = PublishedRow(row(0)), delta("a")
    bodies: list[tuple[bytes | None, tuple[bytes, bytes] | None]] = []
    for _ in range(2):
        outbox, _full = make()
        outbox.put_rows([published], Numbered())
        outbox.put_progress(progress)
        bodies.append((published.encoded, progress.encoded))
    assert bodies[0][0] is bodies[1][0] is not None
    assert bodies[0][1] is bodies[1][1] is not None


def test_arrays_hold_neighbouring_notifications() -> None:
    """With batching, adjacent notifications share an array; a reply is sent alone."""
    outbox, _ = make()
    for body in (b"1", b"2"):
        outbox.put(body)
    outbox.put(b"reply", REPLY)
    outbox.put(b"3")
    assert [b"[1,2]", b"reply", b"3"] == outbox.pack(is_batched=True)


def test_arrays_are_bounded() -> None:
    """An array stops before it would pass its bound; a larger message has an array of its own."""
    outbox, _ = make(10_000_000)
    bodies = [b"x" * (ARRAY_BYTES // 2)] * 4 + [b"y" * (ARRAY_BYTES + 1)]
    for body in bodies:
        outbox.put(body)
    packed = outbox.pack(is_batched=True)
    assert [b"[%b,%b]" % (bodies[0], bodies[1])] * 2 + [bodies[4]] == packed


def test_one_write_is_bounded() -> None:
    """One write has at most SEND_BYTES; the rest waits for the next one."""
    outbox, _ = make(10_000_000)
    for _ in range(5):
        outbox.put(b"x" * (SEND_BYTES // 2))
    assert [2, 2, 1, 0] == [len(outbox.pack(is_batched=False)) for _ in range(4)]


def test_overflow_is_reported_once_and_clears_the_queue() -> None:
    """The first byte over the limit clears the queue, calls back once, and ignores later messages."""
    outbox, full = make(1_000)
    outbox.put(b"x" * (1_000 - ENTRY_BYTES))
    assert 0 == full.count
    outbox.put(b"")
    outbox.put(b"more")
    assert 1 == full.count
    assert [] == outbox.pack(is_batched=False)


# --- progress ---


def test_deltas_of_one_item_merge() -> None:
    """They become one frame, in the place of the first delta, with the order of the last."""
    outbox, _ = make()
    outbox.put_progress(delta("He said ", order=3))
    outbox.put(b'{"params":1}')
    outbox.put_progress(delta('"hi"\n', order=4))
    outbox.put_progress(delta("other", item="t2", order=9))
    first, _, other = outbox.pack(is_batched=False)
    expected = {"run_id": "run_1", "item": "t1", "kind": "text", "order": 4, "offset": 0}
    assert expected | {"delta": 'He said "hi"\n'} == shown(first)
    assert ("t2", "other") == (shown(other)["item"], shown(other)["delta"])


def test_written_deltas_are_not_merged_into() -> None:
    """After a frame was written the next delta starts a new one."""
    outbox, _ = make()
    outbox.put_progress(delta("a"))
    outbox.pack(is_batched=False)
    outbox.put_progress(delta("b"))
    assert ["b"] == [shown(message)["delta"] for message in outbox.pack(is_batched=False)]
    assert 0 == outbox.waiting_bytes


def test_one_delta_seen_by_two_subscriptions_is_sent_once() -> None:
    """Two lanes of one connection offer the same piece; the client gets it once."""
    outbox, _ = make()
    piece = delta("a")
    outbox.put_progress(piece)
    outbox.put_progress(piece)
    assert "a" == shown(*outbox.pack(is_batched=False))["delta"]


def test_deltas_use_at_most_half() -> None:
    """Beyond half of the limit deltas are dropped on arrival."""
    outbox, full = make(1_000)
    outbox.put(b"x" * 500)
    outbox.put_progress(delta("late"))
    assert [b"x" * 500] == outbox.pack(is_batched=False)
    assert 0 == full.count


def test_deltas_go_before_events_do() -> None:
    """An event that needs their room drops the deltas that wait, and everything durable stays."""
    outbox, full = make(1_000)
    outbox.put_progress(delta("y" * 400))
    outbox.put(b"x" * 600)
    outbox.put_progress(delta("z"))
    assert [b"x" * 600] == outbox.pack(is_batched=False)
    assert 0 == full.count
    outbox.put_progress(delta("new"))
    assert ["new"] == [shown(message)["delta"] for message in outbox.pack(is_batched=False)]
    assert 0 == outbox.waiting_bytes


@every_row("text", ["", "é😀", '\\"\n\x00', "\ud800", "a\udfffb"])
def test_any_delta_is_valid_json(text: str) -> None:
    """Deltas survive as they are; half a surrogate pair becomes a question mark."""
    outbox, _ = make()
    outbox.put_progress(delta(text))
    expected = text.encode(errors="replace").decode()
    assert expected == shown(*outbox.pack(is_batched=False))["delta"]


# --- waiting ---


async def test_wait_ends_with_work_or_with_the_end(autojump_clock: Clock) -> None:
    """The writer wakes for the first message, and after `finish` drains what is left."""
    outbox, _ = make()
    async with trio.open_nursery() as nursery:
        results: list[bool] = []

        async def write() -> None:
            while await outbox.wait():
                results.append(bool(outbox.pack(is_batched=False)))

        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        assert [] == results
        outbox.put(b"a")
        await trio.testing.wait_all_tasks_blocked()
        assert [True] == results
        outbox.put(b"b")
        outbox.finish()
        outbox.put(b"too late")
    assert [True, True] == results


@pytest.mark.parametrize("is_withdrawn", [False, True])
async def test_the_writer_waits_on_when_what_woke_it_is_nothing(
    autojump_clock: Clock, *, is_withdrawn: bool
) -> None:
    """Events all filtered out, or withdrawn before they were written, are not the end."""
    outbox, _ = make()
    results: list[bool] = []

    async def write() -> None:
        results.append(await outbox.wait())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.testing.wait_all_tasks_blocked()
        lane = Numbered()
        outbox.put_rows([encoded(1, b"void")] if is_withdrawn else [], lane)
        outbox.withdraw(lane, 0)
        await trio.testing.wait_all_tasks_blocked()
        assert [] == results
        outbox.put(b"a")
    assert [True] == results


async def test_a_reply_and_the_end_are_urgent(
    autojump_clock: Clock,
) -> None:
    """Notifications may gather; a reply and the end wake the writer at once."""
    outbox, _ = make()
    outbox.put(b"news")
    with trio.move_on_after(1) as scope:
        await outbox.wait_urgent()
    assert scope.cancelled_caught
    outbox.put(b"reply", REPLY)
    with trio.fail_after(1):
        await outbox.wait_urgent()
    outbox.finish()
    outbox.pack(is_batched=False)
    with trio.fail_after(1):
        await outbox.wait_urgent()


def test_withdrawn_events_free_their_bytes() -> None:
    """Only the events of that subscription are removed."""
    outbox, _ = make()
    lane, other = Numbered(), Numbered()
    outbox.put_rows([encoded(0, b"a"), encoded(1, b"bb")], lane)
    outbox.put_rows([encoded(1, b"c")], other)
    outbox.withdraw(lane, 1)
    assert 2 * (ENTRY_BYTES + 1) == outbox.waiting_bytes
    assert [b"a!", b"c!"] == outbox.pack(is_batched=False)
    assert 0 == outbox.waiting_bytes


async def test_room_is_waited_for_by_all(autojump_clock: Clock) -> None:
    """Everybody who waits for room gets it once little is queued."""
    outbox, _ = make(10_000_000)
    passed: list[int] = []

    async def wait(number: int) -> None:
        await outbox.wait_room()
        passed.append(number)

    for expected in ([0, 1, 2], [0, 0, 1, 1, 2, 2]):
        before = list(passed)
        async with trio.open_nursery() as nursery:
            outbox.put(b"x" * ROOM_BYTES)
            for number in range(3):
                nursery.start_soon(wait, number)
            await trio.testing.wait_all_tasks_blocked()
            assert before == passed
            outbox.pack(is_batched=False)
        assert expected == sorted(passed)


async def test_a_finished_outbox_wakes_waiters(autojump_clock: Clock) -> None:
    """A task that waits for room returns at the end."""
    outbox, _ = make(10_000_000)
    async with trio.open_nursery() as nursery:
        outbox.put(b"x" * (2 * ROOM_BYTES))
        nursery.start_soon(outbox.wait_room)
        await trio.testing.wait_all_tasks_blocked()
        outbox.finish()


def test_notices_are_notifications() -> None:
    """A notice has a method and params, and no id."""
    notice = json.loads(encode_notification("m", {"a": 1}))
    assert {"jsonrpc": "2.0", "method": "m", "params": {"a": 1}} == notice


def test_frame_of_merged_deltas_has_no_gap() -> None:
    """A delta that follows a dropped one is not merged: the frame would hold text with a gap."""
    outbox, _ = make()
    for offset, text in ((0, "one "), (8, "three"), (4, "two ")):
        outbox.put_progress(ProgressDelta("run_1", "t1", "text", 1, text, offset))
    [frame] = map(shown, outbox.pack(is_batched=False))
    assert ("one two ", 0) == (frame["delta"], frame["offset"])
