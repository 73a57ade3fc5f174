"""A daemon with tools that have a grant key, or inspect the world before they are approved."""

from typing import Any

import trio

from palyra.actors.config_watch import notify_runs
from palyra.core.access import Caller
from palyra.core.approval import ResolveApproval
from palyra.core.journal.records import ApprovalRecord
from palyra.core.policy.request import PolicyDecision, PolicyRequest
from palyra.core.policy.views import Resolved
from palyra.core.tool.spec import CallFacts, Preflight, ToolCall, ToolFailure, ToolOutput
from palyra.tools.toolbox import InlineTool
from tests.actors.run.office_kit import OPERATOR, Kit, NamePolicy, call, say, spec
from tests.store.memory.journal import MemoryJournal

WORLD = Preflight(
    binary="/usr/bin/git",
    cwd="src",
    environment={"LANG": "C.UTF-8"},
    operands={"a.py": "0" * 64},
    profile="strict",
)


class SwitchPolicy(NamePolicy):
    """Rules by name that a test may exchange."""

    def __init__(self) -> None:
        self.version = "v1"
        self.answers: dict[str, Any] = {}  # by tool or action, before the name counts

    def decide(self, request: PolicyRequest) -> PolicyDecision:
        found = super().decide(request)
        answer = self.answers.get(request.action, self.answers.get(request.tool))
        if answer is None:
            return found
        return PolicyDecision(
            answer=answer, reason_code="switched", reason="x", policies=(), version=self.version
        )


class AskingKit(Kit):
    """`ask_do` is keyed by its first word; `ask_look` inspects `world` first."""

    world: Preflight | ToolFailure | OSError = WORLD
    looks = 0

    def new_policy(self) -> NamePolicy:
        return SwitchPolicy()

    def tools(self) -> list[Any]:
        def do(called: ToolCall) -> ToolOutput:
            self.effects.append(called.arguments["text"])
            return ToolOutput(text="did it")

        def look(_called: ToolCall) -> Preflight:
            self.looks += 1
            if isinstance(self.world, ToolFailure | OSError):
                raise self.world
            return self.world

        return [
            *super().tools(),
            InlineTool(spec("ask_do"), do, facets=keyed),
            InlineTool(spec("ask_other"), do, facets=keyed),
            InlineTool(spec("ask_look"), do, inspect=look),
        ]

    def exchange_rules(self, version: str, **answers: Any) -> None:
        """Other rules are in force, as the policy watch would put them."""
        assert isinstance(self.policy, SwitchPolicy)
        self.policy.version = version
        self.policy.answers = answers
        notify_runs(self.approvals, self.registry)


def keyed(arguments: Any) -> CallFacts:
    """The first word is the key."""
    return CallFacts(grant_key=arguments["text"].partition(" ")[0])


def new_store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


async def ask(
    kit: Kit,
    text: str = "git status",
    tool: str = "ask_do",
    caller: Caller = OPERATOR,
    **fields: Any,
) -> str:
    """Start a run that proposes one call; return its id once it waits or has ended."""
    kit.model.turns = [call((tool, {"text": text})), say("done")]
    run_id = await kit.start(caller=caller, **fields)
    await kit.gateway.wait_run(OPERATOR, run_id, until="attention", timeout_s=60)
    return run_id


async def pending(kit: Kit, run_id: str | None = None) -> list[ApprovalRecord]:
    """The open questions, newest first."""
    return await kit.answers.list_seen(OPERATOR, run_id=run_id, pending_only=True, limit=99)


async def answer(
    kit: Kit, asked: ApprovalRecord, decision: str = "allow", **fields: Any
) -> Resolved:
    """A person's answer."""
    caller = fields.pop("caller", OPERATOR)
    values: dict[str, Any] = {
        "approval_id": asked.approval_id, "decision": decision, "digest": asked.digest,
    }  # fmt: skip
    return await kit.answers.resolve(caller, ResolveApproval(**(values | fields)))


async def count_asked(kit: Kit, run_id: str) -> int:
    """Number of approvals of a run that is at rest."""
    await trio.testing.wait_all_tasks_blocked()
    return len(kit.events(run_id, "approval.requested"))
