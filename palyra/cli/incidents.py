"""`palyra incidents`: list, show and resolve incidents, the problems the daemon has detected."""

from typing import get_args

import click

from palyra.cli.command.listing import newer, since_option, watchable
from palyra.cli.command.names import id_argument
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import age, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.core.incident.incident import UNRESOLVED
from palyra.core.journal.records import IncidentDomain, IncidentState
from palyra.net.protocol.results import IncidentView


@click.group()
def incidents() -> None:
    """List, show and resolve incidents."""


@incidents.command("list")
@click.option("--open", "is_open", is_flag=True, help="Only unresolved incidents.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(get_args(IncidentState)),
    help="Only those in this state.",
)
@click.option(
    "--domain", type=click.Choice(get_args(IncidentDomain)), help="Only those of this domain."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@click.option("--after", "cursor", metavar="INCIDENT_ID", help="Start after this incident.")
@since_option
@watchable
@shared_options
def list_(  # noqa: PLR0913 - one for each option
    options: Options,
    *,
    since_ms: int | None,
    is_open: bool,
    states: tuple[IncidentState, ...],
    domain: IncidentDomain | None,
    limit: int,
    cursor: str | None,
) -> None:
    """List incidents, newest first."""
    wanted = tuple(dict.fromkeys((*states, *(UNRESOLVED if is_open else ()))))
    page = talk(
        options,
        lambda client: client.list_incidents(
            states=wanted, domain=domain, limit=limit, cursor=cursor
        ),
    )
    page = newer(page, "incidents", "opened_ms", since_ms)
    if options.as_json:
        print_json(page)
        return
    columns = ("INCIDENT", "STATE", "SEVERITY", "DOMAIN", "LAST", "TIMES", "REMEDY", "SUMMARY")
    print_table(columns, [_row(each) for each in page.incidents], empty="no incidents")
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", dim=True)


def _row(incident: IncidentView) -> tuple[object, ...]:
    return (
        incident.incident_id,
        incident.state,
        incident.severity,
        incident.domain,
        age(incident.last_ms),
        incident.count,
        _remedy(incident),
        incident.summary,
    )


@incidents.command()
@id_argument("incident_id")
@shared_options
def show(options: Options, incident_id: str) -> None:
    """Show one incident with its evidence."""
    found = talk(options, lambda client: client.get_incident(incident_id))
    if options.as_json:
        print_json(found)
        return
    rows: list[tuple[object, ...]] = [
        ("incident", found.incident_id),
        ("state", found.state),
        ("severity", found.severity),
        ("domain", found.domain),
        ("summary", found.summary),
        ("key", found.key),
        ("times", found.count),
        ("opened", age(found.opened_ms)),
        ("last", age(found.last_ms)),
        *found.evidence.items(),
        *_healing(found),
    ]
    if found.resolved_ms is not None:
        rows.append(("resolved", f"{age(found.resolved_ms)} by {found.by}: {found.reason}"))
    elif found.resolves_itself:
        rows.append(("ends", "automatically, when its cause is gone"))
    print_table(("WHAT", "VALUE"), rows, empty="")


def _remedy(incident: IncidentView) -> str:
    """Return the last remedy with the number of attempts, or the one that `auto` would attempt."""
    if incident.attempts:
        return f"{incident.remedy}, {incident.attempts} of {len(incident.remedies)}"
    return f"auto: {incident.remedy}" if incident.remedy else ""


def _healing(incident: IncidentView) -> list[tuple[object, ...]]:
    """Return the rows about the remedies of an incident."""
    rows: list[tuple[object, ...]] = []
    if incident.attempts:
        most = len(incident.remedies)
        rows += [("attempts", f"{incident.attempts} of {most}"), ("remedy", incident.remedy)]
    elif incident.remedy:
        rows += [
            ("in mode auto", f"{incident.remedy} would be attempted"),
            ("may change", incident.may_change),
        ]
    if incident.remedied:
        rows.append(("outcome", incident.remedied))
    return rows


@incidents.command()
@id_argument("incident_id", latest=False)
@click.argument("reason")
@shared_options
def resolve(options: Options, incident_id: str, reason: str) -> None:
    """Resolve an incident with a reason: the repair, or the reason why none is needed."""
    done = talk(options, lambda client: client.resolve_incident(incident_id, reason))
    if options.as_json:
        print_json(done)
    else:
        say(f"{done.incident_id} was resolved by {done.by}: {done.reason}")
