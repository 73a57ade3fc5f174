"""The end of a server's standard error, for people: why it does not start, in its own words."""

from palyra.core.text.visible import visible
from palyra.core.trust.external_descriptions import RedactText

KEPT_BYTES = 4_096
# What programs write when a limit of the jail stops them, and the keys that set it.
_SIGNS = (
    ("open files (`open_files`)", ("EMFILE", "Too many open files", "too many open files")),
    (
        "memory (`address_space_mib`, `memory_mib`)",
        ("ENOMEM", "Cannot allocate memory", "MemoryError", "out of memory"),
    ),
    ("processes (`sandbox.processes`)", ("can't start new thread", "pthread_create")),
    ("size of a file (`sandbox.file_mib`)", ("EFBIG", "File too large")),
)


class ErrorTail:
    """The last KEPT_BYTES of one life of a server."""

    def __init__(self, redact: RedactText) -> None:
        self._redact = redact
        self._kept = b""
        self._is_cut = False

    def take(self, piece: bytes) -> None:
        """The next piece."""
        whole = self._kept + piece
        self._is_cut = self._is_cut or len(whole) > KEPT_BYTES
        self._kept = whole[-KEPT_BYTES:]

    def text(self) -> str:
        """What is kept, on one line, without secrets and without the word that the cut broke."""
        kept = self._kept.decode(errors="replace")
        if self._is_cut:  # half a secret would not be known as one
            kept = kept.partition("\n")[2] or kept.partition(" ")[2]
        redacted, _ = self._redact(kept)
        return " / ".join(visible(line.strip()) for line in redacted.splitlines() if line.strip())

    def find_limit(self) -> str:
        """The limit that the program says it ran into, and its key; "" for none."""
        kept = self._kept.decode(errors="replace")
        return next((limit for limit, signs in _SIGNS if any(s in kept for s in signs)), "")
