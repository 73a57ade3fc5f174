"""Delegated runs in a real daemon: rights, ends, cancels, kills."""

import json
import random
from pathlib import Path

import pytest
import trio

from palyra.client import Client, TapeEvent
from palyra.core.tape import events as ev
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import find_events, make_token
from tests.e2e.tapes import check_tape, kinds, read_whole
from tests.e2e.wire import WITHIN_S

pytestmark = pytest.mark.real

KILLS = 6
POLL_S = 0.02


def delegate(task: str, **more: object) -> str:
    """The directive of a call that delegates."""
    return f"/call delegate {json.dumps({'task': task, **more})}"


async def finish(client: Client, run_id: str) -> list[TapeEvent]:
    """The tape of a run, once it has ended, checked."""
    with trio.fail_after(WITHIN_S):
        await client.wait_run(run_id)
    tape = await read_whole(client, run_id)
    check_tape(tape)
    return tape


async def perform(client: Client, text: str, **more: object) -> list[TapeEvent]:
    """The tape of a run with that message."""
    return await finish(client, (await client.start_run(text, **more)).run_id)  # type: ignore[arg-type]


def ends(tape: list[TapeEvent]) -> list[ev.DelegationEnded]:
    """The ends of delegated runs on a tape."""
    return [
        each
        for each in find_events(tape, ev.DelegationEnded)
        if isinstance(each, ev.DelegationEnded)
    ]


def outputs(tape: list[TapeEvent]) -> list[str]:
    """The outputs of calls as the model gets them."""
    found = find_events(tape, ev.ToolCompleted)
    return [
        f"{each.output}{each.error or ''}" for each in found if isinstance(each, ev.ToolCompleted)
    ]


async def wait_child(client: Client, run_id: str) -> str:
    """The id of the first run that was delegated by this one, once it has started."""
    with trio.fail_after(WITHIN_S):
        while True:
            found = (await client.list_runs(parent_run_id=run_id)).runs
            if found and found[0].state == "in_progress":
                return found[0].run_id
            await trio.sleep(POLL_S)


async def test_answers_come_back_in_the_order_of_the_calls(daemon: DaemonProcess) -> None:
    """Four runs work at the same time, a fifth after them, and the results keep their order."""
    async with daemon.connect() as client:
        calls = [delegate(f"/delay {300 - 60 * n}\n/say answer {n}") for n in range(5)]
        tape = await perform(client, "\n".join(calls))
        children = (await client.list_runs(parent_run_id=tape[0].run_id)).runs
    assert ["done"] * 5 == [each.state for each in ends(tape)]
    last = [each for each in tape if each.kind == "context.assembled"]
    assert 2 == len(last)
    assert {1} == {child.depth for child in children}
    started = [each for each in kinds(tape) if each in {"delegation.started", "delegation.ended"}]
    assert ["delegation.started"] * 4 == started[:4]
    answer = find_events(tape, ev.MessageCompleted)[0]
    assert isinstance(answer, ev.MessageCompleted)
    places = [answer.text.index(f"answer {n}") for n in range(5)]
    assert sorted(places) == places


async def test_a_child_has_no_tool_that_its_parent_did_not_hand_down(daemon: DaemonProcess) -> None:
    """A call of another tool is denied in the child, and one that the parent lacks is refused."""
    write = '/call write_file {"path": "stolen.txt", "content": "x"}'
    async with daemon.connect() as client:
        narrow = await perform(client, delegate(write, tools=["echo"]))
        (child,) = (await client.list_runs(parent_run_id=narrow[0].run_id)).runs
        lacking = await perform(client, delegate("hello", tools=["echo", "no_such_tool"]))
        below = await perform(
            client, delegate(delegate(write, tools=["write_file"]), tools=["delegate"])
        )
        tape = await read_whole(client, child.run_id)
    assert "tool.started" not in kinds(tape)
    assert not (daemon.workspace / "stolen.txt").exists()
    assert "tool.rejected" in kinds(lacking)
    assert "delegation.started" not in kinds(lacking)
    assert "does not have write_file" in outputs(below)[0]


async def test_runs_delegate_three_levels_deep(daemon: DaemonProcess) -> None:
    """The third level works and the fourth is not possible."""
    async with daemon.connect() as client:
        text = "/say bottom"
        for _ in range(4):
            text = delegate(text)
        tape = await perform(client, text)
        child = ends(tape)[0]
        depths = {run.depth for run in (await client.list_runs(limit=4)).runs}
    assert "done" == child.state
    assert {0, 1, 2, 3} == depths
    assert "bottom" not in outputs(tape)[0]


async def test_every_end_is_a_result(daemon: DaemonProcess) -> None:
    """A failure, a spent budget, the wall clock and a partial answer reach the parent once each."""
    tasks = [
        delegate("/fail auth"),
        delegate(
            '/say long enough to cost something\n/then\n/call echo {"text":"x"}',
            budget={"tokens": 1},
        ),
        delegate('/call sleep {"seconds": 4}', wall_s=1),
    ]
    async with daemon.connect() as client:
        tape = await perform(client, "\n".join(tasks))
    assert 3 == len(ends(tape))
    assert ["delegation.started"] * 3 + ["delegation.ended"] * 3 == [
        each for each in kinds(tape) if each.startswith("delegation")
    ]
    reasons = {each.run_id: each.reason for each in ends(tape)}
    assert any("auth" in reason for reason in reasons.values())
    assert any("wall_clock" in reason for reason in reasons.values())
    assert "done" == (tape[-1].kind.removeprefix("run."))


async def test_a_cancel_takes_the_tree(daemon: DaemonProcess) -> None:
    """After the cancel of a run no run below it is open; its tape has the end of its child once."""
    async with daemon.connect() as client:
        parent = await client.start_run(delegate(delegate('/call sleep {"seconds": 9}')))
        child = await wait_child(client, parent.run_id)
        below = await wait_child(client, child)
        await client.cancel(parent.run_id, "enough")
        tape = await finish(client, parent.run_id)
        with trio.fail_after(120):
            views = [await client.wait_run(run_id) for run_id in (child, below)]
    assert ["cancelled", "cancelled"] == [view.state for view in views]
    assert ["cancelled"] == [each.state for each in ends(tape)]


async def test_a_cancelled_child_is_a_failed_call(daemon: DaemonProcess) -> None:
    """The parent goes on with the reason."""
    async with daemon.connect() as client:
        parent = await client.start_run(delegate('/call sleep {"seconds": 9}'))
        await client.cancel(await wait_child(client, parent.run_id), "not needed")
        tape = await finish(client, parent.run_id)
    assert ["cancelled"] == [each.state for each in ends(tape)]
    assert "not needed" in outputs(tape)[0]
    assert "run.done" == tape[-1].kind


async def test_an_approval_of_a_child_names_the_run_above(daemon: DaemonProcess) -> None:
    """A grant for the parent's session is not one for the child, so the child asks itself."""
    write = '/call write_file {"path": "a/b.txt", "content": "x"}'
    async with daemon.connect() as client:
        parent = await client.start_run(f"{write}\n/then\n{delegate(write)}")
        await client.wait_run(parent.run_id, until="attention")
        (own,) = await client.list_approvals(run_id=parent.run_id)
        await client.resolve_approval(own.approval_id, "allow", own.digest, scope="session")
        child = await wait_child(client, parent.run_id)
        await client.wait_run(child, until="attention")
        (asked,) = await client.list_approvals(run_id=child)
        await client.resolve_approval(asked.approval_id, "deny", asked.digest)
        tape = await finish(client, parent.run_id)
    assert own.parent_run_id is None
    assert parent.run_id == asked.parent_run_id
    assert "run.done" == tape[-1].kind


async def test_a_share_is_settled(daemon: DaemonProcess) -> None:
    """Children get a quarter of what is left, and their usage is spent from their parent's budget."""
    async with daemon.connect() as client:
        text = "\n".join([delegate("/say one"), delegate("/say two", budget={"tokens": 900_000})])
        tape = await perform(client, text, budget={"tokens": 400_000})
    shares = [
        e.budget.tokens
        for e in find_events(tape, ev.DelegationStarted)
        if isinstance(e, ev.DelegationStarted)
    ]
    assert shares[0] is not None
    assert shares[1] is not None
    assert shares[0] < 100_001
    assert sum(each or 0 for each in shares) <= 400_000
    assert all(each.usage.output_tokens > 0 for each in ends(tape))


async def test_a_replay_starts_no_run(daemon: DaemonProcess) -> None:
    """A replay of a run with children takes their ends from the tape."""
    async with daemon.connect() as client:
        tape = await perform(client, f"{delegate('/say one')}\n{delegate('/fail auth')}")
        before = (await client.list_runs(limit=500)).runs
        report = await client.replay_run(tape[0].run_id)
        strict = await client.replay_run(tape[0].run_id, strict=True)
        after = (await client.list_runs(limit=500)).runs
    assert report.matched, report
    assert strict.matched, strict
    assert len(before) == len(after)


async def test_other_principals_do_not_see_children(daemon: DaemonProcess) -> None:
    """A child belongs to the principal of its parent."""
    async with daemon.connect() as operator:
        tape = await perform(operator, delegate("/say private"))
        token = await make_token(operator, "client", "mallory")
        (child,) = (await operator.list_runs(parent_run_id=tape[0].run_id)).runs
        assert "operator" == child.principal
    async with daemon.connect(token) as stranger:
        assert not (await stranger.list_runs(parent_run_id=tape[0].run_id)).runs


async def test_every_end_arrives_once_over_kills(tmp_path: Path) -> None:
    """Killed at random instants, each call has one child and one end, and no run is left open."""
    rng = random.Random(7)
    with running(tmp_path) as daemon:
        async with daemon.connect() as client:
            tasks = [delegate(f"/delay 150\n/say answer {n}") for n in range(4)]
            run_ids = [(await client.start_run("\n".join(tasks))).run_id for _ in range(3)]
        for _ in range(KILLS):
            await trio.sleep(rng.uniform(0.02, 0.25))
            await daemon.restart()
        async with daemon.connect() as client:
            tapes = [await finish(client, run_id) for run_id in run_ids]
            runs = (await client.list_runs(limit=500)).runs
    for tape in tapes:
        if tape[-1].kind == "run.done":
            assert 4 == len(ends(tape))
        assert kinds(tape).count("delegation.started") == kinds(tape).count("delegation.ended")
        named = {each.run_id for each in ends(tape) if each.state != "refused"}
        children = {run.run_id for run in runs if run.parent_run_id == tape[0].run_id}
        assert children <= named
    assert all(run.is_terminal for run in runs)


RULES = """
@id("background-never-echoes")
forbid (principal, action == Action::"tool.execute", resource == Tool::"echo")
when { context.run.origin == "background" };

@id("children-write")
permit (principal, action == Action::"tool.execute", resource == Tool::"write_file")
when { context.run.origin == "delegated" };
"""


async def test_a_rule_about_the_run_above_holds_below(tmp_path: Path) -> None:
    """A child of a background run may not call what that run may not, nor gain by being a child."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "rules.cedar").write_text(RULES, encoding="utf-8")
    echo = '/call echo {"text": "x"}'
    write = '/call write_file {"path": "new.txt", "content": "x"}'
    with running(tmp_path, PALYRA_POLICY__DIR=str(rules)) as daemon:
        async with daemon.connect() as client:
            free = await perform(client, delegate(echo))
            bound = await perform(client, delegate(f"{echo}\n{write}"), origin="background")
            below = [await read_whole(client, each[0].run_id) for each in (ends(free), ends(bound))]
        assert not (daemon.workspace / "new.txt").exists()
    assert [1, 0] == [kinds(tape).count("tool.started") for tape in below]
