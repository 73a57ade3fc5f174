"""What a run answered and what a session said can be read afterwards, against a real daemon."""

import re
from pathlib import Path

import pytest

from palyra.client import Client, ProgressItem, TapeEvent, connect
from palyra.core.session.commands import ANSWER_BYTES
from palyra.errors import IllegalState, InvalidParams
from tests.cli.command import palyra
from tests.cli.test_real_daemon import real_daemon
from tests.e2e.test_terminal import at_terminal

pytestmark = pytest.mark.real

FAST_ANSWERS = 50
ERASED = re.compile(r"[^\n]*\r\n\r(?!\n)")  # a line in progress that made room for the whole text
LONG = ANSWER_BYTES // 2 + 1  # characters of two bytes


async def answer(client: Client, text: str, key: str | None = None) -> str:
    """Start a run, wait for its end, and return its id."""
    started = await client.start_run(text, session_key=key)
    await client.wait_run(started.run_id)
    return started.run_id


async def test_answer_is_read_after_the_run(tmp_path: Path) -> None:
    """`runs show`, `wait` and `follow` print the answer; the exit codes are those of `palyra run`."""
    write = '/call write_file {"path": "a.txt", "content": "x"}\n/then\n/say tried'
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        whole = await answer(client, "/say two\n/say words")
        denied = await client.start_run(write, approval_mode="deny")
        await client.wait_run(denied.run_id)
        for command, code, run_id, text in (
            (("runs", "show"), 0, whole, "two\nwords\n"),
            (("runs", "wait"), 0, whole, "two\nwords\n"),
            (("runs", "follow"), 0, whole, "two\nwords\n"),
            (("runs", "show"), 0, denied.run_id, "tried\n"),
            (("runs", "wait"), 4, denied.run_id, "tried\n"),
            (("runs", "follow"), 4, denied.run_id, "tried\n"),
        ):
            done = await palyra(*command, run_id, home=daemon.home)
            assert (code, text) == (done.code, done.out[: len(text)]), command
        shown = await palyra("runs", "show", whole, "--json", home=daemon.home)
    assert "two\nwords" == shown.json["answer"]["text"]


async def test_the_last_to_do_list_is_read_after_the_run(tmp_path: Path) -> None:
    """`runs show` prints the list of the last call that changed it, and none of a run without one."""
    first, last = (
        f'/call update_todos {{"todos": [{{"text": "look", "state": "{state}"}}]}}'
        for state in ("pending", "done")
    )
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        listed = await answer(client, f"{first}\n/then\n{last}\n/then\n/say ready")
        plain = await answer(client, '/call echo {"text": "x"}\n/then\n/say ready')
        shown, other = [
            (await palyra("runs", "show", each, home=daemon.home)).out for each in (listed, plain)
        ]
    assert "to-do list, 1 of 1 done:\n  ✓ look\n" in shown
    assert "to-do list" not in other


async def test_long_answer_is_read_whole(tmp_path: Path) -> None:
    """`run.get` has the beginning of a long answer and its place on the tape; the clients have all of it."""
    text = "é" * LONG
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        run_id = await answer(client, f"/say {text}")
        run = await client.get_run(run_id)
        shown = await palyra("runs", "show", run_id, home=daemon.home)
        whole = await client.read_answer(run)
    assert run.answer is not None
    assert (True, 2 * LONG, ANSWER_BYTES) == (
        run.answer.is_cut,
        run.answer.bytes,
        len(run.answer.text.encode()),
    )
    assert text == whole
    assert f"{text}\n" in shown.out


async def test_run_without_an_answer_says_so(tmp_path: Path) -> None:
    """A run that waits has no answer yet, a failed one none, and a purged one no more."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        waits = await client.start_run('/call write_file {"path": "a.txt", "content": "x"}')
        await client.wait_run(waits.run_id, until="attention")
        open_one = await palyra("runs", "show", waits.run_id, home=daemon.home)
        left = await palyra("runs", "follow", waits.run_id, home=daemon.home)
        failed = await palyra("runs", "show", await answer(client, "/fail auth"), home=daemon.home)
        gone = await answer(client, "/say secret words", key="gone")
        await client.purge_session((await client.get_run(gone)).session_id)
        purged = await palyra("runs", "show", gone, home=daemon.home)
        await client.cancel(waits.run_id)
    assert f"palyra runs follow {waits.run_id}" in open_one.out
    assert 6 == left.code
    assert failed.out.startswith("no answer: ")
    assert purged.out.startswith("its content was purged")
    assert "secret words" not in purged.out


async def test_subscribed_start_misses_no_delta(tmp_path: Path) -> None:
    """The deltas of a run that was started with its subscription begin at 0 and have no gap, each time."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        for number in range(FAST_ANSWERS):
            async with client.run_events(f"/tokens {1 + number}") as (started, items):
                got = [item async for item in items]
            texts = [each for each in got if isinstance(each, ProgressItem) and each.kind == "text"]
            tape = [(each.run_id, each.seq) for each in got if isinstance(each, TapeEvent)]
            before = [len("".join(each.delta for each in texts[:n])) for n in range(len(texts))]
            assert before == [each.offset for each in texts]
            assert [(started.run_id, seq) for seq in range(len(tape))] == tape


async def test_fast_answer_is_printed_once(tmp_path: Path) -> None:
    """`palyra run` at a terminal prints a fast answer once, each of fifty times."""
    async with real_daemon(tmp_path) as daemon:
        for _ in range(FAST_ANSWERS):
            said = "/say I look at the failing tests first."
            async with at_terminal(daemon, "run", said) as (person, _process):
                screen = await person.see("done: answered")
            stays = ERASED.sub("", screen)
            assert 1 == stays.count("at the failing tests first."), screen


async def test_follower_of_a_running_turn_prints_it_once(tmp_path: Path) -> None:
    """`runs follow` that begins in the middle of a turn shows it live, and then prints all of it once."""
    lines = [f"line {number}." for number in range(60)]
    said = "\n".join(["/delay 30", *(f"/say {line}" for line in lines)])
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        async with client.run_events(said) as (started, items):
            while not isinstance(await anext(items), ProgressItem):
                pass
        async with at_terminal(daemon, "runs", "follow", started.run_id) as (person, _process):
            screen = await person.see("done: answered")
    committed = screen[screen.rindex("line 0.") :]  # what was seen live was taken back before
    assert [1] * len(lines) == [committed.count(line) for line in lines], screen


async def test_conversation_is_read_afterwards(tmp_path: Path) -> None:
    """`sessions show` prints who said what, each call with its outcome, and the answers, in order."""
    denied = '/call write_file {"path": "a.txt", "content": "x"}\n/then\n/say not allowed'
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        await answer(client, "/say one", key="news")
        await answer(client, "/call list_dir {}\n/then\n/say \x1b]0;two\x07", key="news")
        last = await client.start_run(denied, session_key="news", approval_mode="deny")
        await client.wait_run(last.run_id)
        whole = await palyra("sessions", "show", "news", home=daemon.home)
        end = await palyra("sessions", "show", "news", "--last", "1", home=daemon.home)
        read = await palyra("sessions", "show", "news", "--json", home=daemon.home)
        await client.purge_session(last.session_id)
        gone = await palyra("sessions", "show", last.session_id, home=daemon.home)
    places = [
        whole.out.rfind(text)
        for text in (
            "» operator: /say one\n\none\n",
            "✓ list_dir()",
            "two",
            "✗ write_file(",
            "not allowed\n",
        )
    ]
    assert -1 not in places, whole.out
    assert sorted(places) == places
    assert "\x1b" not in whole.out
    assert (False, True) == ("/say one" in end.out, "earlier exchanges are left out" in end.out)
    kinds = [[each["kind"] for each in found["entries"]] for found in read.json["exchanges"]]
    assert [
        ["message", "answer"],
        ["message", "call", "answer"],
        ["message", "call", "answer"],
    ] == kinds
    assert ("[purged" in gone.out, "not allowed" in gone.out) == (True, False)


async def test_open_question_is_shown_in_the_conversation(tmp_path: Path) -> None:
    """A run that waits says for what, with the commands that answer and follow it."""
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        started = await client.start_run('/call write_file {"path": "a.txt", "content": "x"}')
        await client.wait_run(started.run_id, until="attention")
        await client.steer(started.run_id, "rather not")
        shown = await palyra("sessions", "show", started.session_id, home=daemon.home)
        await client.cancel(started.run_id)
    assert "waits for a person, `palyra approvals show apr_" in shown.out
    assert "» operator (while it worked): rather not" in shown.out
    assert f"palyra runs follow {started.run_id}" in shown.out


async def test_resumed_chat_begins_with_the_conversation(tmp_path: Path) -> None:
    """`chat --resume` and `--continue` print name, workspace and the last exchanges before the prompt."""
    long = "\n".join(f"/say line {number}." for number in range(40))
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        await answer(client, "/say an old answer", key="parser")
        for _ in range(2):
            await answer(client, long, key="parser")
        await answer(client, "/say The bug is in the parser.", key="parser")
        for options in (("--resume", "parser"), ("--continue",)):
            async with at_terminal(daemon, "chat", *options) as (person, _process):
                screen = await person.see("idle")
                person.type("\x04")
            assert "parser in workspace default" in screen
            assert "The bug is in the parser." in screen
            told = screen.replace("/say an old answer", "")  # the title
            assert ("an old answer" in told, "line 39." in told) == (False, False)
            assert "has all of it" in screen


async def test_answer_of_a_task_is_read_in_its_session(tmp_path: Path) -> None:
    """What a prompt in the background answered is printed by `sessions show` with the key of its session."""
    work = {"text": "/say Five lines.", "session_key": "news", "approval_mode": "deny"}
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        async with client.notices() as notices:
            task = await client.submit_task("prompt", work)
            while (await client.get_task(task.task_id)).state in {"queued", "running"}:
                await anext(notices)
        shown = await palyra("sessions", "show", "news", home=daemon.home)
    assert "/say Five lines.\n\nFive lines.\n" in shown.out


async def test_session_has_the_first_words_as_title(tmp_path: Path) -> None:
    """A session is listed with the first words of its first message, or a given title; a purge removes either."""
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    async with real_daemon(tmp_path) as daemon, connect(home=daemon.home) as client:
        first = await client.start_run(f"/say the\n token {secret} {'and more ' * 20}")
        await client.wait_run(first.run_id)
        again = await client.start_run("/say later", session_id=first.session_id)
        await client.wait_run(again.run_id)
        title = (await client.get_session(first.session_id)).title
        listed = await palyra("sessions", "list", home=daemon.home)
        named = await palyra("sessions", "rename", first.session_id, "Our\n plan", home=daemon.home)
        third = await client.start_run("/say more", session_id=first.session_id)
        await client.wait_run(third.run_id)
        given = (await client.get_session(first.session_id)).title
        with pytest.raises(InvalidParams, match="secret"):
            await client.rename_session(first.session_id, secret)
        await client.purge_session(first.session_id)
        purged = await client.get_session(first.session_id)
        with pytest.raises(IllegalState, match="keeps no title"):
            await client.rename_session(first.session_id, "again")
    assert title.startswith("/say the token [")
    assert (60, False) == (len(title), secret[:8] in title)
    assert title in listed.out
    assert (0, "Our plan") == (named.code, given)
    assert not purged.title
