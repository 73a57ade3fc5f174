"""Secret service of the daemon: resolves references and registers values with the redactor.

Talks to: the resolver (in threads), the redactor.  Talked to by: all components that use secrets.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import structlog
import trio

from palyra.core.access import Caller
from palyra.core.configuration import StoredSecret
from palyra.core.ports import RunBlocking
from palyra.core.redaction.secret_references import parse_reference
from palyra.errors import NotFound, PalyraError
from palyra.secrets.resolver import Resolver

log = structlog.get_logger("palyra.secrets")
LOOK_S = 1.0  # polling interval for the vault; each poll costs one stat call


class SecretService:
    """Single point of access to secrets inside the daemon."""

    def __init__(
        self, resolver: Resolver, run_blocking: RunBlocking, learn: Callable[..., None]
    ) -> None:
        """`learn` registers any number of values with the redactor."""
        self._resolver = resolver
        self._run_blocking = run_blocking
        self._learn = learn
        self._stamp: tuple[int, int, int] | None = None  # of the vault at the last poll
        self._vault_problems: tuple[str, ...] = ()  # why it cannot be read; empty if it can
        self._absent: tuple[str, ...] = ()  # configured names that the environment lacks, for good

    @property
    def problems(self) -> tuple[str, ...]:
        """Problems for an operator: an unreadable vault, names that the environment lacks."""
        return (*self._vault_problems, *self._absent)

    async def find(self, reference: str) -> str:
        """Return the secret; the redactor removes it from every later record.

        Raises InvalidParams, NotFound or Unavailable; no message contains the value.
        """
        value = await self._run_blocking(self._resolver.resolve, reference)
        self._learn(value)
        return value

    async def find_key(self, reference: str) -> str:
        """Return the key of a model provider; a short one is a placeholder and is not redacted.

        Raises InvalidParams, NotFound or Unavailable; no message contains the value.
        """
        value = await self._run_blocking(
            partial(self._resolver.resolve, may_be_short=True), reference
        )
        self._learn(value)
        return value

    def is_vault(self, content: bytes) -> bool:
        """True if that is a vault that the present key opens.  Blocks."""
        return self._resolver.vault.can_open(content)

    async def find_in_vault(self, name: str) -> str | None:
        """Return the vault's secret of that name, None if it is missing.  Raises Unavailable."""
        try:
            return await self.find(f"vault:{name}")
        except NotFound:
            return None

    # --- for clients

    async def list_stored(self, caller: Caller) -> list[StoredSecret]:
        """Return the secrets of the vault by name.  Raises Forbidden, Unavailable."""
        caller.require("secrets:read")
        entries = await self._run_blocking(self._resolver.vault.read)
        return [
            StoredSecret(name=name, set_ms=entry.set_ms) for name, entry in sorted(entries.items())
        ]

    async def put(self, caller: Caller, name: str, value: str, now_ms: int) -> StoredSecret:
        """Store a secret, durably; unless it is refused, it is redacted from the call on.

        Raises Forbidden, InvalidParams, Unavailable; no message contains the value.
        Cancellation: the secret may have been stored.
        """
        caller.require("secrets:write")
        reference = parse_reference(f"vault:{name}")
        value = value.removesuffix("\n").removesuffix("\r")
        await self._run_blocking(self._resolver.require_secret, value)
        self._learn(value)
        await self._run_blocking(self._resolver.put, reference.name, value, now_ms)
        log.info("secret set", name=reference.name, by=caller.principal)
        return StoredSecret(name=reference.name, set_ms=now_ms)

    async def remove(self, caller: Caller, name: str) -> None:
        """Remove a secret, durably; its value stays redacted.

        Raises Forbidden, InvalidParams, NotFound, Unavailable.
        Cancellation: the secret may have been removed.
        """
        caller.require("secrets:write")
        reference = parse_reference(f"vault:{name}")
        if not await self._run_blocking(self._resolver.vault.remove, reference.name):
            raise NotFound(
                f"the vault holds no {name!r}: `secret.list` has the names", field="name"
            )
        log.info("secret removed", name=reference.name, by=caller.principal)

    # --- the redactor

    async def keep_known(
        self,
        references: Iterable[str],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Register configured and vault secrets with the redactor, and the vault's at each change.

        The values are thereby redacted from all records before their first use.  A missing secret
        is logged here and raises at its use; a name that the environment lacks is in `problems`
        too.  So is an unreadable vault until it can be read.  Keyring references are skipped, because a keyring may prompt the
        user.  Cancellation: registered values stay registered.
        """
        self._learn(*await self._run_blocking(self._find_named, tuple(references)))
        self._learn(*await self._run_blocking(self._find_changed))
        task_status.started()
        while True:
            await trio.sleep(LOOK_S)
            self._learn(*await self._run_blocking(self._find_changed))

    def _find_named(self, references: tuple[str, ...]) -> list[str]:
        found, absent = [], []
        for reference in references:
            if reference.startswith("keyring:"):
                continue
            try:
                found.append(self._resolver.resolve(reference))
            except PalyraError as error:
                log.warning("a secret cannot be found", reason=error.message)
                if reference.startswith("env:"):
                    absent.append(error.message)
        self._absent = tuple(absent)
        return found

    def _find_changed(self) -> list[str]:
        """Return the vault's secrets, [] if it was readable and is unchanged since the last poll."""
        stamp = self._resolver.vault.stamp()
        if stamp == self._stamp and not self._vault_problems:
            return []
        self._stamp = stamp
        try:
            entries = self._resolver.vault.read()
        except PalyraError as error:
            problem = f"the vault cannot be read: {error.message}"
            if self._vault_problems != (problem,):
                log.warning("the vault cannot be read", reason=error.message)
            self._vault_problems = (problem,)
            return []
        self._vault_problems = ()
        return list(
            _each_found(
                (f"vault:{name}", partial(self._resolver.recognisable, value=entry.value))
                for name, entry in entries.items()
            )
        )


def _each_found(wanted: Iterable[tuple[str, Callable[[str], str]]]) -> Iterator[str]:
    """Yield the secrets that can be resolved; log a warning for each of the others."""
    for reference, find in wanted:
        try:
            yield find(reference)
        except PalyraError as error:
            log.warning("a secret cannot be found", reason=error.message)
