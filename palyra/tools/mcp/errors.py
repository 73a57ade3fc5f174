"""Tail of an MCP server's standard error, shown to operators to explain a failed start."""

from palyra.core.text.visible import visible
from palyra.core.trust.external_descriptions import RedactText
from palyra.tools.sandbox.limit_signs import find_limit_signs

KEPT_BYTES = 4_096
# Read before them, so that a secret of several lines is recognised by its first one: more than the
# text of an RSA key of 16,384 bits.
BEFORE_BYTES = 16_384
_READ_BYTES = BEFORE_BYTES + KEPT_BYTES
# Limits of the sandbox with the configuration keys of a server, by kind of `LIMIT_SIGNS`.
_KEYS = {
    "open files": "open files (`open_files`)",
    "memory": "memory (`address_space_mib`, `memory_mib`)",
    "processes": "processes (`sandbox.processes`)",
    "file size": "size of a file (`sandbox.file_mib`)",
    "temporary space": "temporary space (`sandbox.temporary_mib`)",
}


class ErrorTail:
    """The end of standard error from one server process, at most KEPT_BYTES characters of it."""

    def __init__(self, redact: RedactText) -> None:
        self._redact = redact
        self._kept = b""
        self._is_cut = False

    def take(self, piece: bytes) -> None:
        """Append the next piece of output."""
        whole = self._kept + piece
        self._is_cut = self._is_cut or len(whole) > _READ_BYTES
        self._kept = whole[-_READ_BYTES:]

    def text(self) -> str:
        """Return the tail on one line, redacted, without the partial line or word at a cut."""
        kept = self._kept.decode(errors="replace")
        if self._is_cut:  # the redactor cannot recognise a partial secret
            kept = kept.partition("\n")[2] or kept.partition(" ")[2]
        redacted, _ = self._redact(kept)
        if len(redacted) > KEPT_BYTES:
            end = redacted[-KEPT_BYTES:]
            redacted = end.partition("\n")[2] or end.partition(" ")[2]
        return " / ".join(visible(line.strip()) for line in redacted.splitlines() if line.strip())

    def find_limit(self) -> str:
        """Return the sandbox limit that the output points to, with its key; "" for none."""
        kept = self._kept[-KEPT_BYTES:].decode(errors="replace")
        return next((_KEYS[kind] for kind in find_limit_signs(kept) if kind in _KEYS), "")
