"""Paths as text: the one spelling of a workspace path, and the names nobody may touch.

A path argument is relative to the workspace root, in POSIX form, without `..` and NUL; absolute
paths are refused even when they point inside, so that rules, conflict keys and prompts all see one
spelling of a file.  This is for deciding; what confines a call is how it opens the file
(`tools.confine`).
"""

import re
import unicodedata
from collections.abc import Iterable

from palyra.core.tool.protected_names import SHARED_EXAMPLES, TABLE

MAX_PATH_BYTES = 4096  # PATH_MAX
MAX_NAME_BYTES = 255  # NAME_MAX


BARE_REPOSITORY = "HEAD"  # with it, git takes a folder that has objects and refs for a repository
_IN_REPOSITORIES = "continuous integration"  # read at the top of a repository and nowhere else


class _Places:
    """Names of the table, ready to be found in folded paths."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        folded = [name.lower() for name in self.names]
        literal = [name for name in folded if "*" not in name]
        self._single = frozenset(name for name in literal if "/" not in name)
        self._longer: dict[str, list[list[str]]] = {}
        for name in literal:
            first, *rest = name.split("/")
            if rest:
                self._longer.setdefault(first, []).append(rest)
        globs = "|".join(re.escape(name).replace(r"\*", "[^/]*") for name in folded if "*" in name)
        shared = "|".join(map(re.escape, sorted(SHARED_EXAMPLES)))
        self._globs = re.compile(rf"(?:^|/)(?!(?:{shared})(?:/|$))(?:{globs})(?=/|$)")

    def find(self, folded: str) -> int | None:
        """Where in the path the outermost of the names begins."""
        glob = self._globs.search(folded)
        first_glob = len(folded) + 1 if glob is None else glob.start() + (glob[0][0] == "/")
        at, parts = 0, folded.split("/")
        for index, part in enumerate(parts):
            if at >= first_glob or part in self._single or self._has_longer(parts, index):
                return at
            at += len(part) + 1
        return None

    def _has_longer(self, parts: list[str], index: int) -> bool:
        longer = self._longer.get(parts[index], ())
        return any(parts[index + 1 : index + 1 + len(rest)] == rest for rest in longer)


PRIVATE_NAMES = tuple(name for row in TABLE if row.kind == "secrets" for name in row.names)
CONFIGURATION_NAMES = tuple(name for row in TABLE if row.kind != "secrets" for name in row.names)
PLACEHOLDER_NAMES = frozenset(name for row in TABLE if row.needs_placeholder for name in row.names)
_PRIVATE = _Places(PRIVATE_NAMES)
_ANYWHERE = _Places(
    name for row in TABLE if row.kind not in {"secrets", _IN_REPOSITORIES} for name in row.names
)
_REPOSITORY = _Places(name for row in TABLE if row.kind == _IN_REPOSITORIES for name in row.names)
# Folders above names of the table, folded: through these a walk gets to all of them.
WAYS = frozenset(
    "/".join(parts[:depth])
    for name in (*PRIVATE_NAMES, *CONFIGURATION_NAMES)
    for parts in [name.lower().split("/")]
    for depth in range(1, len(parts))
)
_LAST = [
    parts[-1]
    for name in (*PRIVATE_NAMES, *CONFIGURATION_NAMES)
    for parts in [name.lower().split("/")]
    if not parts[-2:-1] or not parts[-2].startswith(".")
]
_LAST_LITERAL = frozenset({*_LAST, BARE_REPOSITORY.lower()})
_LAST_BEGIN = tuple(
    {name.partition("*")[0] for name in _LAST if "*" in name and name[0] not in ".*"}
)
_LAST_END = tuple({name.rpartition("*")[2] for name in _LAST if name.startswith("*")})


def normal_path(path: str) -> str | None:
    """The one spelling of a path below the root ("" for the root); None when it is none."""
    try:
        size_bytes = len(path.encode())
    except UnicodeEncodeError:  # a lone surrogate: bytes that no honest argument holds
        return None
    if path.startswith("/") or "\0" in path or size_bytes > MAX_PATH_BYTES:
        return None
    names = [name for name in path.split("/") if name not in {"", "."}]
    if ".." in names or any(len(name.encode()) > MAX_NAME_BYTES for name in names):
        return None
    return "/".join(names)


def is_private(path: str) -> bool:
    """Whether a normal path is, or lies in, a place for secrets."""
    if path.isascii() and not path.startswith(".") and "/." not in path:
        return False  # every name begins with a dot, and a walk asks for every path
    return _PRIVATE.find(_folded(path)) is not None


def is_configuration(path: str) -> bool:
    """Whether a normal path is, or lies in, what other programs take their orders from."""
    folded = _folded(path)
    if folded == BARE_REPOSITORY.lower() or BARE_REPOSITORY in path.split("/"):
        return True
    return _ANYWHERE.find(folded) is not None or _REPOSITORY.find(folded) is not None


def find_repository(path: str) -> str | None:
    """The folder that must be a repository's top for this configuration to be obeyed.

    "" is the top of the workspace; None: it is obeyed in any folder.
    """
    folded = _folded(path)
    if BARE_REPOSITORY in path.split("/") or _ANYWHERE.find(folded) is not None:
        return None
    at = _REPOSITORY.find(folded)
    if at is None:
        return None
    return "/".join(path.split("/")[: folded[:at].count("/")])


def is_on_the_way(path: str) -> bool:
    """Whether it is, by its name, a folder above names of the table."""
    return _folded(path) in WAYS


def may_be_marked(folder: str, name: str) -> bool:
    """Whether an entry can be private or configuration at all, in a folder that is neither.

    `folder` is the name of the folder alone.  Cheap, for walks that ask about every entry: what is
    marked begins with a dot, lies in a folder that does, or has the last part of a name of the table.
    """
    if name.startswith(".") or folder.startswith(".") or not (folder + name).isascii():
        return True
    lower = name.lower()
    return lower in _LAST_LITERAL or lower.endswith(_LAST_END) or lower.startswith(_LAST_BEGIN)


def _folded(path: str) -> str:
    """The path as a file system that folds case or Unicode forms would take it."""
    if path.isascii():  # the same, five times faster: a walk asks for every name
        return path.lower()
    return unicodedata.normalize("NFKC", path).casefold()
