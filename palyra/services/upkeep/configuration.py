"""The configuration for clients: values with their sources, and changes of the file.

Owns: nothing.  Talks to: the configuration file, in threads.
Never: shows a secret (the file takes references only), or writes a value that the daemon would not
start with.
"""

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

import msgspec
import structlog

from palyra.core.access import Caller
from palyra.core.configuration import ConfigChange, ConfigChanged, ConfigView
from palyra.core.ports import RunBlocking
from palyra.errors import Overloaded, Unavailable

log = structlog.get_logger("palyra.config")


class ConfigurationFile(Protocol):
    """The configuration file as the service uses it."""

    def read(self) -> ConfigView:
        """Return all keys.  Blocks.  Raises Unavailable."""

    def change(self, change: ConfigChange) -> ConfigChanged:
        """Write one value.  Blocks.  Raises InvalidParams, Conflict, Unavailable."""


class Configuration:
    """The daemon's configuration, for operators."""

    def __init__(
        self,
        file: ConfigurationFile,
        run_blocking: RunBlocking,
        refresh: Callable[[], Awaitable[str]],
    ) -> None:
        """`refresh` makes the daemon take up the live keys of the file; it returns why it did not."""
        self._file = file
        self._refresh = refresh
        self._run_blocking = run_blocking
        self._is_busy = False

    async def read(self, caller: Caller) -> ConfigView:
        """Return every key with its value and source, after the file was taken up.

        Raises Forbidden, Unavailable.
        """
        caller.require("config:read")
        problem = await self._refresh()
        view = await self._run_blocking(self._file.read)
        return msgspec.structs.replace(view, problem=view.problem or problem)

    async def change(self, caller: Caller, change: ConfigChange) -> ConfigChanged:
        """Write one value; on return the file is complete, and a live key is in force.

        Raises Forbidden, InvalidParams for a value that the daemon would not start with, Conflict for
        a file that changed meanwhile and for the removal of what an open run uses, Overloaded during
        another change, Unavailable, also for a live key that is written and not in force yet.
        Cancellation: the file may have been written.
        """
        caller.require("config:write")
        with self._exclusive():
            changed = await self._run_blocking(partial(self._file.change, change))
            problem = await self._refresh()
        log.info("configuration changed", key=change.key, by=caller.principal)
        if problem and changed.effect == "now":
            raise Unavailable(f"{change.key} is in the file, and not in force yet: {problem}")
        return changed

    @contextmanager
    def _exclusive(self) -> Generator[None]:
        if self._is_busy:
            raise Overloaded("another change is being written", retry_after_ms=200)
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False
