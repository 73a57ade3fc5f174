"""Parser of a shell call's arguments: program, words, folders, and facts for the rules.

Pure.  A call is a list of words (`argv`), executed as it is, or a line for `/bin/sh` (`command`).
"""

import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from palyra.core.policy.grants import ANY_WORDS, SAME_WORDS, join_parts
from palyra.core.tool.harmless_options import find_form, fits_words, is_listed, is_option
from palyra.core.tool.paths import normal_path
from palyra.core.tool.spec import CallFacts, ToolFailure

SHELL = "/bin/sh"
MAX_LINE_CHARS = 16_384  # of all lines for a shell in one call
# Words and their characters, counted once per folder: bounds the time of every later check.
MAX_LOOKED_AT = 8_192
MAX_CHARS_LOOKED_AT = 262_144
_SHELLS = frozenset({"sh", "bash", "rbash", "dash", "zsh", "ksh"})
# A grant for one of these would allow any program: they run their arguments.
_RUNNERS = _SHELLS | {
    "fish", "busybox", "env", "nice", "ionice", "nohup", "setsid", "timeout", "time", "xargs", "find",
    "parallel", "watch", "script", "expect", "unbuffer", "stdbuf", "chroot", "unshare", "nsenter",
    "setarch", "linux32", "linux64", "i386", "x86_64", "flock", "taskset", "chrt", "prlimit", "choom",
    "setpriv", "capsh", "runuser", "runcon", "run-parts", "start-stop-daemon", "ld.so",
    "npx", "bunx", "uv", "uvx", "pipx",
    "python", "pypy", "node", "nodejs", "deno", "bun", "perl", "ruby", "php", "lua", "awk", "gawk",
    "mawk", "nawk", "sed", "ed", "vi", "vim", "emacs", "gdb", "strace", "tclsh", "java", "ssh", "sudo",
    "su", "doas",
}  # fmt: skip
# Programs with subcommands.
_WITH_SUBCOMMAND = frozenset({"git", "npm", "pip", "cargo", "docker"})
# The word after these names a script, which is sealed at its approved content.
_INTERPRETERS = _SHELLS | {"python", "node", "nodejs", "perl", "ruby", "php", "lua"}
# Programs whose first argument names what they do, like those with subcommands.
_WITH_TASKS = frozenset({"npm", "yarn", "pnpm", "make", "go", "cargo", "just", "tox", "nox"})
# A line of these characters only is a list of words to every shell: no quote, pattern, expansion,
# redirection or assignment.  The first word has no "=".  (POSIX.1-2017, Shell Command Language, 2.2.)
_PLAIN_LINE = re.compile(r"[A-Za-z0-9_./+:,@%-]+(?: [A-Za-z0-9_./+:,@%=-]+)*")
# What a shell runs itself, or takes for syntax (POSIX.1-2017, 2.4, 2.14 and 1.6; dash(1), bash(1)).
# Left out are those that only print or compare.
_BUILTINS = frozenset({
    ".", ":", "alias", "bg", "bind", "break", "builtin", "caller", "case", "cd", "chdir", "command", "compgen",
    "complete", "compopt", "continue", "coproc", "declare", "dirs", "disown", "do", "done", "elif", "else",
    "enable", "esac", "eval", "exec", "exit", "export", "fc", "fg", "fi", "for", "function", "getopts",
    "hash", "help", "history", "if", "in", "jobs", "kill", "let", "local", "logout", "mapfile", "newgrp",
    "popd", "printf", "pushd", "read", "readarray", "readonly", "return", "select", "set", "shift",
    "shopt", "source", "suspend", "then", "time", "times", "trap", "type", "typeset", "ulimit", "umask",
    "unalias", "unset", "until", "wait", "while",
})  # fmt: skip
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]*")
_FOLDERS = frozenset({
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
})  # fmt: skip
_DOUBLE = r'"((?:[^"\\]|\\.)*)"'
_SINGLE = r"'([^']*)'"
_QUOTED = re.compile(rf"\\(.)|{_SINGLE}|{_DOUBLE}", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_WORD = re.compile(
    r"""(?:[^\s();<>|&`"'\\]+|\\.|'[^']*'|"(?:[^"\\]|\\.)*"|["'\\])+|[();<>|&]+""", re.DOTALL
)
_END = r"(?=[ \t;|&]|$)"
# Space, then an operator, output that is discarded, or a word; each ends before a space or an operator.
_TOKEN = re.compile(
    rf"""[ \t]*(?:(?P<operator>&&|\|\||;|\|)|(?P<discard>(?<![^ \t;|&])(?:[12]?>[ ]?/dev/null|2>&1){_END})"""
    rf"""|(?P<option>--[a-z-]+=)?(?:'(?P<single>[^'\n]*)'|"(?P<double>[^"$`\\!\n]*)"){_END}"""
    # "~" and "^" behind a letter or digit are themselves: HEAD~1; names found by src/*.py begin with "src/".
    rf"""|(?P<plain>(?:[A-Za-z0-9_./+:,@%=-]|(?<=[A-Za-z0-9~^])[~^]|(?P<pattern>(?:(?<=[A-Za-z0-9_/=*-])|(?<![^ \t]))[*?]))+){_END})"""
)
# Readers that no option lets write a file or start a program, so a pattern may find a name with a dash first.
_TAKE_ANY_NAME = frozenset({"ls", "cat", "head", "tail", "wc"})
_DISCARDS = ["tee", "/dev/null"]
MAX_LINE_CALLS = 8
_CHANGES_FOLDER = frozenset({"cd", "pushd", "-C"})
_LINE_OPTION = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_VERSION = re.compile(r"[0-9.]+$")  # python3.11 is python
_FIRST_WORD = re.compile(r"[A-Za-z]*")  # and so are python3-dbg and perl5.36-x86_64-linux-gnu


@dataclass(frozen=True, slots=True)
class CommandLine:
    """One parsed call."""

    argv: tuple[str, ...]  # to execute
    words: tuple[str, ...]  # all words; those of a shell line as far as it can be parsed
    is_line: bool
    cwd: str  # relative to the workspace

    @property
    def name(self) -> str:
        """The program's name, without its folder."""
        return posixpath.basename(self.argv[0])

    @property
    def folders(self) -> tuple[str, ...]:
        """Working folder, and the folders that words change to."""
        found = [self.cwd]
        here = self.cwd
        for word, folder in pairwise(self.words):
            if word in _CHANGES_FOLDER:
                found.append(posixpath.join(here, folder))
                here = here if word == "-C" else found[-1]
        return tuple(dict.fromkeys(found))

    @property
    def names(self) -> tuple[str, ...]:
        """All words that may name a file, also after an equals sign."""
        parts = (part for word in self.words for part in (word, word.partition("=")[2]))
        return tuple(part for part in parts if part)


def read_command(arguments: Mapping[str, Any]) -> CommandLine:
    """Parse the call.  Raises ToolFailure unless it has exactly one of `argv` and `command`."""
    cwd: str = arguments.get("cwd", "")
    argv, line = arguments.get("argv"), arguments.get("command")
    if (argv is None) is (line is None):
        raise ToolFailure("give either argv (a list of words) or command (a line for /bin/sh)")
    if argv is not None:
        if not argv[0] or not all(map(_is_word, argv)):
            raise ToolFailure("argv: the first word names a program; words are text without NUL")
        return _bounded(CommandLine(tuple(argv), _all_words(argv), is_line=False, cwd=cwd))
    line = str(line)
    if not _is_word(line) or not line.strip():
        raise ToolFailure(
            'command: give a line for /bin/sh, such as "ls -l", not empty, without NUL'
        )
    words = _all_words(split_line(line))
    return _bounded(CommandLine((SHELL, "-c", line), words, is_line=True, cwd=cwd))


def _bounded(call: CommandLine) -> CommandLine:
    """Raise ToolFailure if the call exceeds a bound.  No folder is longer than all words together."""
    most_folders = 1 + sum(word in _CHANGES_FOLDER for word in call.words)
    chars = len(call.cwd) + sum(map(len, call.words))
    if most_folders * chars > MAX_CHARS_LOOKED_AT:
        raise ToolFailure(
            f"words of more than {MAX_CHARS_LOOKED_AT} characters, counted from each folder: write a "
            "script file"
        )
    if len(call.words) * len(call.folders) > MAX_LOOKED_AT:
        raise ToolFailure(
            f"more than {MAX_LOOKED_AT} words, counted from each folder: write a script file"
        )
    return call


def find_facets(arguments: Mapping[str, Any]) -> CallFacts:
    """Return the facts for the rules; an invalid call has none."""
    try:
        call = read_command(arguments)
    except ToolFailure:
        return CallFacts()
    plain = () if normal_path(call.cwd) is None else _plain_argv(call)
    groups = read_line(call.argv[-1], call.cwd) if call.is_line and not plain else ()
    parts = [part for group in groups for part in group]
    are_alone = all(_only_reads(part) for group in groups for part in group[1:])
    return CallFacts(
        paths=tuple(dict.fromkeys([call.cwd, *_paths(call)])),
        executable=call.name,
        subcommand=_find_subcommand(call),
        grant_key=_line_key(groups) if groups else _grant_key(plain, call.cwd),
        argv=plain,
        cwd=normal_path(call.cwd) or "",
        command=_command(plain),
        is_reader=_grant_key(plain, call.cwd).endswith(ANY_WORDS),
        parts=tuple(find_facets({"argv": list(part.argv), "cwd": part.cwd}) for part in parts)
        if are_alone
        else (),
    )


# --- lines of plain calls ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlainCall:
    """One command of a line: its words, and the folder it starts in."""

    argv: tuple[str, ...]
    cwd: str


def read_line(line: str, cwd: str) -> tuple[tuple[PlainCall, ...], ...]:
    """Return the pipelines of a line, each as its commands; () if a shell finds more than words in it.

    Accepted are words of plain characters or whole in quotes, and for readers patterns such as `src/*.py`,
    joined by `&&`, `||`, `;` and `|`, with `2>&1`, output to `/dev/null` and `| tee /dev/null`, and at the start `cd FOLDER &&`.
    """
    words: list[str] = []
    commands: list[tuple[list[str], str]] = []  # with the operator after them
    at = 0
    while at < len(line.rstrip(" \t")):
        token = _TOKEN.match(line, at)
        if token is None or len(commands) >= MAX_LINE_CALLS:
            return ()
        at = token.end()
        if token.lastgroup == "operator":
            commands.append((words, token["operator"]))
            words = []
        elif token.lastgroup != "discard":
            words.append((token["option"] or "") + token[token.lastgroup])  # type: ignore[index]  # one group matched
            if token["pattern"] and not _takes_any_words(words):
                return ()
            if (token["plain"] or "").startswith(("*", "?")) and words[0] not in _TAKE_ANY_NAME:
                return ()
    commands.append((words, ""))
    return _grouped(commands, cwd)


def _grouped(
    commands: Sequence[tuple[Sequence[str], str]], cwd: str
) -> tuple[tuple[PlainCall, ...], ...]:
    operators = {operator for _, operator in commands[:-1]}
    groups: list[list[PlainCall]] = [[]]
    for words, operator in commands:
        if not words or not words[0]:
            return ()
        if words[0] == "cd" and groups == [[]] and operators <= {"&&", "|"} and operator == "&&":
            moved = _moved(cwd, words)
            if moved is None:
                return ()
            cwd = moved
            continue
        if list(words) == _DISCARDS and groups[-1]:  # behind a pipe: it passes on what it reads
            if operator not in {"|", ""}:
                groups.append([])
            continue
        if words[0] in _BUILTINS or "=" in words[0]:
            return ()
        groups[-1].append(PlainCall(tuple(words), cwd))
        if operator not in {"|", ""}:
            groups.append([])
    return tuple(map(tuple, groups))


def _moved(cwd: str, words: Sequence[str]) -> str | None:
    if len(words) != 2 or words[1].startswith("-") or not words[1]:  # noqa: PLR2004 - cd and a folder
        return None
    return normal_path(posixpath.join(cwd, words[1]))


def _takes_any_words(words: Sequence[str]) -> bool:
    """True for a reader that reads all files that a pattern may find."""
    found = find_form(words[0], *words[1:2] or ("",))
    return (
        found is not None
        and found[0].words == "any"
        and found[0].most_words is None
        and not found[0].first
    )


def _only_reads(part: PlainCall) -> bool:
    """True for a reader of the list: what it gets from a pipe is data for it."""
    return _grant_key(part.argv, part.cwd).endswith(ANY_WORDS)


def _line_key(groups: Sequence[Sequence[PlainCall]]) -> str:
    """Return the key of a line.  A pipeline into a program that does not only read has one key for all its words."""
    keys: list[str] = []
    for group in groups:
        if all(map(_only_reads, group[1:])):
            keys += [_grant_key(part.argv, part.cwd) for part in group]
        elif all(_grant_key(part.argv, part.cwd) for part in group):
            keys.append(" | ".join(_exact_key(part.argv, part.cwd) for part in group))
        else:
            return ""
    return join_parts(keys)


# --- scripts and keys ----------------------------------------------------------------------------


def find_scripts(call: CommandLine) -> tuple[str, ...]:
    """Return the words that name scripts, if such files exist."""
    words = call.words
    found = [words[0]] if words and "/" in words[0] else []
    is_next = False
    for word in words:
        if is_next and not word.startswith("-"):
            found.append(word)
            is_next = False
        if word in {".", "source"} or _plain_name(word) in _INTERPRETERS:
            is_next = True
    return tuple(dict.fromkeys(found))


def _grant_key(argv: Sequence[str], cwd: str) -> str:
    """Return what a wider answer covers: the words, and what the list of the program adds.

    "" for a replaceable program, one that runs its arguments, and an option that is not listed of a
    program that could do more by an option.
    """
    if not argv or not _is_of_system(argv[0]):
        return ""
    name = posixpath.basename(argv[0])
    if argv[:2] == (name, "--no-pager") and name == "git":
        argv = (name, *argv[2:])  # without a terminal there is none anyway
    found = find_form(name, *argv[1:2] or ("",))
    form, named = found or (None, 1)
    if form is None and _is_runner(name):
        return ""
    options = [word for word in argv[named:] if is_option(word)]
    if form is None or form.words == "exact":
        is_listed_name = form is not None or find_form(_plain_name(name), "") is not None
        return "" if options and is_listed_name else _exact_key(argv, cwd)
    words = [word for word in argv[named:] if not is_option(word)]
    if not all(is_listed(form, word) for word in options) or not fits_words(form, words):
        return ""
    if form.words == "any":
        return join_parts([f"{_exact_key(argv[:named], cwd)} {ANY_WORDS}"])
    return join_parts(
        [f"{_exact_key([word for word in argv if not is_option(word)], cwd)} {SAME_WORDS}"]
    )


def _exact_key(argv: Sequence[str], cwd: str) -> str:
    folder = normal_path(cwd)
    if folder is None:
        return ""
    place = f"{shlex.quote(folder)}/: " if folder else ""
    return join_parts([place + shlex.join(argv)])


def _plain_argv(call: CommandLine) -> tuple[str, ...]:
    """Return the words that alone say what runs; () for a line in which a shell finds more than words."""
    if not call.is_line:
        return call.argv
    line = call.argv[-1]
    words = tuple(line.split(" ")) if _PLAIN_LINE.fullmatch(line) else ()
    return () if not words or words[0] in _BUILTINS else words


def _command(argv: tuple[str, ...]) -> str:
    """Return the words that name what runs; "" if a file of the workspace or an argument may be code."""
    if not argv or not _is_of_system(argv[0]):
        return ""
    name = posixpath.basename(argv[0])
    plain, first, second = _plain_name(name), *(*argv[1:3], "", "")[:2]
    if plain == "python" and first == "-m" and _MODULE.fullmatch(second):
        return f"{name} -m {second}"
    has_task = plain in _WITH_SUBCOMMAND | _WITH_TASKS
    # An option in the place of a task may change what runs.
    if _is_runner(name) or (has_task and not _NAME.fullmatch(first)):
        return ""
    if not has_task:
        return name
    if plain in _WITH_TASKS and first == "run":
        return f"{name} run {second}" if _NAME.fullmatch(second) else ""
    return f"{name} {first}"


def _is_runner(name: str) -> bool:
    return not _RUNNERS.isdisjoint({name, _plain_name(name), _FIRST_WORD.match(name)[0]})  # type: ignore[index]  # it matches any text


def _plain_name(program: str) -> str:
    """Return a program's name without folder and version."""
    return _VERSION.sub("", posixpath.basename(program))


def _is_of_system(program: str) -> bool:
    """True if it lies in a system folder; `/usr/../x` may lie anywhere."""
    folder, _, name = program.rpartition("/")
    return program == name or folder in _FOLDERS


def _find_subcommand(call: CommandLine) -> str:
    """Return the first argument; "" for an option, which may change the program that runs."""
    has_one = not call.is_line and _plain_name(call.name) in _WITH_SUBCOMMAND
    if not has_one or len(call.argv) < 2:  # noqa: PLR2004 - program and subcommand
        return ""
    return "" if call.argv[1].startswith("-") else call.argv[1]


def _paths(call: CommandLine) -> list[str]:
    """Return every word that may be a path, as written and from each folder; options are excluded."""
    words = [word for word in dict.fromkeys(call.names) if not word.startswith("-")]
    inner = [word for word in words if not word.startswith("/")]
    reached = (posixpath.join(folder, word) for folder in call.folders if folder for word in inner)
    return [*words, *map(posixpath.normpath, reached)]


def _all_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the words, and those of a line passed to a shell: `bash -c "cat x"`."""
    if _SHELLS.isdisjoint(map(_plain_name, set(words))):
        return tuple(words)
    lines = [line for option, line in pairwise(words) if _LINE_OPTION.fullmatch(option)]
    if sum(map(len, lines)) > MAX_LINE_CHARS:
        raise ToolFailure(
            f"argv: lines for a shell of more than {MAX_LINE_CHARS} characters: write a script file"
        )
    return (*words, *(word for line in lines for word in split_line(line)))


def _is_word(text: str) -> bool:
    """True if it can be an argument: a lone surrogate has no bytes."""
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


def split_line(line: str) -> list[str]:
    """Split a shell line into unquoted words; operators and words of comments are words, too."""
    return [_unquoted(word) for word in _WORD.findall(line)]


def _unquoted(word: str) -> str:
    if word.isalnum():
        return word
    return _QUOTED.sub(_bare, word)


def _bare(match: re.Match[str]) -> str:
    escaped, single, double = match.group(1, 2, 3)
    if escaped is not None:
        return escaped.replace("\n", "")  # a line continuation
    return _ESCAPED.sub(r"\1", double) if single is None else single
