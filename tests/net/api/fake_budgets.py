"""Fake usage and budgets for connections: one of each, and the recorded requests."""

from palyra.core.access import Caller
from palyra.core.journal.changes import UsageSum
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.journal.records import BudgetRecord
from palyra.core.usage.views import AccountsView, AccountView, UsageView, UsageWanted
from tests.net.api.fake_registry import Asked

DAY = BudgetRecord(
    budget_id="day", scope="global", metric="tokens", window="day", soft=5, hard=9, revision=1
)
ACCOUNT = AccountView(
    budget_id="day",
    scope="global",
    subject="",
    metric="tokens",
    window="day",
    spent=3,
    reserved=2,
    hard=9,
    left=4,
)
SUM = UsageSum(key="ann", calls=2, input_tokens=7, output_tokens=3, cost_usd_micros=12)


class FakeBudgets(Asked):
    """One budget; changes are kept for the test and change nothing."""

    async def sum_usage(self, caller: Caller, wanted: UsageWanted) -> UsageView:
        await self.note(SUM, "sum", caller.principal, wanted)
        return UsageView(total=SUM, groups=[SUM])

    async def list_all(self, caller: Caller) -> list[BudgetRecord]:
        await self.note(DAY, "list", caller.principal)
        return [DAY]

    async def status(self, caller: Caller, budget_id: str | None, limit: int = 100) -> AccountsView:
        await self.note(ACCOUNT, "status", caller.principal, budget_id, limit)
        return AccountsView(accounts=[ACCOUNT], left_out=0)

    async def set(
        self, caller: Caller, wanted: BudgetRecord, receipt: IdempotencyKey | None = None
    ) -> BudgetRecord:
        await self.note(DAY, "set", caller.principal, wanted, receipt)
        return DAY

    async def delete(
        self, caller: Caller, budget_id: str, receipt: IdempotencyKey | None = None
    ) -> BudgetRecord:
        await self.note(DAY, "delete", caller.principal, budget_id, receipt)
        return DAY
