"""`palyra usage`: tokens and cost of model calls; `palyra budget`: limits on them."""

import re
from collections.abc import Callable
from typing import Any, get_args

import click

from palyra.cli.command.options import shared_options
from palyra.cli.command.output import due, now_ms, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.cli.run.options import parse_amount
from palyra.client import Client
from palyra.core.journal.changes import UsageBy, UsageInterval, UsageSum
from palyra.core.journal.records import (
    BudgetAction,
    BudgetMetric,
    BudgetScope,
    BudgetWindow,
)
from palyra.core.text.visible import pluralize
from palyra.core.usage.views import AccountsView, AccountView
from palyra.net.protocol.results import BudgetView

UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
SPAN = re.compile(r"([1-9][0-9]{0,5})([mhd])")
USAGE_COLUMNS = ("CALLS", "BROKEN", "INPUT", "CACHED", "OUTPUT", "COST")
ACCOUNT_COLUMNS = (
    "BUDGET", "WHOSE", "WINDOW", "METRIC", "SPENT", "RESERVED", "SOFT", "HARD", "ACTION", "ROLLS",
)  # fmt: skip


def _span(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Parse a duration such as 30m, 12h or 7d into milliseconds.  Raises BadParameter."""
    if value is None:
        return None
    found = SPAN.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r}: expected a number and m, h or d, as in 30m, 12h, 7d")
    return int(found[1]) * UNITS_MS[found[2]]


# --- usage ---------------------------------------------------------------------------------------


@click.command(short_help="Sum up tokens and cost of model calls.")
@click.option(
    "--by",
    type=click.Choice([*get_args(UsageBy), *get_args(UsageInterval)]),
    help="Print one line for each.",
)
@click.option("--since", callback=_span, help="Only calls of this last period: 30m, 12h, 7d.")
@click.option("--principal", help="Only calls of this principal.")
@click.option("--agent", help="Only calls of this agent.")
@click.option("--session", "session_id", help="Only calls of this session.")
@click.option("--run", "run_id", help="Only calls of this run.")
@click.option("--model", help="Only calls of this model: openai/gpt-5, openai/*.")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=100,
    show_default=True,
    help="Most rows to print.",
)
@shared_options
def usage(options: Options, *, since: int | None, **wanted: Any) -> None:  # noqa: ANN401 - as click gives them
    """Sum up tokens and cost of model calls."""
    if since is not None:
        wanted["since_ms"] = now_ms() - since
    given = {key: value for key, value in wanted.items() if value is not None}
    found = talk(options, lambda client: client.sum_usage(**given))
    if options.as_json:
        print_json(found)
        return
    by = wanted["by"]
    if by is not None:
        rows = [(_group(each, by), *_numbers(each)) for each in found.groups]
        print_table(
            (by.upper(), *USAGE_COLUMNS), [*rows, ("all", *_numbers(found.total))], empty=""
        )
    else:
        print_table(USAGE_COLUMNS, [_numbers(found.total)], empty="")
    if found.is_cut:
        say(f"there are more than {wanted['limit']} lines: narrow it, or raise --limit", err=True)


def _group(each: UsageSum, by: str) -> str:
    if by not in get_args(UsageInterval):
        return each.key
    from datetime import UTC, datetime  # noqa: PLC0415 - only here

    return datetime.fromtimestamp(each.from_ms / 1000, UTC).strftime(
        "%Y-%m-%d" if by == "day" else "%Y-%m-%d %H:00"
    )


def _numbers(each: UsageSum) -> tuple[object, ...]:
    cost = render_cost(each.cost_usd_micros, each.unpriced_calls)
    about = "~" if each.estimated_calls else ""
    return (
        each.calls,
        each.broken_calls,
        f"{about}{each.input_tokens}",
        each.cached_tokens,
        f"{about}{each.output_tokens}",
        cost,
    )


def render_cost(micros: int, unpriced_calls: int) -> str:
    """Format a cost; that of calls without a price is unknown, never 0."""
    if not unpriced_calls:
        return dollars(micros)
    without = f"{pluralize(unpriced_calls, 'call')} without a price"
    return f"{dollars(micros)} + {without}" if micros else f"unknown ({without})"


def dollars(micros: int) -> str:
    """Format micro-dollars as dollars with six decimals."""
    return f"${micros / 1_000_000:.6f}"


# --- budgets -------------------------------------------------------------------------------------


@click.group()
def budget() -> None:
    """List, set and delete budgets."""


@budget.command("list")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=100,
    show_default=True,
    help="Maximum number of accounts shown for one budget.",
)
@shared_options
def list_(options: Options, limit: int) -> None:
    """List budgets and the state of their accounts, the most spent first."""

    async def work(client: Client) -> tuple[list[BudgetView], AccountsView]:
        return await client.list_budgets(), await client.budget_status(limit=limit)

    budgets, found = talk(options, work)
    accounts = found.accounts
    if options.as_json:
        print_json({"budgets": budgets, "accounts": accounts, "left_out": found.left_out})
        return
    rows = [row for each in budgets for row in _rows(each, accounts)]
    print_table(ACCOUNT_COLUMNS, rows, empty="no budgets")
    if found.left_out:
        say(f"{found.left_out} accounts with less spent are left out: raise --limit", err=True)


def _rows(each: BudgetView, accounts: list[AccountView]) -> list[tuple[object, ...]]:
    """Return one table row for each account of the budget; without an account, one empty row."""
    show = str if each.metric == "tokens" else dollars
    own = [account for account in accounts if account.budget_id == each.budget_id]
    limits: list[tuple[object, ...]] = [
        (account.subject, show(account.spent), show(account.reserved), account.rolls_ms)
        for account in own
    ]
    return [
        (
            each.budget_id,
            _whose(each, str(subject)),
            _window(each),
            each.metric,
            spent,
            reserved,
            _limit(each.soft, show),
            _limit(each.hard, show),
            each.action,
            due(rolls) if isinstance(rolls, int) else "-",
        )
        for subject, spent, reserved, rolls in limits or [(each.subject, "-", "-", None)]
    ]


def _whose(each: BudgetView, subject: str) -> str:
    return "everybody" if each.scope == "global" else f"{each.scope} {subject}"


def _window(each: BudgetView) -> str:
    return each.window if each.window_ms is None else f"last {each.window_ms // 1000} s"


def _limit(amount: int | None, show: Callable[[int], str]) -> str:
    return "-" if amount is None else show(amount)


def _amount(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[BudgetMetric | None, int] | None:
    """Read an amount with or without its unit."""
    if value is None:
        return None
    if value.isdecimal():
        if int(value) < 1:
            raise click.BadParameter("more than nothing is needed")
        return None, int(value)
    return parse_amount(value)


def _read_amounts(given: dict[str, Any]) -> None:
    """Replace amounts by numbers; a unit names the metric.  Raises click.UsageError for two metrics."""
    for name in ("soft", "hard"):
        if name not in given:
            continue
        metric, given[name] = given[name]
        if metric is not None and given.setdefault("metric", metric) != metric:
            raise click.UsageError(f"--{name} is in {metric}, the budget in {given['metric']}")


@budget.command("set")
@click.argument("budget_id")
@click.option(
    "--scope", type=click.Choice(get_args(BudgetScope)), help="How calls are grouped into accounts."
)
@click.option("--subject", help="Principal, agent or session; *: one account for each.")
@click.option("--metric", type=click.Choice(get_args(BudgetMetric)), help="Unit of the limits.")
@click.option(
    "--window",
    type=click.Choice(get_args(BudgetWindow)),
    help="Period after which counting starts again.",
)
@click.option(
    "--length", "window_ms", callback=_span, help="Length of a sliding window: 30m, 12h, 7d."
)
@click.option(
    "--soft", callback=_amount, help="Amount from which an alert is sent: 5usd, 20000tokens."
)
@click.option(
    "--hard", callback=_amount, help="Amount from which the action applies: 5usd, 20000tokens."
)
@click.option(
    "--action", type=click.Choice(get_args(BudgetAction)), help="Action at the hard limit."
)
@shared_options
def set_(options: Options, budget_id: str, **wanted: Any) -> None:  # noqa: ANN401 - as click gives them
    """Set a budget, replacing one of the same name.

    A number without a unit is in that of --metric, which is micro-dollars for money.
    """
    given: dict[str, Any] = {key: value for key, value in wanted.items() if value is not None}
    _read_amounts(given)
    made = talk(options, lambda client: client.set_budget(budget_id, **given))
    if options.as_json:
        print_json(made)
        return
    say(f"{made.budget_id} is in force for {_whose(made, made.subject)}")


@budget.command()
@click.argument("budget_id")
@shared_options
def delete(options: Options, budget_id: str) -> None:
    """Delete a budget; calls no longer count against it."""
    gone = talk(options, lambda client: client.delete_budget(budget_id))
    if options.as_json:
        print_json(gone)
    else:
        say(f"{gone.budget_id} is deleted")
