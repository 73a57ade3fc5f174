"""usage.* and budget.*: what model calls took, and how much may be spent."""

from typing import Annotated, Literal

import msgspec

from palyra.core.journal.changes import UsageBy, UsageFilter, UsageSum
from palyra.core.journal.records import (
    BudgetAction,
    BudgetMetric,
    BudgetRecord,
    BudgetScope,
    BudgetWindow,
)
from palyra.core.usage.views import AccountView, UsageWanted
from palyra.errors import InvalidParams
from palyra.net.api.method import Id, Limit, Method, MethodCall, Mutation, Result, check_no_secret
from palyra.net.protocol.params import SLUG, NoParams, Params

Name = Annotated[str, SLUG]
Word = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
Amount = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000_000_000)]
Instant = Annotated[int, msgspec.Meta(ge=0)]


class UsageSummary(Params, frozen=True, kw_only=True):
    """Which lines of the ledger to add up; `until_ms` is not in the range."""

    by: UsageBy | Literal["day"] | None = None
    principal: Word | None = None
    agent: Word | None = None
    session_id: Id | None = None
    run_id: Id | None = None
    model: Word | None = None
    since_ms: Instant = 0
    until_ms: Instant | None = None
    limit: Limit = 100  # groups


class UsageShown(Result, frozen=True, kw_only=True):
    """The sums; `is_cut` when there are more groups."""

    total: UsageSum
    groups: list[UsageSum]
    is_cut: bool = False


class BudgetSet(Mutation, frozen=True, kw_only=True):
    """A budget, new or instead of the one of that id."""

    budget_id: Name
    scope: BudgetScope = "global"
    subject: Word = "*"  # each of them, with an account of its own
    metric: BudgetMetric = "tokens"
    window: BudgetWindow = "day"
    window_ms: Amount | None = None  # of a sliding one
    soft: Amount | None = None
    hard: Amount | None = None
    action: BudgetAction = "block"


class BudgetDelete(Mutation, frozen=True, kw_only=True):
    """One budget, to hold no more."""

    budget_id: Name


class BudgetStatus(Params, frozen=True, kw_only=True):
    """Of one budget, or of all."""

    budget_id: Name | None = None
    limit: Limit = 100  # accounts of each budget


class BudgetShown(Result, frozen=True, kw_only=True):
    """A budget; one of the configuration has revision 0."""

    budget_id: str
    scope: BudgetScope
    subject: str
    metric: BudgetMetric
    window: BudgetWindow
    action: BudgetAction
    revision: int
    window_ms: int | None = None
    soft: int | None = None
    hard: int | None = None
    created_ms: int = 0
    updated_ms: int = 0
    deleted_ms: int | None = None
    by: str = ""


class BudgetList(Result, frozen=True, kw_only=True):
    """The budgets in force, by id."""

    budgets: list[BudgetShown]


class AccountList(Result, frozen=True, kw_only=True):
    """How the accounts stand, by budget; of each the most spent first."""

    accounts: list[AccountView]
    left_out: int  # how many there are beside


async def summary(call: MethodCall, params: UsageSummary) -> UsageShown:
    if params.until_ms is not None and params.until_ms < params.since_ms:
        raise InvalidParams(
            f"until_ms {params.until_ms} lies before since_ms {params.since_ms}", field="until_ms"
        )
    lines = UsageFilter(
        principal=params.principal,
        agent=params.agent,
        session_id=params.session_id,
        run_id=params.run_id,
        model=params.model,
        since_ms=params.since_ms,
        until_ms=params.until_ms,
    )
    wanted = UsageWanted(lines=lines, by=params.by, limit=params.limit)
    view = await call.backend.budgets.sum_usage(call.caller, wanted)
    return UsageShown(total=view.total, groups=view.groups, is_cut=view.is_cut)


async def list_(call: MethodCall, _params: NoParams) -> BudgetList:
    found = await call.backend.budgets.list_all(call.caller)
    return BudgetList(budgets=[_show(budget) for budget in found])


async def status(call: MethodCall, params: BudgetStatus) -> AccountList:
    view = await call.backend.budgets.status(call.caller, params.budget_id, params.limit)
    return AccountList(accounts=view.accounts, left_out=view.left_out)


async def set_(call: MethodCall, params: BudgetSet) -> BudgetShown:
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


async def delete(call: MethodCall, params: BudgetDelete) -> BudgetShown:
    budgets = call.backend.budgets
    return _show(
        await call.once(
            BudgetRecord,
            lambda: budgets.delete(call.caller, params.budget_id, call.key),
            is_kept_by_effect=True,
        )
    )


def _show(budget: BudgetRecord) -> BudgetShown:
    return BudgetShown(**msgspec.structs.asdict(budget))


METHODS = (
    Method("usage.summary", UsageSummary, UsageShown, "usage:read", summary),
    Method("budget.list", NoParams, BudgetList, "usage:read", list_),
    Method("budget.status", BudgetStatus, AccountList, "usage:read", status),
    Method("budget.set", BudgetSet, BudgetShown, "usage:write", set_),
    Method("budget.delete", BudgetDelete, BudgetShown, "usage:write", delete),
)
