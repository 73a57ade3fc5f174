"""Secrets for the daemon: found when they are used, and known to the redactor before that.

Talks to: the resolver (in threads), the redactor.  Talked to by: whatever needs a secret.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import structlog
import trio

from palyra.core.ports import RunBlocking
from palyra.errors import NotFound, PalyraError
from palyra.secrets.resolver import Resolver, recognisable

log = structlog.get_logger("palyra.secrets")
LOOK_S = 1.0  # between looks at the vault: one stat


class SecretService:
    """The only way to a secret inside the daemon."""

    def __init__(
        self, resolver: Resolver, run_blocking: RunBlocking, learn: Callable[..., None]
    ) -> None:
        """`learn` teaches the redactor any number of values."""
        self._resolver = resolver
        self._run_blocking = run_blocking
        self._learn = learn
        self._stamp: tuple[int, int, int] | None = None  # of the vault at the last look
        self.problems: tuple[str, ...] = ()  # why the vault cannot be read

    async def find(self, reference: str) -> str:
        """The secret, which every record from now on is kept clean of.

        Raises InvalidParams, NotFound or Unavailable, without the value.
        """
        value = await self._run_blocking(self._resolver.resolve, reference)
        self._learn(value)
        return value

    async def find_in_vault(self, name: str) -> str | None:
        """The vault's secret of that name; None when there is none.  Raises Unavailable."""
        try:
            return await self.find(f"vault:{name}")
        except NotFound:
            return None

    async def keep_known(
        self,
        references: Iterable[str],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Learn all that the configuration names and the vault, then the vault at each change.

        So none of it is ever written.  What cannot be found now is an error at its use; here it is
        only said, and of the vault it is a problem until it can be read.  The keyring is left out:
        it may ask a person.  Cancellation: what was learnt stays known.
        """
        self._learn(*await self._run_blocking(self._find_named, tuple(references)))
        self._learn(*await self._run_blocking(self._find_changed))
        task_status.started()
        while True:
            await trio.sleep(LOOK_S)
            self._learn(*await self._run_blocking(self._find_changed))

    def _find_named(self, references: tuple[str, ...]) -> list[str]:
        named = (each for each in references if not each.startswith("keyring:"))
        return list(_each_found((each, self._resolver.resolve) for each in named))

    def _find_changed(self) -> list[str]:
        """The vault's secrets, unless it is as it was at the last look and could be read then."""
        stamp = self._resolver.vault.stamp()
        if stamp == self._stamp and not self.problems:
            return []
        self._stamp = stamp
        try:
            entries = self._resolver.vault.read()
        except PalyraError as error:
            problem = f"the vault cannot be read: {error.message}"
            if self.problems != (problem,):
                log.warning("the vault cannot be read", reason=error.message)
            self.problems = (problem,)
            return []
        self.problems = ()
        return list(
            _each_found(
                (f"vault:{name}", partial(recognisable, value=entry.value))
                for name, entry in entries.items()
            )
        )


def _each_found(wanted: Iterable[tuple[str, Callable[[str], str]]]) -> Iterator[str]:
    """Those secrets that there are; of the others it is said that there are none."""
    for reference, find in wanted:
        try:
            yield find(reference)
        except PalyraError as error:
            log.warning("a secret cannot be found", reason=error.message)
