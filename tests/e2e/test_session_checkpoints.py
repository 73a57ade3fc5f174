"""Checkpoints of sessions over a real daemon: marked, listed, restored; files put back; undo."""

from collections.abc import Generator

import msgspec
import openai
import pytest
import trio

from palyra.client import Client
from palyra.client.sessions import RestoreOptions
from palyra.core.model.messages import GuidanceMessage, UserMessage
from palyra.core.session.commands import RunView, SessionCompacted, SessionRestored
from palyra.core.tape import events as ev
from palyra.errors import Conflict, Forbidden, IllegalState, InvalidParams, NotFound
from palyra.net.http.compat.responses import run_id_of
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import find_events, somebody, write_call
from tests.e2e.tapes import read_whole

pytestmark = pytest.mark.real

LONG = "A long remark about nothing in particular. " * 12


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon whose sessions are summarised early."""
    base = tmp_path_factory.mktemp("daemon")
    settings = {"PALYRA_RUNS__HISTORY_TOKENS": "1500", "PALYRA_SERVER__REQUESTS_PER_S": "100000"}
    with running(base, **settings) as process:
        yield process


async def talk(
    client: Client, text: str, *, session_key: str | None = None, session_id: str | None = None
) -> RunView:
    """Send one message; allow the calls that need a person; return the ended run."""
    started = await client.start_run(text, session_key=session_key, session_id=session_id)
    while (
        waited := await client.wait_run(started.run_id, until="attention")
    ).state == "in_progress":
        for asked in await client.list_approvals(run_id=started.run_id, pending_only=True):
            await client.resolve_approval(asked.approval_id, "allow", asked.digest)
    return waited


async def fill(client: Client, key: str, count: int = 10) -> list[RunView]:
    """Talk until the session was summarised more than once."""
    texts = ["Never push to main.", *(f"message {number}. {LONG}" for number in range(1, count))]
    return [await talk(client, text, session_key=key) for text in texts]


async def compactions(
    client: Client, runs: list[RunView]
) -> list[tuple[RunView, ev.CompactionApplied]]:
    """Return the compactions on the tapes of these runs."""
    return [
        (run, event)
        for run in runs
        for event in find_events(await read_whole(client, run.run_id), ev.CompactionApplied)
        if isinstance(event, ev.CompactionApplied)
    ]


async def inherited(client: Client, run_id: str) -> list[ev.ConversationInherited]:
    """Return what a branch inherited."""
    found = find_events(await read_whole(client, run_id), ev.ConversationInherited)
    return [event for event in found if isinstance(event, ev.ConversationInherited)]


def texts(events: list[ev.ConversationInherited]) -> list[str]:
    """Return the first words of the inherited messages of the user."""
    messages = [message for event in events for message in event.messages]
    return [m.text.split(". ")[0] for m in messages if isinstance(m, UserMessage)]


async def restore(daemon: DaemonProcess, *arguments: str) -> SessionRestored:
    """Restore from the command line."""
    code, out, err = await palyra("sessions", "restore", *arguments, "--json", home=daemon.home)
    assert 0 == code, err
    return msgspec.json.decode(out, type=SessionRestored)


async def test_a_compaction_is_undone_in_a_branch(daemon: DaemonProcess) -> None:
    """The branch has the messages instead of the summary, keeps them, and the session its tapes."""
    async with daemon.connect() as client:
        runs = await fill(client, "undo", 18)
        applied = await compactions(client, runs)
        assert len(applied) > 1
        before = [await read_whole(client, run.run_id) for run in runs]
        run, event = applied[0]
        listed = (await client.session_checkpoints(run.session_id)).checkpoints
        assert [e.compaction_id for _, e in applied[::-1]] == [c.checkpoint_id for c in listed]
        done = await restore(daemon, "undo", event.compaction_id)
        found = await inherited(client, done.run_id)
        assert {None} == {each.summary for each in found}
        numbers = range(1, runs.index(run) + 1)
        assert ["Never push to main.", *(f"message {n}" for n in numbers)] == texts(found)
        later = await talk(client, "/say ok", session_id=done.session_id)
        assert [] == await compactions(client, [later])
        [start] = find_events(await read_whole(client, later.run_id), ev.RunStarted)
        assert (done.run_id,) == getattr(start, "history", None)
        assert before == [await read_whole(client, run.run_id) for run in runs]
        for run_id in (done.run_id, later.run_id):
            report = await client.replay_run(run_id, strict=True)
            assert report.matched, report.first_divergence


async def test_a_session_is_compacted_on_request(daemon: DaemonProcess) -> None:
    """`sessions compact` ends with a summary on the tape, and a repetition gets the same run."""
    async with daemon.connect() as client:
        for text in ("Never push to main.", *map(str, range(6))):
            run = await talk(client, f"{text}. {'word ' * 90}", session_key="asked")
        preview = await client.compact_session(run.session_id, preview=True)
        facts = {(each.kind, each.text, each.by, each.message) for each in preview.facts}
        assert ("constraint", "Never push to main..", "user", 0) in facts
        code, out, err = await palyra("sessions", "compact", "asked", "--json", home=daemon.home)
        assert 0 == code, err
        compacted = msgspec.json.decode(out, type=SessionCompacted)
        assert compacted.run_id is not None
        ended = await client.wait_run(compacted.run_id)
        ((_, applied),) = await compactions(client, [ended])
        assert preview.facts == applied.summary.ledger.facts, "with run and message, as on the tape"
        first, second = [
            await client.call(
                "session.compact", {"session_id": run.session_id, "idempotency_key": "twice"}
            )
            for _ in range(2)
        ]
        assert first == second


async def test_the_last_compaction_is_undone(daemon: DaemonProcess) -> None:
    """Before the last compaction the summary of the one before was in force."""
    async with daemon.connect() as client:
        applied = await compactions(client, await fill(client, "last", 18))
        done = await restore(daemon, "last", "--before-compaction")
        assert applied[-1][0].run_id == done.parent_run_id
        found = await inherited(client, done.run_id)
        assert [applied[-2][1].summary] == [each.summary for each in found if each.summary]


async def test_a_fork_in_a_compacted_session(daemon: DaemonProcess) -> None:
    """A fork at any place has the summary in force there, the messages up to it, nothing later."""
    async with daemon.connect() as client:
        runs = await fill(client, "forks")
        applied = await compactions(client, runs)
        for place, run in enumerate(runs[:-1]):
            forked = await client.fork_run(run.run_id, run.head_seq, "/say branch")
            assert "done" == (await client.wait_run(forked.run_id)).state
            found = await inherited(client, forked.run_id)
            earlier = [each for each in applied if runs.index(each[0]) <= place]
            in_force = [earlier[-1][1].summary] if earlier else []
            assert in_force == [each.summary for each in found if each.summary is not None]
            assert f"message {place}" == texts(found)[-1] or place == 0
            assert f"message {place + 1}." not in str(found)
            if not in_force:
                assert "Never push to main." == texts(found)[0]


async def test_a_response_continues_a_compacted_session_as_data(daemon: DaemonProcess) -> None:
    """A branch by `previous_response_id` has the summary in force as an entry, not as a text.

    So the rules outlive the next compaction of the branch, as they do in a fork.
    """
    url = f"http://127.0.0.1:{daemon.port}/v1"

    def respond(text: str, previous: str | None) -> str:
        with openai.OpenAI(base_url=url, api_key=daemon.token, max_retries=0) as sdk:
            made = sdk.responses.create(
                model="scripted", input=text, previous_response_id=previous or openai.omit
            )
            return made.id

    last = None
    ids: list[str] = []
    for text in ["Never push to main.", *(f"message {n}. {LONG}" for n in range(1, 10))]:
        last = await trio.to_thread.run_sync(respond, text, last)
        ids.append(last)
    async with daemon.connect() as client:
        runs = [await client.get_run(run_id_of(each)) for each in ids]
        applied = await compactions(client, runs)
        assert applied
        place = runs.index(applied[-1][0])
        before = ids[place]  # the run that compacted, and one later run exists or is made now
        await trio.to_thread.run_sync(respond, "/say on", ids[-1])
        branch = await trio.to_thread.run_sync(respond, "/say branch", before)
        found = await inherited(client, run_id_of(branch))
        assert [applied[-1][1].summary] == [e.summary for e in found if e.summary is not None]
        assert not any(isinstance(m, GuidanceMessage) for e in found for m in e.messages)
        for number in range(12):
            branch = await trio.to_thread.run_sync(respond, f"later {number}. {LONG}", branch)
        tail = [await client.get_run(run_id_of(branch))]
        listed = await client.list_runs(session_id=tail[0].session_id, limit=50)
        made = await compactions(client, list(listed.runs))
        assert made
        assert all(
            "Never push to main." in [entry.text for entry in event.summary.ledger.entries]
            for _, event in made
        )


async def test_files_are_put_back_to_the_mark(daemon: DaemonProcess) -> None:
    """Only changes after the mark are undone; the preview changes nothing; the undo can be undone."""
    one, two, new = (daemon.workspace / name for name in ("one.txt", "two.txt", "new.txt"))
    async with daemon.connect() as client:
        two.write_text("mine", encoding="utf-8")
        run = await talk(client, write_call("one.txt", "first"), session_key="files")
        code, out, err = await palyra(
            "sessions", "checkpoint", "files", "--name", "good", "--json", home=daemon.home
        )
        assert 0 == code, err
        mark = msgspec.json.decode(out)
        assert (run.run_id, "good", 1) == (
            mark["run_id"], mark["name"], len(mark["file_checkpoint_ids"]),
        )  # fmt: skip
        for path, text in (("one.txt", "x"), ("two.txt", "y"), ("new.txt", "z"), ("one.txt", "w")):
            await talk(client, write_call(path, text), session_key="files")
        shown = await client.restore_session(
            run.session_id, mark["checkpoint_id"], files=True, dry_run=True
        )
        assert {"one.txt", "two.txt", "new.txt"} == set(shown.files)
        assert ("", (), "w") == (shown.session_id, shown.conflicts, one.read_text(encoding="utf-8"))
        runs = len((await client.list_runs()).runs)
        two.write_text("by hand", encoding="utf-8")
        with pytest.raises(Conflict, match=r"two\.txt: changed"):
            await client.restore_session(run.session_id, mark["checkpoint_id"], files=True)
        assert ("w", runs) == (
            one.read_text(encoding="utf-8"),
            len((await client.list_runs()).runs),
        )
        code, out, err = await palyra(
            "sessions", "restore", "files", mark["checkpoint_id"], "--files", "--force",
            home=daemon.home,
        )  # fmt: skip
        assert 0 == code, err
        assert "two.txt is as at the checkpoint, which another program has changed since" in out
        assert ("first", "mine", False) == (
            one.read_text(encoding="utf-8"), two.read_text(encoding="utf-8"), new.exists(),
        )  # fmt: skip
        again = await client.restore_session(run.session_id, mark["checkpoint_id"], files=True)
        assert ((), None) == (again.files, again.file_checkpoint_id)
        [undo] = [
            each
            for each in (await client.list_checkpoints(session_id=run.session_id)).checkpoints
            if each.tool == "checkpoint.restore"
        ]
        await client.restore_checkpoint(undo.checkpoint_id)
        assert ("w", "by hand", "z") == tuple(
            path.read_text(encoding="utf-8") for path in (one, two, new)
        )


async def test_documents_are_put_back_to_the_mark(daemon: DaemonProcess) -> None:
    """The entries of the mark's time come back, text outside stays; operators only, and on request."""
    file = daemon.workspace / "MEMORY.md"

    def write(entry: str, around: str) -> None:
        block = f"<!-- palyra:begin facts -->\n- {entry}\n<!-- palyra:end facts -->\n"
        file.write_text(f"{around}\n{block}", encoding="utf-8")

    async with daemon.connect() as client:
        write("The port is 8080", "before")
        await client.sync_document("MEMORY.md")
        run = await talk(client, "hello", session_key="documents")
        mark = await client.checkpoint_session(run.session_id)
        write("The port is 9090", "after")
        await client.sync_document("MEMORY.md")
        options: RestoreOptions = {"documents": True, "dry_run": True}
        shown = await client.restore_session(run.session_id, mark.checkpoint_id, **options)
        assert ({"MEMORY.md": 1}, "") == (shown.documents, shown.session_id)
        plain = await restore(daemon, "documents", mark.checkpoint_id)
        assert {} == plain.documents
        assert "9090" in file.read_text(encoding="utf-8")
        done = await restore(daemon, "documents", mark.checkpoint_id, "--documents")
        assert {"MEMORY.md": 1} == done.documents
        text = file.read_text(encoding="utf-8")
        assert (True, True, False) == (text.startswith("after"), "8080" in text, "9090" in text)
        again = await restore(daemon, "documents", mark.checkpoint_id, "--documents")
        assert {} == again.documents
    async with somebody(daemon, "client", "eve") as eve:
        own = await talk(eve, "mine", session_key="documents")
        mark = await eve.checkpoint_session(own.session_id)
        with pytest.raises(Forbidden, match="documents:write"):
            await eve.restore_session(own.session_id, mark.checkpoint_id, documents=True)


async def test_pins_go_with_the_branch(daemon: DaemonProcess) -> None:
    """`sessions show` lists the pins; a branch has those before its mark."""
    async with daemon.connect() as client:
        first = await talk(client, "Keep this.", session_key="pins")
        code, _, err = await palyra("sessions", "pin", "pins", first.run_id, "1", home=daemon.home)
        assert 0 == code, err
        mark = await client.checkpoint_session(first.session_id)
        later = await talk(client, "And this.", session_key="pins")
        await client.pin_message(first.session_id, later.run_id, 1)
        _, out, _ = await palyra("sessions", "show", "pins", home=daemon.home)
        assert (True, True) == (first.run_id in out, later.run_id in out)
        done = await client.restore_session(first.session_id, mark.checkpoint_id)
        branch = await client.get_session(done.session_id)
        assert [(first.run_id, 1)] == [(each.run_id, each.seq) for each in branch.pins]
        code, _, _ = await palyra(
            "sessions", "pin", "pins", first.run_id, "1", "--off", home=daemon.home
        )
        left = (await client.get_session(first.session_id)).pins
        assert [later.run_id] == [each.run_id for each in left]


async def test_what_cannot_be_restored_is_named(daemon: DaemonProcess) -> None:
    """Foreign sessions, unknown checkpoints and sessions without a message are refused."""
    async with daemon.connect() as client:
        run = await talk(client, "hello", session_key="errors")
        mark = await client.checkpoint_session(run.session_id)
        empty = await client.resolve_session(session_key="empty")
        with pytest.raises(IllegalState, match="no message yet"):
            await client.checkpoint_session(empty.session_id)
        with pytest.raises(IllegalState, match="never compacted"):
            await client.restore_session(run.session_id)
        with pytest.raises(NotFound, match="no checkpoint"):
            await client.restore_session(empty.session_id, mark.checkpoint_id)
        with pytest.raises(NotFound, match="no run"):
            await client.checkpoint_session(empty.session_id, run_id=run.run_id, seq=1)
        with pytest.raises(InvalidParams, match="run_id and seq"):
            await client.checkpoint_session(run.session_id, seq=1)


async def test_sessions_of_others_are_missing(daemon: DaemonProcess) -> None:
    """Another principal can neither mark, list, restore nor pin."""
    async with daemon.connect() as client:
        run = await talk(client, "hello", session_key="own")
        mark = await client.checkpoint_session(run.session_id)
    async with somebody(daemon, "client", "eve") as eve:
        for request in (
            eve.checkpoint_session(run.session_id),
            eve.session_checkpoints(run.session_id),
            eve.restore_session(run.session_id, mark.checkpoint_id),
            eve.pin_message(run.session_id, run.run_id, 1),
        ):
            with pytest.raises(NotFound):
                await request


async def test_the_same_key_restores_once(daemon: DaemonProcess) -> None:
    """A repeated request gets the first branch, also from the next daemon."""
    async with daemon.connect() as client:
        run = await talk(client, "hello", session_key="once")
        mark = await client.checkpoint_session(run.session_id, idempotency_key="m")
        first = await client.restore_session(
            run.session_id, mark.checkpoint_id, idempotency_key="r"
        )
    await daemon.restart()
    async with daemon.connect() as client:
        assert mark == await client.checkpoint_session(run.session_id, idempotency_key="m")
        again = await client.restore_session(
            run.session_id, mark.checkpoint_id, idempotency_key="r"
        )
        assert (first.session_id, first.run_id) == (again.session_id, again.run_id)
        assert "done" == (await client.wait_run(again.run_id)).state


async def test_a_repeated_request_gets_the_first_answer(daemon: DaemonProcess) -> None:
    """A restore or compaction that is repeated with its key is answered alike, and done once."""
    async with daemon.connect() as client:
        first = await talk(client, "Never push to main.", session_key="repeated")
        mark = await client.checkpoint_session(first.session_id)
        asked = {"session_id": first.session_id, "idempotency_key": "repeat-restore"}
        asked["checkpoint_id"] = mark.checkpoint_id
        restored = [await client.call("session.restore", asked) for _ in range(2)]
        assert restored[0] == restored[1]
        assert restored[0]["checkpoint_id"] == mark.checkpoint_id
        asked = {"session_id": first.session_id, "idempotency_key": "repeat-compact"}
        compacted = [await client.call("session.compact", asked) for _ in range(2)]
        assert compacted[0] == compacted[1]
        await client.wait_run(compacted[0]["run_id"])
        assert 2 == len((await client.list_runs(session_id=first.session_id)).runs)
