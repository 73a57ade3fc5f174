"""A small world for `core.run`: an environment without rules, and a driver that plays inputs."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from palyra.core.context.assembly import Prefix, assemble, stable_prefix
from palyra.core.context.history import NO_HISTORY
from palyra.core.context.overflow import plan_compaction
from palyra.core.journal.records import AgentRecord, Usage
from palyra.core.model.messages import FinishReason, ModelRequest, ModelTurn, ProposedCall
from palyra.core.model.route_plan import Leaving, RouteChange, RoutePlan
from palyra.core.policy.gate import Allow, Deny, NeedsApproval
from palyra.core.run.answer import AnswerDefect, find_defect
from palyra.core.run.call import Call
from palyra.core.run.decide import accept, decide
from palyra.core.run.delegation import plan_delegation
from palyra.core.run.environment import GatedCall, RunLimits
from palyra.core.run.inputs import Gather, GoOn, Input, Yield
from palyra.core.run.state import Run, fold
from palyra.core.run.step import Transition
from palyra.core.tape import events as ev
from palyra.core.tape.events import Compaction
from palyra.core.tool.arguments import Refused
from palyra.core.tool.spec import Catalogue

AGENT = AgentRecord(name="default", version=0, instructions="Be useful.")
PREFIX: Prefix = stable_prefix(AGENT, Catalogue(tools={}, hash="h"))
_WORDS: dict[str, Any] = {
    "reason_code": "test",
    "reason": "because",
    "policies": (),
    "version": "v1",
}


def evaluate(_run: Run, call: Call) -> GatedCall:
    """The verdict is in the tool's name; the class in what follows a colon."""
    verdict, _, tool_class = call.tool.partition(":")
    verdicts: dict[str, Any] = {
        "allow": Allow(**_WORDS),
        "deny": Deny(**_WORDS),
        "ask": NeedsApproval(**_WORDS, risk="medium", summary="s"),
        "refuse": Refused(reason="bad", repair_hint="good"),
    }
    return GatedCall(
        digest=f"digest of {call.call_id}",
        tool_class=tool_class or "read_only_safe",
        arguments=call.arguments,
        verdict=verdicts[verdict],
        execution_digest=f"execution of {call.call_id}",
        may_rerun=tool_class != "effect",
    )


class ChangeRoute(Protocol):
    """`RunEnvironment.change_route` as a value."""

    def __call__(self, run: Run, leaving: Leaving, /, *, may_retry: bool) -> RouteChange | None:
        """Choose the model that takes over."""
        ...


class ScriptedEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """A `RunEnvironment` of functions, so that a test can replace any of them."""

    now_ms: Callable[[], int]
    new_id: Callable[[str], str]
    redact: Callable[[bytes], tuple[bytes, bool]]
    sign: Callable[[bytes], bytes]
    evaluate: Callable[[Run, Call], GatedCall]
    assemble: Callable[[Run, int, int], tuple[ev.ContextAssembled, ModelRequest]]
    jitter_ms: Callable[[int], int]
    provider: Callable[[str], str]
    limits: RunLimits
    plan_route: Callable[[Run], RoutePlan | None] = lambda _run: None
    change_route: ChangeRoute = lambda _run, _leaving, may_retry: None  # noqa: ARG005 - the port's
    compact: Callable[[Run], Compaction | None] = lambda _run: None
    find_refused: Any = lambda _run, _class, _detail, may_retry: None  # noqa: ARG005 - the port's
    summary_is_due: Callable[[Run, int], bool] = lambda _run, _tokens: False
    is_stale: Callable[[Run, Call], bool] = lambda _run, _call: False
    has_lapsed: Callable[[Call], bool] = lambda _call: False
    find_sources: Callable[[Run], Gather | None] = lambda _run: None
    check_answer: Callable[[Run], AnswerDefect | None] = find_defect
    plan_delegation: Callable[[Run, Call], ev.DelegationStarted] = lambda run, call: (
        plan_delegation(run, call, run_id=f"run_of_{call.call_id}", left=run.accepted.budget)
    )


def environment(**limits: Any) -> ScriptedEnvironment:
    """An environment whose clock ticks one millisecond a step and whose ids count up."""
    clock = itertools.count(1_000)
    ids = itertools.count(1)
    return ScriptedEnvironment(
        now_ms=lambda: next(clock),
        new_id=lambda prefix: f"{prefix}_{next(ids)}",
        redact=lambda data: (data, False),
        sign=lambda data: data[:1] * 64,
        evaluate=evaluate,
        assemble=lambda run, turn, attempt: assemble(run, PREFIX, turn, attempt, b"key"),
        compact=lambda run: plan_compaction(run, NO_HISTORY, PREFIX.tokens),
        jitter_ms=lambda attempt: 10 * attempt,
        provider=lambda _model: "scripted",
        limits=RunLimits(**limits),
    )


def change_route(run: Run, leaving: Leaving, spares: Sequence[str]) -> RouteChange | None:
    """The first of the spares that the turn has not left."""
    gone = (*run.left, run.model)
    spare = next((name for name in spares if name not in gone), None)
    if spare is None or leaving == "gone":
        return None
    return RouteChange(
        turn=run.turn, from_model=run.model, model=spare, provider="p", reason=leaving, text=""
    )


class World:
    """One run, its tape and the effects so far; `spares` take over from its model, in order."""

    def __init__(
        self, *, text: Any = "hello", json_mode: bool = False, spares: Any = (), **limits: Any
    ) -> None:
        self.env = msgspec.structs.replace(
            environment(**limits),
            change_route=lambda run, leaving, may_retry: change_route(
                run, leaving, spares if not may_retry else ()
            ),
        )
        self.tape: list[tuple[str, int, bytes]] = []
        self.states: list[Run] = []  # after each step
        self.effects: list[Any] = []
        accepted = ev.RunAccepted(
            principal="ann",
            session_id="ses_1",
            agent="default",
            model="scripted",
            json_mode=json_mode,
        )
        self.keep(accept("run_1", accepted, ev.MessageReceived(text=text), self.env))

    def keep(self, step: Transition) -> Transition:
        """Remember what a step did."""
        self.run = step.run
        self.tape += [(draft.kind, step.now_ms, draft.data) for draft in step.drafts]
        self.states.append(step.run)
        self.effects += step.effects
        return step

    def hear(self, heard: Input) -> list[str]:
        """The kinds of the events that follow from one input, continuations included."""
        step = self.keep(decide(self.run, heard, self.env))
        kinds = [draft.kind for draft in step.drafts]
        return kinds + self.hear(GoOn()) if Yield() in step.effects else kinds

    def drafts(self, kind: str) -> list[Any]:
        """All events of a kind on the tape, decoded."""
        return [ev.decode_event(k, data) for k, _, data in self.tape if k == kind]

    def refold(self) -> Run:
        """The state a restart would find."""
        return fold("run_1", self.tape)


def exceeded(**fields: Any) -> ev.BudgetExceeded:
    """A budget of ten tokens a day, spent."""
    return ev.BudgetExceeded(
        **{
            "turn": 1,
            "attempt": 1,
            "budget_id": "day",
            "scope": "principal",
            "subject": "ann",
            "metric": "tokens",
            "window": "day",
            "spent": 12,
            "limit": 10,
            "rolls_ms": 86_400_000,
            "action": "block",
            "model": "scripted",
            **fields,
        }
    )


def turn(*tools: str, text: str = "", finish: FinishReason | None = None) -> ModelTurn:
    """A model's answer that calls these tools; ids are c1, c2 and so on, and so the digests."""
    calls = tuple(
        ProposedCall(call_id=f"c{index}", tool=tool, arguments={"n": index})
        for index, tool in enumerate(tools, 1)
    )
    return ModelTurn(
        text=text,
        calls=calls,
        finish_reason=finish or ("tool_calls" if calls else "stop"),
        usage=Usage(input_tokens=1, output_tokens=2),
    )
