"""The loop guard: thresholds, equal calls, resets."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.run.call import Call
from palyra.core.run.loop_guard import (
    BLOCK_AT,
    WARN_AT,
    LoopGuard,
    clear_findings,
    observe,
    reset_counts,
)
from palyra.core.tape.events import Rule
from tests.rows import every_row

READ, WRITE = "read_only_safe", "effect"


def done(
    tool: str = "t",
    status: str = "succeeded",
    kind: str = READ,
    *,
    digest: str = "d",
    output: str = "o",
) -> Call:
    """A call that has ended."""
    return Call(
        call_id=f"{tool}-{digest}",
        tool=tool,
        arguments={"n": digest},
        phase="attested",
        tool_class=kind,
        digest=digest,
        status=status,
        output_sha256=output,
    )


def after(turns: Iterable[list[Call]], progress: LoopGuard | None = None) -> LoopGuard:
    """The state after these turns; findings are reported after each."""
    progress = progress or LoopGuard()
    for calls in turns:
        progress = observe(clear_findings(progress), calls)
    return progress


def said(progress: LoopGuard) -> list[tuple[str, int, bool]]:
    """The guard's finding after the last turn."""
    return [(finding.rule, finding.count, finding.ends) for finding in progress.findings]


@every_row(
    ("call", "rule"),
    [
        (done(status="failed", kind=WRITE), "failing_effect"),
        (done(status="timed_out", kind=WRITE), "failing_effect"),
        (done(status="unknown", kind=WRITE), "failing_effect"),
        (done(status="failed", kind="path_scoped"), "failing_effect"),
        (done(status="denied", kind=WRITE), "denial"),
        (done(status="denied"), "denial"),
        (done(status="failed"), "failure"),
        (done(status="timed_out", kind="idempotent_network"), "failure"),
        (done(status="rejected", kind=WRITE), "failure"),
        (done(status="rejected", kind="unknown"), "failure"),
        (done(), "same_read"),
        (done(kind="idempotent_network"), "same_read"),
    ],
)
def test_thresholds(call: Call, rule: Rule) -> None:
    """There is no finding below the threshold, then a warning if the rule has one, then the end."""
    warn, block = WARN_AT.get(rule), BLOCK_AT[rule]
    for count in range(1, block + 1):
        found = said(after([[call]] * count))
        if count == block:
            assert (rule, count, True) in found
        elif count == warn:
            assert found == [(rule, count, False)]
        else:
            assert found == []


def test_the_thresholds_are_those_of_the_contract() -> None:
    """Three; three and four; four and six."""
    assert {"failure": 3, "same_read": 3, "alternation": 4} == WARN_AT
    assert BLOCK_AT == {
        "failing_effect": 3,
        "denial": 3,
        "failure": 4,
        "same_read": 4,
        "alternation": 6,
    }


@pytest.mark.parametrize("status", ["succeeded", "cancelled"])
def test_an_effect_that_succeeds_again_is_not_counted(status: str) -> None:
    """The same effect may succeed many times; a cancelled call does not count."""
    assert after([[done(status=status, kind=WRITE)]] * 9).findings == ()


def test_other_arguments_are_another_call() -> None:
    """Calls with different arguments or tools are counted separately."""
    turns = [[done(status="denied", digest=str(n))] for n in range(9)]
    assert after(turns).findings == ()
    assert after([[done(f"t{n}", "denied")] for n in range(9)]).findings == ()


def test_a_read_that_shows_something_new_is_not_the_same() -> None:
    """Polling with changing results is progress."""
    assert after([[done(output=str(n))] for n in range(9)]).findings == ()


def test_a_failure_is_the_same_whatever_it_says() -> None:
    """A new time in an error message is no progress."""
    turns = [[done(status="failed", kind=WRITE, output=str(n))] for n in range(3)]
    assert said(after(turns)) == [("failing_effect", 3, True)]


def test_a_turn_that_repeats_itself_counts_once() -> None:
    """The model has not seen the first result when it wants the second."""
    turn = [done(), done(), done(), done()]
    assert after([turn] * 2).findings == ()
    assert said(after([turn] * 3)) == [("same_read", 3, False)]


def test_repeats_need_not_be_neighbours() -> None:
    """Other reads in between do not reset the count."""
    turns: list[list[Call]] = []
    for number in range(3):
        turns += [[done(status="denied")], [done("other", digest=str(number))]]
    assert said(after(turns[:-1])) == [("denial", 3, True)]


def alternate(count: int, kind: str = READ) -> list[list[Call]]:
    """A, B, A, B and so on."""
    return [[done("ab"[n % 2], kind=kind)] for n in range(count)]


@every_row(
    ("turns", "found"),
    [
        (3, []),
        (4, [("alternation", 4, False)]),
        (6, [("same_read", 3, False), ("alternation", 6, True)]),
    ],
)
def test_alternation(turns: int, found: list[tuple[str, int, bool]]) -> None:
    """A, B, A, B is warned of; after six the run is over."""
    assert said(after(alternate(turns))) == found


def test_a_third_call_ends_an_alternation() -> None:
    """A, B, A, C, A, B, A is none."""
    calls = {name: [done(name, "succeeded", WRITE)] for name in "abc"}
    known = after([calls[name] for name in "abc"])
    assert after([calls[name] for name in "abacaba"], known).findings == ()


def test_an_alternation_that_changes_something_is_none() -> None:
    """A read and an effect in alternation, with new results each time."""
    turns = [[done("ab"[n % 2], output=str(n // 2))] for n in range(9)]
    assert after(turns).findings == ()


def test_the_same_turn_again_is_no_alternation() -> None:
    """A, A, A, A is a repeat, if anything."""
    known = after([[done(kind=WRITE)]])
    assert after([[done(kind=WRITE)]] * 8, known).alternating == 1


def test_effects_that_undo_each_other_alternate() -> None:
    """On, off, on, off: each succeeds, and nothing is new after the first two."""
    progress = after(alternate(7, WRITE))
    assert said(progress) == [("alternation", 6, True)]
    assert said(after(alternate(5, WRITE))) == [("alternation", 4, False)]


@pytest.mark.parametrize("calls", [[done(status="denied")], [done(status="failed", kind=WRITE)]])
def test_a_new_effect_resets_the_counts(calls: list[Call]) -> None:
    """After a new effect the full number of repetitions is allowed again."""
    progress = after([calls, calls, [done("w", kind=WRITE)]])
    assert after([calls, calls], progress).findings == ()
    assert [finding.ends for finding in after([calls] * 3, progress).findings] == [True]


def test_a_repeated_effect_resets_nothing() -> None:
    """Writing the same file again between denials is not progress."""
    progress = after([[done("w", kind=WRITE)]])
    turns = [[done(status="denied")], [done("w", kind=WRITE)]] * 3
    assert any(said(after(turns[:n], progress)) for n in range(len(turns)))


def test_a_message_of_a_person_resets_the_counts() -> None:
    """Repetitions before a steering message do not count; succeeded effects are remembered."""
    progress = reset_counts(after([[done("w", kind=WRITE)], *[[done(status="denied")]] * 2]))
    assert after([[done(status="denied")]] * 2, progress).findings == ()
    assert progress.succeeded == {("w", "d")}


def test_done_and_missed_effects_are_listed_separately() -> None:
    """Both lists have effects only, over the whole run."""
    progress = after(
        [
            [done("r", "failed")],
            [done("w", "denied", WRITE)],
            [done("w", "succeeded", WRITE, digest="e")],
        ]
    )
    assert progress.missed == {("w", "d")}
    assert progress.succeeded == {("w", "e")}


def test_the_memory_is_never_changed_in_place() -> None:
    """A state that was folded stays what it was."""
    before = after([[done()]])
    counts = dict(before.counts)
    observe(before, [done()])
    assert before.counts == counts
    assert LoopGuard().counts == {}


def test_findings_can_be_read() -> None:
    """A finding names the call, its outcome and the advice to the model."""
    (warning,) = after([[done("read_file")]] * 3).findings
    assert warning.guidance.startswith('read_file(n="d") gave the same result 3 times')
    (turns,) = after(alternate(4)).findings
    assert turns.sentence == "a and b took turns 4 times with the same results"


MISSES = st.builds(
    done,
    st.sampled_from("ab"),
    st.sampled_from(["failed", "denied", "rejected", "timed_out", "unknown"]),
    st.sampled_from([READ, WRITE]),
    output=st.sampled_from("xy"),
)


@settings(max_examples=50)
@given(st.lists(st.lists(MISSES, min_size=1, max_size=3), min_size=19, max_size=19))
def test_a_run_that_only_fails_ends(turns: list[list[Call]]) -> None:
    """Two tools can fail in six countable ways, each three times at the most before the end."""
    progresses = [LoopGuard()]
    for calls in turns:
        progresses.append(observe(clear_findings(progresses[-1]), calls))
    assert any(progress.end for progress in progresses)
