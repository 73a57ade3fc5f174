"""Short names of stored records: `latest`, a number of the last listing, the end of an id, a given name.

An argument declared with `id_argument` accepts them besides whole ids.  `shared_options` replaces
each by the whole id before it calls the command, so that no command deals with short names.

A number counts the rows of the last listing that this terminal showed; another terminal's listings
do not change it.  Of records with a name, it is looked for first.  An ending must fit one of the newest `MAX_IDS` records; ids end with random digits,
so four or five are enough.  `latest` is refused where a command answers, removes or revokes: between
reading and typing another record may have become the latest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from palyra.cli.command.errors import LISTS, USAGE, CommandFailed
from palyra.cli.command.last_listing import last_listing
from palyra.cli.command.talk import find_options, talk

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from palyra.client import Client

LATEST = "latest"
MAX_IDS = 5_000
PAGE_ROWS = 500
MAX_SHOWN = 5  # ids in the message about an ambiguous ending, and completions are ten times as many
COMPLETION_S = 1.0  # a person waits with a half typed word

_NUMBER = re.compile(r"[0-9]{1,3}")
_SHORT = re.compile(rf"latest|{_NUMBER.pattern}|[0-9a-f]{{4,12}}")


class IdListing(NamedTuple):
    """Ids of one kind: their prefix, and the method that lists the records."""

    prefix: str
    page: Callable[[Client, str | None], Awaitable[Any]]  # a page, or a list of all records
    rows: str | None = None  # name of the list in a page
    is_newest_first: bool = True
    has_names: bool = False  # that a person gave, as `name`


LISTINGS: dict[str, IdListing] = {
    "run_id": IdListing("run", lambda c, at: c.list_runs(limit=PAGE_ROWS, cursor=at), "runs"),
    "session_id": IdListing("ses", lambda c, at: c.list_sessions(limit=PAGE_ROWS, cursor=at), "sessions"),
    "approval_id": IdListing("apr", lambda c, _: c.list_approvals(pending_only=False, limit=PAGE_ROWS)),
    "grant_id": IdListing("grt", lambda c, _: c.list_grants(live_only=False, limit=PAGE_ROWS)),
    "incident_id": IdListing("inc", lambda c, at: c.list_incidents(limit=PAGE_ROWS, cursor=at), "incidents"),
    "checkpoint_id": IdListing("ckp", lambda c, at: c.list_checkpoints(limit=PAGE_ROWS, cursor=at), "checkpoints"),
    "memory_id": IdListing("mem", lambda c, at: c.list_memories(limit=PAGE_ROWS, cursor=at), "items"),
    "candidate_id": IdListing("can", lambda c, at: c.list_candidates(states=(), limit=PAGE_ROWS, cursor=at), "candidates"),
    "pairing_id": IdListing("pai", lambda c, at: c.list_pairings(limit=PAGE_ROWS, cursor=at), "pairings"),
    "task_id": IdListing("tsk", lambda c, at: c.list_tasks(limit=PAGE_ROWS, cursor=at), "tasks"),
    "schedule_id": IdListing("sch", lambda c, _: c.list_schedules(), is_newest_first=False, has_names=True),
    "token_id": IdListing("tok", lambda c, _: c.list_tokens(), is_newest_first=False),
}  # fmt: skip


class IdType(click.ParamType[str]):
    """Click type of an id that may be given as a short name."""

    name = "id"

    def __init__(self, field: str, *, is_latest_allowed: bool) -> None:
        self.field = field
        self._is_latest_allowed = is_latest_allowed

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value as it is; fail for `latest` where it is refused."""
        if value == LATEST and not self._is_latest_allowed:
            self.fail(
                "this command takes no `latest`, because that may be another one by now: give the"
                f" id, its ending, or its number in `palyra {LISTS[self.field]}`",
                param,
                ctx,
            )
        return value

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - click's signature
        incomplete: str,
    ) -> list[CompletionItem]:
        """Return the newest ids that begin with the text; none if no daemon answers."""
        try:
            known = talk(
                find_options(ctx),
                lambda client: _read_ids(client, self.field, PAGE_ROWS),
                patience_s=COMPLETION_S,
            )
        except (click.ClickException, OSError):
            return []
        words = [*([LATEST] if self._is_latest_allowed else []), *known]
        fitting = [word for word in words if word.startswith(incomplete)]
        return [CompletionItem(word) for word in fitting[: 10 * MAX_SHOWN]]


def id_argument(
    field: str,
    *,
    latest: bool = True,
    **more: Any,  # noqa: ANN401 - click's own keywords
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an argument that names a record by its id or a short name.

    `field` is a key of LISTINGS.  With `latest` false the short name `latest` is refused.
    """
    return click.argument(
        more.pop("name", field), type=IdType(field, is_latest_allowed=latest), **more
    )


def is_short(text: str) -> bool:
    """Return True if the text is formed like a short name."""
    return _SHORT.fullmatch(text) is not None


def id_parameters(context: click.Context) -> dict[str, str]:
    """Return the names of the command's arguments that take short names, each with its field."""
    params = context.command.params
    return {each.name or "": each.type.field for each in params if isinstance(each.type, IdType)}


def short_names(context: click.Context, given: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of the command's arguments that are short names, each with its field."""
    found: dict[str, str] = {}
    for name, field in id_parameters(context).items():
        value = given.get(name)
        values = value if isinstance(value, tuple) else (value,)
        listing = LISTINGS[field]
        found |= {
            each: field
            for each in values
            if each
            and (
                is_short(each) or (listing.has_names and not each.startswith(f"{listing.prefix}_"))
            )
        }
    return found


async def find_ids(client: Client, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the id for each short name; `wanted` maps names to fields.

    Raises CommandFailed for a name that fits no record, or several.  Cancellation: nothing changed.
    """
    return {short: await find_id(client, short, field) for short, field in wanted.items()}


async def find_id(client: Client, short: str, field: str) -> str:
    """Return the id of the record that a short name means.

    Raises CommandFailed for a name that fits no record, or several.  Cancellation: nothing changed.
    """
    if LISTINGS[field].has_names:
        rows = await LISTINGS[field].page(client, None)
        named = [getattr(row, field) for row in rows if row.name == short]
        if len(named) > 1:
            raise _failed(
                f"{len(named)} have the name {short!r}: {', '.join(named[:MAX_SHOWN])}", field
            )
        if named or not is_short(short):
            return named[0] if named else short
    if _NUMBER.fullmatch(short):
        return _find_row(int(short), field)
    if short == LATEST:
        known = await _read_ids(client, field, 1)
        if not known:
            raise _failed("there is none yet", field)
        return known[0]
    known = await _read_ids(client, field, MAX_IDS)
    fitting = [each for each in known if each.endswith(short)]
    if not fitting:
        raise _failed(f"none of the newest {len(known)} ids ends with {short!r}", field)
    if len(fitting) > 1:
        shown = ", ".join(fitting[:MAX_SHOWN])
        raise _failed(f"{len(fitting)} ids end with {short!r}: {shown}", field)
    return fitting[0]


def _failed(problem: str, field: str) -> CommandFailed:
    remedy = f"`palyra {LISTS[field]}` shows which there are"
    return CommandFailed(f"{field}: {problem}", remedy, code=USAGE, field=field)


def _find_row(number: int, field: str) -> str:
    shown = last_listing(LISTINGS[field].prefix)
    if not 1 <= number <= len(shown):
        raise _failed(
            f"the last listing at this terminal has {len(shown)} rows, and no number {number}",
            field,
        )
    return shown[number - 1]


async def _read_ids(client: Client, field: str, limit: int) -> list[str]:
    """Return the ids of at least `limit` records if there are so many, newest first."""
    listing = LISTINGS[field]
    known: list[str] = []
    cursor: str | None = None
    while True:
        page = await listing.page(client, cursor)
        rows = page if listing.rows is None else getattr(page, listing.rows)
        known += [getattr(row, field) for row in rows]
        cursor = None if listing.rows is None else page.next_cursor
        if cursor is None or len(known) >= limit:
            return known if listing.is_newest_first else known[::-1]
