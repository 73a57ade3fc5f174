"""The loop guard: detect a run that repeats itself without progress.

A fold over the turns of a run, by the outcomes of their calls.  Progress is an effect that succeeds
for the first time, or a new message of a person.  Since the last progress the guard counts:

- the same effect failing, or the same call denied: the third time ends the run;
- the same other failure, or the same read with the same result: a warning at the third, the end
  at the fourth;
- two turns in alternation, with the same results each time: a warning at the fourth turn, the
  end at the sixth.

The model sees the outcome of a call only after the turn, so repeats within one turn count once.
Two calls are the same if tool and digest of the arguments are equal.
"""

from collections.abc import Iterable, Sequence

import msgspec

from palyra.core.run.call import Call
from palyra.core.tape.events import Rule
from palyra.core.text.visible import describe_call

WARN_AT: dict[Rule, int] = {"failure": 3, "same_read": 3, "alternation": 4}
BLOCK_AT: dict[Rule, int] = {
    "failing_effect": 3,
    "denial": 3,
    "failure": 4,
    "same_read": 4,
    "alternation": 6,
}
_NOTED_FROM = 3  # the lowest threshold: no finding below it
READS = frozenset(
    {"read_only_safe", "idempotent_network", "unknown"}
)  # any other class is an effect
_FAILED = frozenset({"failed", "timed_out", "unknown"})
_SAYS: dict[Rule, str] = {
    "failing_effect": "failed {} times",
    "denial": "was denied {} times",
    "failure": "failed {} times",
    "same_read": "gave the same result {} times",
    "alternation": "took turns {} times with the same results",
}

CallId = tuple[str, str]  # tool, digest of the arguments
Repeat = tuple[Rule, str, str, str]  # tool, digest, result where the rule asks for it
Results = frozenset[tuple[str, str, str, str]]  # of a turn: tool, digest, status, output


class LoopFinding(msgspec.Struct, frozen=True, gc=False):
    """A repetition found after a turn."""

    rule: Rule
    call: str  # the call, or the tools of both turns, safe to show
    count: int
    ends: bool  # True: the run ends; False: the model is warned

    @property
    def sentence(self) -> str:
        """The repetition as part of a sentence."""
        return f"{self.call} {_SAYS[self.rule].format(self.count)}"

    @property
    def guidance(self) -> str:
        """The warning for the model."""
        return (
            f"{self.sentence}, and nothing got further in between. Going on like this ends the "
            "run. Do something else, or answer with what you have and say what is missing."
        )


class LoopGuard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """State of the guard; `findings` are of the last turn, not yet reported."""

    counts: dict[Repeat, int] = msgspec.field(default_factory=dict)  # never changed in place
    succeeded: frozenset[CallId] = frozenset()  # effects, over the whole run
    missed: frozenset[CallId] = frozenset()  # effects that failed at least once
    last: Results = frozenset()
    before: Results = frozenset()
    alternating: int = 0  # turns
    findings: tuple[LoopFinding, ...] = ()

    @property
    def end(self) -> LoopFinding | None:
        """The finding that ends the run."""
        return next((finding for finding in self.findings if finding.ends), None)


def is_effect(call: Call) -> bool:
    """True if the class of the call changes something."""
    return call.tool_class not in READS


def observe(progress: LoopGuard, calls: Sequence[Call]) -> LoopGuard:
    """Return the state after a turn whose calls have all ended."""
    succeeded, missed = progress.succeeded, progress.missed
    for call in calls:
        if not is_effect(call):
            continue
        if call.status == "succeeded":
            succeeded |= {(call.tool, call.digest)}
        else:
            missed |= {(call.tool, call.digest)}
    results = frozenset((call.tool, call.digest, call.status, call.output_sha256) for call in calls)
    if len(succeeded) > len(progress.succeeded):
        return LoopGuard(succeeded=succeeded, missed=missed, last=results, alternating=1)
    counts = dict(progress.counts)
    findings = [*_count_repeats(counts, calls)]
    alternating = 1
    if progress.last and results != progress.last:
        alternating = progress.alternating + 1 if results == progress.before else 2
    if alternating >= _NOTED_FROM:
        tools = sorted({tool for tool, *_ in results | progress.last})
        findings += _findings("alternation", alternating, " and ".join(tools))
    return LoopGuard(
        counts=counts,
        succeeded=succeeded,
        missed=missed,
        last=results,
        before=progress.last,
        alternating=alternating,
        findings=tuple(findings),
    )


def reset_counts(progress: LoopGuard) -> LoopGuard:
    """Return the state after a message of a person, which resets the counts."""
    return LoopGuard(succeeded=progress.succeeded, missed=progress.missed)


def clear_findings(progress: LoopGuard) -> LoopGuard:
    """Return the state after the findings were reported to the model."""
    return msgspec.structs.replace(progress, findings=())


def _count_repeats(counts: dict[Repeat, int], calls: Sequence[Call]) -> Iterable[LoopFinding]:
    """Count each repeat of the turn once, in `counts`, and yield findings."""
    repeats = {repeat: call for call in calls if (repeat := _repeat(call)) is not None}
    for repeat, call in repeats.items():
        counts[repeat] = counts.get(repeat, 0) + 1
        if counts[repeat] >= _NOTED_FROM:
            yield from _findings(
                repeat[0], counts[repeat], describe_call(call.tool, call.arguments)
            )


def _repeat(call: Call) -> Repeat | None:
    """Return what a repeat of the call counts as; None if repeats are allowed."""
    if call.status == "denied":
        return ("denial", call.tool, call.digest, "")
    if call.status in _FAILED and is_effect(call):
        return ("failing_effect", call.tool, call.digest, "")
    if call.status in _FAILED or call.status == "rejected":
        return ("failure", call.tool, call.digest, "")
    if call.status == "succeeded" and not is_effect(call):
        return ("same_read", call.tool, call.digest, call.output_sha256)
    return None


def _findings(rule: Rule, count: int, named: str) -> Iterable[LoopFinding]:
    ends = count >= BLOCK_AT[rule]
    if ends or count == WARN_AT.get(rule):
        yield LoopFinding(rule, named, count, ends)
