"""Palyra, a self-hosted agent daemon on structured concurrency.

    import palyra

    with palyra.blocking.connect() as client:
        run = client.start_run("hello")

The names of `palyra.client` and `palyra.errors` are offered here, with the clients for asyncio
(`palyra.aio`) and for programs without an event loop (`palyra.blocking`).  A name is imported when it
is first used (`__init__.pyi` has their types): the daemon and its command line start without the
clients.
"""

import importlib

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "CaughtUp",
    "Channel",
    "Client",
    "EventsDiscarded",
    "Inbox",
    "Item",
    "Notice",
    "Pairing",
    "PalyraError",
    "ProgressItem",
    "QueueChange",
    "Reset",
    "RunOptions",
    "RunView",
    "RunWatching",
    "RunsUpdated",
    "Skill",
    "SkillAudit",
    "Subscription",
    "TapeEvent",
    "TapePage",
    "Token",
    "aio",
    "blocking",
    "connect",
    "errors",
    "export_run",
    "wait_any",
]

_MODULES = {
    "aio": "palyra.client.aio",
    "blocking": "palyra.client.blocking",
    "errors": "palyra.errors",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _MODULES:
        found = importlib.import_module(_MODULES[name])
    else:
        home = "palyra.errors" if name == "PalyraError" else "palyra.client"
        found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
