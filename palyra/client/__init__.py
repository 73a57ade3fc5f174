"""A typed client for protocol v1.

    async with connect() as client:
        started = await client.start_run("hello")
        async with client.events(started.run_id) as items:
            async for item in items:
                ...

Imports only `core`, `errors` and its own package, and none of the daemon's heavy libraries.
"""

from palyra.client.client import Client, RunOptions
from palyra.client.connect import connect
from palyra.client.export import export_run
from palyra.client.feed import CaughtUp, EventsDiscarded, Item, ProgressItem, Reset, TapeEvent
from palyra.client.operations import QueueChange
from palyra.client.registry import Agent, Channel, Pairing
from palyra.client.results import RunView, TapePage, Token
from palyra.client.skills import Skill, SkillAudit
from palyra.client.subscription import Inbox, Notice, Subscription, wait_any

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
