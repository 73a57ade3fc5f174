"""Targets of a call, as far as its tool can name them before it runs: file contents and an address."""

from typing import NamedTuple

from palyra.core.tool.checkpoints import Content


class FileTarget(NamedTuple):
    """One file before and after the call; None where there is no file."""

    path: str
    before: Content | None
    after: Content | None


class CallTargets(NamedTuple):
    """Files that a call would change, and the host that it would contact."""

    files: tuple[FileTarget, ...] = ()
    address: str = ""  # of the first request, normalised
    notes: tuple[str, ...] = ()  # tolerance that a patch needed
