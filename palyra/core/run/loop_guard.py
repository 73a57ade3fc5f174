"""The progress guard: does a run get further, or does it repeat what leads nowhere?

A fold over the turns of a run, by what their calls came to.  Counted since the run last got
further, that is, since an effect succeeded that had not succeeded before, or a person said
something new:

- the same effect failing, or the same call denied: the third time ends the run;
- the same other failure, or the same read with the same result: a warning at the third, the end
  at the fourth;
- two turns in alternation, with the same results each time: a warning at the fourth turn, the
  end at the sixth.

The model learns what came of a call only after the turn, so what a turn repeats within itself
counts once.  The same call is the same tool with the same arguments (by their digest).
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
_NOTED_FROM = 3  # the least threshold of all: below it nothing is named
READS = frozenset({"read_only_safe", "idempotent_network", "unknown"})  # everything else acts
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
    """What the guard noticed after a turn."""

    rule: Rule
    call: str  # which call, or the tools of both turns, as a person may read it
    count: int
    ends: bool  # the run is over; else the model is warned

    @property
    def sentence(self) -> str:
        """What happened, as part of a sentence."""
        return f"{self.call} {_SAYS[self.rule].format(self.count)}"

    @property
    def guidance(self) -> str:
        """What the model is told."""
        return (
            f"{self.sentence}, and nothing got further in between. Going on like this ends the "
            "run. Do something else, or answer with what you have and say what is missing."
        )


class LoopGuard(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the guard remembers of a run; `findings` are of its last turn, not yet told."""

    counts: dict[Repeat, int] = msgspec.field(default_factory=dict)  # never changed in place
    succeeded: frozenset[CallId] = frozenset()  # effects, over the whole run
    missed: frozenset[CallId] = frozenset()  # effects that were wanted and at some time did not
    last: Results = frozenset()
    before: Results = frozenset()
    alternating: int = 0  # turns
    findings: tuple[LoopFinding, ...] = ()

    @property
    def end(self) -> LoopFinding | None:
        """The finding that ends the run."""
        return next((finding for finding in self.findings if finding.ends), None)


def is_effect(call: Call) -> bool:
    """Whether the call is of a kind that changes something."""
    return call.tool_class not in READS


def observe(progress: LoopGuard, calls: Sequence[Call]) -> LoopGuard:
    """The memory after a turn whose calls have all ended."""
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
        findings += _judge("alternation", alternating, " and ".join(tools))
    return LoopGuard(
        counts=counts,
        succeeded=succeeded,
        missed=missed,
        last=results,
        before=progress.last,
        alternating=alternating,
        findings=tuple(findings),
    )


def start_anew(progress: LoopGuard) -> LoopGuard:
    """The memory after a person said something: what was tried so far counts no more."""
    return LoopGuard(succeeded=progress.succeeded, missed=progress.missed)


def clear_findings(progress: LoopGuard) -> LoopGuard:
    """The memory after the model was told what was found."""
    return msgspec.structs.replace(progress, findings=())


def _count_repeats(counts: dict[Repeat, int], calls: Sequence[Call]) -> Iterable[LoopFinding]:
    """Count each repeat of the turn once, in `counts`, and judge it."""
    repeats = {repeat: call for call in calls if (repeat := _repeat(call)) is not None}
    for repeat, call in repeats.items():
        counts[repeat] = counts.get(repeat, 0) + 1
        if counts[repeat] >= _NOTED_FROM:
            yield from _judge(repeat[0], counts[repeat], describe_call(call.tool, call.arguments))


def _repeat(call: Call) -> Repeat | None:
    """As what the call counts when it comes again; None for one that nobody counts."""
    if call.status == "denied":
        return ("denial", call.tool, call.digest, "")
    if call.status in _FAILED and is_effect(call):
        return ("failing_effect", call.tool, call.digest, "")
    if call.status in _FAILED or call.status == "rejected":
        return ("failure", call.tool, call.digest, "")
    if call.status == "succeeded" and not is_effect(call):
        return ("same_read", call.tool, call.digest, call.output_sha256)
    return None


def _judge(rule: Rule, count: int, named: str) -> Iterable[LoopFinding]:
    ends = count >= BLOCK_AT[rule]
    if ends or count == WARN_AT.get(rule):
        yield LoopFinding(rule, named, count, ends)
