"""What a model call under way has taken so far, and what is reserved for it.

Owned by: the run whose call it is.  Written by: the turn task, and `actors.budgets`.
"""

from typing import TYPE_CHECKING

from palyra.core.records import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palyra.core.budgets import Account

CHARS_PER_TOKEN = 4  # of an answer that was cut short; see core.tokens


class Meter:
    """One model call, from the step that asks for it to the one that records its end."""

    __slots__ = ("chars", "holds", "input_tokens", "is_sent", "model", "usage")

    def __init__(self, model: str, input_tokens: int) -> None:
        self.model = model
        self.input_tokens = input_tokens
        self.chars = 0  # of the answer
        self.is_sent = False
        self.usage: Usage | None = None  # as its end told it
        self.holds: Sequence[tuple[Account, int]] = ()

    def measure(self) -> Usage:
        """What it took, estimated unless its end has told."""
        if self.usage is not None:
            return self.usage
        answered = -(-self.chars // CHARS_PER_TOKEN)
        return Usage(input_tokens=self.input_tokens, output_tokens=answered)

    def hold(self, accounts: "Sequence[Account]", tokens: int, usd_micros: int) -> None:
        """Reserve so much in each account, of what it is about."""
        self.holds = [
            (account, tokens if account.budget.metric == "tokens" else usd_micros)
            for account in accounts
        ]
        for account, amount in self.holds:
            account.reserved += amount

    def give_back(self) -> None:
        """Reserve nothing any more."""
        for account, amount in self.holds:
            account.reserved -= amount
        self.holds = ()
