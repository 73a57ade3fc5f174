from palyra.client.client import Client
from palyra.client.dial import connect, wait_any
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
