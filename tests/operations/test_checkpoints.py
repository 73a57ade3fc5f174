"""Which compactions are before a mark; restores are tried with a daemon (tests/e2e)."""

import pytest
from trio.testing import MockClock

from palyra.core.session.commands import StartRun
from palyra.operations import checkpoints as session_checkpoints
from palyra.services.context import compaction
from palyra.services.context.compaction import CompactionSettings
from tests.actors.run import office_kit
from tests.actors.run.office_kit import OPERATOR, call, say
from tests.store.memory.journal import MemoryJournal

LONG = "A long answer about nothing in particular. " * 90


async def test_compactions_before_the_mark_belong_to_it(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of earlier runs and those of its own run up to the mark; none that came later."""
    monkeypatch.setattr(compaction, "UNKNOWN_WINDOW", 5_000)
    store = MemoryJournal()
    store.open()
    settings = CompactionSettings(history_tokens=2_000)
    async with office_kit.running(store, history_tokens=2_000, compaction=settings) as kit:
        runs = []
        for text in ("first", "second"):
            kit.model.turns = [
                *(call(("echo", {"text": f"{text} {number} {LONG}"})) for number in range(6)),
                say("done"),
            ]
            started = await kit.gateway.start_run(OPERATOR, StartRun(text=text, session_key="k"))
            assert "done" == await kit.end(started.run_id)
            runs.append(started.run_id)
        session = store.find_session(started.session_id)
        assert session is not None
        made = [
            (run_id, row.seq)
            for run_id in runs
            for row in kit.rows(run_id)
            if row.kind == "compaction.applied"
        ]
        assert set(runs) == {run_id for run_id, _ in made}
        for run_id in runs:
            first_turn = kit.kinds(run_id).index(
                "turn.started"
            )  # an empty conversation has no mark
            for row in kit.rows(run_id)[first_turn:]:
                mark, _, applied = session_checkpoints._find_point(store, session, run_id, row.seq)
                at = runs.index(run_id), mark.point.seq
                before = [each for each in made if (runs.index(each[0]), each[1]) <= at]
                assert before[::-1] == [(each.run_id, each.seq) for each in applied]
