"""A typed client for protocol v1.

    async with connect() as client:
        started = await client.start_run("hello")
        async with client.events(started.run_id) as items:
            async for item in items:
                ...

Imports only `core`, `errors` and its own package, and none of the daemon's heavy libraries.
"""

from palyra.net.client.admin import QueueChange
from palyra.net.client.client import Client, RunOptions
from palyra.net.client.connect import connect
from palyra.net.client.export import export_run
from palyra.net.client.feed import CaughtUp, Dropped, Item, Progress, Reset, TapeEvent
from palyra.net.client.race import wait_any
from palyra.net.client.registry import Agent, Channel, Pairing
from palyra.net.client.replies import RunView, TapePage, Token
from palyra.net.client.skills import Skill, SkillAudit
from palyra.net.client.subscription import Inbox, Notice, Subscription

__all__ = [
    "Agent",
    "CaughtUp",
    "Channel",
    "Client",
    "Dropped",
    "Inbox",
    "Item",
    "Notice",
    "Pairing",
    "Progress",
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
