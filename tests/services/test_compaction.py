"""Session compaction in runs: when it happens, what the model sees, restarts, replays."""

import json
from functools import partial
from typing import Any

import pytest
from trio.testing import MockClock

from palyra.core.model.messages import GuidanceMessage, ModelFailure
from palyra.core.session.commands import StartRun
from palyra.core.tape import events as ev
from palyra.services import compaction
from palyra.services.compaction import CompactionSettings
from tests.actors.run import office_kit
from tests.actors.run.office_kit import OPERATOR, Kit, call, say
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
    """What an earlier compaction kept is in the later one; its ranges grow at the end."""
    async with running(store) as kit:
        runs = await fill(kit, 14)
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
