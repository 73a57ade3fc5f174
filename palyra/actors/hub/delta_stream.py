"""Progress of one turn or call: redacted with hold-back, numbered, delivered without waiting."""

from palyra.core.ports import Notifier, ProgressKind
from palyra.core.redaction.redactor import Redactor, StreamRedactor
from palyra.core.run.state import Run


class ProgressStream:
    """Deltas of one item for its subscribers; a later event always supersedes them."""

    __slots__ = ("_hub", "_item", "_kind", "_redactor", "_run", "_stream", "order")

    def __init__(self, run: Run, hub: Notifier, redactor: Redactor, item: str) -> None:
        self._run = run
        self._hub = hub
        self._redactor = redactor
        self._item = item
        self._kind: ProgressKind = "text"
        self._stream: StreamRedactor | None = None
        self.order = 0  # of the newest delta: one for each delta received and each rest sent

    def take(self, kind: ProgressKind, text: str) -> None:
        """Send one delta; hold back text that may be the start of a secret."""
        if self._stream is None or kind != self._kind:
            self.close()
            self._stream = StreamRedactor(self._redactor)
            self._kind = kind
        self.order += 1
        self._send(self._stream.feed(text))

    def close(self) -> None:
        """Send the text that was held back."""
        if self._stream is not None:
            rest, self._stream = self._stream.flush(), None
            self.order += bool(rest)
            self._send(rest)

    def _send(self, text: str) -> None:
        if text:
            self._hub.progress(
                run_id=self._run.run_id,
                item=self._item,
                order=self.order,
                kind=self._kind,
                delta=text,
            )
