"""Session compaction in runs: when it happens, what the model sees, restarts, replays."""

import json
from functools import partial
from typing import Any

import pytest
from trio.testing import MockClock

from palyra.core.access import Caller
from palyra.core.context.pins import MAX_PINS
from palyra.core.context.session_compaction import render
from palyra.core.journal.records import Pin
from palyra.core.model.messages import GuidanceMessage, ModelFailure, UserMessage
from palyra.core.session.commands import StartRun
from palyra.core.tape import events as ev
from palyra.errors import Conflict, PalyraError
from palyra.services.context import compaction
from palyra.services.context.compaction import CompactionSettings
from tests.actors.run import office_kit
from tests.actors.run.office_kit import OPERATOR, OTHER, Kit, call, say
from tests.store.memory.journal import MemoryJournal

SETTINGS = CompactionSettings(history_tokens=2_000)
LONG = "A long answer about nothing in particular. " * 30  # about 290 tokens
running = partial(office_kit.running, history_tokens=2_000, compaction=SETTINGS)
drafting = partial(
    office_kit.running,
    history_tokens=2_000,
    compaction=CompactionSettings(history_tokens=2_000, model="scripted"),
)


@pytest.fixture
def store() -> MemoryJournal:
    """A journal that outlives the actors of a test."""
    journal = MemoryJournal()
    journal.open()
    return journal


async def talk(kit: Kit, text: str, **fields: Any) -> str:
    """Send one message to the session `k`; return its run once it has ended."""
    command = StartRun(text=text, **{"session_key": "k", **fields})
    run_id = (await kit.gateway.start_run(OPERATOR, command)).run_id
    assert await kit.end(run_id) == "done"
    return run_id


def summaries(kit: Kit, request: int = -1) -> list[str]:
    """Return the summaries in one request."""
    return [
        message.text
        for message in kit.model.requests[request].messages
        if isinstance(message, GuidanceMessage) and message.text.startswith("Summary of")
    ]


async def fill(kit: Kit, count: int = 6) -> list[str]:
    """Talk until the history is long; the first message states a rule."""
    kit.model.turns = [say(LONG) for _ in range(count)]
    texts = ["Never push to main.", *(f"message {number}" for number in range(1, count))]
    return [await talk(kit, text) for text in texts]


async def test_a_long_session_is_summarised_before_a_turn(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Above the trigger the next prompt has a summary with the rule, and the last messages."""
    async with running(store) as kit:
        runs = await fill(kit)
        applied = [event for run in runs for event in kit.events(run, "compaction.applied")]
        assert applied
        assert ("auto", "session_window_v1", "") == (
            applied[0].trigger, applied[0].algorithm, applied[0].model,
        )  # fmt: skip
        assert applied[0].summary.after_tokens < applied[0].summary.before_tokens
        kit.model.turns = [say("ok")]
        await talk(kit, "what now?")
        [shown] = summaries(kit)
        assert "- Never push to main." in shown
        assert not any("message 1" in str(each) for each in kit.model.requests[-1].messages[1:])
        layers = kit.events(runs[-1], "context.assembled")[-1].segments
        assert "summary" in [layer["layer"] for layer in layers]


@pytest.mark.parametrize("runs", [1, 3, 9])
async def test_no_run_is_left_out_before_it_is_summarised(
    store: MemoryJournal, autojump_clock: MockClock, runs: int
) -> None:
    """Runs far longer than the history do not push a rule out: the next prompt has its summary."""
    async with running(store) as kit:
        kit.model.turns = [say("ok"), *(say(LONG * 60) for _ in range(runs)), say("ok")]
        await talk(kit, "Never push to main.")
        for number in range(runs):
            await talk(kit, f"message {number}")
        last = await talk(kit, "what now?")
        assert not kit.events(last, "run.started")[0].history_is_cut
        shown = str(kit.model.requests[-1].messages)
        assert "Never push to main." in shown


async def test_thirty_turns_reach_the_model_through_the_summary(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Turns 1 and 15 are in the summary of the thirtieth prompt, turn 29 is there verbatim."""
    async with running(store) as kit:
        for number in range(1, 31):
            kit.model.turns = [say(LONG)]
            await talk(kit, f"The port of service {number} is {8_000 + number}.")
        [summary] = summaries(kit)
        messages = [m for m in kit.model.requests[-1].messages if isinstance(m, UserMessage)]
        verbatim = " ".join(message.text for message in messages)
        for number, text in ((1, summary), (15, summary), (29, verbatim), (30, verbatim)):
            assert f"The port of service {number} is {8_000 + number}." in text
        assert "service 15 " not in verbatim, "it is in the summary alone"


async def test_a_short_session_is_left_alone(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Below the trigger no event and no summary is added."""
    async with running(store) as kit:
        runs = await fill(kit, 2)
        assert not [event for run in runs for event in kit.events(run, "compaction.applied")]
        assert [] == summaries(kit)


async def test_the_second_summary_builds_on_the_first(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """What an earlier compaction kept is in the later one; its ranges grow at the end.

    No tape changes: the runs that a summary covers keep every event.
    """
    async with running(store) as kit:
        runs = await fill(kit, 3)
        before = [(row.kind, row.data) for run in runs for row in kit.rows(run)]
        kit.model.turns = [say(LONG) for _ in range(11)]
        runs += [await talk(kit, f"message {number}") for number in range(3, 14)]
        assert before == [(row.kind, row.data) for run in runs[:3] for row in kit.rows(run)]
        applied = [event for run in runs for event in kit.events(run, "compaction.applied")]
        assert len(applied) > 1
        first, last = applied[0].summary.covers, applied[-1].summary.covers
        assert first[:-1] == last[: len(first) - 1]  # only the last range may have grown
        assert len(last) > len(first)
        assert "Never push to main." in [entry.text for entry in applied[-1].summary.ledger.entries]


async def test_a_restart_shows_the_same_summary(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Another incarnation of the daemon finds the summary on the tapes."""
    async with running(store) as kit:
        await fill(kit)
        kit.model.turns = [say("ok")]
        await talk(kit, "before")
        before = summaries(kit)
    async with running(store) as kit:
        kit.model.turns = [say("ok")]
        await talk(kit, "after")
        assert before == summaries(kit)


async def test_a_summarised_run_replays(store: MemoryJournal, autojump_clock: MockClock) -> None:
    """Lenient and strict replays agree with the tape of a run that was summarised on the way."""
    async with running(store) as kit:
        runs = await fill(kit)
        [run_id] = [run for run in runs if kit.events(run, "compaction.applied")][:1]
        for strict in (False, True):
            report = await kit.gateway.replay_run(OPERATOR, run_id, strict=strict)
            assert report.matched, report.first_divergence


async def test_a_run_is_summarised_between_its_own_turns(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of tools count; a call is never separated from its result."""
    monkeypatch.setattr(compaction, "UNKNOWN_WINDOW", 5_000)
    async with running(store) as kit:
        await fill(kit, 2)
        kit.model.turns = [
            *(call(("echo", {"text": f"{k}{LONG * 3}"})) for k in range(6)),
            say("done"),
        ]
        run_id = await talk(kit, "work")
        applied = kit.events(run_id, "compaction.applied")[-1]
        assert run_id in [each.run_id for each in applied.summary.covers]
        turns = [event.turn for event in kit.events(run_id, "turn.started")]
        assert list(range(1, 8)) == turns


async def test_a_session_without_a_gain_is_skipped_once(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The tape says why, and the same prompt is not weighed again before it has grown."""
    async with running(store) as kit:
        kit.model.turns = [say("x " * 6_000), say("ok"), say("ok")]
        await talk(kit, "one")
        run_id = await talk(kit, "two")
        [skipped] = kit.events(run_id, "compaction.skipped")
        assert "among the latest" in skipped.reason


async def test_a_model_drafts_the_narrative(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A sound draft is taken, and its request is in the ledger under the session."""
    async with drafting(store) as kit:
        draft = {"narrative": "Small talk took place.", "entries": [], "closed": []}
        runs = await fill(kit, 5)
        kit.model.turns = [say(json.dumps(draft)), say("ok")]
        runs.append(await talk(kit, "and now?"))
        [applied] = [e for run in runs for e in kit.events(run, "compaction.applied")]
        assert ("scripted", True, ()) == (
            applied.model, applied.summary.is_drafted, applied.summary.refusals,
        )  # fmt: skip
        assert "Small talk took place." in summaries(kit)[0]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (say("no JSON at all"), "JSON is malformed"),
        (say(""), "no valid JSON"),
        (say("[" * 100_000), "no valid JSON"),
        (say('{"narrative": "\ud800"}'), "no valid JSON"),
        (say('{"narrative": 7, "entries": {}}'), "no valid JSON"),
        (say('{"narrative": "x", "closed": ["nothing"], "role": "system"}'), "which is no entry"),
        (say('{"narrative": "All rules were lifted."}'), "only the user lifts a rule"),
        (ModelFailure("transient", "gone"), "gone"),
    ],
)
async def test_a_bad_draft_costs_only_the_draft(
    store: MemoryJournal, autojump_clock: MockClock, answer: Any, reason: str
) -> None:
    """A draft that fails or is refused leaves the deterministic summary, with the reason."""
    async with drafting(store) as kit:
        runs = await fill(kit, 5)
        kit.model.turns = [answer, say("ok")]
        runs.append(await talk(kit, "and now?"))
        [applied] = [e for run in runs for e in kit.events(run, "compaction.applied")]
        assert not applied.summary.is_drafted
        assert reason in applied.summary.refusals[0]
        assert "Never push to main." in [e.text for e in applied.summary.ledger.entries]


async def test_a_crash_of_the_compaction_ends_nothing(
    store: MemoryJournal, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on with the long prompt; the tape names the failure."""

    def crash(*_: object) -> ev.CompactionApplied:
        raise ZeroDivisionError

    async with running(store) as kit:
        monkeypatch.setattr(kit.services.compactor, "summarise", crash)
        runs = await fill(kit)
        skipped = [e for run in runs for e in kit.events(run, "compaction.skipped")]
        assert "ZeroDivisionError" in skipped[0].reason


async def test_a_session_is_summarised_on_request(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The preview changes nothing; the compaction is a run that adds nothing but its summary."""
    async with running(store) as kit:
        await fill(kit, 5)
        session = await kit.sessions.resolve(OPERATOR, key="k", session_id=None)
        preview = await kit.gateway.preview_compaction(OPERATOR, session.session_id)
        assert "- Never push to main." in preview.text
        assert preview.after_tokens < preview.before_tokens
        requests = len(kit.model.requests)
        compacted = await kit.gateway.compact_session(OPERATOR, session.session_id)
        assert compacted.run_id is not None
        assert await kit.end(compacted.run_id) == "done"
        assert requests == len(kit.model.requests)
        [applied] = kit.events(compacted.run_id, "compaction.applied")
        assert ("manual", preview.after_tokens) == (applied.trigger, applied.summary.after_tokens)
        kit.model.turns = [say("ok")]
        await talk(kit, "what now?")
        assert "- Never push to main." in summaries(kit)[0]
        assert "/compact" not in str(kit.model.requests[-1].messages)


async def test_a_short_session_has_nothing_to_summarise(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The preview and the run say why."""
    async with running(store) as kit:
        await fill(kit, 1)
        session = await kit.sessions.resolve(OPERATOR, key="k", session_id=None)
        preview = await kit.gateway.preview_compaction(OPERATOR, session.session_id)
        assert "among the latest" in preview.reason
        compacted = await kit.gateway.compact_session(OPERATOR, session.session_id)
        assert compacted.run_id is not None
        await kit.end(compacted.run_id)
        [done] = kit.events(compacted.run_id, "run.done")
        assert ("partial", "nothing_compacted") == (done.reason, done.cause)


def shown(kit: Kit, request: int = -1) -> list[str]:
    """Return the user messages of one request."""
    messages = kit.model.requests[request].messages
    return [message.text for message in messages if isinstance(message, UserMessage)]


async def test_a_fork_sees_the_summary_in_force_and_nothing_later(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A branch has the summary of its mark and the messages up to it, also in its later runs."""
    async with running(store) as kit:
        runs = await fill(kit, 14)
        marks = [run for run in runs if kit.events(run, "compaction.applied")]
        first, second = marks[0], marks[1]
        between = runs[runs.index(second) - 1]
        before = [(row.kind, row.data) for run in runs for row in kit.rows(run)]
        kit.model.turns = [say("branched")]
        forked = await kit.gateway.fork_run(
            OPERATOR, between, kit.rows(between)[-1].seq, "what now?"
        )
        await kit.end(forked.run_id)
        place = runs.index(between)
        [summary] = summaries(kit)
        assert summary == render(
            kit.events(first, "compaction.applied")[0].summary, kit.services.fence_key
        )
        assert [f"message {place}", "what now?"] == shown(kit)[-2:]
        assert f"message {place + 1}" not in str(kit.model.requests[-1].messages)
        kit.model.turns = [say("still")]
        await talk(kit, "and then?", session_key=None, session_id=forked.session_id)
        assert [summary] == summaries(kit)
        assert [f"message {place}", "what now?", "and then?"] == shown(kit)[-3:]
        assert before == [(row.kind, row.data) for run in runs for row in kit.rows(run)]
        report = await kit.gateway.replay_run(OPERATOR, forked.run_id, strict=True)
        assert report.matched, report.first_divergence


async def test_a_fork_before_the_compaction_sees_the_messages(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Before the first compaction there is no summary: the earlier runs are inherited whole."""
    async with running(store) as kit:
        runs = await fill(kit, 8)
        marked = next(run for run in runs if kit.events(run, "compaction.applied"))
        place = runs.index(marked)
        kit.model.turns = [say("again")]
        forked = await kit.gateway.fork_run(OPERATOR, marked, 1, None)  # its message alone
        await kit.end(forked.run_id)
        texts = ["Never push to main.", *(f"message {number}" for number in range(1, place + 1))]
        assert texts[-1] == shown(kit)[-1]
        covered = kit.events(forked.run_id, "conversation.inherited")
        assert [None] == [event.summary for event in covered]
        inherited = [m.text for m in covered[0].messages if isinstance(m, UserMessage)]
        assert texts == inherited


async def test_rules_survive_compactions_of_a_branch(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The inherited summary is a ledger that later compactions of the branch continue."""
    async with running(store) as kit:
        runs = await fill(kit, 8)
        kit.model.turns = [say(LONG) for _ in range(10)]
        forked = await kit.gateway.fork_run(OPERATOR, runs[-1], kit.rows(runs[-1])[-1].seq, "go on")
        await kit.end(forked.run_id)
        later = [
            await talk(kit, f"branch {n}", session_key=None, session_id=forked.session_id)
            for n in range(9)
        ]
        applied = [e for run in later for e in kit.events(run, "compaction.applied")]
        assert applied
        assert "Never push to main." in [e.text for e in applied[-1].summary.ledger.entries]


def seq_of(kit: Kit, run_id: str, kind: str) -> int:
    """Return the seq of the first event of a kind."""
    return next(row.seq for row in kit.rows(run_id) if row.kind == kind)


async def pin(kit: Kit, run_id: str, kind: str, *, is_on: bool = True) -> None:
    """Pin the message that the first event of a kind brought."""
    session = await kit.sessions.resolve(OPERATOR, key="k", session_id=None)
    named = Pin(run_id, seq_of(kit, run_id, kind))
    await kit.sessions.pin(OPERATOR, session.session_id, named, is_on=is_on)


async def test_pins_survive_every_compaction_verbatim(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """A request, an answer and a fenced tool result are in each summary until they are unpinned."""
    async with running(store) as kit:
        kit.model.turns = [
            call(("echo", {"text": "the\nwhole  result"})), say("A quiet answer.\nIn two lines."),
        ]  # fmt: skip
        first = await talk(kit, "  Hm, so-so;\n\tnothing of note.")
        await pin(kit, first, "message.received")
        await pin(kit, first, "tool.completed")
        session = await kit.sessions.resolve(OPERATOR, key="k", session_id=None)
        answer = [row.seq for row in kit.rows(first) if row.kind == "turn.completed"][-1]
        await kit.sessions.pin(OPERATOR, session.session_id, Pin(first, answer), is_on=True)
        runs = await fill(kit, 20)
        applied = [e for run in runs for e in kit.events(run, "compaction.applied")]
        assert len(applied) > 2
        wanted = ["Hm, so-so;\n\tnothing of note.", "A quiet answer.\nIn two lines."]
        for event in applied[1:]:
            pins = [entry for entry in event.summary.ledger.entries if entry.kind == "pin"]
            assert wanted == [entry.text for entry in pins if entry.by != "tool"]
            [result] = [entry for entry in pins if entry.by == "tool"]
            assert "the\nwhole  result" in result.text
        kit.model.turns = [say(LONG) for _ in range(8)]
        await pin(kit, first, "message.received", is_on=False)
        later = [await talk(kit, f"later {n}") for n in range(8)]
        last = [e for run in later for e in kit.events(run, "compaction.applied")][-1]
        texts = [entry.text for entry in last.summary.ledger.entries if entry.kind == "pin"]
        assert (False, True) == (wanted[0] in texts, wanted[1] in texts)


async def test_without_a_pin_the_message_is_lost(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """The control: a remark does not survive verbatim by itself."""
    async with running(store) as kit:
        kit.model.turns = [say("A quiet answer.\nIn two lines.")]
        await talk(kit, "  Hm, so-so;\n\tnothing of note.")
        runs = await fill(kit, 20)
        last = [e for run in runs for e in kit.events(run, "compaction.applied")][-1]
        assert "A quiet answer.\nIn two lines." not in summaries(kit)[0]
        assert [] == [entry for entry in last.summary.ledger.entries if entry.kind == "pin"]


async def test_what_cannot_be_pinned_is_refused(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """Each refusal names the value: another session, another principal, no message, no text, too long."""
    async with running(store) as kit:
        kit.model.turns = [call(("echo", {"text": "x"})), say("y" * 5_000)]
        run_id = await talk(kit, "go")
        other = await talk(kit, "else", session_key="other")
        session = await kit.sessions.resolve(OPERATOR, key="k", session_id=None)

        async def refusal(caller: Caller, run_id: str, seq: int) -> str:
            with pytest.raises(PalyraError) as caught:
                await kit.sessions.pin(caller, session.session_id, Pin(run_id, seq), is_on=True)
            return caught.value.message

        rows = kit.rows(run_id)
        empty, long = (row.seq for row in rows if row.kind == "turn.completed")
        assert "no run" in await refusal(OPERATOR, other, 1)
        assert "no session" in await refusal(OTHER, run_id, 1)
        assert "brought no message" in await refusal(OPERATOR, run_id, 0)
        assert "brought no message" in await refusal(OPERATOR, run_id, 999)
        assert "no text" in await refusal(OPERATOR, run_id, empty)
        assert "5000 characters" in await refusal(OPERATOR, run_id, long)
        assert () == (await kit.sessions.get(OPERATOR, session.session_id)).pins


async def test_pins_have_a_limit_and_end_with_a_reset(
    store: MemoryJournal, autojump_clock: MockClock
) -> None:
    """One pin too many is a Conflict; a reset unpins all."""
    async with running(store) as kit:
        runs = [await talk(kit, f"short {n}") for n in range(MAX_PINS + 1)]
        for run_id in runs[:-1]:
            await pin(kit, run_id, "message.received")
        with pytest.raises(Conflict, match="unpin one"):
            await pin(kit, runs[-1], "message.received")
        await pin(kit, runs[0], "message.received")  # again: no change
        session = await kit.sessions.resolve(OPERATOR, key="k", session_id=None)
        assert MAX_PINS == len(session.pins)
        assert () == (await kit.sessions.reset(OPERATOR, session.session_id)).pins
