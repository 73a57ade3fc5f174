"""Ignore files: which entries of a folder `.gitignore` and its relatives leave out.

Each file is a list of patterns; the last one that matches decides, and `!` turns it round.  Files
are asked from the strongest to the weakest, and the first that has an opinion wins:

    .ignore            of the folder, then of each folder above it
    .gitignore         of the folder, then of each folder above it, up to the repository's top
    .git/info/exclude  of the repository
    global excludes    the `excludesFile` that a person configured, or git's default place for it

An ignored folder is not entered, so nothing below it can be named again.  A folder with a `.git` of
its own is another repository: the rules of git above it end there, those of `.ignore` do not.
Source: gitignore(5), wildmatch.c of git, and ripgrep's guide for `.ignore`.

An ignore file is text of the workspace, so it is hostile until shown otherwise: bounded in bytes,
patterns and size of its wildcards, matched by RE2 on bytes in linear time, opened like any other
file of the workspace (no link, no second name).  One that cannot be used is a note, not a failure.
Nothing in permission or confinement depends on it: it decides what a listing shows.
"""

import configparser
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import re2

from palyra.core.text.visible import pluralize, visible
from palyra.core.tool.spec import ToolFailure
from palyra.tools.files.workspace import Workspace

IGNORE = ".ignore"
GITIGNORE = ".gitignore"
EXCLUDE = ".git/info/exclude"
GLOBAL = "the global excludes"
NAMES = frozenset({IGNORE, GITIGNORE, ".git"})  # entries that change the rules of their folder
STORES = frozenset({".git", ".hg", ".svn"})  # of version control: left out, ignored or not

MAX_IGNORE_BYTES = 524_288  # of one file; the largest published collection has 60 KB
MAX_PATTERNS = 10_000  # of one file
MAX_FILES = 2_000  # ignore files of one walk
MAX_WILD_BYTES = 32_768  # of all patterns of one file that need the expression engine
_SET_BYTES = 33_554_432  # memory of the engine for one file's patterns
_MAX_NOTES = 3  # named in a result


# --- one file ------------------------------------------------------------------------------------


@dataclass(slots=True)
class IgnoreRules:
    """The patterns of one file, by the cost of matching them.

    Each table has the number of the last pattern that matches; a pattern for folders alone is in
    the second of each pair.
    """

    is_negated: list[bool] = field(default_factory=list)
    names: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    endings: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    paths: tuple[dict[str, int], dict[str, int]] = field(default_factory=lambda: ({}, {}))
    wild: list[tuple[int, bool]] = field(default_factory=list)  # (number, only for folders)
    wild_set: re2.Set | None = None

    def match(self, path: str, name: str, *, is_folder: bool) -> bool | None:
        """Return True to ignore, False for a negated pattern, None if no pattern matches.

        `path` is relative to the folder of the file.
        """
        ending = name[name.rfind(".") :] if "." in name else ""
        best = max(
            self.names[0].get(name, -1),
            self.endings[0].get(ending, -1),
            self.paths[0].get(path, -1),
        )
        if is_folder:
            best = max(
                best,
                self.names[1].get(name, -1),
                self.endings[1].get(ending, -1),
                self.paths[1].get(path, -1),
            )
        if self.wild_set is not None:
            for at in self.wild_set.Match(path.encode("utf-8", "surrogateescape")) or ():
                number, only_folders = self.wild[at]
                if number > best and (is_folder or not only_folders):
                    best = number
        return None if best < 0 else not self.is_negated[best]


class BadIgnores(ValueError):
    """An ignore file over a bound; the text names the bound."""


def parse_ignores(data: bytes) -> IgnoreRules:
    """Parse an ignore file.  Raises BadIgnores for one over a bound.

    A pattern that git never matches, such as one with an open bracket, never matches here.
    """
    if len(data) > MAX_IGNORE_BYTES:
        raise BadIgnores(f"more than {MAX_IGNORE_BYTES} bytes")
    rules = IgnoreRules()
    wild: dict[tuple[bytes, bool], int] = {}
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        pattern = _Pattern.parse(line)
        if pattern is None:
            continue
        number = len(rules.is_negated)
        if number == MAX_PATTERNS:
            raise BadIgnores(f"more than {MAX_PATTERNS} patterns")
        rules.is_negated.append(pattern.is_negated)
        text = os.fsdecode(pattern.glob)
        only_folders = pattern.only_folders
        if not _is_wild(pattern.glob):
            table = rules.paths if pattern.has_slash else rules.names
            table[only_folders][text] = number
        elif not pattern.has_slash and _ENDING.fullmatch(text):
            rules.endings[only_folders][text[1:]] = number
        elif (expression := _expression(pattern)) is not None:
            wild[expression, only_folders] = number  # the last of equal patterns decides
    _compile(rules, wild)
    return rules


_ENDING = re.compile(r"\*\.[^.*?\[\\/]+")  # `*.ext`: found by the part after the last dot


class _Pattern(NamedTuple):
    """One line of a file, as git reads it."""

    glob: bytes  # without `!`, a leading and a trailing slash
    is_negated: bool
    only_folders: bool
    has_slash: bool  # is about the whole path, not the name

    @classmethod
    def parse(cls, line: bytes) -> "_Pattern | None":
        if line.startswith(b"#"):
            return None
        text = _trimmed(line.removesuffix(b"\r"))
        is_negated = text.startswith(b"!")
        text = text[is_negated:]
        only_folders = text.endswith(b"/")
        text = text[: len(text) - only_folders]
        has_slash = b"/" in text
        text = text.removeprefix(b"/")
        return cls(text, is_negated, only_folders, has_slash) if text else None


def _trimmed(line: bytes) -> bytes:
    """Remove spaces at the end, but not one after a backslash."""
    end = len(line.rstrip(b" "))
    slashes = end - len(line[:end].rstrip(b"\\"))
    return line[: end + 1] if slashes % 2 and end < len(line) else line[:end]


def _is_wild(glob: bytes) -> bool:
    return any(each in glob for each in (b"*", b"?", b"[", b"\\"))


def _compile(rules: IgnoreRules, wild: Mapping[tuple[bytes, bool], int]) -> None:
    if not wild:
        return
    if sum(len(expression) for expression, _ in wild) > MAX_WILD_BYTES:
        raise BadIgnores(f"its wildcards need more than {MAX_WILD_BYTES} bytes")
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # git matches bytes
    options.log_errors = False  # a text of the workspace must not reach stderr
    options.never_capture = True
    options.max_mem = _SET_BYTES
    found = re2.Set.FullMatchSet(options)
    try:
        for (expression, only_folders), number in wild.items():
            found.Add(expression)
            rules.wild.append((number, only_folders))
        found.Compile()
    except re2.error:
        raise BadIgnores("its wildcards are too large together") from None
    rules.wild_set = found


# --- wildcards, as wildmatch.c reads them --------------------------------------------------------

_CLASSES = {
    name: f"[:{name}:]".encode()
    for name in (
        "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
        "upper", "xdigit",
    )
}  # fmt: skip
_TOKEN = re.compile(rb"\*+|\?|\[|\\(?s:.)?|(?s:.)")
_SPECIAL = re.compile(rb"[*?\[\\]")


def _expression(pattern: _Pattern) -> bytes | None:
    """Return the expression over a path; None for a pattern that matches nothing.

    Git compares the part before the first special byte literally and hands the rest to wildmatch,
    so two stars there count as if they began the pattern: `a**/b` matches `ax/y/b`.
    """
    glob, pieces, at = pattern.glob, [] if pattern.has_slash else [b"(?:.*/)?"], 0
    special = _SPECIAL.search(glob)
    first = 0 if special is None else special.start()
    while at < len(glob):
        token = _TOKEN.match(glob, at)
        assert token is not None  # noqa: S101 - any byte is a token
        text, start, at = token.group(), at, token.end()
        if text == b"[":
            found = _bracket(glob, at)
            if found is None:
                return None
            piece, at = found
        elif text == b"\\":
            return None  # escapes nothing
        elif text.startswith(b"*"):
            is_whole = start == first or glob[start - 1 : start] == b"/"
            piece, at = _stars(glob, at, crosses=is_whole and len(text) > 1)
        else:
            piece = b"[^/]" if text == b"?" else _literal(text[-1])
        pieces.append(piece)
    return b"(?s)" + b"".join(pieces)


def _stars(glob: bytes, end: int, *, crosses: bool) -> tuple[bytes, int]:
    """Return the expression of stars that end at `end`, and the end of the part that it covers."""
    if crosses and end == len(glob):
        return b".*", end
    if crosses and glob[end : end + 1] == b"/":
        return b"(?:.*/)?", end + 1
    return b"[^/]*", end


def _literal(byte: int) -> bytes:
    return rb"\x%02x" % byte


def _bracket(glob: bytes, at: int) -> tuple[bytes, int] | None:
    """Return the class of one byte that begins at `at`, after its bracket, and its end."""
    is_negated = glob[at : at + 1] in {b"!", b"^"}
    at += is_negated
    members: list[bytes] = []
    first = True
    while first or glob[at : at + 1] != b"]":
        first = False
        found = _member(glob, at)
        if found is None:
            return None
        piece, at = found
        members.append(piece)
    kept = b"".join(members)
    if not kept:  # of empty ranges alone
        return (b"[^/]" if is_negated else b"[^\\x00-\\xff]"), at + 1
    if is_negated:
        return b"[^/" + kept + b"]", at + 1
    # No slash: what a range that spans it would match is taken out by two ranges.
    return b"[" + kept + b"]", at + 1


def _member(glob: bytes, at: int) -> tuple[bytes, int] | None:
    """Return one class, range or byte in a bracket, and its end; None for an open bracket."""
    if glob[at : at + 2] == b"[:":
        end = glob.find(b"]", at + 2)
        if end < 0:
            return None
        if glob[end - 1 : end] == b":" and end - 1 >= at + 2:
            name = _CLASSES.get(glob[at + 2 : end - 1].decode("latin-1"))
            return None if name is None else (name, end + 1)
    low = _byte(glob, at)
    if low is None:
        return None
    first, at = low
    if glob[at : at + 1] != b"-" or glob[at + 1 : at + 2] in {b"", b"]"}:
        return _range(first, first), at
    high = _byte(glob, at + 1)
    return None if high is None else (_range(first, high[0]), high[1])


def _byte(glob: bytes, at: int) -> tuple[int, int] | None:
    at += glob[at : at + 1] == b"\\"
    return (glob[at], at + 1) if at < len(glob) else None


def _range(first: int, last: int) -> bytes:
    """Return the members from first to last without the slash, which no bracket matches."""
    slash = ord("/")
    parts = [(first, last)]
    if first <= slash <= last:
        parts = [(first, slash - 1), (slash + 1, last)]
    return b"".join(_literal(low) + b"-" + _literal(high) for low, high in parts if low <= high)


# --- all files of a walk -------------------------------------------------------------------------


class _Placed(NamedTuple):
    """Rules, and the folder that their paths are relative to."""

    rules: IgnoreRules
    offset: int  # of the relative path in a workspace path
    origin: str  # named in results


@dataclass(frozen=True, slots=True)
class Scope:
    """The rules that hold in one folder, strongest first."""

    plain: tuple[_Placed, ...] = ()  # `.ignore`
    git: tuple[_Placed, ...] = ()  # `.gitignore`, then the excludes of the repository
    personal: tuple[_Placed, ...] = ()
    _names: frozenset[str] = field(init=False)  # and endings, of all literal patterns
    _has_others: bool = field(init=False)  # patterns of whole paths, or with other wildcards

    def __post_init__(self) -> None:
        rules = [each.rules for each in (*self.plain, *self.git, *self.personal)]
        tables = (table for each in rules for table in (*each.names, *each.endings))
        object.__setattr__(self, "_names", frozenset(key for table in tables for key in table))
        others = any(each.wild or any(each.paths) for each in rules)
        object.__setattr__(self, "_has_others", others)

    def may_ignore(self, name: str) -> bool:
        """False if no pattern can match the entry: a cheap filter for most entries of a walk."""
        return self._has_others or name in self._names or name[name.rfind(".") :] in self._names

    def find(self, path: str, name: str, *, is_folder: bool) -> str | None:
        """Return the origin of the pattern that ignores the path; None if it is not ignored."""
        for each in (*self.plain, *self.git, *self.personal):
            found = each.rules.match(path[each.offset :], name, is_folder=is_folder)
            if found is not None:
                return each.origin if found else None
        return None


@dataclass(slots=True)
class Ignores:
    """The ignore files that one walk meets, and the number of entries they left out."""

    workspace: Workspace
    personal: "PersonalExcludes | None" = None
    files: int = 0  # left out
    folders: int = 0
    stores: int = 0  # of version control, in a listing
    origins: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    _read: int = 0

    @property
    def has_left(self) -> bool:
        """True if an entry was left out."""
        return self.files + self.folders + self.stores > 0

    def leaves_out(self, scope: Scope, path: str, name: str, *, is_folder: bool) -> bool:
        """True if the entry is ignored; it is counted."""
        origin = scope.find(path, name, is_folder=is_folder)
        if origin is None:
            return False
        self.origins.add(origin)
        if is_folder:
            self.folders += 1
        else:
            self.files += 1
        return True

    def above(self, folder: str) -> Scope:
        """Return the scope that holds around a folder: of all folders above it.  Blocks."""
        scope = Scope()
        if self.personal is not None:
            data, problem = self.personal.read()
            placed = self._parsed(data, 0, GLOBAL, GLOBAL)
            scope = Scope(personal=() if placed is None else (placed,))
            self.problems += [problem] if problem else []
        names = folder.split("/") if folder else []
        for depth in range(len(names)):
            scope = self.enter(scope, "/".join(names[:depth]), NAMES)
        return scope

    def enter(self, scope: Scope, folder: str, found: frozenset[str] | set[str]) -> Scope:
        """Return the scope in a folder which may have the entries `found` of NAMES.  Blocks."""
        plain, git, personal = scope.plain, scope.git, scope.personal
        if ".git" in found and (not folder or self._is_repository(folder)):
            placed = self._load(folder, EXCLUDE)
            git = () if placed is None else (placed,)
        if GITIGNORE in found and (placed := self._load(folder, GITIGNORE)) is not None:
            git = (placed, *git)
        if IGNORE in found and (placed := self._load(folder, IGNORE)) is not None:
            plain = (placed, *plain)
        return Scope(plain, git, personal)

    def notes(self) -> list[str]:
        """Return notes about entries that were left out, and files that could not be used."""
        found: list[str] = []
        counts = [
            pluralize(number, noun)
            for number, noun in ((self.files, "file"), (self.folders, "folder"))
            if number
        ]
        if counts:
            origins = ", ".join(sorted(self.origins))
            found.append(
                f"{' and '.join(counts)} ignored by {origins}; pass include_ignored to see them"
            )
        more = len(self.problems) - _MAX_NOTES
        found += self.problems[:_MAX_NOTES]
        return [*found, f"and {more} more ignore files not used"] if more > 0 else found

    def _is_repository(self, folder: str) -> bool:
        with suppress(ToolFailure), self.workspace.open_folder(folder) as fd, suppress(OSError):
            os.stat(".git", dir_fd=fd, follow_symlinks=False)
            return True
        return False

    def _load(self, folder: str, name: str) -> _Placed | None:
        path = f"{folder}/{name}" if folder else name
        if self._read == MAX_FILES:
            self._read += 1
            self.problems.append(f"only the first {MAX_FILES} ignore files are used")
        if self._read > MAX_FILES:
            return None
        self._read += 1
        try:
            with self.workspace.find_file(path) as fd:
                if fd is None:
                    return None
                data = os.read(fd, MAX_IGNORE_BYTES + 1)
        except (ToolFailure, OSError):
            # A `.git` that is a file, as in a worktree, has its excludes elsewhere.
            if name != EXCLUDE:
                self.problems.append(f"{visible(path)} cannot be read, or is a link: not used")
            return None
        return self._parsed(data, len(folder) + 1 if folder else 0, name, visible(path))

    def _parsed(self, data: bytes, offset: int, origin: str, shown: str) -> _Placed | None:
        try:
            rules = parse_ignores(data)
        except BadIgnores as error:
            self.problems.append(f"{shown} is not used: {error}")
            return None
        return _Placed(rules, offset, origin) if rules.is_negated else None


# --- the person's own excludes -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PersonalExcludes:
    """The global excludes of the person who runs the daemon."""

    home: Path
    config_home: Path  # $XDG_CONFIG_HOME

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "PersonalExcludes | None":
        """Return those of an environment; None without a home folder."""
        home = environment.get("HOME")
        if not home:
            return None
        return cls(Path(home), Path(environment.get("XDG_CONFIG_HOME") or f"{home}/.config"))

    def read(self) -> tuple[bytes, str | None]:
        """Return the content, empty for none, and a problem with it.  Blocks."""
        path = self.config_home / "git" / "ignore"
        for config in (self.config_home / "git" / "config", self.home / ".gitconfig"):
            for value in _excludes_of(_read_bounded(config) or b""):
                path = self.home / value[2:] if value.startswith("~/") else self.home / value
        data = _read_bounded(path)
        if data is None:
            return b"", f"{GLOBAL} cannot be read: not used"
        return data, None


def _excludes_of(data: bytes) -> Iterator[str]:
    """Yield the value of `excludesFile` in the section core of a git configuration, if it can be read."""
    text = "\n".join(line.strip() for line in data.decode("utf-8", "replace").split("\n"))
    parser = configparser.RawConfigParser(
        strict=False, allow_no_value=True, comment_prefixes=("#", ";"), delimiters=("=",),
        inline_comment_prefixes=("#", ";"),
    )  # fmt: skip
    with suppress(configparser.Error):
        parser.read_string(text)
    for section in parser.sections():
        value = parser[section].get("excludesfile") if section.lower() == "core" else None
        if value:
            yield value.strip().strip('"')


def _read_bounded(path: Path) -> bytes | None:
    """Return the content of a regular file, empty if there is none; None if it is unreadable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b""
        return os.read(fd, MAX_IGNORE_BYTES + 1)
    except OSError:
        return None
    finally:
        os.close(fd)
