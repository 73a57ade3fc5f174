"""Procedures with a real daemon: two runs teach one, a person accepts it, a run calls it."""

import json
from collections.abc import Generator
from typing import Literal

import pytest
import trio

from palyra.client import Client, TapeEvent
from palyra.core.journal.records import ApprovalRecord
from palyra.core.tape import events as ev
from palyra.errors import InvalidParams
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import find_events
from tests.e2e.tapes import check_tape, kinds, read_whole
from tests.e2e.test_delegation import outputs
from tests.e2e.test_purge import person
from tests.e2e.wire import WITHIN_S

pytestmark = pytest.mark.real

POLL_S = 0.02


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon that learns in mode review."""
    base = tmp_path_factory.mktemp("learner")
    with running(base, PALYRA_LEARNING__MODE="review") as process:
        yield process


def call(tool: str, **arguments: object) -> str:
    """The directive of a call."""
    return f"/call {tool} {json.dumps(arguments)}"


def look(word: str) -> str:
    """Two calls that differ in one word."""
    return "\n".join(
        [call("echo", text=f"look for {word}"), call("echo", text=word), call("list_dir", path=".")]
    )


async def wait_pending(client: Client) -> ApprovalRecord:
    """The one open question."""
    while True:
        found = await client.list_approvals(pending_only=True)
        if found:
            return found[0]
        await trio.sleep(POLL_S)


async def perform(
    client: Client, text: str, *, answerer: Client | None = None, allow: bool = True
) -> list[TapeEvent]:
    """The tape of a run with that message, once it has ended and its one question is answered."""
    run_id = (await client.start_run(text)).run_id
    with trio.fail_after(WITHIN_S):
        if answerer is not None:
            asked = await wait_pending(answerer)
            decision: Literal["allow", "deny"] = "allow" if allow else "deny"
            await answerer.resolve_approval(asked.approval_id, decision, asked.digest)
        await client.wait_run(run_id)
    tape = await read_whole(client, run_id)
    check_tape(tape)
    return tape


async def teach(client: Client, *texts: str) -> str:
    """The procedure that runs with these messages prove."""
    done = None
    for text in texts:
        done = await client.reflect((await perform(client, text))[0].run_id)
    assert done is not None
    candidates = [await client.get_candidate(each) for each in done.candidate_ids]
    (found,) = [each.candidate_id for each in candidates if each.kind == "procedure"]
    return found


async def test_two_runs_teach_a_tool(learner: DaemonProcess) -> None:
    """It is proposed with its proofs, no tool before a person accepts it, and one call afterwards."""
    async with learner.connect(await person(learner, "ann")) as ann:
        found = await teach(ann, look("ships"), look("cars"))
        shown = await ann.get_candidate(found)
        assert shown.procedure is not None
        assert 2 == len(shown.procedure.proofs)
        assert {"text", "text_2"} == set(shown.procedure.parameters["properties"])
        early = await perform(ann, call("procedure:looking", text="a", text_2="b"))
        assert "tool.started" not in kinds(early)
        await ann.edit_candidate(found, name="looking")
        await ann.accept_candidate(found)
        tape = await perform(ann, call("procedure:looking", text="look for bikes", text_2="bikes"))
        assert "3. list_dir succeeded" in outputs(tape)[0]
        (child,) = (await ann.list_runs(parent_run_id=tape[0].run_id)).runs
        steps = find_events(await read_whole(ann, child.run_id), ev.ToolAttested)
        assert 3 == len(steps)
        assert 0 == child.cost_usd_micros
        used = await ann.get_candidate(found)
        assert used.procedure is not None
        assert (1, 0) == (used.procedure.succeeded, used.procedure.failed)


async def test_each_step_is_gated(learner: DaemonProcess) -> None:
    """A step that writes is asked about, as in a run of its own; a denied one ends the procedure."""
    async with (
        learner.connect(await person(learner, "bob")) as bob,
        learner.connect() as operator,
    ):
        texts = [
            "\n".join(
                [call("echo", text=name), call("write_file", path=f"{name}.txt", content="x")]
            )
            for name in ("one", "two")
        ]
        done = [await perform(bob, text, answerer=operator) for text in texts]
        for tape in done:
            await bob.reflect(tape[0].run_id)
        (found,) = (await bob.list_candidates(kinds=["procedure"])).candidates
        await bob.edit_candidate(found.candidate_id, name="writing")
        await bob.accept_candidate(found.candidate_id)
        use = call("procedure:writing", text="x", path="three.txt")
        for _ in range(2):  # a denial is no failure, so the tool stays
            tape = await perform(bob, use, answerer=operator, allow=False)
            ended = "step 2 of 2 (write_file) ended denied, after 1 that succeeded"
            assert ended in outputs(tape)[0]
        assert not (learner.workspace / "three.txt").exists()
        tape = await perform(bob, use, answerer=operator)
        assert "succeeded" in outputs(tape)[0]
        assert (learner.workspace / "three.txt").exists()


async def test_a_procedure_that_fails_twice_in_a_row_goes_back_to_review(
    learner: DaemonProcess,
) -> None:
    """It is no tool any more and waits for a person, with its counts."""
    async with learner.connect(await person(learner, "cat")) as cat:
        (learner.workspace / "notes").mkdir()
        text = "\n".join([call("list_dir", path="notes"), call("echo", text="a")])
        other = "\n".join([call("list_dir", path="notes"), call("echo", text="b")])
        found = await teach(cat, text, other)
        await cat.edit_candidate(found, name="listing")
        await cat.accept_candidate(found)
        (learner.workspace / "notes").rmdir()
        for _ in range(2):
            tape = await perform(cat, call("procedure:listing", text="c"))
            assert "step 1 of 2 (list_dir) ended failed" in outputs(tape)[0]
        shown = await cat.get_candidate(found)
        assert ("proposed", "withdrawn") == (shown.state, shown.changes[-1].action)
        assert "tool.started" not in kinds(await perform(cat, call("procedure:listing", text="c")))


async def test_a_procedure_belongs_to_one_principal(learner: DaemonProcess) -> None:
    """Another principal neither sees nor calls it, and cannot take its name."""
    async with learner.connect(await person(learner, "dan")) as dan:
        found = await teach(dan, look("a"), look("b"))
        await dan.edit_candidate(found, name="mine")
        await dan.accept_candidate(found)
        assert "procedure:mine" in {tool.name for tool in (await dan.list_tools()).tools}
    async with learner.connect(await person(learner, "eve")) as eve:
        assert "procedure:mine" not in {tool.name for tool in (await eve.list_tools()).tools}
        tape = await perform(eve, call("procedure:mine", text="a", text_2="b"))
        assert "tool.started" not in kinds(tape)
        own = await teach(eve, look("c"), look("d"))
        with pytest.raises(InvalidParams, match="another procedure is named 'mine'"):
            await eve.edit_candidate(own, name="mine")
        with pytest.raises(InvalidParams, match="is no name of a procedure"):
            await eve.edit_candidate(own, name="../mine")


async def test_a_purge_takes_the_tool(learner: DaemonProcess) -> None:
    """A purge of one session that proves it removes the procedure and its tool at once."""
    async with learner.connect(await person(learner, "fay")) as fay:
        found = await teach(fay, look("x"), look("y"))
        await fay.accept_candidate(found)
        shown = await fay.get_candidate(found)
        assert shown.procedure is not None
        name = f"procedure:{shown.procedure.name}"
        assert name in {tool.name for tool in (await fay.list_tools()).tools}
        await fay.purge_session(shown.session_id)
        assert name not in {tool.name for tool in (await fay.list_tools()).tools}


async def test_the_command_shows_steps(learner: DaemonProcess) -> None:
    """The steps, the parameters with values, the name of the tool and its uses."""
    async with learner.connect(await person(learner, "gil")) as gil:
        found = await teach(gil, look("x"), look("y"))
    shown = await palyra("learn", "show", found, home=learner.home)
    assert "1. echo(text = <text>)" in shown.out
    assert 'parameter text_2: string, for example "y", "x"' in shown.out
    assert "uses: 0 succeeded, 0 failed" in shown.out


async def test_it_survives_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The tool is there before the runs that were open go on."""
    base = tmp_path_factory.mktemp("restarted")
    with running(base, PALYRA_LEARNING__MODE="review") as process:
        async with process.connect() as client:
            found = await teach(client, look("x"), look("y"))
            await client.edit_candidate(found, name="kept")
            await client.accept_candidate(found)
        process.kill()
        process.start()
        async with process.connect() as client:
            tape = await perform(client, call("procedure:kept", text="a", text_2="b"))
            assert "1. echo succeeded" in outputs(tape)[0]
