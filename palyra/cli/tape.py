"""`palyra tape`: show, export, verify and replay the tapes of runs.

A tape is the committed, signed sequence of a run's events.  Verifying checks its integrity: hash
chain, signatures and seal.  Replaying checks its consistency: the decisions are computed again from
the recorded inputs and compared with the recorded decisions.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from palyra.cli.command.errors import FAILED, CommandFailed
from palyra.cli.command.names import find_id, id_argument, is_short
from palyra.cli.command.options import GivenPath, replace_file, shared_options
from palyra.cli.command.output import print_json, print_json_line, print_table, say, write
from palyra.cli.command.talk import Options, talk
from palyra.cli.view.event_text import narrate, to_json
from palyra.client import Client, TapeEvent, export_run
from palyra.core.ids import is_id
from palyra.core.incident.incident import UNRESOLVED
from palyra.core.journal.changes import ChainViolation, VerifyReport
from palyra.core.replay.report import ReplayReport
from palyra.core.tape.export import ExportReport, verify_export
from palyra.core.text.visible import pluralize
from palyra.errors import PalyraError, Unreadable
from palyra.net.protocol.discovery import find_home

PAGE_ROWS = 500
STEPS = 1_000
BODY_LINES = 20  # of one text
BREAKS = {  # kind of a break -> text
    "edited": "an event was changed",
    "missing": "events are missing",
    "inserted": "an event was added",
    "reordered": "an event was moved",
    "truncated": "the end is missing",
    "root": "a signed root does not fit",
}
PUBLIC_KEY_PATH = Path("keys", "signing.pub")


@click.group()
def tape() -> None:
    """Read, verify, replay and export tapes."""


@tape.command()
@id_argument("run_id")
@click.option(
    "--after", "after_seq", type=click.IntRange(-1), default=-1, help="Only events after this seq."
)
@click.option("--full", "is_full", is_flag=True, help="Texts and outputs with all their lines.")
@shared_options
def show(options: Options, run_id: str, after_seq: int, *, is_full: bool) -> None:
    """Show the events of a run; with --json one a line, complete.

    Lines of a text or of an output follow its event: the last 20, or all with --full.
    """
    limit = None if is_full else BODY_LINES
    as_json = options.as_json
    talk(options, lambda client: _show_events(client, run_id, after_seq, limit, as_json=as_json))


async def _show_events(
    client: Client, run_id: str, after_seq: int, limit: int | None, *, as_json: bool
) -> None:
    """Print all committed events with a seq above `after_seq`, page by page."""
    start_ms: int | None = None
    cursor: int | None = after_seq
    while cursor is not None:
        page = await client.read_tape(run_id, cursor, limit=PAGE_ROWS)
        cursor = page.next_after_seq
        for event in page.events:
            start_ms = event.at_ms if start_ms is None else start_ms
            if as_json:
                print_json_line(to_json(event))
            else:
                _print_event(event, start_ms, limit)


def _print_event(event: TapeEvent, start_ms: int, limit: int | None) -> None:
    line = narrate(event, limit)
    past_s = (event.at_ms - start_ms) / 1000
    say(f"{event.seq:>4} {past_s:>8.3f} s  {event.kind:<19} {line.text}", fg=line.colour)
    for each in line.lines:
        say(f"{'':<7}{each}", dim=True)


@tape.command()
@id_argument("run_id")
@click.option(
    "-o",
    "--output",
    type=GivenPath(allow_dash=True, dir_okay=False),
    default="-",
    help="File to replace once the export is complete; - is standard output.",
)
@shared_options
def export(options: Options, run_id: str, output: Path) -> None:
    """Write a run's tape as sealed NDJSON, which `palyra tape verify FILE` checks offline."""
    exported = talk(options, lambda client: export_run(client, run_id))
    if str(output) == "-":
        write(exported.encode())
    else:
        replace_file(output, exported.encode())


@tape.command()
@click.argument("what", required=False, metavar="[FILE | RUN_ID]")
@click.option("--key", help="The daemon's public key (hex), or a file that holds it.")
@shared_options
def verify(options: Options, what: str | None, key: str | None) -> None:
    """Verify an exported FILE offline, or ask the daemon to verify a run or its whole journal.

    Offline the key is --key, else the one in the home directory (keys/signing.pub).
    """
    if what is not None and Path(what).is_file():
        trusted = find_key(options.home, key)
        _print_offline(options, verify_file(Path(what), trusted), is_trusted=trusted is not None)
        return
    if what is not None:
        what = _find_run_id(options, what)
    if key is not None:
        raise click.UsageError("--key goes with a FILE; the daemon verifies with its own")
    report, noticed = talk(options, lambda client: _verify_online(client, what))
    _print_online(options, report, noticed)


async def _verify_online(client: Client, run_id: str | None) -> tuple[VerifyReport, list[str]]:
    """Verify a run or the journal; return the report and the breaks named by open incidents.

    The check at a daemon's start can detect breaks that a later verification cannot.
    """
    report = await client.verify_tape(run_id)
    if report.first_break is None or run_id is not None:
        return report, []
    try:
        page = await client.list_incidents(states=UNRESOLVED, limit=PAGE_ROWS)
    except PalyraError:  # the token may lack the scope
        return report, []
    broken = [each for each in page.incidents if each.key.startswith("chain_broken:")]
    return report, [str(each.evidence.get("detail", each.summary)) for each in broken]


def _find_run_id(options: Options, what: str) -> str:
    """Return the run id, also for a short name; raise a usage error for a text that is neither."""
    if is_short(what):
        return talk(options, lambda client: find_id(client, what, "run_id"))
    if not is_id(what, "run"):
        raise click.UsageError(f"{what!r} is neither a file nor a run id (run_…)")
    return what


def verify_file(path: Path, key: bytes | None) -> ExportReport:
    """Verify an exported file; `key` is the trusted public key, if there is one.

    Raises CommandFailed for a file that cannot be read or is no export.
    """
    content = read_bytes(path)
    report = verify_export(content, is_signed, key)
    if report.problem is not None and not content.lstrip().startswith(b"{"):
        raise CommandFailed(
            f"{path} is not an export of a run",
            "`palyra tape export RUN_ID -o FILE` writes one",
        )
    return report


def read_bytes(path: Path) -> bytes:
    """Return the content of a file.  Raises CommandFailed if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}") from None


def is_signed(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """True if `signature` is a valid Ed25519 signature of `message` by the key pair."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - slow, and rarely needed
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415
        Ed25519PublicKey,
    )

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def find_key(home: Path | None, key: str | None) -> bytes | None:
    """Return the trusted public key: `key` (hex or a file), else that of the home directory.

    Returns None if `key` is None and the home directory has no key.
    """
    if key is None:
        path = find_home(home) / PUBLIC_KEY_PATH
        return parse_key(path.read_text(encoding="ascii")) if path.is_file() else None
    return parse_key(Path(key).read_text(encoding="ascii") if Path(key).is_file() else key)


def parse_key(text: str) -> bytes:
    """Decode a public key of 32 bytes from hex.  Raises a usage error."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != 32:  # noqa: PLR2004 - of Ed25519
        raise click.UsageError(f"no public key: {text.strip()[:40]!r}, want 64 hex digits")
    return key


def _purged_text(events: int, pruned: int = 0) -> str:
    """Return the end of a sentence about events that are on record as purged, or as pruned."""
    purged = f", {pluralize(events - pruned, 'event')} purged" if events > pruned else ""
    return f"{purged}, {pluralize(pruned, 'event')} pruned" if pruned else purged


def _print_offline(options: Options, report: ExportReport, *, is_trusted: bool) -> None:
    if options.as_json:
        print_json(report)
    elif report.problem is None:
        say(
            f"intact: {pluralize(report.checked_events, 'event')} of {report.run_id}, "
            f"{pluralize(report.checked_attestations, 'attestation')}"
            f"{_purged_text(report.purged_events)}",
            fg="green",
        )
        say(f"sealed with {report.public_key}", dim=True)
        if not is_trusted:
            say("the key is taken from the file itself: give the daemon's key with --key")
    else:
        where = "" if report.bad_seq is None else f" at seq {report.bad_seq}"
        say(f"NOT INTACT{where}: {report.problem}", fg="red", bold=True)
    if report.problem is not None:
        raise SystemExit(FAILED)


@tape.command()
@click.argument("what", metavar="FILE | RUN_ID")
@click.option("--strict", is_flag=True, help="Also evaluate the daemon's current policies.")
@shared_options
def replay(options: Options, what: str, *, strict: bool) -> None:
    """Replay a run from its tape, and compare every event.

    An exported FILE is replayed by this command, without a daemon.  Verify the file as well: a
    replay finds decisions that do not follow from the tape, but not every change of the file.
    """
    if Path(what).is_file():
        if strict:
            raise click.UsageError("--strict needs a daemon's policies: name a RUN_ID")
        _print_replay(options, replay_file(Path(what)))
        return
    run_id = _find_run_id(options, what)
    _print_replay(options, talk(options, lambda client: client.replay_run(run_id, strict=strict)))


def replay_file(path: Path) -> ReplayReport:
    """Replay an exported file and return the report.

    Raises CommandFailed for a file that cannot be read or is not a valid export.
    """
    from palyra.core.redaction.redactor import Redactor  # noqa: PLC0415 - only for a replay
    from palyra.core.replay.replay import Replay  # noqa: PLC0415 - only for a replay
    from palyra.core.tape.export import Forged, read_rows  # noqa: PLC0415 - only for a replay

    try:
        under_way = Replay(read_rows(read_bytes(path)), Redactor(()).redact_bytes)
    except Forged as forged:
        raise CommandFailed(f"{path}, line {(forged.seq or 0) + 1}: {forged.problem}") from None
    except Unreadable as broken:
        raise CommandFailed(f"{path}: {broken.message}") from None
    while under_way.advance(STEPS):
        pass
    return under_way.report()


def _print_replay(options: Options, report: ReplayReport) -> None:
    found = report.first_divergence
    if options.as_json:
        print_json(report)
    elif found is None:
        say(f"matches: {pluralize(report.events, 'event')} of {report.run_id}", fg="green")
        say(f"digest {report.replayed_digest}", dim=True)
        if report.unjudged:
            seqs = ", ".join(map(str, report.unjudged))
            say(f"verdicts taken from the tape, because their inputs are not on it: seq {seqs}")
    else:
        what = f"{found.kind or 'the end'}, {found.field}"
        say(f"DIVERGES at seq {found.seq}: {what}", fg="red", bold=True)
        rows = [("on the tape", found.expected or "-"), ("replayed", found.found or "-")]
        print_table(("WHERE", "VALUE"), rows, empty="")
    if found is not None:
        raise SystemExit(FAILED)


def _print_online(options: Options, report: VerifyReport, noticed: Sequence[str]) -> None:
    found = report.first_break
    if options.as_json:
        print_json(report)
    elif found is None:
        say(
            f"intact: {pluralize(report.checked_events, 'event')}, "
            f"{pluralize(report.checked_roots, 'signed root')}"
            f"{_purged_text(report.purged_events, report.pruned_events)}",
            fg="green",
        )
    else:
        _print_breaks(report, report.found or (found,), noticed)
    if found is not None:
        raise SystemExit(FAILED)


def _print_breaks(
    report: VerifyReport, found: Sequence[ChainViolation], noticed: Sequence[str]
) -> None:
    """Print one line for each break, the number of further breaks, and the remedy."""
    say(f"NOT INTACT: {pluralize(report.breaks, 'break')}", fg="red", bold=True)
    for each in found:
        known = (("position", each.position), ("run", each.run_id), ("seq", each.seq))
        place = ", ".join(f"{name} {value}" for name, value in known if value is not None)
        say(f"  {BREAKS[each.kind]}: {each.detail}{f' ({place})' if place else ''}")
    if report.breaks > len(found):
        say(f"  and {report.breaks - len(found)} more")
    for detail in dict.fromkeys(noticed):
        if all(each.detail != detail for each in found):
            say(f"  found before: {detail}")
    say("remedy: restore the data directory from a backup")
    places = [each.position for each in found]
    if all(place is not None and place > 1 for place in places):
        first = min(place for place in places if place is not None)
        say(f"events before position {first} are unchanged since the last check")
