"""Typed client of protocol v1.

    async with connect() as client:
        started = await client.start_run("hello")
        async with client.events(started.run_id) as items:
            async for item in items:
                ...

Imports only `core`, `errors`, `net.protocol` and its own package, and none of the daemon's heavy
libraries.  `connect` and `wait_any` need trio; they are imported when they are first used, so that
programs with asyncio or without an event loop do without it (`__init__.pyi` has the types).
"""

import importlib

from palyra.client.client import Client
from palyra.client.feed import CaughtUp, EventsDiscarded, Item, Reset, TapeEvent
from palyra.client.runs import RunOptions
from palyra.client.sessions import QueueChange
from palyra.client.subscription import Inbox, Notice, RunWatching, Subscription
from palyra.client.tapes import TapePage, export_run
from palyra.core.session.commands import RunView
from palyra.net.protocol.notifications import ProgressItem, RunsUpdated
from palyra.net.protocol.results import Agent, Channel, Pairing, Skill, SkillAudit, Token

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
    "connect",
    "export_run",
    "wait_any",
]

_OF_TRIO = ("connect", "wait_any")


def __getattr__(name: str) -> object:
    if name not in _OF_TRIO:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        dial = importlib.import_module("palyra.client.dial")
    except ModuleNotFoundError as error:
        if error.name not in {"trio", "trio_websocket"}:
            raise
        raise ImportError(
            f"{name} of {__name__} needs trio: install palyra-client[trio], or use aio or blocking"
        ) from error
    found: object = getattr(dial, name)
    globals()[name] = found
    return found
