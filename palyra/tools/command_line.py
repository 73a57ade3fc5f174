"""What a shell call asks for, read from its arguments alone: program, words, what it may be.

Pure.  A call is a list of words (`argv`), run as it is, or a line for `/bin/sh` (`command`).
"""

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palyra.core.tools import Facets, ToolFailure

SHELL = "/bin/sh"
_MAX_PATHS = 64  # of a call, shown to the rules
# A grant for these would be one for any program at all: they run what they are told.
_RUNNERS = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "env", "nice", "nohup", "setsid",
    "timeout", "time", "xargs", "find", "parallel", "watch", "script", "stdbuf", "chroot", "unshare",
    "python", "python3", "pypy3", "node", "deno", "bun", "perl", "ruby", "php", "lua", "awk", "gawk",
    "sed", "ed", "vi", "vim", "emacs", "gdb", "strace", "tclsh", "java", "ssh", "sudo", "su", "doas",
})  # fmt: skip
# Programs of many purposes: a grant is for one of them.
_WITH_SUBCOMMAND = frozenset({"git", "npm", "pip", "pip3", "cargo", "docker"})
# The word after these is a program text: it is run as it was approved.
INTERPRETERS = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "python", "python3", "node", "perl", "ruby", "php", "lua",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class CommandLine:
    """One call."""

    argv: tuple[str, ...]  # what is executed
    words: tuple[str, ...]  # what it consists of; of a line, as far as it can be told
    is_line: bool
    cwd: str  # relative to the workspace

    @property
    def name(self) -> str:
        """The program's name, without its folder."""
        return posixpath.basename(self.argv[0])


def read_command(arguments: Mapping[str, Any]) -> CommandLine:
    """The call.  Raises ToolFailure unless it has exactly one of `argv` and `command`."""
    cwd: str = arguments.get("cwd", "")
    argv, line = arguments.get("argv"), arguments.get("command")
    if (argv is None) is (line is None):
        raise ToolFailure("give either argv (a list of words) or command (a line for /bin/sh)")
    if argv is not None:
        if not argv[0] or not all(map(_is_word, argv)):
            raise ToolFailure("argv: the first word names a program; words are text without NUL")
        return CommandLine(tuple(argv), tuple(argv), is_line=False, cwd=cwd)
    line = str(line)
    if not _is_word(line) or not line.strip():
        raise ToolFailure(
            'command: give a line for /bin/sh, such as "ls -l", not empty, without NUL'
        )
    return CommandLine((SHELL, "-c", line), tuple(_split(line)), is_line=True, cwd=cwd)


def find_facets(arguments: Mapping[str, Any]) -> Facets:
    """What the rules may look at; a call that says nothing usable has none."""
    try:
        call = read_command(arguments)
    except ToolFailure:
        return Facets()
    subcommand = _find_subcommand(call)
    return Facets(
        paths=tuple(dict.fromkeys([call.cwd, *_paths(call.words)]))[:_MAX_PATHS],
        executable=call.name,
        subcommand=subcommand,
        grant_key=_grant_key(call, subcommand),
    )


def find_scripts(call: CommandLine) -> tuple[str, ...]:
    """The words that name a program text, if there is such a file: run it as it was approved."""
    words = call.words
    found = [words[0]] if words and "/" in words[0] else []
    for at, word in enumerate(words):
        if posixpath.basename(word) in INTERPRETERS | {".", "source"}:
            found += [next_word for next_word in words[at + 1 :] if not next_word.startswith("-")][
                :1
            ]
    return tuple(found)


def _grant_key(call: CommandLine, subcommand: str) -> str:
    """By program; none for what anybody may have changed by then, or what runs anything."""
    if call.is_line or call.name in _RUNNERS or not _is_of_system(call.argv[0]):
        return ""
    if call.name in _WITH_SUBCOMMAND:
        return f"{call.argv[0]} {subcommand}" if subcommand else ""
    return call.argv[0]


def _is_of_system(program: str) -> bool:
    return "/" not in program or program.startswith(("/usr/", "/bin/", "/sbin/"))


def _find_subcommand(call: CommandLine) -> str:
    """The first word that is no option; none after an option that may change what is run."""
    if call.is_line or call.name not in _WITH_SUBCOMMAND or len(call.argv) < 2:  # noqa: PLR2004 - program and subcommand
        return ""
    return "" if call.argv[1].startswith("-") else call.argv[1]


def _paths(words: Sequence[str]) -> list[str]:
    """Every word that may be a path within the workspace, also behind an equals sign."""
    found = [part for word in words for part in (word, word.partition("=")[2])]
    return [part for part in found if part and not part.startswith(("-", "/"))]


def _is_word(text: str) -> bool:
    """Whether a program can be given it: half a surrogate pair has no bytes."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def _split(line: str) -> list[str]:
    try:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        return list(lexer)
    except ValueError:  # an open quote: the shell will say so
        return line.split()
