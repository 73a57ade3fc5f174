"""Data rights against a real daemon: purged content is gone, the proof stays, others are untouched."""

from pathlib import Path
from typing import Any

import pytest
import trio

from palyra.client import Client, TapeEvent
from palyra.client.tapes import export_run
from palyra.core.journal.purged_row import read_tombstone
from palyra.core.session.purge import SessionPurged
from palyra.core.tape.export import verify_export
from palyra.errors import Forbidden, IllegalState, NotFound
from palyra.store.journal.keys import is_signed
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import ask_for, make_token
from tests.e2e.tapes import read_whole
from tests.e2e.test_files import LONG, the_call

pytestmark = pytest.mark.real
CLEAN_S, LOOK_S = 30.0, 0.1


def leaks(daemon: DaemonProcess, canary: str) -> list[str]:
    """The files of the home with the canary."""
    return [
        str(path.relative_to(daemon.home))
        for path in daemon.home.rglob("*")
        if path.is_file() and canary.encode() in path.read_bytes()
    ]


async def cleaned(daemon: DaemonProcess, canary: str) -> None:
    """Wait until no file of the home has the canary."""
    with trio.fail_after(CLEAN_S):
        while leaks(daemon, canary):  # noqa: ASYNC110 - files send no event
            await trio.sleep(LOOK_S)


def signed(key: bytes, message: bytes, signature: bytes) -> bool:
    return is_signed(key, message, signature)


def check_purged(before: list[TapeEvent], after: list[TapeEvent]) -> None:
    """Check that only payloads went, and that a record of it follows."""
    *purged, last = after
    assert [(e.seq, e.kind, e.at_ms) for e in before] == [(e.seq, e.kind, e.at_ms) for e in purged]
    assert all(read_tombstone(event.data) is not None for event in purged)
    assert "run.purged" == last.kind


def check_export(content: bytes, purged_events: int) -> None:
    """Check that the export verifies, and a forged one does not."""
    report = verify_export(content, signed, None)
    assert (None, purged_events) == (report.problem, report.purged_events)
    forged = content.replace(b'"kind":"run.started"', b'"kind":"run.starter"')
    assert None is not verify_export(forged, signed, None).problem


async def person(daemon: DaemonProcess, name: str) -> str:
    async with daemon.connect() as operator:
        return await make_token(operator, "client", principal=name)


async def talk(client: Client, text: str, **place: Any) -> tuple[str, str]:
    """Start a run and wait for its end; return run and session."""
    started = await client.start_run(text, **place)
    await client.wait_run(started.run_id)
    return started.run_id, started.session_id


async def test_a_purged_session_keeps_its_proof_and_no_content(daemon: DaemonProcess) -> None:
    """Payloads, memory and files of the session are gone; tape, journal and export verify."""
    canary = "xyzzyalpha"
    async with daemon.connect(await person(daemon, "ann")) as ann:
        run_id, session_id = await talk(ann, f"remember {canary} for me", session_key="work")
        other_run, _ = await talk(ann, "an unrelated talk")
        mine = await ann.add_memory(f"{canary} is a fact", session_id=session_id, scope="session")
        kept = await ann.add_memory("tea is better than coffee")
        other = await read_whole(ann, other_run)
        before = await read_whole(ann, run_id)
        # A search indexes the conversations.
        searched, _ = await talk(ann, '/call session_search {"query": "remember for me"}')
        assert canary in str(await read_whole(ann, searched))
        also = await ann.purge_session((await ann.get_run(searched)).session_id)
        assert leaks(daemon, canary)
        assert 1 == (await ann.purge_session(session_id, dry_run=True)).items
        assert before == await read_whole(ann, run_id)
        done = await ann.purge_session(session_id)
        assert (1, len(before), 1) == (done.runs, done.events, done.items)
        assert done.done_ms is not None
        check_purged(before, await read_whole(ann, run_id))
        for wanted in (run_id, other_run):
            assert None is (await ann.verify_tape(wanted)).first_break
        assert other == await read_whole(ann, other_run)
        searched, _ = await talk(ann, '/call session_search {"query": "remember for me"}')
        assert canary not in str(await read_whole(ann, searched))
        with pytest.raises(NotFound):
            await ann.get_memory(mine.memory_id)
        assert kept.memory_id == (await ann.get_memory(kept.memory_id)).memory_id
        check_export((await export_run(ann, run_id)).encode(), len(before))
        again = await ann.purge_session(session_id)
        assert (done.purge_id, 0) == (again.purge_id, again.runs)
        fresh = await ann.start_run("hello again", session_key="work")
        assert fresh.session_id != session_id
    async with daemon.connect() as operator:
        whole = await operator.verify_tape()
        assert (None, len(before) + also.events) == (whole.first_break, whole.purged_events)
        await cleaned(daemon, canary)


async def test_every_question_about_purged_content_has_an_answer(daemon: DaemonProcess) -> None:
    """Reads, forks, replays, explanations and new messages fail clearly or leave the run out."""
    canary = "xyzzybeta"
    async with daemon.connect(await person(daemon, "bea")) as bea:
        run_id, session_id = await talk(bea, f"say {canary}")
        mark = await bea.checkpoint_session(session_id, name=canary)
        await bea.purge_session(session_id)
        for question in (
            bea.fork_run(run_id, 3, "go on"),
            bea.replay_run(run_id),
            bea.explain_context(run_id),
            bea.checkpoint_session(session_id),
            bea.restore_session(session_id, mark.checkpoint_id),
            bea.pin_message(session_id, run_id, 1),
        ):
            with pytest.raises((NotFound, IllegalState)) as caught:
                await question
            assert canary not in caught.value.message
        with pytest.raises(IllegalState, match="purged"):
            await bea.start_run("more", session_id=session_id)
        run = await bea.get_run(run_id)
        assert ("done", "purged") == (run.state, run.reason)
        assert run.usage.output_tokens
        record = await bea.get_session(session_id)
        assert record.purge is not None
        assert [run_id] == [
            each.run_id for each in (await bea.list_runs(session_id=session_id)).runs
        ]
        _, other = await talk(bea, f"look at @run:{run_id} and @session:{session_id}")
        assert other != session_id
        assert [] == (await bea.search_memories(canary)).hits
        with trio.fail_after(CLEAN_S):
            async with bea.events(run_id) as stream:
                seen = [item async for item in stream]
        told = [item.kind for item in seen if isinstance(item, TapeEvent)]
        assert "run.purged" == told[-1]


async def forbidden_to(
    daemon: DaemonProcess, token: str, session_id: str, operator: Client
) -> SessionPurged:
    """Purge as the operator, after the peer with this token was refused."""
    async with daemon.connect(token) as eve:
        with pytest.raises(Forbidden):
            await eve.purge_session(session_id)
    return await operator.purge_session(session_id)


async def test_only_the_owner_and_operators_purge(daemon: DaemonProcess) -> None:
    """A foreign session does not exist for a client; an operator may purge it."""
    tokens = [await person(daemon, name) for name in ("cas", "dan")]
    async with daemon.connect(tokens[0]) as cas, daemon.connect(tokens[1]) as dan:
        run_id, session_id = await talk(cas, "mine")
        before = await read_whole(cas, run_id)
        for dry_run in (True, False):
            with pytest.raises(NotFound):
                await dan.purge_session(session_id, dry_run=dry_run)
        with pytest.raises(Forbidden):
            await dan.purge_memory("cas", sessions=True)
        assert before == await read_whole(cas, run_id)
        async with daemon.connect() as operator:
            observer = await make_token(operator, "observer", principal="eve")
            done = await forbidden_to(daemon, observer, session_id, operator)
        assert (1, "operator") == (done.runs, done.by)
        assert "run.purged" == (await read_whole(cas, run_id))[-1].kind


async def test_an_open_run_refuses_a_purge_unless_it_is_cancelled(daemon: DaemonProcess) -> None:
    """The error names the run; with `cancel` it ends and is purged with the rest."""
    async with daemon.connect(await person(daemon, "fay")) as fay:
        started = await fay.start_run("/delay 600000\n/say much later")
        run_id, session_id = started.run_id, started.session_id
        await fay.queue(session_id, paused=True)
        waiting = await fay.start_run("later", session_id=session_id)
        with pytest.raises(IllegalState) as caught:
            await fay.purge_session(session_id)
        assert caught.value.details is not None
        assert caught.value.details["run_id"] in {run_id, waiting.run_id}
        with pytest.raises(IllegalState):
            await fay.purge_memory("fay", sessions=True)
        assert None is (await fay.get_session(session_id)).purge
        done = await fay.purge_session(session_id, cancel=True)
        assert 2 == done.runs
        assert None is (await fay.verify_tape(run_id)).first_break


async def test_a_person_is_forgotten_by_one_command(daemon: DaemonProcess) -> None:
    """`memory purge --with-sessions` leaves nothing of the principal's texts and all of others'."""
    canary = "xyzzyepsilon"
    tokens = [await person(daemon, name) for name in ("gus", "hal")]
    async with daemon.connect(tokens[0]) as gus, daemon.connect(tokens[1]) as hal:
        for number in range(3):
            await talk(gus, f"{canary} number {number}", session_key=f"{canary}{number}")
        await gus.add_memory(f"I like {canary}", kind="preference")
        kept, _ = await talk(hal, "halcyonic days")
        before = await read_whole(hal, kept)
        args = ("memory", "purge", "--principal", "gus", "--with-sessions")
        assert "--yes" in (await palyra(*args, home=daemon.home)).err
        shown = await palyra(*args, "--dry-run", home=daemon.home)
        assert "3 sessions would lose" in shown.out
        done = await palyra(*args, "--yes", home=daemon.home)
        assert "3 sessions lost" in done.out, done
        await cleaned(daemon, canary)
        assert before == await read_whole(hal, kept)
        assert None is (await hal.verify_tape(kept)).first_break
        assert leaks(daemon, "halcyonic")


async def test_a_document_loses_entries_of_forgotten_items(daemon: DaemonProcess) -> None:
    """Forgetting, purging and purging a session remove the managed entries that show the items."""
    canary = "xyzzyzeta"
    document = daemon.workspace / "MEMORY.md"
    async with daemon.connect() as operator:
        _, session_id = await talk(operator, "hello")
        forgotten = await operator.add_memory(f"{canary} one")
        of_session = await operator.add_memory(f"{canary} two", session_id=session_id)
        purged = await operator.add_memory(f"{canary} three")
        items = {
            each.memory_id: text
            for each, text in ((forgotten, "one"), (of_session, "two"), (purged, "three"))
        }
        document.write_text(
            "# Mine\n\nmy own words\n\n<!-- palyra:begin facts -->\n"
            + "".join(f"- {canary} {text} <!-- {key} -->\n" for key, text in items.items())
            + "<!-- palyra:end facts -->\n"
        )
        await operator.sync_document("MEMORY.md")
        await operator.forget_memories(forgotten.memory_id)
        assert f"{canary} one" not in document.read_text()
        assert f"{canary} two" in document.read_text()
        await operator.purge_session(session_id)
        assert f"{canary} two" not in document.read_text()
        await operator.purge_memory("operator")
        assert canary not in document.read_text()
        assert "my own words" in document.read_text()
    await cleaned(daemon, canary)


async def test_the_command_shows_what_was_purged(daemon: DaemonProcess, tmp_path: Path) -> None:
    """`sessions purge` asks, `tape show` shows marks, `tape verify` is green online and offline."""
    canary = "xyzzyeta"
    async with daemon.connect() as operator:
        run_id, session_id = await talk(operator, f"about {canary}", session_key="k")

    async def command(*args: str) -> str:
        done = await palyra(*args, home=daemon.home)
        return done.out + done.err

    assert "--yes" in await command("sessions", "purge", "k")
    assert "would lose" in await command("sessions", "purge", "k", "--dry-run")
    assert f"{session_id} has lost" in await command("sessions", "purge", "k", "--yes")
    shown = await command("tape", "show", run_id)
    assert "[purged 20" in shown
    assert canary not in shown
    assert "purged by operator" in shown
    assert "events purged" in await command("tape", "verify", run_id)
    file = tmp_path / "run.ndjson"
    await command("tape", "export", run_id, "-o", str(file))
    assert "events purged" in await command("tape", "verify", str(file))
    assert "purged on 20" in await command("tape", "replay", str(file))
    assert "purged by operator" in await command("sessions", "show", session_id)


async def test_a_dry_run_counts_what_the_purge_removes(daemon: DaemonProcess) -> None:
    """Artifacts, file checkpoints and items in documents are counted before they go."""
    async with daemon.connect() as operator:
        _, session_id = await talk(operator, the_call("echo", text=LONG), session_key="files")
        call = the_call("write_file", path="made.txt", content="made")
        asked = await ask_for(operator, call, session_key="files")
        await operator.resolve_approval(asked.approval_id, "allow", asked.digest)
        await operator.wait_run(asked.run_id)
        item = await operator.add_memory("the port is 8080", session_id=session_id)
        (daemon.workspace / "MEMORY.md").write_text(
            "<!-- palyra:begin facts -->\n"
            f"- the port is 8080 <!-- {item.memory_id} -->\n<!-- palyra:end facts -->\n"
        )
        await operator.sync_document("MEMORY.md")
        planned = await operator.purge_session(session_id, dry_run=True)
        shown = await palyra("sessions", "purge", "files", "--dry-run", home=daemon.home)
        done = await operator.purge_session(session_id)
        again = await operator.purge_session(session_id, dry_run=True)
    assert (1, 1, 1) == (planned.artifacts, planned.file_checkpoints, planned.document_entries)
    assert "also 1 artifact and 1 file checkpoint; in documents 1 item" in shown.out
    for name in ("runs", "events", "items", "artifacts", "file_checkpoints", "document_entries"):
        assert (name, getattr(planned, name)) == (name, getattr(done, name))
        assert (name, 0) == (name, getattr(again, name))


async def test_simultaneous_requests_are_one_purge(daemon: DaemonProcess) -> None:
    """Each request gets the same purge, and each run one record of it."""
    async with daemon.connect(await person(daemon, "ida")) as ida:
        run_id, session_id = await talk(ida, "hello")
        done: list[SessionPurged] = []

        async def ask() -> None:
            done.append(await ida.purge_session(session_id))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask)
        assert 1 == len({each.purge_id for each in done})
        assert 1 == sum(each.runs for each in done)
        told = [event.kind for event in await read_whole(ida, run_id)]
        assert 1 == told.count("run.purged")
        assert None is (await ida.verify_tape(run_id)).first_break


async def test_branches_are_named(daemon: DaemonProcess) -> None:
    """A fork has its own copy of the conversation; the purge names its session and leaves it."""
    async with daemon.connect(await person(daemon, "jon")) as jon:
        run_id, session_id = await talk(jon, "the first question")
        head = (await jon.get_run(run_id)).head_seq
        fork = await jon.fork_run(run_id, head, "go on")
        await jon.wait_run(fork.run_id)
        before = await read_whole(jon, fork.run_id)
        done = await jon.purge_session(session_id)
        assert (fork.session_id,) == done.branches
        assert before == await read_whole(jon, fork.run_id)
        assert None is (await jon.verify_tape(fork.run_id)).first_break


async def test_a_branch_outlives_its_origin(daemon: DaemonProcess) -> None:
    """It goes on, is marked, restored and forked after the purge of the session that it came from."""
    async with daemon.connect(await person(daemon, "ina")) as ina:
        run_id, session_id = await talk(ina, "the first question")
        head = (await ina.get_run(run_id)).head_seq
        fork = await ina.fork_run(run_id, head, "go on")
        await ina.wait_run(fork.run_id)
        await ina.purge_session(session_id)
        mark = await ina.checkpoint_session(fork.session_id)
        restored = await ina.restore_session(fork.session_id, mark.checkpoint_id)
        head = (await ina.get_run(fork.run_id)).head_seq
        again = await ina.fork_run(fork.run_id, head, "and on")
        for branch in (restored, again):
            assert "done" == (await ina.wait_run(branch.run_id)).state
            assert "the first question" in str(await read_whole(ina, branch.run_id))
