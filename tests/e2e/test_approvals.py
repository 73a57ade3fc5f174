"""Approvals over real connections: who may answer, which answer counts, what follows."""

from collections.abc import Generator
from itertools import product
from typing import TYPE_CHECKING, Literal

import pytest
import trio

from palyra.client import Client, TapeEvent
from palyra.core.preview.blocks import FileBlock
from palyra.core.tape import events as ev
from palyra.errors import DigestMismatch, Forbidden, InvalidParams, NotFound
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import ask_for, see, somebody, write_call
from tests.e2e.tapes import calls, check_tape, kinds, read_whole
from tests.e2e.wire import WITHIN_S

if TYPE_CHECKING:
    from palyra.core.policy.views import Resolved


pytestmark = pytest.mark.real

APPROVED_CALL = [
    "tool.proposed",
    "approval.requested",
    "approval.resolved",
    "tool.decided",
    "tool.started",
    "tool.completed",
    "tool.attested",
]
Decision = Literal["allow", "deny"]
DECISIONS: tuple[Decision, ...] = ("allow", "deny")
DENIED_CALL = [*APPROVED_CALL[:4], "tool.attested"]


async def the_call(client: Client, run_id: str) -> list[TapeEvent]:
    """The events of the run's only call, once the run has ended."""
    await client.wait_run(run_id)
    tape = await read_whole(client, run_id)
    check_tape(tape)
    (events,) = calls(tape).values()
    return events


async def test_another_connection_allows(daemon: DaemonProcess) -> None:
    """A call waits; another client is notified, reads it, allows exactly that, and it runs."""
    path = "allowed.txt"
    async with (
        daemon.connect() as client,
        somebody(daemon, "approver") as approver,
        approver.notices() as inbox,
    ):
        started = await client.start_run(write_call(path))
        with trio.fail_after(WITHIN_S):
            notice = await anext(inbox)
        assert ("approval.requested", started.run_id) == (notice.method, notice.params["run_id"])
        asked = await approver.get_approval(notice.params["approval_id"])
        assert not (daemon.workspace / path).exists()
        assert "awaiting_approval" == (await client.get_run(started.run_id)).phase
        resolved = await approver.resolve_approval(asked.approval_id, "allow", asked.digest)
        told = await anext(inbox)
        assert APPROVED_CALL == kinds(await the_call(client, started.run_id))
    assert (True, "allow", "approver") == (resolved.won, resolved.decision, resolved.by)
    assert ("approval.resolved", asked.approval_id) == (told.method, told.params["approval_id"])
    assert "written" == (daemon.workspace / path).read_text(encoding="utf-8")


async def test_denial_feeds_back(daemon: DaemonProcess) -> None:
    """A denied call does not run; the model gets the reason, answers, and cannot ask again."""
    text = f"{write_call('denied.txt')}\n/then\n{write_call('denied.txt')}"
    async with daemon.connect() as client:
        asked = await ask_for(client, text)
        await client.resolve_approval(
            asked.approval_id, "deny", asked.digest, reason="not on my machine"
        )
        view = await client.wait_run(asked.run_id)
        tape = await read_whole(client, asked.run_id)
    check_tape(tape)
    first, second = calls(tape).values()
    assert DENIED_CALL == kinds(first)
    assert ["tool.proposed", "tool.decided", "tool.attested"] == kinds(second)
    answer = next(item.event for item in tape if isinstance(item.event, ev.MessageCompleted))
    assert "not on my machine" in answer.text
    assert "done" == view.state
    assert not (daemon.workspace / "denied.txt").exists()


async def test_first_answer_wins(daemon: DaemonProcess) -> None:
    """Of answers given at the same time one wins and all others get its outcome."""
    async with (
        daemon.connect() as client,
        somebody(daemon, "approver", "anna") as anna,
        somebody(daemon, "approver", "bert") as bert,
    ):
        asked = await ask_for(client, write_call("raced.txt"))
        outcomes: list[Resolved] = []

        async def answer(who: Client, decision: Decision) -> None:
            outcomes.append(await who.resolve_approval(asked.approval_id, decision, asked.digest))

        async with trio.open_nursery() as nursery:
            for who, decision in product((anna, bert, anna, bert), DECISIONS):
                nursery.start_soon(answer, who, decision)
        await client.wait_run(asked.run_id)
        late = await client.resolve_approval(asked.approval_id, "deny", asked.digest)
        record = await client.get_approval(asked.approval_id)
    outcomes.append(late)
    assert 1 == sum(outcome.won for outcome in outcomes)
    assert 1 == len({(one.decision, one.by, one.scope) for one in outcomes})
    winner = outcomes[0]
    assert (winner.decision == "allow") == (daemon.workspace / "raced.txt").exists()
    assert ("allowed" if winner.decision == "allow" else "denied", winner.by) == (
        record.state,
        record.by,
    )


async def test_answer_to_what_the_wire_shows(daemon: DaemonProcess) -> None:
    """A prompt can be answered as soon as its event is seen, committed or not."""
    async with daemon.connect() as client:
        for number in range(8):
            started = await client.start_run(write_call(f"prompt-{number}.txt"))
            async with client.events(started.run_id) as items:
                asked = (await see(items, "approval.requested")).event
                assert isinstance(asked, ev.ApprovalRequested)
                outcome = await client.resolve_approval(asked.approval_id, "allow", asked.digest)
                assert outcome.won
                last = await see(items, *ev.TERMINAL_KINDS)
            assert "run.done" == last.kind
            assert (daemon.workspace / f"prompt-{number}.txt").exists()


async def test_invalid_answers_do_not_count(daemon: DaemonProcess) -> None:
    """Another digest, a time without its scope, claims of authority, and a role without the scope."""
    async with (
        daemon.connect() as client,
        somebody(daemon, "client", "operator") as own,
        somebody(daemon, "observer") as observer,
    ):
        asked = await ask_for(client, write_call("guarded.txt"))
        with pytest.raises(DigestMismatch):
            await client.resolve_approval(asked.approval_id, "allow", "0" * 64)
        with pytest.raises(InvalidParams):
            await client.resolve_approval(asked.approval_id, "allow", asked.digest, ttl_ms=5)
        good = {"approval_id": asked.approval_id, "decision": "allow", "digest": asked.digest}
        for claim in ({"by": "operator"}, {"role": "operator"}, {"scopes": ["session"]}, {"x": 1}):
            key = {"idempotency_key": f"claims-{next(iter(claim))}"}
            with pytest.raises(InvalidParams, match="unknown field"):
                await client.call("approval.resolve", {**good, **key, **claim})
        for powerless in (own, observer):
            with pytest.raises(Forbidden):
                await powerless.resolve_approval(asked.approval_id, "allow", asked.digest)
        assert "pending" == (await client.get_approval(asked.approval_id)).state
        await client.cancel(asked.run_id)
        record = await client.get_approval(asked.approval_id)
        late = await client.resolve_approval(asked.approval_id, "allow", asked.digest)
    assert ("aborted", "abort", False) == (record.state, late.decision, late.won)
    assert not (daemon.workspace / "guarded.txt").exists()


async def test_one_approval_at_a_time(daemon: DaemonProcess) -> None:
    """Two calls of one turn are asked one after the other, and run only after both answers."""
    text = f"{write_call('one.txt')}\n{write_call('two.txt')}"
    async with daemon.connect() as client:
        first = await ask_for(client, text)
        await client.resolve_approval(first.approval_id, "allow", first.digest)
        await client.wait_run(first.run_id, until="attention")
        second = next(
            one
            for one in await client.list_approvals(run_id=first.run_id)
            if one.state == "pending"
        )
        assert not (daemon.workspace / "one.txt").exists()
        await client.resolve_approval(second.approval_id, "allow", second.digest)
        await client.wait_run(first.run_id)
        tape = await read_whole(client, first.run_id)
    check_tape(tape)
    assert [APPROVED_CALL, APPROVED_CALL] == [kinds(one) for one in calls(tape).values()]
    started = [item.seq for item in tape if item.kind == "tool.started"]
    resolved = [item.seq for item in tape if item.kind == "approval.resolved"]
    assert max(resolved) < min(started)
    assert {"one.txt", "two.txt"} <= {path.name for path in daemon.workspace.iterdir()}


async def test_an_unattended_run_is_denied(daemon: DaemonProcess) -> None:
    """A run with approval_mode deny is denied at once."""
    async with daemon.connect() as client:
        started = await client.start_run(write_call("silent.txt"), approval_mode="deny")
        found = await the_call(client, started.run_id)
    assert ["tool.proposed", "tool.decided", "tool.attested"] == kinds(found)
    decided = found[1].event
    assert isinstance(decided, ev.ToolDecided)
    assert ("deny", "no_approver") == (decided.verdict, decided.reason_code)
    assert not (daemon.workspace / "silent.txt").exists()


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon whose questions expire almost at once."""
    base = tmp_path_factory.mktemp("impatient")
    with running(base, PALYRA_RUNS__APPROVAL_MS="100") as process:
        yield process


async def test_timeout_denies(impatient: DaemonProcess) -> None:
    """Without an answer within the deadline the call is denied, and a later answer loses."""
    async with impatient.connect() as client:
        started = await client.start_run(write_call("late.txt"))
        view = await client.wait_run(started.run_id)
        (record,) = await client.list_approvals(run_id=started.run_id)
        late = await client.resolve_approval(record.approval_id, "allow", record.digest)
        assert DENIED_CALL == kinds(await the_call(client, started.run_id))
    assert "done" == view.state
    assert ("denied", "deadline", "nobody answered in time") == (
        record.state,
        record.by,
        record.reason,
    )
    assert ("deny", False) == (late.decision, late.won)
    assert not (impatient.workspace / "late.txt").exists()


async def test_a_preview_is_the_change_and_knows_when_it_is_stale(daemon: DaemonProcess) -> None:
    """The diff is against the file now; after a change the preview is stale, and the call does not run."""
    file = daemon.workspace / "plan.txt"
    file.write_text("one\ntwo\n", encoding="utf-8")
    async with daemon.connect() as client:
        asked = await ask_for(client, write_call("plan.txt", "one\n2\n"))
        shown = await client.preview_approval(asked.approval_id)
        (block,) = shown.blocks
        assert isinstance(block, FileBlock)
        assert (asked.digest, (), 1, 1) == (shown.digest, shown.stale, block.added, block.removed)
        assert ["one", "two", "2"] == [line.text for line in block.hunks[0].lines]
        file.write_text("other\n", encoding="utf-8")
        stale = await client.preview_approval(asked.approval_id)
        assert 1 == len(stale.stale)
        await client.resolve_approval(asked.approval_id, "allow", asked.digest)
        with trio.move_on_after(WITHIN_S):
            await client.wait_run(asked.run_id, until="attention")
        assert "other\n" == file.read_text(encoding="utf-8")


async def test_a_long_write_is_asked_about_whole(daemon: DaemonProcess) -> None:
    """A write of 190 kB is a question with its whole diff; a list counts what it leaves out."""
    text = "".join(f"{number:05} some words of a long file\n" for number in range(5_900))
    async with daemon.connect() as client:
        asked = await ask_for(client, write_call("long.txt", text))
        shown = await client.preview_approval(asked.approval_id, max_lines=20_000)
        (block,) = shown.blocks
        assert isinstance(block, FileBlock)
        assert text.splitlines() == [line.text for line in block.hunks[0].lines]
        (listed,) = await client.list_approvals(run_id=asked.run_id)
        whole = await client.get_approval(asked.approval_id)
        assert (b"{}", len(whole.arguments)) == (bytes(listed.arguments), listed.left_out_bytes)
        await client.resolve_approval(asked.approval_id, "allow", asked.digest)
        with trio.fail_after(WITHIN_S):
            await client.wait_run(asked.run_id)
        assert text == (daemon.workspace / "long.txt").read_text(encoding="utf-8")


async def test_a_preview_is_for_those_who_see_the_approval(daemon: DaemonProcess) -> None:
    """Another principal gets the answer of a missing approval, for preview and reach."""
    async with daemon.connect() as client, somebody(daemon, "client", "mallory") as other:
        asked = await ask_for(client, write_call("secret.txt"))
        for method in (other.preview_approval, other.get_reach):
            with pytest.raises((NotFound, Forbidden)):
                await method(asked.approval_id)
        assert asked.digest == (await client.preview_approval(asked.approval_id)).digest


async def test_reach_counts_earlier_calls_of_the_key(daemon: DaemonProcess) -> None:
    """A wider scope would have decided the earlier writes of the file, not those of its folder."""
    async with daemon.connect() as client:
        for path in ("notes/d.txt", "notes/d.txt", "notes/c.txt"):
            earlier = await ask_for(client, write_call(path))
            await client.resolve_approval(earlier.approval_id, "allow", earlier.digest)
            await client.wait_run(earlier.run_id)
        asked = await ask_for(client, write_call("notes/d.txt"))
        reach = await client.get_reach(asked.approval_id)
        counts = {each.scope: (each.calls, each.asked) for each in reach.reaches}
    assert (0, 0) == counts["once"]
    assert (2, 2) == counts["timeboxed"]
