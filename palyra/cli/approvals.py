"""`palyra approvals`: list, show and resolve approvals, and manage the grants they create."""

from typing import Any, Literal, get_args

import click
import msgspec

from palyra.cli.command.errors import FAILED, CommandFailed
from palyra.cli.command.listing import watchable
from palyra.cli.command.names import id_argument
from palyra.cli.command.options import Command, shared_options
from palyra.cli.command.output import age, due, print_json, print_table, say, without_empty
from palyra.cli.command.talk import Options, talk
from palyra.cli.run.preview import beyond_files, describe_conditions, find_preview, print_preview
from palyra.client import Client
from palyra.core.journal.records import (
    DEFAULT_WORKSPACE,
    ApprovalRecord,
    ApprovalScope,
    GrantRecord,
)
from palyra.core.policy.grants import describe_key
from palyra.core.policy.views import Resolved
from palyra.core.preview.blocks import Preview, ReachList
from palyra.core.preview.call import MAX_LINES
from palyra.core.text.visible import pluralize, show_json, visible

DIGEST_CHARS = 12  # shown, enough to compare by eye; the complete digest is sent


Decision = Literal["allow", "deny"]


@click.group()
def approvals() -> None:
    """List and answer approvals."""


@approvals.command("list")
@click.option("--run", "run_id", help="Only approvals of this run.")
@click.option(
    "--all", "everything", is_flag=True, help="Include approvals that are already decided."
)
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@watchable
@shared_options
def list_(options: Options, run_id: str | None, limit: int, *, everything: bool) -> None:
    """List approvals, pending ones first."""
    found = talk(
        options,
        lambda client: client.list_approvals(
            run_id=run_id, pending_only=not everything, limit=limit
        ),
    )
    if options.as_json:
        print_json({"approvals": found})
        return
    columns = ("APPROVAL", "STATE", "RISK", "AGE", "DIGEST", "SUMMARY")
    print_table(columns, [_row(one) for one in found], empty="no approval is pending")


def _row(approval: ApprovalRecord) -> tuple[object, ...]:
    return (
        approval.approval_id,
        approval.state,
        approval.risk,
        age(approval.requested_ms),
        approval.digest[:DIGEST_CHARS],
        visible(approval.summary),
    )


@approvals.command()
@id_argument("approval_id")
@click.option("--all", "everything", is_flag=True, help="Show every line of the preview.")
@click.option(
    "--raw", is_flag=True, help="Show the exact arguments and conditions as JSON as well."
)
@click.option("--reach", is_flag=True, help="Show what a wider answer would have decided lately.")
@shared_options
def show(options: Options, approval_id: str, *, everything: bool, raw: bool, reach: bool) -> None:
    """Show one approval: first the changes, the words of a command or the request, last the conditions.

    With --json the record, and with --reach or --all the answers of these methods.
    """

    async def work(client: Client) -> tuple[ApprovalRecord, Preview | str, ReachList | None]:
        found = await client.get_approval(approval_id)
        preview = await find_preview(client, approval_id, MAX_LINES if everything else None)
        return found, preview, await client.get_reach(approval_id) if reach else None

    if options.as_json and not (everything or reach):
        print_json(talk(options, lambda client: client.get_approval(approval_id)))
        return
    approval, preview, reached = talk(options, work)
    if options.as_json:
        print_json({"approval": approval, "preview": preview, "reach": reached})
        return
    if isinstance(preview, str):
        say(f"no preview: {preview}", fg="yellow")
    else:
        print_preview(preview)
        if not raw:
            met = beyond_files(approval.inspection, preview)
            approval = msgspec.structs.replace(approval, inspection=met)
    if raw or isinstance(preview, str):
        say("exact arguments:", bold=True)
        say(show_json(msgspec.json.decode(approval.arguments)))
    print_approval(approval, raw=raw)
    if reached is not None:
        _print_reach(reached)


def _print_reach(found: ReachList) -> None:
    say(
        f"of the last {pluralize(found.looked_at, 'call')}, an answer would have decided:",
        bold=True,
    )
    for each in found.reaches:
        say(f"  {each.scope}: {pluralize(each.calls, 'call')}, {each.asked} of them asked about")
        for example in each.examples:
            say(f"    {visible(example)}", dim=True)
        for example in each.beyond:
            say(f"    also covers {visible(example)}", fg="yellow")


_ANSWER = (
    id_argument("approval_id", latest=False),
    click.option("--digest", help="Answer only if the approval's digest starts with this."),
    click.option(
        "--scope",
        type=click.Choice(get_args(ApprovalScope)),
        default="once",
        show_default=True,
        help="Which calls the answer holds for, see `beyond once for`: session, in this session; timeboxed, "
        "in every session of the principal with this agent and workspace.",
    ),
    click.option(
        "--ttl", "ttl_s", type=click.IntRange(1), help="Validity in seconds, for --scope timeboxed."
    ),
    click.option("--reason", default="", help="Why; it is recorded."),
)


def _answer_options(command: Command) -> Command:
    for option in reversed(_ANSWER):
        command = option(command)
    return shared_options(command)


@approvals.command()
@_answer_options
def allow(options: Options, **given: Any) -> None:  # noqa: ANN401 - as click calls it
    """Allow a call, exactly as shown."""
    _answer(options, "allow", **given)


@approvals.command()
@_answer_options
def deny(options: Options, **given: Any) -> None:  # noqa: ANN401 - as click calls it
    """Deny a call; the model is given the reason."""
    _answer(options, "deny", **given)


@approvals.command()
@id_argument("approval_id", latest=False)
@click.argument("words", metavar="TEXT")
@shared_options
def answer(options: Options, approval_id: str, words: str) -> None:
    """Answer a question of the model with TEXT: one of its choices, or the JSON of its form."""
    _answer(options, "allow", approval_id=approval_id, digest=None, ttl_s=None, answer=words)


def _answer(
    options: Options,
    decision: Decision,
    *,
    approval_id: str,
    digest: str | None,
    ttl_s: int | None,
    **given: Any,  # noqa: ANN401 - scope and reason
) -> None:
    ttl_ms = None if ttl_s is None else ttl_s * 1000

    async def work(client: Client) -> Resolved:
        approval = await _get_matching(client, approval_id, digest)
        return await client.resolve_approval(
            approval_id, decision, approval.digest, ttl_ms=ttl_ms, **given
        )

    _print_outcome(options, talk(options, work), decision)


@approvals.command("grants")
@click.option("--all", "everything", is_flag=True, help="Include grants that have ended.")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most rows to print.",
)
@shared_options
def list_grants(options: Options, limit: int, *, everything: bool) -> None:
    """List grants: answers that apply to more than one call."""
    found = talk(options, lambda client: client.list_grants(live_only=not everything, limit=limit))
    if options.as_json:
        print_json({"grants": found})
        return
    columns = ("GRANT", "ANSWER", "TOOL", "FOR", "HOLDS", "BY")
    print_table(columns, [_grant_row(one) for one in found], empty="no active grants")


def _grant_row(grant: GrantRecord) -> tuple[object, ...]:
    return (
        grant.grant_id,
        grant.decision,
        visible(grant.tool),
        describe_key(grant.key),
        _term(grant),
        visible(grant.by),
    )


def _term(grant: GrantRecord) -> str:
    if grant.ended_ms is not None:
        return f"ended {age(grant.ended_ms)} ago by {visible(grant.ended_by or '')}"
    if grant.expires_ms is None:
        return f"in {grant.session_id}"
    place = "" if grant.workspace == DEFAULT_WORKSPACE else f", workspace {grant.workspace}"
    return f"until {due(grant.expires_ms)}{place}"


@approvals.command()
@id_argument("grant_id", latest=False)
@shared_options
def revoke(options: Options, grant_id: str) -> None:
    """Revoke a grant; later calls need an approval again."""
    grant = talk(options, lambda client: client.revoke_grant(grant_id))
    if options.as_json:
        print_json(grant)
    else:
        say(f"{grant.grant_id} {_end_of(grant)}", fg="green")


def _end_of(grant: GrantRecord) -> str:
    """Describe the end of a grant: revoked, or expired before this command."""
    if grant.ended_ms is None:
        return "had already expired: nothing changed"
    return _term(grant)


async def _get_matching(client: Client, approval_id: str, digest: str | None) -> ApprovalRecord:
    """Fetch the approval.  Raises CommandFailed if its digest does not start with `digest`."""
    approval = await client.get_approval(approval_id)
    if digest is not None and not approval.digest.startswith(digest.lower()):
        raise CommandFailed(
            f"the approval has the digest {approval.digest[:DIGEST_CHARS]}…, not {digest}",
            f"read it again: palyra approvals show {approval_id}",
        )
    return approval


def print_approval(approval: ApprovalRecord, *, raw: bool) -> None:
    """Print the facts for the decision, with invisible characters escaped; `raw`: conditions as JSON."""
    rows = [
        ("summary", visible(approval.summary)),
        ("approval", approval.approval_id),
        ("run", approval.run_id),
        ("state", approval.state),
        _fate(approval),
        ("tool", visible(approval.tool)),
        ("risk", approval.risk),
        ("workspace", approval.workspace),
        ("why asked", visible(approval.policy_reason)),
        ("digest", approval.digest),
        ("scopes", ", ".join(approval.scopes)),
        *([("only once", visible(approval.once_because))] if approval.once_because else []),
        *_wider(approval),
    ]
    print_table(("WHAT", "VALUE"), rows, empty="")
    met = without_empty(approval.inspection)
    if raw and met:
        say("current state that must be unchanged when the call runs:", bold=True)
        say(show_json(met))
    elif conditions := describe_conditions(approval.inspection):
        say(conditions, dim=True)


def _wider(approval: ApprovalRecord) -> list[tuple[str, str]]:
    """Return rows for the calls that the answer covers in addition to the one shown."""
    rows = []
    if approval.grant_key:
        rows.append(
            ("beyond once for", f"{visible(approval.tool)}: {describe_key(approval.grant_key)}")
        )
    if approval.covers:
        rows.append(("covers", f"{1 + len(approval.covers)} identical calls of this turn"))
    return rows


def _fate(approval: ApprovalRecord) -> tuple[str, str]:
    """Return a row with the deadline of a pending approval, or the answer of a resolved one."""
    if approval.state == "pending":
        return "deadline", due(approval.expires_ms)
    why = f": {approval.reason}" if approval.reason else ""
    return "answer", f"{approval.state} by {approval.by}{why}"


def _print_outcome(options: Options, outcome: Resolved, wanted: Decision) -> None:
    if options.as_json:
        print_json(outcome)
    elif outcome.won:
        grant = f" as {outcome.grant_id}" if outcome.grant_id else ""
        say(f"{outcome.decision} ({outcome.scope}) is recorded{grant}", fg="green")
    else:
        say(f"already decided: {outcome.decision} by {outcome.by}", fg="yellow")
    if outcome.decision != wanted:
        raise SystemExit(FAILED)
