"""Deltas of a stream on their way to subscribers."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from palyra.actors.hub import ProgressStream
from palyra.core.redaction.redactor import Redactor
from tests.core.run.run_world import World

if TYPE_CHECKING:
    from palyra.core.ports import Notifier


class Watcher:
    """Notes what goes out."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str, str]] = []

    def progress(self, *, order: int, kind: str, delta: str, **_: Any) -> None:
        self.heard.append((order, kind, delta))


def follow(*deltas: tuple[str, str]) -> list[tuple[int, str, str]]:
    watcher = Watcher()
    stream = ProgressStream(
        SimpleNamespace(run=World().run, silent_since_s=1.0),
        cast("Notifier", watcher),
        Redactor([]),
        "turn:1",
    )
    for kind, text in deltas:
        stream.take(cast("Any", kind), text)
    stream.close()
    return watcher.heard


def test_every_delta_has_its_own_number() -> None:
    """Held-back text is sent with a number of its own, also when another kind starts."""
    heard = follow(("text", "and to"), ("text", "ken"), ("reasoning", "why to"), ("text", "so"))
    orders = [order for order, _, _ in heard]
    assert sorted(set(orders)) == orders
    texts: dict[str, str] = {}
    for _, kind, delta in heard:
        texts[kind] = texts.get(kind, "") + delta
    assert {"text": "and tokenso", "reasoning": "why to"} == texts
