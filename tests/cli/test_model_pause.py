"""The countdown of a run that waits for its model, on virtual time."""

import pytest
import trio
from trio.testing import MockClock

from palyra.cli.command import output
from palyra.cli.run.model_pause import LEAST_MS, count_down


class Items:
    """A subscription whose first item comes at a given second."""

    def __init__(self, at_s: float) -> None:
        self._comes_s = trio.current_time() + at_s

    @property
    def has_item(self) -> bool:
        return trio.current_time() >= self._comes_s

    async def wait_item(self) -> None:
        await trio.sleep_until(self._comes_s)


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stream claims to be a terminal."""
    monkeypatch.setattr(output, "_is_terminal", lambda *, err: err)


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize(
    ("delay_ms", "at_s", "shown"),
    [
        (3_000, 9, ["3 s", "2 s", "1 s"]),
        (30_000, 1.5, ["30 s", "29 s"]),
        (30_000, 0, []),
        (LEAST_MS - 1, 9, []),
    ],
)
async def test_the_seconds_that_are_left_are_shown(
    autojump_clock: MockClock,
    capsys: pytest.CaptureFixture[str],
    delay_ms: int,
    at_s: float,
    shown: list[str],
) -> None:
    """Once a second on standard error, until an item arrives or the time is over."""
    begins_s = trio.current_time()
    await count_down(Items(at_s), delay_ms)
    waited_s = trio.current_time() - begins_s
    out, err = capsys.readouterr()
    assert not out
    lines = [line for line in err.split("\r") if line.strip()]
    assert shown == [line.split(" in ")[1].split(" (")[0] for line in lines]
    expected_s = min(delay_ms / 1_000, at_s) if delay_ms >= LEAST_MS else 0
    assert waited_s == pytest.approx(expected_s)
