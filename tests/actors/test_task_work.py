"""Payloads of tasks are checked as strictly as the requests that they stand for."""

from typing import Any

import pytest

from palyra.actors.task_work import compaction, prompt
from palyra.core.session.commands import StartRun
from palyra.core.tape.events import Budget
from palyra.errors import InvalidParams


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"text": ""},
        {"text": " \n"},
        {"text": 1},
        {"text": "a", "txt": "b"},
        {"text": "a", "session_key": ""},
        {"text": "a", "session_key": "k" * 257},
        {"text": "a", "session_id": ""},
        {"text": "a", "session_id": "s" * 65},
        {"text": "a", "session_id": "ses_a", "session_key": "k"},
        {"text": "a", "agent": ""},
        {"text": "a", "agent": "a" * 65},
        {"text": "a", "approval_mode": "never"},
        {"text": "a", "budget": {"wall_ms": -1}},
        {"text": "a", "budget": {"wall_ms": 604_800_001}},
        {"text": "a", "budget": {"tokens": 0}},
        {"text": "a", "budget": {"usd_micros": 1.5}},
        {"text": "a", "budget": {"walls_ms": 1_000}},
    ],
)
def test_a_prompt_that_no_run_would_take_is_refused(payload: dict[str, Any]) -> None:
    """What `run.start` refuses is refused when the task is submitted, not when its time comes."""
    with pytest.raises(InvalidParams, match="payload"):
        prompt(payload)


@pytest.mark.parametrize("payload", [{}, {"session_id": ""}, {"session_id": "s" * 65}])
def test_a_compaction_names_a_session(payload: dict[str, Any]) -> None:
    """A text that cannot be an id is refused."""
    with pytest.raises(InvalidParams, match="payload"):
        compaction(payload)


def test_a_prompt_at_its_limits_is_taken() -> None:
    """The control: the largest values reach the run."""
    payload = {"text": "a", "session_key": "k" * 256, "budget": {"wall_ms": 604_800_000}}
    wanted = StartRun(
        text="a",
        session_key="k" * 256,
        budget=Budget(wall_ms=604_800_000),
        origin="background",
    )
    assert wanted == prompt(payload)
