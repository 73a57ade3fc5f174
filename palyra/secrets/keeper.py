"""Secrets for the daemon: found when they are used, and known to the redactor before that.

Talks to: the resolver (in threads), the redactor.  Talked to by: whatever needs a secret.
"""

from collections.abc import Callable, Iterable, Iterator

import structlog
import trio

from palyra.core.ports import RunBlocking
from palyra.errors import NotFound, PalyraError
from palyra.secrets.resolver import Resolver

log = structlog.get_logger("palyra.secrets")


class SecretKeeper:
    """The only way to a secret inside the daemon."""

    def __init__(
        self, resolver: Resolver, run_blocking: RunBlocking, learn: Callable[..., None]
    ) -> None:
        """`learn` teaches the redactor any number of values."""
        self._resolver = resolver
        self._run_blocking = run_blocking
        self._learn = learn

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

    async def learn_known(
        self,
        references: Iterable[str],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Learn the vault and all that the configuration names, so that none of it is ever written.

        What cannot be found now is an error at its use; here it is only said.  The keyring is left
        out: it may ask a person.
        """
        self._learn(*await self._run_blocking(self._known, tuple(references)))
        task_status.started()

    def _known(self, references: tuple[str, ...]) -> list[str]:
        return list(self._find_known(references))

    def _find_known(self, references: tuple[str, ...]) -> Iterator[str]:
        for reference in (*references, *self._names()):
            try:
                if not reference.startswith("keyring:"):
                    yield self._resolver.resolve(reference)
            except PalyraError as error:
                log.warning("a secret cannot be found", reason=error.message)

    def _names(self) -> Iterator[str]:
        try:
            yield from (f"vault:{name}" for name in self._resolver.vault.read())
        except PalyraError as error:
            log.warning("the vault cannot be read", reason=error.message)
