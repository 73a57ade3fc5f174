"""Explanation of a program that the sandbox hides although this machine has it, and its remedy.

Two causes: a link of the workspace leads to a folder that programs do not see (the interpreter of a
virtual environment), or the daemon's PATH has the program in such a folder.  All functions block.
"""

import os
import re
from collections.abc import Callable, Iterator

from palyra.core.text.visible import visible
from palyra.core.tool.toolchains import is_below
from palyra.tools.sandbox.toolchains import Toolchains

_SIGNS = (
    "o such file or directory", "not found", "bad interpreter", "o module named", "cannot execute",
    "no such program",
)  # fmt: skip
_BETWEEN = re.compile(r"""[\s'"`:,;()\[\]\u2018\u2019\u201c\u201d]+""")
_NAME = re.compile(r"[A-Za-z0-9_][\w.+-]{0,63}")
_PYTHON = re.compile(r"(?:^|[\s/])(python[\d.]*): No module named")
_LINES, _WORDS = 40, 200  # of an output that are looked at


def explain_hidden(toolchains: Toolchains, name: str) -> str:
    """Return why a program of that name is not found; "" if this machine has none either."""
    found = toolchains.find_hidden(name)
    return "" if not found else _explain(toolchains, found, f"{visible(name)} is {visible(found)}")


def explain_link(toolchains: Toolchains, name: str, target: str) -> str:
    """Return why the link `name` to `target` leads to nothing; "" if it does not either outside."""
    if is_below(target, toolchains.visible) or not os.access(target, os.X_OK):
        return ""
    return _explain(toolchains, target, f"{visible(name)} leads to {visible(target)}")


def _explain(toolchains: Toolchains, program: str, what: str) -> str:
    commands = toolchains.find_remedy(program)
    how = (
        f"an operator shows its folder, read-only, with `{commands}` and a restart of the daemon"
        if commands
        else "its folder may not be shown to programs: install it in a folder of its own"
    )
    return f"the sandbox is the reason: {what}, which programs do not see; {how}"


def explain_output(
    toolchains: Toolchains,
    text: str,
    follow: Callable[[str], str],
    read_first_line: Callable[[str], str | None],
) -> str:
    """Return why the program that an error in the output names is missing; "" for no such reason.

    `follow` resolves a word to an absolute path, links of the workspace followed as text.
    `read_first_line` returns that of a path in the workspace, None for any other path.
    """
    lines = [line for line in text.splitlines() if any(sign in line for sign in _SIGNS)]
    for line in lines[:_LINES]:
        python = _PYTHON.search(line)
        names = [python[1]] if python else _BETWEEN.split(line)[:_WORDS]
        for name in names:
            for cause in _causes(toolchains, name, follow, read_first_line):
                return cause
    return ""


def _causes(
    toolchains: Toolchains,
    word: str,
    follow: Callable[[str], str],
    read_first_line: Callable[[str], str | None],
) -> Iterator[str]:
    if "/" not in word:
        if _NAME.fullmatch(word) and (found := explain_hidden(toolchains, word)):
            yield found
        return
    reached = follow(word)
    line = read_first_line(reached)
    if line is None:
        if reached and (found := explain_link(toolchains, word, reached)):
            yield found
        return
    first, *more = line.removeprefix("#!").split() if line.startswith("#!") else [""]
    for each in [first, *more[:1]] if first.endswith("/env") else [first]:
        if each and each != word:
            yield from _causes(toolchains, each, follow, read_first_line)
