"""`palyra tape`: reading, exporting, and proving an export without a daemon."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from palyra.core.journal.tape_row import GENESIS, TapeRow, link
from palyra.core.tape.events import (
    Event,
    MessageCompleted,
    MessageReceived,
    RunDone,
    ToolCompleted,
    encode_event,
)
from palyra.core.tape.export import ExportLine, claim
from tests.cli.command import palyra
from tests.client.fake_daemon import RUN, SESSION, Connection, FakeDaemon, Json, fake_daemon
from tests.core.replay.test_replay import change, find, story
from tests.core.run.fates import rows

pytestmark = pytest.mark.real

EVENTS = (MessageReceived(text="hi"), MessageCompleted(text="a\x1bb"), RunDone(reason="answered"))
KEY = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
PUBLIC = KEY.public_key().public_bytes_raw().hex()
PAGE_ROWS = 2  # of the fake


def make_lines() -> list[tuple[bytes, bytes]]:
    """Each event as an export line, with its link."""
    lines, prev = [], GENESIS
    for seq, event in enumerate(EVENTS):
        row = TapeRow(
            run_id=RUN,
            session_id=SESSION,
            seq=seq,
            at_ms=seq,
            kind=event.KIND,
            principal="owner",
            redacted=False,
            data=encode_event(event),
        )
        prev = link(prev, seq + 1, row)
        fields = {**msgspec.structs.asdict(row), "data": msgspec.Raw(row.data)}
        line = ExportLine(**fields, position=seq + 1, hash=prev.hex())
        lines.append((msgspec.json.encode(line), prev))
    return lines


def export_page(_connection: Connection, params: Json) -> object:
    """`tape.export` as the daemon does it, in small pages; the last one is empty."""
    start = params["after_seq"] + 1
    page = make_lines()[start : start + PAGE_ROWS]
    last_seq = start + len(page) - 1
    return {
        "run_id": RUN,
        "ndjson": "".join(line.decode() + "\n" for line, _ in page),
        "public_key": PUBLIC,
        "signature": KEY.sign(claim(RUN, last_seq, page[-1][1])).hex() if page else "",
        "next_after_seq": last_seq if page else None,
    }


def read_page(_connection: Connection, params: Json, events: Sequence[Event] = EVENTS) -> object:
    """`tape.read`, one event a page."""
    seq = params["after_seq"] + 1
    event = events[seq]
    row = {
        "run_id": RUN,
        "session_id": SESSION,
        "seq": seq,
        "at_ms": 1_000 + 250 * seq,
        "kind": event.KIND,
        "data": msgspec.Raw(encode_event(event)),
    }
    is_last = seq == len(events) - 1
    return {
        "events": [row],
        "head_seq": len(events) - 1,
        "floor_seq": 0,
        "bytes": 0,
        "next_after_seq": None if is_last else seq,
    }


async def export_to(path: Path, daemon: FakeDaemon) -> None:
    daemon.answers["tape.export"] = export_page
    exported = await palyra("tape", "export", RUN, "-o", str(path), url=daemon.url)
    assert (0, "") == (exported.code, exported.err)


def names(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


async def test_show_prints_every_event() -> None:
    """`tape show` prints each event of every page with its seq, time and text, escaped."""
    async with fake_daemon() as daemon:
        daemon.answers["tape.read"] = read_page
        shown = await palyra("tape", "show", RUN, url=daemon.url)
    assert [
        "   0    0.000 s  message.received    hi",
        "   1    0.250 s  message.completed   a\\u001bb",
        "   2    0.500 s  run.done            done: answered",
    ] == shown.out.splitlines()


@pytest.mark.parametrize("is_full", [False, True])
async def test_show_keeps_the_lines_of_a_text(*, is_full: bool) -> None:
    """The last 20 lines of a text stand below its event, or all; controls are escaped, newlines kept."""
    text = "\n".join([*(f"row {number}" for number in range(30)), "  in\x1b[2J"])
    async with fake_daemon() as daemon:
        events = (
            ToolCompleted(call_id="c", status="failed", output=text),
            MessageCompleted(text="short"),
            MessageCompleted(text="w" * 500),
        )
        daemon.answers["tape.read"] = partial(read_page, events=events)
        options = ["--full"] if is_full else []
        done = await palyra("tape", "show", RUN, *options, url=daemon.url)
    rows = [line.strip() for line in done.out.splitlines()]
    assert is_full == ("row 10" in rows)
    assert is_full == (f"… 11 lines before these: palyra tape show --full {RUN}" not in rows)
    assert {"row 11", "row 29", "in\\u001b[2J", "w" * 500} <= {*rows}
    assert any(row.endswith("message.completed   short") for row in rows)


async def test_show_as_json_is_complete() -> None:
    """With --json each line is the event as the wire has it."""
    async with fake_daemon() as daemon:
        daemon.answers["tape.read"] = read_page
        shown = await palyra("tape", "show", RUN, "--json", "--after", "0", url=daemon.url)
    lines = [msgspec.json.decode(line) for line in shown.out.splitlines()]
    assert [1, 2] == [line["seq"] for line in lines]
    assert {"text": "a\x1bb", "calls": []} == lines[0]["data"]


async def test_export_proves_itself_offline(tmp_path: Path) -> None:
    """An exported file verifies without a daemon, with the key it was sealed with."""
    file = tmp_path / "run.ndjson"
    async with fake_daemon() as daemon:
        await export_to(file, daemon)
    verified = await palyra("tape", "verify", str(file), "--key", PUBLIC)
    assert (0, f"intact: 3 events of {RUN}, 0 attestations") == (
        verified.code,
        verified.out.splitlines()[0],
    )


async def test_a_failed_export_leaves_the_file_alone(tmp_path: Path) -> None:
    """Evidence of before survives an export that fails; one that succeeds replaces it."""
    file = tmp_path / "run.ndjson"
    file.write_text("evidence")
    file.chmod(0o600)
    async with fake_daemon() as daemon:
        failed = await palyra("tape", "export", RUN, "-o", str(file), url=daemon.url)
        assert (1, "evidence") == (failed.code, file.read_text())
        await export_to(file, daemon)
    assert "evidence" not in file.read_text()
    assert (0o100600, [file.name]) == (file.stat().st_mode, names(tmp_path))


async def test_a_key_from_the_file_itself_is_reported(tmp_path: Path) -> None:
    """Without another key the verdict says so."""
    file = tmp_path / "run.ndjson"
    async with fake_daemon() as daemon:
        await export_to(file, daemon)
    verified = await palyra("tape", "verify", str(file))
    assert 0 == verified.code
    assert "taken from the file itself" in verified.out


async def test_a_missing_file_is_one_line() -> None:
    """A name that is neither a file nor a run id is wrong usage; no daemon is asked."""
    for command in ("verify", "replay"):
        refused = await palyra("tape", command, "gone.ndjson")
        assert 2 == refused.code
        assert "'gone.ndjson' is neither a file nor a run id" in refused.err


async def test_key_of_the_home_is_trusted(tmp_path: Path) -> None:
    """Without --key the home's public key is what an export must be sealed with."""
    file = tmp_path / "run.ndjson"
    async with fake_daemon() as daemon:
        await export_to(file, daemon)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "signing.pub").write_text("00" * 32)
    refused = await palyra("tape", "verify", str(file), "--json", home=tmp_path)
    assert 1 == refused.code
    assert "another key" in refused.json["problem"]


async def test_edited_export_is_found(tmp_path: Path) -> None:
    """A changed byte in an exported file is found and its seq named."""
    file = tmp_path / "run.ndjson"
    async with fake_daemon() as daemon:
        await export_to(file, daemon)
    file.write_bytes(file.read_bytes().replace(b'"text":"hi"', b'"text":"ho"'))
    verified = await palyra("tape", "verify", str(file), "--key", PUBLIC)
    assert 1 == verified.code
    assert "NOT INTACT at seq 0" in verified.out


async def test_another_file_is_not_an_export(tmp_path: Path) -> None:
    """It is not reported as a truncated export."""
    file = tmp_path / "passwd"
    for content in (b"root:x:0:0\n", b"", b"\x00\xff"):
        file.write_bytes(content)
        found = await palyra("tape", "verify", str(file))
        assert 1 == found.code
        assert "is not an export of a run" in found.err
        assert "palyra tape export" in found.err


async def test_neither_file_nor_run() -> None:
    """A name that is neither a file nor a run id is wrong usage, not a missing run."""
    found = await palyra("tape", "verify", "nothing.ndjson")
    assert 2 == found.code
    assert "'nothing.ndjson' is neither a file nor a run id" in found.err


async def test_key_must_be_one(tmp_path: Path) -> None:
    """A --key that is no public key is wrong usage."""
    file = tmp_path / "run.ndjson"
    file.write_text("")
    assert 2 == (await palyra("tape", "verify", str(file), "--key", "abc")).code


def write_story(path: Path, *, answer: str | None = None) -> None:
    """An exported run with tools, people and a restart, with another answer if one is given."""
    tape = rows(story())
    if answer is not None:
        tape = change(tape, find(tape, "message.completed"), text=answer)
    lines, prev = [], GENESIS
    for row in tape:
        prev = link(prev, row.seq + 1, row)
        fields = {**msgspec.structs.asdict(row), "data": msgspec.Raw(row.data)}
        line = ExportLine(**fields, position=row.seq + 1, hash=prev.hex())
        lines.append(msgspec.json.encode(line) + b"\n")
    path.write_bytes(b"".join(lines))


async def test_a_file_is_replayed_without_a_daemon(tmp_path: Path) -> None:
    """An exported run follows from what came from outside; the digests say so."""
    file = tmp_path / "run.ndjson"
    write_story(file)
    replayed = await palyra("tape", "replay", str(file), "--json")
    assert (0, True) == (replayed.code, replayed.json["matched"])
    assert replayed.json["recorded_digest"] == replayed.json["replayed_digest"]


async def test_a_changed_answer_in_a_file_is_the_first_divergence(tmp_path: Path) -> None:
    """The event, both texts and a failing exit code."""
    file = tmp_path / "run.ndjson"
    write_story(file, answer="something else")
    replayed = await palyra("tape", "replay", str(file))
    assert 1 == replayed.code
    first, _, recorded, found = replayed.out.splitlines()
    assert "DIVERGES at seq" in first
    assert "message.completed, text" in first
    assert recorded.endswith("something else")
    assert found.endswith("the answer")


async def test_an_invalid_export_is_one_line(tmp_path: Path) -> None:
    """Another file, and a part of an export, are refused with the place."""
    file = tmp_path / "run.ndjson"
    file.write_text("not json\n")
    refused = await palyra("tape", "replay", str(file))
    assert (1, 1) == (refused.code, len(refused.err.splitlines()))
    assert "line 1" in refused.err
    write_story(file)
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))
    refused = await palyra("tape", "replay", str(file))
    assert "whole tape" in refused.err


async def test_strict_replays_ask_the_daemon(tmp_path: Path) -> None:
    """The rules are the daemon's: a file has none, a run is replayed there."""
    file = tmp_path / "run.ndjson"
    write_story(file)
    assert 2 == (await palyra("tape", "replay", str(file), "--strict")).code
    async with fake_daemon() as daemon:
        daemon.answers["run.replay"] = lambda _connection, params: {
            "run_id": RUN,
            "matched": True,
            "strict": params["strict"],
            "events": 3,
            "recorded_digest": "d",
            "replayed_digest": "d",
            "unjudged": [7],
        }
        replayed = await palyra("tape", "replay", RUN, "--strict", url=daemon.url)
    assert 0 == replayed.code
    assert f"matches: 3 events of {RUN}" in replayed.out
    assert "seq 7" in replayed.out
