"""`palyra learn`: review what runs taught."""

from typing import TYPE_CHECKING, get_args

import click
import msgspec

from palyra.cli.command.names import id_argument
from palyra.cli.command.options import read_text, shared_options
from palyra.cli.command.output import age, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.core.journal.procedure import Procedure
from palyra.core.journal.records import CandidateKind, CandidateState
from palyra.core.learning.views import CandidateChanged
from palyra.core.text.visible import visible

if TYPE_CHECKING:
    from palyra.client import Client
    from palyra.net.protocol.results import CandidatePage


@click.group()
def learn() -> None:
    """List, accept, reject, edit and undo what runs taught."""


@learn.command("list")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(get_args(CandidateState)),
    help="Only those in this state.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(get_args(CandidateKind)),
    help="Only those of this kind.",
)
@click.option("--all", "is_all", is_flag=True, help="In every state.")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@click.option("--after", "cursor", metavar="CANDIDATE_ID", help="Go on after this one.")
@click.option("--principal", help="Whose candidates; else your own.")
@shared_options
def list_(  # noqa: PLR0913 - one for each option
    options: Options,
    *,
    states: tuple[CandidateState, ...],
    kinds: tuple[CandidateKind, ...],
    is_all: bool,
    limit: int,
    cursor: str | None,
    principal: str | None,
) -> None:
    """List candidates, newest first; without --state those that wait for review."""
    wanted: tuple[CandidateState, ...] = () if is_all else states or ("proposed",)

    async def work(client: "Client") -> "CandidatePage":
        return await client.list_candidates(
            states=wanted, kinds=kinds, limit=limit, cursor=cursor, principal=principal
        )

    page = talk(options, work)
    if options.as_json:
        print_json(page)
        return
    rows = [
        (each.candidate_id, each.kind, each.state, each.score_bps, age(each.created_ms), each.text)
        for each in page.candidates
    ]
    columns = ("CANDIDATE", "KIND", "STATE", "SCORE", "AGE", "TEXT")
    print_table(columns, rows, empty="no candidates")
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", dim=True)


@learn.command()
@id_argument("candidate_id")
@shared_options
def show(options: Options, candidate_id: str) -> None:
    """Show a candidate with its evidence, the parts of its score and its history."""
    found = talk(options, lambda client: client.get_candidate(candidate_id))
    if options.as_json:
        print_json(found)
        return
    say(visible(found.text))
    parts = ", ".join(f"{name} {value}" for name, value in found.signals.items())
    say(f"{found.kind}, {found.state}, {found.trust}, score {found.score_bps} = {parts}", dim=True)
    for each in found.evidence:
        say(f"{each.run_id}/{each.seq}: {visible(each.quote)}")
    for line in found.changes:
        before = f", before: {visible(line.text)}" if line.text else ""
        say(f"{age(line.at_ms)} {line.action} by {line.by or 'the daemon'}{before}", dim=True)
    if found.memory_id:
        say(f"memory: {found.memory_id}", dim=True)
    if found.procedure is not None:
        _print_procedure(found.procedure)


def _print_procedure(procedure: Procedure) -> None:
    say(f"tool: procedure:{procedure.name}", dim=True)
    for name, schema in procedure.parameters["properties"].items():
        kinds = schema["type"] if isinstance(schema["type"], str) else " or ".join(schema["type"])
        values = [msgspec.json.encode(each.values[name]).decode() for each in procedure.proofs]
        say(visible(f"parameter {name}: {kinds}, for example {', '.join(values)}"), dim=True)
    say(f"uses: {procedure.succeeded} succeeded, {procedure.failed} failed", dim=True)


@learn.command()
@id_argument("candidate_id", latest=False)
@shared_options
def accept(options: Options, candidate_id: str) -> None:
    """Make a candidate an item of memory, or a procedure a tool; `palyra learn undo` takes it back."""
    _print_change(options, talk(options, lambda client: client.accept_candidate(candidate_id)))


@learn.command()
@id_argument("candidate_id", latest=False)
@shared_options
def reject(options: Options, candidate_id: str) -> None:
    """Refuse a candidate; it is not proposed again."""
    _print_change(options, talk(options, lambda client: client.reject_candidate(candidate_id)))


@learn.command()
@id_argument("candidate_id", latest=False)
@click.option("--text", help="The new text; @FILE reads it from a file.")
@click.option("--name", help="The new name of a procedure, whose text are its steps.")
@shared_options
def edit(options: Options, candidate_id: str, text: str | None, name: str | None) -> None:
    """Change the text that a candidate would store, or the name of a procedure."""
    if (text is None) == (name is None):
        raise click.UsageError("give --text or, for a procedure, --name")
    given = None if text is None else read_text(text)
    done = talk(options, lambda client: client.edit_candidate(candidate_id, given, name=name))
    _print_change(options, done)


@learn.command()
@id_argument("candidate_id", latest=False)
@shared_options
def undo(options: Options, candidate_id: str) -> None:
    """Take back an application or a rejection."""
    _print_change(options, talk(options, lambda client: client.undo_candidate(candidate_id)))


@learn.command()
@id_argument("run_id")
@shared_options
def reflect(options: Options, run_id: str) -> None:
    """Read a run that ended, and keep what it teaches."""
    done = talk(options, lambda client: client.reflect(run_id))
    if options.as_json:
        print_json(done)
        return
    if not done.is_new:
        say("the run was read before", dim=True)
    for candidate_id in done.candidate_ids:
        say(f"{candidate_id}{' applied' if candidate_id in done.applied else ''}")
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(done.refused.items()))
    say(f"refused: {reasons or 'nothing'}", dim=True)


def _print_change(options: Options, done: CandidateChanged) -> None:
    if options.as_json:
        print_json(done)
    else:
        shown = f", {done.memory_id}" if done.memory_id else ""
        say(f"{done.candidate_id} {done.state}{shown}")
