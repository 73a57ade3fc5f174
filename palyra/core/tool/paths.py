"""Workspace paths as text: normal form, the protected names in them, and their facts for the rules.

A path argument is relative to the workspace root, in POSIX form, without `..` and NUL.  Absolute
paths are refused even if they lead inside, so that rules, conflict keys and prompts see one spelling
of a file.  These functions only decide; a call is confined by the way it opens files
(`tools.files.workspace`).
"""

import re
import unicodedata
from collections.abc import Iterable
from posixpath import normpath
from typing import Literal

import msgspec

from palyra.core.tool.protected_names import EXAMPLE_ENDINGS, TABLE

MAX_PATH_BYTES = 4096  # PATH_MAX
MAX_NAME_BYTES = 255  # NAME_MAX


BARE_REPOSITORY = (
    "HEAD"  # with this file, git takes a folder with objects and refs for a repository
)
_IN_REPOSITORIES = "continuous integration"  # read only at the top of a repository


class _NameMatcher:
    """Matcher of names of the table in paths: in folded ones, or in exact case."""

    def __init__(self, names: Iterable[str], *, in_exact_case: bool = False) -> None:
        folded = [name if in_exact_case else name.lower() for name in names]
        literal = [name for name in folded if "*" not in name]
        self._single = frozenset(name for name in literal if "/" not in name)
        self._longer: dict[str, list[list[str]]] = {}
        for name in literal:
            first, *rest = name.split("/")
            if rest:
                self._longer.setdefault(first, []).append(rest)
        globs = "|".join(re.escape(name).replace(r"\*", "[^/]*") for name in folded if "*" in name)
        shared = rf"\.env[^/]*[._-](?:{'|'.join(EXAMPLE_ENDINGS)})(?:/|$)"
        self._globs = re.compile(rf"(?:^|/)(?!{shared})(?:{globs})(?=/|$)")

    def find(self, path: str) -> int | None:
        """Return the offset of the outermost match in the path; None for none."""
        glob = self._globs.search(path)
        first_glob = len(path) + 1 if glob is None else glob.start() + (glob[0][0] == "/")
        at, parts = 0, path.split("/")
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
_PRIVATE = _NameMatcher(PRIVATE_NAMES)
# Agents' instructions in capitals; below the top, other spellings are ordinary pages.
INSTRUCTION_NAMES = frozenset(
    name
    for row in TABLE
    if row.kind == "agents"
    for name in row.names
    if name.endswith(".md") and name[0].isupper()
)
_ANYWHERE = _NameMatcher(
    name
    for row in TABLE
    if row.kind not in {"secrets", _IN_REPOSITORIES}
    for name in row.names
    if name not in INSTRUCTION_NAMES
)
_INSTRUCTIONS_AT_TOP = _NameMatcher(INSTRUCTION_NAMES)
_INSTRUCTIONS = _NameMatcher(INSTRUCTION_NAMES, in_exact_case=True)
_REPOSITORY = _NameMatcher(
    name for row in TABLE if row.kind == _IN_REPOSITORIES for name in row.names
)
# Folders above names of the table, folded: a walk through these reaches all of them.
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
    """Return the normal form of a path below the root ("" for the root); None if it is invalid."""
    try:
        size_bytes = len(path.encode())
    except UnicodeEncodeError:  # a lone surrogate
        return None
    if path.startswith("/") or "\0" in path or size_bytes > MAX_PATH_BYTES:
        return None
    names = [name for name in path.split("/") if name not in {"", "."}]
    if ".." in names or any(len(name.encode()) > MAX_NAME_BYTES for name in names):
        return None
    return "/".join(names)


def composed(path: str) -> str:
    """Return the path in NFC, in which rules, grants and conflict keys compare names of files.

    Names that differ in their Unicode form only are one name to a person, and
    `tools.files.workspace` opens either by the other.
    """
    return path if path.isascii() else unicodedata.normalize("NFC", path)


def is_private(path: str) -> bool:
    """True if a normal path is, or lies in, a place for secrets."""
    if path.isascii() and not path.startswith(".") and "/." not in path:
        return False  # fast path: all names of the class begin with a dot
    return _PRIVATE.find(_folded(path)) is not None


def is_configuration(path: str) -> bool:
    """True if a normal path is, or lies in, configuration that other programs read unasked."""
    folded = _folded(path)
    if folded == BARE_REPOSITORY.lower() or BARE_REPOSITORY in path.split("/"):
        return True
    return _is_read_anywhere(path, folded) or _REPOSITORY.find(folded) is not None


def find_repository(path: str) -> str | None:
    """Return the folder that must be a repository's top for this configuration to take effect.

    "" is the top of the workspace; None: it takes effect in any folder.
    """
    folded = _folded(path)
    if BARE_REPOSITORY in path.split("/") or _is_read_anywhere(path, folded):
        return None
    at = _REPOSITORY.find(folded)
    if at is None:
        return None
    return "/".join(path.split("/")[: folded[:at].count("/")])


def _is_read_anywhere(path: str, folded: str) -> bool:
    if _ANYWHERE.find(folded) is not None or _INSTRUCTIONS_AT_TOP.find(folded) == 0:
        return True
    composed = path if path.isascii() else unicodedata.normalize("NFKC", path)
    return _INSTRUCTIONS.find(composed) is not None


def is_on_the_way(path: str) -> bool:
    """True if the path is, by its name, a folder above names of the table."""
    return _folded(path) in WAYS


def may_be_marked(folder: str, name: str) -> bool:
    """True if an entry may be private or configuration, in a folder that is neither.

    `folder` is the last name of the folder.  A cheap filter for walks: a protected entry begins with
    a dot, lies in a folder that does, or ends with the last part of a name of the table.
    """
    if name.startswith(".") or folder.startswith(".") or not (folder + name).isascii():
        return True
    lower = name.lower()
    return lower in _LAST_LITERAL or lower.endswith(_LAST_END) or lower.startswith(_LAST_BEGIN)


def _folded(path: str) -> str:
    """Return the path as a file system that folds case and Unicode forms compares it."""
    if path.isascii():  # the same result, five times faster
        return path.lower()
    return unicodedata.normalize("NFKC", path).casefold()


# --- facts for the rules --------------------------------------------------------------------------

PathFlag = Literal["outside", "private", "configuration"]
CallPathMark = PathFlag | Literal["state"]


class PathFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts about the paths of a call, for the rules."""

    of: tuple[str, ...] = ()  # as written in the call
    inside: tuple[str, ...] = ()  # normal paths, sorted, without duplicates
    single: str | None = None  # the only path, if it is inside
    marks: frozenset[PathFlag] = frozenset()  # of all paths together
    outside: str = "\0"  # other paths, each between two NUL, for one search over all

    def lead_to(self, places: Iterable[str]) -> bool:
        """True if a path is, or lies in, one of these absolute places."""
        return any(f"\0{normpath(place)}{end}" in self.outside for place in places for end in "\0/")


NO_PATHS = PathFacts()


def read_paths(paths: tuple[str, ...]) -> PathFacts:
    """Return the facts; up to ten microseconds a path, so thousands of paths belong in a thread."""
    if not paths:
        return NO_PATHS
    normal = {path: normal_path(path) for path in paths}
    inside = tuple(sorted({path for path in normal.values() if path is not None}))
    outside = [_lexical(path) for path, known in normal.items() if known is None]
    marks: dict[PathFlag, bool] = {
        "outside": bool(outside),
        "private": any(map(is_private, (*inside, *outside))),
        "configuration": any(map(is_configuration, inside)),
    }
    return PathFacts(
        of=paths,
        inside=inside,
        single=normal[paths[0]] if len(paths) == 1 else None,
        marks=frozenset(mark for mark, is_found in marks.items() if is_found),
        outside="".join(f"\0{path}" for path in outside) + "\0",
    )


def _lexical(path: str) -> str:
    """Normalize the path; two leading slashes are one to the kernel."""
    return re.sub(r"^//", "/", normpath(path))


def call_path_marks(facts: PathFacts, state: Iterable[str] = ()) -> frozenset[CallPathMark]:
    """Return the marks of all paths; `state`: absolute places of the daemon's own."""
    return facts.marks | {"state"} if facts.lead_to(state) else facts.marks
