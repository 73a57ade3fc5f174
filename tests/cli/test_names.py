"""Short names of records, numbers of the last listing, `--since`, `--watch` and completion."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import cast, get_args

import click
import msgspec
import pytest
import trio

from palyra.cli.command import last_listing
from palyra.cli.command.errors import LISTS, CommandFailed
from palyra.cli.command.names import LATEST, LISTINGS, IdType, find_id, is_short
from palyra.cli.command.output import now_ms
from palyra.cli.main import COMMANDS, cli
from palyra.client import Client
from palyra.core.ids import Prefix
from tests.cli.command import WITHIN_S, Result, environment, palyra, start_palyra
from tests.client.fake_daemon import RUN_VIEW, FakeDaemon, Json, fake_daemon
from tests.forked import run_forked
from tests.rows import every_row

RUNS = [f"run_018f0000-0000-7000-8000-00000000{end}" for end in ("ab12", "cd12", "cd34")]
TASK_IDS = ["tsk_018f0000-0000-7000-8000-00000000ab12"]
READS = {"show", "history", "next", "print", "context"}
OF_RUNS = "run_id"


def run_rows(ids: list[str], *, at_ms: int = 1) -> Json:
    """A page of `run.list`."""
    return {"runs": [{**RUN_VIEW, "run_id": each, "created_ms": at_ms} for each in ids]}


def with_runs(daemon: FakeDaemon) -> FakeDaemon:
    """A daemon with three runs that shows the run that it is asked for."""
    daemon.reply_with("run.list", run_rows(RUNS))
    daemon.answers["run.get"] = lambda _connection, params: {**RUN_VIEW, "run_id": params["run_id"]}
    return daemon


async def show(*arguments: str) -> tuple[Result, list[str]]:
    """Call the command; return its result and the methods that it asked for."""
    async with fake_daemon() as daemon:
        result = await palyra(*arguments, url=with_runs(daemon).url)
        return result, daemon.methods()


@every_row("short", ["latest", "1", "500", "ab12", "0123456789ab"])
def test_short_names(short: str) -> None:
    """`latest`, a row and an ending of four to twelve digits are short names."""
    assert is_short(short)


@every_row(
    "text", ["", "Latest", "abc", "ABCD", "run_ab12", "0123456789abc", "-1", "x123", RUNS[0]]
)
def test_other_texts_are_no_short_names(text: str) -> None:
    """Whole ids and all else reach the command unchanged."""
    assert not is_short(text)


@pytest.mark.real
async def test_an_ending_names_the_run() -> None:
    """The command is called with the whole id."""
    result, _ = await show("runs", "show", "ab12", "--json")
    assert (0, RUNS[0]) == (result.code, result.json["run_id"])


@pytest.mark.real
async def test_latest_names_the_newest_run() -> None:
    """Listings are newest first."""
    result, _ = await show("runs", "show", LATEST, "--json")
    assert RUNS[0] == result.json["run_id"]


@pytest.mark.real
@pytest.mark.parametrize(
    ("short", "problem"),
    [
        ("ffff", "none of the newest 3 ids ends with 'ffff'"),
        ("0012", "none of the newest 3 ids ends with '0012'"),
        ("7", "has 0 rows, and no number 7"),
    ],
)
async def test_a_name_without_a_record_is_refused(short: str, problem: str) -> None:
    """The message says what was searched, and which command lists the ids."""
    result, methods = await show("runs", "show", short)
    assert 2 == result.code
    assert problem in result.err
    assert "`palyra runs list`" in result.err
    assert "run.get" not in methods


async def find_schedule(name: str, *names: str) -> str:
    """The id that a name means, with schedules of those names."""
    rows = [SimpleNamespace(schedule_id=f"sch_{at}", name=each) for at, each in enumerate(names)]

    async def list_schedules() -> list[SimpleNamespace]:
        await trio.lowlevel.checkpoint()
        return rows

    client = cast("Client", SimpleNamespace(list_schedules=list_schedules))
    return await find_id(client, name, "schedule_id")


async def test_a_schedule_is_named_by_its_name() -> None:
    """A name is looked for before other short names; one that is not there is left to the daemon."""
    assert "sch_1" == await find_schedule("nightly", "weekly", "nightly")
    assert "sch_1" == await find_schedule("1234", "nightly1234", "1234")
    assert "sch_1" == await find_schedule("latest", "a", "b")
    assert "nosuch" == await find_schedule("nosuch", "a")
    with pytest.raises(CommandFailed, match="2 have the name 'twice': sch_0, sch_1"):
        await find_schedule("twice", "twice", "twice")


@pytest.mark.real
async def test_an_ambiguous_ending_is_refused() -> None:
    """An ending of two runs names both."""
    async with fake_daemon() as daemon:
        with_runs(daemon).reply_with("run.list", run_rows([RUNS[0], f"{RUNS[1][:-4]}ab12"]))
        result = await palyra("runs", "cancel", "ab12", url=daemon.url)
    assert 2 == result.code
    assert f"2 ids end with 'ab12': {RUNS[0]}, {RUNS[1][:-4]}ab12" in result.err
    assert "run.cancel" not in daemon.methods()


@pytest.mark.real
async def test_a_whole_id_needs_no_listing() -> None:
    """Scripts pay nothing for short names."""
    result, methods = await show("runs", "show", RUNS[2])
    assert 0 == result.code
    assert "run.list" not in methods


@pytest.mark.real
async def test_an_answer_takes_no_latest() -> None:
    """Another approval may have become the latest since the person read it."""
    result, methods = await show("approvals", "allow", LATEST)
    assert (2, []) == (result.code, methods)
    assert "takes no `latest`" in result.err


def id_types() -> list[tuple[str, str, IdType]]:
    """Every argument that takes short names: noun, verb, type."""
    found = []
    for noun in COMMANDS:
        command = cli.get_command(click.Context(cli), noun)
        verbs = command.commands if isinstance(command, click.Group) else {noun: command}
        for verb, each in verbs.items():
            assert each is not None
            found += [(noun, verb, p.type) for p in each.params if isinstance(p.type, IdType)]
    return found


def test_latest_is_for_reading_and_for_runs() -> None:
    """A command that changes any record but a run needs the record's own name."""
    for noun, verb, kind in id_types():
        takes = _takes_latest(kind)
        assert not takes or verb in READS or kind.field == OF_RUNS, f"palyra {noun} {verb}"


def _takes_latest(kind: IdType) -> bool:
    try:
        kind.convert(LATEST, None, None)
    except click.UsageError:
        return False
    return True


def test_every_argument_of_an_id_has_a_listing() -> None:
    """A remedy names the command that lists the ids."""
    fields = {kind.field for _, _, kind in id_types()}
    assert fields <= set(LISTINGS)
    assert set(LISTINGS) <= set(LISTS)
    assert {each.prefix for each in LISTINGS.values()} <= {*get_args(Prefix), "grt"}


@pytest.mark.real
async def test_since_leaves_out_older_runs() -> None:
    """Rows before that time are left out, and no further page is offered."""
    page = run_rows(RUNS)
    page["runs"][0]["created_ms"] = now_ms()
    page["next_cursor"] = RUNS[2]
    async with fake_daemon() as daemon:
        daemon.reply_with("run.list", page)
        recent = await palyra("runs", "list", "--since", "1h", "--json", url=daemon.url)
        every = await palyra("runs", "list", "--json", url=daemon.url)
    assert [RUNS[0]] == [each["run_id"] for each in recent.json["runs"]]
    assert (None, RUNS[2]) == (recent.json["next_cursor"], every.json["next_cursor"])
    assert RUNS == [each["run_id"] for each in every.json["runs"]]


@pytest.mark.real
async def test_watch_needs_a_terminal() -> None:
    """A pipe would never end."""
    result, methods = await show("runs", "list", "--watch")
    assert (2, []) == (result.code, methods)
    assert "--watch needs a terminal" in result.err


@pytest.mark.real
async def test_watch_ends_with_ctrl_c(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing is shown at once, and Ctrl-C is the usual end."""
    monkeypatch.setenv(last_listing.STATE_VARIABLE, str(tmp_path))
    async with fake_daemon() as daemon:
        terminal = Terminal(with_runs(daemon).url)
        process = start_palyra("runs", "list", "--watch", terminal=terminal.theirs, url=daemon.url)
        shown = ""
        with trio.fail_after(WITHIN_S), process.until_killed():
            while RUNS[2] not in shown:
                shown += await terminal.read()
            process.send_signal(signal.SIGINT)
            code = await process.ended()
        terminal.close()
    assert 0 == code
    assert "error" not in shown


class Terminal:
    """A pseudo terminal with commands that run on it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.ours, self.theirs = os.openpty()

    def close(self) -> None:
        """Close both ends."""
        os.close(self.ours)
        os.close(self.theirs)

    async def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command to its end; return its exit code and what the terminal showed."""
        process = start_palyra(*arguments, terminal=self.theirs, url=self.url)
        with trio.fail_after(WITHIN_S), process.until_killed():
            code = await process.ended()
        return code, await self.read()

    async def read(self) -> str:
        """Return what the terminal shows next."""
        return (await trio.to_thread.run_sync(os.read, self.ours, 65_536)).decode()


@pytest.mark.real
async def test_a_number_names_the_row_of_the_last_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a terminal rows have numbers, which later commands there take; another terminal's do not."""
    monkeypatch.setenv(last_listing.STATE_VARIABLE, str(tmp_path))
    async with fake_daemon() as daemon:
        here, there = Terminal(with_runs(daemon).url), Terminal(daemon.url)
        _, listed = await here.run("runs", "list")
        daemon.reply_with("run.list", run_rows(RUNS[::-1]))
        _, other = await there.run("runs", "list")
        code, shown = await here.run("runs", "show", "2")
        _, third = await there.run("runs", "show", "1")
        refused, problem = await here.run("runs", "show", "4")
        here.close()
        there.close()
    assert f"1  {RUNS[0]}" in listed
    assert f"1  {RUNS[2]}" in other
    assert (0, True, True) == (code, RUNS[1] in shown, RUNS[2] in third)
    assert 2 == refused
    assert "has 3 rows, and no number 4" in problem
    assert 0o700 == (tmp_path / "palyra").stat().st_mode & 0o777


def test_damaged_listings_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another program wrote is replaced by the next listing."""
    monkeypatch.setenv(last_listing.STATE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(last_listing, "_terminal", lambda: "/dev/pts/1")
    (tmp_path / "palyra").mkdir()
    (tmp_path / "palyra" / "listings.json").write_text("{broken")
    assert [] == last_listing.last_listing("run")
    assert last_listing.remember_listing(RUNS)
    assert RUNS == last_listing.last_listing("run")


def test_only_ids_of_one_kind_are_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names, and ids of two kinds, get no numbers; neither does a listing that cannot be kept."""
    monkeypatch.setenv(last_listing.STATE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(last_listing, "_terminal", lambda: "/dev/pts/1")
    assert last_listing.remember_listing(RUNS)
    assert not last_listing.remember_listing(["default", "scout"])
    assert not last_listing.remember_listing([*RUNS, *TASK_IDS])
    assert RUNS == last_listing.last_listing("run")
    assert last_listing.remember_listing(TASK_IDS)
    assert (RUNS, TASK_IDS) == (last_listing.last_listing("run"), last_listing.last_listing("tsk"))
    monkeypatch.setenv(last_listing.STATE_VARIABLE, "/proc/none")
    assert not last_listing.remember_listing(RUNS)


def test_the_oldest_terminals_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file holds the listings of the newest terminals."""
    monkeypatch.setenv(last_listing.STATE_VARIABLE, str(tmp_path))
    for number in range(last_listing.MAX_TERMINALS + 2):
        monkeypatch.setattr(last_listing, "_terminal", lambda name=f"/dev/pts/{number}": name)
        last_listing.remember_listing(RUNS)
    kept = msgspec.json.decode((tmp_path / "palyra" / "listings.json").read_bytes())
    assert [f"/dev/pts/{each + 2}" for each in range(last_listing.MAX_TERMINALS)] == list(kept)


@pytest.mark.real
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_completion_prints_a_script(shell: str) -> None:
    """The script asks `palyra` itself for the words."""
    result = await palyra("completion", shell)
    assert (0, "") == (result.code, result.err)
    assert f"_PALYRA_COMPLETE={shell}_complete" in result.out


async def complete(words: str, url: str | None = None) -> list[str]:
    """Return the words that bash is offered after `words`."""
    variables = environment(Path("/nonexistent"), url) | {
        "_PALYRA_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    with trio.fail_after(WITHIN_S):
        _, out, _ = await run_forked((), variables, b"")
    return [line.partition(",")[2] for line in out.decode().split()]


@pytest.mark.real
async def test_completion_offers_ids() -> None:
    """Ids that begin with the typed text, and `latest` where it is taken; none without a daemon."""
    async with fake_daemon() as daemon:
        url = with_runs(daemon).url
        every = await complete("palyra runs show ", url)
        fitting = await complete(f"palyra runs show {RUNS[0][:-2]}", url)
        await complete("palyra approvals allow ", url)
    assert [LATEST, *RUNS] == every
    assert [RUNS[0]] == fitting
    assert [] == await complete("palyra runs show ")
    assert ["show"] == await complete("palyra runs sh")
