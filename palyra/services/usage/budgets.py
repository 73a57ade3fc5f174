"""Budgets in force: admission of model calls, reservations, and charges to accounts.

Owns: the accounts of all budgets, their reservations, and the prices.  Talks to: the hub (alerts).
Written by: the turn tasks (`admit`) and the run actors (`settle`, `leave`).
Never: admits a call that an account refuses, or keeps a reservation longer than its call.
Restart: spent amounts are read from the ledger before any run is resumed; nothing is reserved.

A model call passes three steps:

1. `admit` computes the most that the call may cost and reserves that amount in each of its
   accounts.  If concurrent calls reserve the rest of an account, `admit` waits for one to end.
2. The call runs.  Its `Reservation` belongs to the run and counts the output; the turn task and
   `Budgets` write it.  `finish`, `break_off` or `abandon` compute the actual usage.
3. `settle` releases the reservation and adds the call's ledger line to the accounts.

No step awaits between its check and its change of an account, so two calls never reserve the same
amount.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog
import trio

from palyra.core.journal.records import (
    BudgetRecord,
    BudgetScope,
    Charge,
    Usage,
    UsageRecord,
)
from palyra.core.model.messages import ModelRequest, ModelTurn
from palyra.core.ports import JournalStore, Notifier, NowMs
from palyra.core.run.state import Run
from palyra.core.tape.events import BudgetExceeded
from palyra.core.usage.budgets import (
    BudgetAccount,
    BudgetRefusal,
    Key,
    Mark,
    Payer,
    amount_of,
    amount_of_usage,
    find_end,
    find_key,
    judge,
)
from palyra.core.usage.prices import Prices
from palyra.core.usage.views import BudgetWarned
from palyra.services.usage.sums import open_accounts, read_sums, run_budgets

if TYPE_CHECKING:
    from collections.abc import Sequence


CHARS_PER_TOKEN = 4  # estimate for an incomplete answer; see `core.text.tokens`


class Reservation:
    """Reservation of one model call, from its request until its end is recorded."""

    __slots__ = ("chars", "holds", "input_tokens", "is_sent", "model", "usage")

    def __init__(self, model: str, input_tokens: int) -> None:
        self.model = model
        self.input_tokens = input_tokens
        self.chars = 0  # characters of the answer received so far
        self.is_sent = False
        self.usage: Usage | None = None  # final usage, once the call has ended
        self.holds: Sequence[tuple[BudgetAccount, int]] = ()

    def measure(self) -> Usage:
        """Return the usage of the call, estimated until the call has ended."""
        if self.usage is not None:
            return self.usage
        answered = -(-self.chars // CHARS_PER_TOKEN)
        return Usage(input_tokens=self.input_tokens, output_tokens=answered)

    def hold(self, accounts: "Sequence[BudgetAccount]", tokens: int, usd_micros: int) -> None:
        """Reserve `tokens` or `usd_micros` in each account, by the metric of its budget."""
        self.holds = [
            (account, tokens if account.budget.metric == "tokens" else usd_micros)
            for account in accounts
        ]
        for account, amount in self.holds:
            account.reserved += amount

    def give_back(self) -> None:
        """Release all reserved amounts."""
        for account, amount in self.holds:
            account.reserved -= amount
        self.holds = ()


class MeteredRun(Protocol):
    """The state of a live run that budgets read, and the reservation of its current call."""

    run: Run
    reservation: Reservation | None

    @property
    def run_id(self) -> str:
        """Id of the run."""


log = structlog.get_logger("palyra.budgets")

SWEEP_AT = 10_000  # number of accounts from which empty ones are removed
SWEEP_STEP = 100  # accounts checked each time a run ends


class BudgetSnapshot(msgspec.Struct, frozen=True):
    """Budgets and their accounts, as read from the journal and the configuration."""

    budgets: tuple[BudgetRecord, ...]
    accounts: dict[Key, BudgetAccount]


class Budgets:
    """Budgets in force and their accounts, in memory, for turns and runs."""

    def __init__(
        self,
        hub: Notifier,
        now_ms: NowMs,
        *,
        prices: Prices,
        configured: Iterable[BudgetRecord] = (),
        reserve_tokens: int = 8_192,
    ) -> None:
        """`reserve_tokens` is reserved for an answer whose length the request does not limit."""
        self.prices = prices
        self.configured = {budget.budget_id: budget for budget in configured}
        self.refusals: Counter[BudgetScope] = Counter()  # since start
        self.alerts: Counter[BudgetScope] = Counter()
        self._hub = hub
        self.now_ms = now_ms
        self._reserve_tokens = reserve_tokens
        self._in_force = dict(self.configured)
        self._accounts: dict[Key, BudgetAccount] = {}
        self._of_runs: dict[str, dict[Key, BudgetAccount]] = defaultdict(dict)
        self._unswept: list[Key] = []
        self._freed: trio.Event | None = None  # set when an account may admit more
        self._notes: list[list[UsageRecord]] = []  # see `noting`

    # --- reading the journal

    def query(self, store: JournalStore) -> BudgetSnapshot:
        """Return the stored and configured budgets with their spent amounts.  Blocks."""
        found = {budget.budget_id: budget for budget in store.list_budgets()} | self.configured
        now_ms = self.now_ms()
        accounts: dict[Key, BudgetAccount] = {}
        for budget in found.values():
            accounts |= open_accounts(budget, read_sums(store, budget, now_ms), now_ms)
        return BudgetSnapshot(tuple(found.values()), accounts)

    def put(self, found: BudgetSnapshot) -> None:
        """Replace all budgets in force and their accounts."""
        self._accounts = found.accounts
        self._of_runs.clear()
        self._in_force = {budget.budget_id: budget for budget in found.budgets}

    def _add(self, budget: BudgetRecord, line: UsageRecord) -> None:
        """Add a call that ended while the ledger was read, without an alert."""
        payer = Payer(line.principal, line.agent, line.session_id, line.run_id)
        key = None if budget.window == "run" else find_key(budget, payer)
        if key is not None:
            account = self._accounts.setdefault(key, BudgetAccount(budget, key.subject))
            account.add(amount_of(budget, line), line.at_ms)
            account.pass_mark(self.now_ms())

    # --- start of a call

    async def admit(
        self, run: MeteredRun, meter: Reservation, request: ModelRequest, most_output: int
    ) -> BudgetExceeded | None:
        """Reserve the most that the call may cost; return the refusal if a budget does not allow it.

        `most_output` is the bound on output tokens (`LanguageModel.most_output`).  Waits while
        concurrent calls reserve the rest of an account; each of them ends and releases its unused
        part.  Returns at once if no budget applies.
        Cancellation: nothing is reserved.
        """
        most = Usage(
            input_tokens=meter.input_tokens, output_tokens=most_output or self._reserve_tokens
        )
        refusal = await self._reserve(
            meter, most, lambda: self.find(run.run), lambda: run.run.lifted
        )
        if refusal is None:
            return None
        return refusal.event(
            self.now_ms(), turn=request.turn, attempt=request.attempt, model=request.model
        )

    async def admit_payer(self, payer: Payer, meter: Reservation) -> BudgetRefusal | None:
        """Like `admit`, for a call outside of runs, which cannot request an approval."""
        most = Usage(input_tokens=meter.input_tokens)
        return await self._reserve(meter, most, lambda: self._find_of(payer), frozenset)

    async def _reserve(
        self,
        meter: Reservation,
        most: Usage,
        find: Callable[[], list[BudgetAccount]],
        lifted: Callable[[], Collection[str]],
    ) -> BudgetRefusal | None:
        while accounts := find():  # the accounts may change during the wait
            now_ms = self.now_ms()
            cost = self.prices.most(meter.model, most, now_ms)
            least = self.prices.least(meter.model, most.input_tokens, now_ms)
            let_go = lifted()
            strict = (each for each in accounts if each.budget.budget_id not in let_go)
            obstacle = judge(strict, most.input_tokens, least, now_ms)
            if obstacle is None:
                meter.hold(accounts, most.input_tokens + most.output_tokens, cost or 0)
                break
            if isinstance(obstacle, BudgetRefusal):
                self.refusals[obstacle.account.budget.scope] += 1
                return obstacle
            await self._wait_freed()
        meter.is_sent = True
        return None

    async def _wait_freed(self) -> None:
        if self._freed is None:
            self._freed = trio.Event()
        await self._freed.wait()

    def find(self, run: Run) -> list[BudgetAccount]:
        """Return the accounts that calls of the run are charged to."""
        accepted = run.accepted
        limits = accepted.budget
        if not self._in_force and limits.tokens is None and limits.usd_micros is None:
            return []
        payer = Payer(accepted.principal, accepted.agent, accepted.session_id, run.run_id)
        budgets = (*self._in_force.values(), *run_budgets(accepted, run.run_id))
        keys = ((budget, find_key(budget, payer)) for budget in budgets)
        return [self._account(budget, key, run) for budget, key in keys if key is not None]

    def _find_of(self, payer: Payer) -> list[BudgetAccount]:
        """Return the accounts of a call outside of runs."""
        budgets = [
            each for each in self._in_force.values() if "run" not in {each.scope, each.window}
        ]
        keys = ((budget, find_key(budget, payer)) for budget in budgets)
        return [self._account(budget, key) for budget, key in keys if key is not None]

    def _account(self, budget: BudgetRecord, key: Key, run: Run | None = None) -> BudgetAccount:
        if run is not None and budget.window == "run":
            return self._run_account(budget, key, run)
        account = self._accounts.get(key)
        return account or self._accounts.setdefault(key, BudgetAccount(budget, key.subject))

    def _run_account(self, budget: BudgetRecord, key: Key, run: Run) -> BudgetAccount:
        """Return the account of a per-run budget, opened with the usage on the run's tape."""
        known = self._of_runs[run.run_id]
        account = known.get(key)
        if account is None or account.budget != budget:
            account = known[key] = BudgetAccount(budget, key.subject)
            usage = run.costs.usage.plus(run.costs.delegated_usage)
            cost = run.costs.usd_micros + run.costs.delegated_usd_micros
            account.add(amount_of_usage(budget, usage, cost), self.now_ms())
            account.pass_mark(self.now_ms())
        return account

    def _sweep(self) -> None:
        """Above `SWEEP_AT` accounts, check the next `SWEEP_STEP` and remove the empty ones."""
        if len(self._accounts) < SWEEP_AT:
            return
        self._unswept = self._unswept or list(self._accounts)
        now_ms = self.now_ms()
        for key in self._unswept[-SWEEP_STEP:]:
            account = self._accounts.get(key)
            if account is not None and not account.reserved and not account.spent(now_ms):
                del self._accounts[key]
        del self._unswept[-SWEEP_STEP:]

    def find_end(self, run: MeteredRun) -> str:
        """Return why no further call of the run will be admitted; see `core.usage.budgets.find_end`."""
        used = None if run.reservation is None else run.reservation.usage
        last = (
            None
            if run.reservation is None or used is None
            else self.charge(run.reservation.model, used)
        )
        return find_end(self.find(run.run), last, self.now_ms())

    # --- end of a call

    def charge(self, model: str, usage: Usage) -> Charge:
        """Return the usage with its cost at the current price of the model."""
        return Charge(usage=usage, cost_usd_micros=self.prices.cost(model, usage, self.now_ms()))

    def finish(self, meter: Reservation, result: ModelTurn) -> ModelTurn:
        """Return the turn with its cost; a cost reported by the provider is kept."""
        meter.usage = result.usage
        if result.cost_usd_micros:
            return result
        cost = self.charge(meter.model, result.usage).cost_usd_micros
        return msgspec.structs.replace(result, cost_usd_micros=cost or 0, is_unpriced=cost is None)

    def break_off(self, meter: Reservation, *, had_output: bool) -> Charge | None:
        """Return the charge for a failed call; None without output, which costs nothing."""
        if not had_output:
            meter.usage = Usage()
            self._give_back(meter)
            return None
        meter.usage = meter.measure()
        return self.charge(meter.model, meter.usage)

    def abandon(self, run: MeteredRun) -> Charge | None:
        """Return the charge for the run's current call when the run ends or is restarted.

        None if no call was sent in the open turn.
        """
        meter, state = run.reservation, run.run
        if not state.turn_is_open or (meter is not None and not meter.is_sent):
            return None
        if meter is None:  # sent by an earlier incarnation: the length of its output is unknown
            meter = Reservation(state.asked.model, state.asked.input_tokens)
        return self.charge(meter.model, meter.measure())

    def settle(self, run: MeteredRun, line: UsageRecord) -> None:
        """Release the reservation of the run's call and charge its ledger line to the accounts."""
        self.release(run)
        self._charge(self.find(run.run), line)

    def settle_payer(self, payer: Payer, meter: Reservation, line: UsageRecord | None) -> None:
        """Like `settle`, for a call outside of runs; `line` is None if no request was sent."""
        self._give_back(meter)
        if line is not None:
            self._charge(self._find_of(payer), line)
        self._sweep()

    def _charge(self, accounts: list[BudgetAccount], line: UsageRecord) -> None:
        for noted in self._notes:
            noted.append(line)
        for account in accounts:
            account.add(amount_of(account.budget, line), line.at_ms)
            mark = account.pass_mark(line.at_ms)
            if mark is not None:
                self._alert(account, mark, line.at_ms)
        if accounts:
            self._wake()

    def release(self, run: MeteredRun) -> None:
        """Release the reservation of the run's call."""
        meter, run.reservation = run.reservation, None
        if meter is not None:
            self._give_back(meter)

    def _give_back(self, meter: Reservation) -> None:
        if meter.holds:
            meter.give_back()
            self._wake()

    def leave(self, run: MeteredRun) -> None:
        """Release the reservation of an ended run's actor and remove the accounts of the run."""
        self.release(run)
        self._of_runs.pop(run.run_id, None)
        self._sweep()  # not during a lookup, which would remove accounts of the call being admitted

    def _wake(self) -> None:
        if self._freed is not None:
            self._freed.set()
            self._freed = None

    # --- queries and changes

    @property
    def in_force(self) -> Mapping[str, BudgetRecord]:
        """Budgets in force by id, without the limits given to single runs."""
        return self._in_force

    @property
    def accounts(self) -> list[BudgetAccount]:
        """All known accounts, sorted by budget, subject and run."""
        of_runs = (each for known in self._of_runs.values() for each in known.items())
        return [each for _, each in sorted([*self._accounts.items(), *of_runs])]

    @contextmanager
    def noting(self) -> Generator[list[UsageRecord]]:
        """Collect the ledger lines charged inside the block."""
        noted: list[UsageRecord] = []
        self._notes.append(noted)
        try:
            yield noted
        finally:
            self._notes.remove(noted)

    def enforce(
        self,
        budget: BudgetRecord,
        accounts: Mapping[Key, BudgetAccount],
        lines: Iterable[UsageRecord] = (),
    ) -> None:
        """Put a budget in force with its accounts and later lines, replacing the one of its id.

        If only limits or action changed, the existing accounts and their reservations are kept.
        """
        before = self._in_force.get(budget.budget_id)
        self._in_force[budget.budget_id] = budget
        if before is not None and _measures(before) == _measures(budget):
            for account in self.accounts:
                if account.budget.budget_id == budget.budget_id:
                    account.budget = budget
        else:
            self._forget(budget.budget_id)
            self._accounts.update(accounts)
            for line in lines:
                self._add(budget, line)
        self._wake()

    def lift(self, budget_id: str) -> None:
        """Put a budget out of force and remove its accounts."""
        self._in_force.pop(budget_id, None)
        self._forget(budget_id)
        self._wake()

    def _forget(self, budget_id: str) -> None:
        for known in (self._accounts, *self._of_runs.values()):
            for key in [key for key in known if key.budget_id == budget_id]:
                del known[key]

    # --- alerts

    def _alert(self, account: BudgetAccount, mark: Mark, at_ms: int) -> None:
        """Log a passed limit and notify subscribers, once for each window."""
        budget = account.budget
        limit = budget.soft if mark == "soft" else budget.hard
        warned = BudgetWarned(
            budget_id=budget.budget_id,
            scope=budget.scope,
            subject=account.subject,
            metric=budget.metric,
            window=budget.window,
            level=mark,
            spent=account.spent(at_ms),
            limit=limit or 0,
            rolls_ms=account.rolls_ms(at_ms),
        )
        log.warning("a budget has reached a limit", **msgspec.structs.asdict(warned))
        self.alerts[budget.scope] += 1
        whose = account.subject if budget.scope == "principal" else ""
        self._hub.notify("budget.warned", warned, principal=whose, scope="usage:read")


def _measures(budget: BudgetRecord) -> tuple[object, ...]:
    """Return the fields that identify the accounts of a budget; limits and action are left out."""
    return budget.scope, budget.subject, budget.metric, budget.window, budget.window_ms
