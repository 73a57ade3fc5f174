"""Typed client of protocol v1.

    async with connect() as client:
        started = await client.start_run("hello")
        async with client.events(started.run_id) as items:
            async for item in items:
                ...

Imports only `core`, `errors`, `net.protocol` and its own package, and none of the daemon's heavy
libraries.
"""

from palyra.client.client import Client, connect
from palyra.client.dial import wait_any
from palyra.client.feed import CaughtUp, EventsDiscarded, Item, Reset, TapeEvent
from palyra.client.runs import RunOptions
from palyra.client.sessions import QueueChange
from palyra.client.subscription import Inbox, Notice, Subscription
from palyra.client.tapes import TapePage, export_run
from palyra.core.session.commands import RunView
from palyra.net.protocol.notifications import ProgressItem
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
