"""Names of tools as providers allow them: letters, digits, `_` and `-`, at most 64.

The catalogue also has names like `mcp:files.read`; they are spelt differently on the wire and
translated back.  Deterministic, so that the prefix of a prompt stays what it was.
"""

import hashlib
import re
from collections.abc import Iterable

MAX_CHARS = 64
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """The provider's spelling by the catalogue's; all different."""
    spelt: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names, key=lambda name: (not _is_plain(name), name)):
        wire = _FOREIGN.sub("_", name) if len(name) <= MAX_CHARS else _marked(name, 0)
        tries = 0
        while wire in taken:  # only what a foreign name is spelt like
            tries += 1
            wire = _marked(name, tries)
        spelt[name] = wire
        taken.add(wire)
    return spelt


def _is_plain(name: str) -> bool:
    """Whether a provider takes it as it is: those come first, and keep their names."""
    return len(name) <= MAX_CHARS and not _FOREIGN.search(name)


def _marked(name: str, tries: int) -> str:
    mark = hashlib.sha256(f"{name}{' ' * tries}".encode()).hexdigest()[:8]
    return f"{_FOREIGN.sub('_', name)[: MAX_CHARS - 9]}_{mark}"
