"""usage.* and budget.*: the ledger of model calls, and the limits on spending."""

from typing import Annotated, get_args

import msgspec

from palyra.core.journal.changes import UsageBy, UsageFilter, UsageInterval
from palyra.core.journal.records import (
    BudgetAction,
    BudgetMetric,
    BudgetRecord,
    BudgetScope,
    BudgetWindow,
)
from palyra.core.usage.views import AccountsView, UsageView, UsageWanted
from palyra.errors import InvalidParams
from palyra.net.api.method import Id, Instant, Limit, Method, MethodCall, Mutation, check_no_secret
from palyra.net.protocol.params import SLUG, NoParams, Params
from palyra.net.protocol.results import BudgetList, BudgetView

Name = Annotated[str, SLUG]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Amount = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000_000_000)]


class UsageSummary(Params, frozen=True, kw_only=True):
    """Filter and grouping of the ledger; `until_ms` is exclusive."""

    by: UsageBy | UsageInterval | None = None
    split: UsageBy | None = None  # each hour or day apart by this
    principal: Word | None = None
    agent: Word | None = None
    session_id: Id | None = None
    run_id: Id | None = None
    model: Word | None = None
    since_ms: Instant = 0
    until_ms: Instant | None = None
    limit: Limit = 100  # groups


class BudgetSet(Mutation, frozen=True, kw_only=True):
    """A budget to create, or to replace the one of that id."""

    budget_id: Name
    scope: BudgetScope = "global"
    subject: Word = "*"  # every one, each with an account of its own
    metric: BudgetMetric = "tokens"
    window: BudgetWindow = "day"
    window_ms: Amount | None = None  # of a sliding one
    soft: Amount | None = None
    hard: Amount | None = None
    action: BudgetAction = "block"


class BudgetDelete(Mutation, frozen=True, kw_only=True):
    """The budget to delete."""

    budget_id: Name


class BudgetStatus(Params, frozen=True, kw_only=True):
    """Accounts of one budget, or of all."""

    budget_id: Name | None = None
    limit: Limit = 100  # accounts of each budget


async def summary(call: MethodCall, params: UsageSummary) -> UsageView:
    if params.until_ms is not None and params.until_ms < params.since_ms:
        raise InvalidParams(
            f"until_ms {params.until_ms} lies before since_ms {params.since_ms}", field="until_ms"
        )
    if params.split is not None and params.by not in get_args(UsageInterval):
        raise InvalidParams("split needs by: hour or day", field="split")
    lines = UsageFilter(
        principal=params.principal,
        agent=params.agent,
        session_id=params.session_id,
        run_id=params.run_id,
        model=params.model,
        since_ms=params.since_ms,
        until_ms=params.until_ms,
    )
    wanted = UsageWanted(lines=lines, by=params.by, split=params.split, limit=params.limit)
    return await call.backend.budgets.sum_usage(call.caller, wanted)


async def list_(call: MethodCall, _params: NoParams) -> BudgetList:
    found = await call.backend.budgets.list_all(call.caller)
    return BudgetList(budgets=[_show(budget) for budget in found])


async def status(call: MethodCall, params: BudgetStatus) -> AccountsView:
    return await call.backend.budgets.status(call.caller, params.budget_id, params.limit)


async def set_(call: MethodCall, params: BudgetSet) -> BudgetView:
    check_no_secret(call, budget_id=params.budget_id, subject=params.subject)
    given = msgspec.structs.asdict(params)
    del given["idempotency_key"]
    wanted = BudgetRecord(**given)
    budgets = call.backend.budgets
    return _show(
        await call.once(
            BudgetRecord,
            lambda: budgets.set(call.caller, wanted, call.key),
            is_kept_by_effect=True,
        )
    )


async def delete(call: MethodCall, params: BudgetDelete) -> BudgetView:
    budgets = call.backend.budgets
    return _show(
        await call.once(
            BudgetRecord,
            lambda: budgets.delete(call.caller, params.budget_id, call.key),
            is_kept_by_effect=True,
        )
    )


def _show(budget: BudgetRecord) -> BudgetView:
    return BudgetView(**msgspec.structs.asdict(budget))


METHODS = (
    Method("usage.summary", UsageSummary, UsageView, "usage:read", summary),
    Method("budget.list", NoParams, BudgetList, "usage:read", list_),
    Method("budget.status", BudgetStatus, AccountsView, "usage:read", status),
    Method("budget.set", BudgetSet, BudgetView, "usage:write", set_),
    Method("budget.delete", BudgetDelete, BudgetView, "usage:write", delete),
)
