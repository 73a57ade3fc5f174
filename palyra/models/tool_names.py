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
    for name in sorted(names):  # plain names first come first: they keep theirs
        plain = _FOREIGN.sub("_", name)
        is_good = len(plain) <= MAX_CHARS and plain not in taken
        spelt[name] = plain if is_good else _marked(plain, name)
        taken.add(spelt[name])
    return spelt


def _marked(plain: str, name: str) -> str:
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{plain[: MAX_CHARS - 9]}_{mark}"
