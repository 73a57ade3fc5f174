"""Suggested rules of a real daemon: from answers to a rule in force, and back."""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Literal

import pytest
import trio

from palyra.client import Client
from palyra.errors import Forbidden
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import ask_for, somebody, write_call

pytestmark = pytest.mark.real

WITHIN_S = 120.0  # a bound against hanging, not a promise
LOOK_S = 0.05


@pytest.fixture
def daemon(tmp_path: Path) -> Generator[DaemonProcess]:
    """A daemon of one test, without a folder of policies."""
    with running(tmp_path) as process:
        yield process


async def answer(client: Client, path: str, decision: Literal["allow", "deny"]) -> None:
    """Have a run ask for writing the file, and answer."""
    asked = await ask_for(client, write_call(path))
    await client.resolve_approval(asked.approval_id, decision, asked.digest)
    await client.wait_run(asked.run_id)


async def wait_explained(client: Client, path: str, wanted: str) -> None:
    """Return when the daemon would give that answer."""
    given = {"path": path, "content": "x"}
    with trio.fail_after(WITHIN_S):
        while (await client.explain_policy("write_file", given)).answer != wanted:  # noqa: ASYNC110 - another process
            await trio.sleep(LOOK_S)


async def test_a_suggestion_is_applied_and_undone(daemon: DaemonProcess) -> None:
    """Three answers make a rule that answers a fourth call; a denied path is in no rule."""
    async with daemon.connect() as client:
        assert (await client.suggest_policies()).suggestions == ()
        for _ in range(3):
            await answer(client, "notes/a.txt", "allow")
            await answer(client, "notes/b.txt", "deny")
        found = await client.suggest_policies()
        assert ["write_file: notes/a.txt"] == [each.title for each in found.suggestions]
        assert (3, 3, 0) == (found.proof.allowed, found.proof.denied, found.proof.unanswered)
        assert 3 == len({call.run_id for call in found.suggestions[0].calls})
        applied = await client.apply_suggestion(found.suggestions[0].suggestion_id)
        assert found.suggestions[0].calls[0].run_id in applied.cedar
        await wait_explained(client, "notes/a.txt", "allow")
        await wait_explained(client, "notes/b.txt", "ask")
        after = await client.suggest_policies()
        assert ((), (applied,)) == (after.suggestions, after.applied)
        await client.undo_suggestion()
        await wait_explained(client, "notes/a.txt", "ask")
        assert not await trio.Path(applied.file).exists()


async def test_only_an_operator_may_ask(daemon: DaemonProcess) -> None:
    """No other role sees or changes rules that way."""
    async with somebody(daemon, "approver") as approver:
        with pytest.raises(Forbidden):
            await approver.suggest_policies()
        with pytest.raises(Forbidden):
            await approver.apply_suggestion("sug_0123456789abcdef")
        with pytest.raises(Forbidden):
            await approver.undo_suggestion()


async def test_the_rule_of_one_call_is_written_and_undone(daemon: DaemonProcess) -> None:
    """The narrowest rule answers exactly this path, names its reach, and an undo removes it."""
    async with daemon.connect() as client:
        await answer(client, "notes/a.txt", "allow")
        await answer(client, "notes/b.txt", "allow")
        asked = await ask_for(client, write_call("notes/a.txt", "later"))
        shown = await client.find_rule_for(asked.approval_id)
        assert ("", 1, 1) == (shown.file, shown.calls, shown.asked)
        written = await client.allow_from(asked.approval_id)
        assert (await trio.Path(written.file).read_text("utf-8")).endswith(shown.cedar)
        await wait_explained(client, "notes/a.txt", "allow")
        await wait_explained(client, "notes/b.txt", "ask")
        await client.undo_suggestion(written.suggestion_id)
        await wait_explained(client, "notes/a.txt", "ask")


async def test_a_rule_against_a_denial_is_refused(daemon: DaemonProcess) -> None:
    """A denied path gets no rule, and the reason says what would work; nothing is written."""
    async with daemon.connect() as client:
        await answer(client, "notes/a.txt", "deny")
        asked = await ask_for(client, write_call("notes/a.txt"))
        found = await client.allow_from(asked.approval_id)
        assert found.refused.startswith("a person denied a call")
        assert () == (await client.suggest_policies()).applied


async def test_only_an_operator_writes_rules(daemon: DaemonProcess) -> None:
    """A client may not write the rule of its own call."""
    async with somebody(daemon, "client") as client:
        asked = await ask_for(client, write_call("notes/a.txt"))
        with pytest.raises(Forbidden):
            await client.allow_from(asked.approval_id)


async def test_the_rule_of_a_patch_is_for_its_files_alone(daemon: DaemonProcess) -> None:
    """A patch of two files gets a rule for these two, or one of them, and for no other of the folder."""
    lines = "".join(f"*** Add File: notes/{name}.txt\n+x\n" for name in "ab")
    patch = f"*** Begin Patch\n{lines}*** End Patch\n"
    async with daemon.connect() as client:
        asked = await ask_for(client, f"/call apply_patch {json.dumps({'patch': patch})}")
        found = await client.find_rule_for(asked.approval_id)
    assert "apply_patch: notes/a.txt, notes/b.txt" == found.title
    assert '["notes/a.txt", "notes/b.txt"].containsAll(context.paths)' in found.cedar
    assert "context.folders" not in found.cedar
