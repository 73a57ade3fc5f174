"""The tools `glob` and `search_text`: find files by name, and lines by content.

Both are bounded in time, entries, bytes and results; the text names the bound that was reached.
Both leave out ignored files and say how many (`ignores`), unless the call includes them.
"""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from palyra.core.memory.documents import MAX_DOCUMENT_BYTES, without_blocks
from palyra.core.text.visible import pluralize, visible
from palyra.core.tool.paths import MAX_PATH_BYTES, composed
from palyra.core.tool.spec import ToolFailure, ToolOutput, ToolSpec
from palyra.tools.files.globs import MAX_PATTERN_CHARS, compile_glob, fixed_folder
from palyra.tools.files.ignores import Ignores, PersonalExcludes
from palyra.tools.files.line_search import (
    MAX_QUERY_CHARS,
    BadQuery,
    Find,
    compile_query,
    find_hits,
    render_hits,
)
from palyra.tools.files.read import INCLUDE_IGNORED, PAGE_BYTES, reading_spec
from palyra.tools.files.walk import Found, WorkspaceWalk, read_plain
from palyra.tools.files.workspace import Workspace, equal_names_note
from palyra.tools.toolbox import Arguments, ThreadTool, Tool

MAX_FILES_SHOWN = 1_000
MAX_HITS = 1_000
DEFAULT_HITS = 200
MAX_CONTEXT = 10
MAX_FILE_BYTES = 4_194_304  # a larger one is not searched
MAX_TOTAL_BYTES = 536_870_912  # of all files of one search
_PROBE_BYTES = 8_192  # read to tell a text from a binary file

_GLOB_HELP = (
    "`*` and `?` stay inside one name, `**` means any folders, `{a,b}` alternatives; without a "
    "slash it means the name in every folder."
)
_PATH: dict[str, Any] = {
    "type": "string",
    "maxLength": MAX_PATH_BYTES,
    "description": "Folder or file, relative to the workspace; left out, all of it.",
}


def glob_spec(enforcement: str) -> ToolSpec:
    """Return the specification of `glob`."""
    return reading_spec(
        "glob",
        "Find files of the workspace by their names; sorted, folders left out.",
        {
            "pattern": {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARS,
                        "description": f"Glob, relative to `path`. {_GLOB_HELP}"},
            "path": _PATH,
            "include_ignored": INCLUDE_IGNORED,
        },
        enforcement,
        ["pattern"],
    )  # fmt: skip


def search_text_spec(enforcement: str) -> ToolSpec:
    """Return the specification of `search_text`."""
    return reading_spec(
        "search_text",
        "Find lines in text files of the workspace: path:line:text, sorted by path.",
        {
            "query": {"type": "string", "minLength": 1, "maxLength": MAX_QUERY_CHARS,
                      "description": "What to find inside one line."},
            "regex": {"type": "boolean",
                      "description": "The query is an RE2 expression; else it is literal."},
            "ignore_case": {"type": "boolean"},
            "path": _PATH,
            "glob": {"type": "string", "minLength": 1, "maxLength": MAX_PATTERN_CHARS,
                     "description": f"Only in files it means. {_GLOB_HELP}"},
            "context": {"type": "integer", "minimum": 0, "maximum": MAX_CONTEXT,
                        "description": "Lines shown before and after each."},
            "limit": {"type": "integer", "minimum": 1, "maximum": MAX_HITS,
                      "description": f"Most lines to find; {DEFAULT_HITS} if left out."},
            "include_ignored": INCLUDE_IGNORED,
        },
        enforcement,
        ["query"],
    )  # fmt: skip


def search_tools(workspace: Workspace, personal: PersonalExcludes | None = None) -> list[Tool]:
    """Return both tools for one workspace; `personal` excludes hold in all of it."""
    enforcement = workspace.enforcement
    return [
        ThreadTool(glob_spec(enforcement), lambda call: glob(workspace, call.arguments, personal)),
        ThreadTool(
            search_text_spec(enforcement),
            lambda call: search_text(
                workspace, call.arguments, personal, is_confined=call.audience.is_confined
            ),
        ),
    ]


# --- glob ----------------------------------------------------------------------------------------


def glob(
    workspace: Workspace, arguments: Arguments, personal: PersonalExcludes | None = None
) -> ToolOutput:
    """Return matching paths, one per line, as many as fit.  Blocks.  Raises ToolFailure."""
    pattern = arguments["pattern"]
    means = _compiled(pattern)
    above = workspace.resolve(arguments.get("path", ""))
    walk = _walk(workspace, f"{above}/{fixed_folder(pattern)}".strip("/"), arguments, personal)
    inside = f"{above}/" if above else ""
    found = (each.path for each in walk.files() if means(each.path.removeprefix(inside)))
    paths, room, left = list[str](), PAGE_BYTES, 0
    for path in islice(found, MAX_FILES_SHOWN + 1):
        room -= len(visible(path).encode()) + 1
        if room < 0 or len(paths) == MAX_FILES_SHOWN:
            left = 1 + sum(1 for _ in found)
            break
        paths.append(path)
    notes = [f"{left} more files are not shown: use a narrower pattern"] if left else []
    if not paths:
        notes.append("no file is meant by it")
    notes += equal_names_note(paths)
    shown = [visible(path) for path in paths]
    return _output(shown, [*notes, *_walk_notes(walk)], is_cut=left > 0 or walk.is_cut)


def _compiled(pattern: str) -> Callable[[str], bool]:
    try:
        expression = compile_glob(_as_line(pattern))
    except BadQuery as error:
        raise ToolFailure(f"the glob {visible(pattern)!r}: {error}") from None
    return lambda path: expression.search(_as_line(path).encode("utf-8", "replace")) is not None


def _as_line(text: str) -> str:
    """Return the text as globs compare it: in NFC, and on one line for the engine."""
    return composed(text).replace("\n", "\ufffd")


# --- search_text ---------------------------------------------------------------------------------


def search_text(
    workspace: Workspace,
    arguments: Arguments,
    personal: PersonalExcludes | None = None,
    *,
    is_confined: bool = False,
) -> ToolOutput:
    """Return matching lines with path and number, as many as fit.  Blocks.  Raises ToolFailure.

    A confined run finds nothing in the managed blocks of a document.
    """
    walk = _walk(workspace, arguments.get("path", ""), arguments, personal)
    search = _Search(walk, arguments, is_confined=is_confined)
    shown = list(search.lines())
    notes = [*search.notes, *_walk_notes(search.walk)]
    if not shown:
        notes.insert(0, "nothing was found")
    return _output(shown, notes, is_cut=search.is_cut or search.walk.is_cut)


class _Search:
    """One search, with counts of skipped files."""

    def __init__(self, walk: WorkspaceWalk, arguments: Arguments, *, is_confined: bool) -> None:
        self.walk = walk
        self._find = _query(arguments, walk.is_over, self._pass_line)
        self._is_confined = is_confined
        means = _compiled(arguments["glob"]) if "glob" in arguments else None
        self._means = means
        self._limit = arguments.get("limit", DEFAULT_HITS)
        self._context = arguments.get("context", 0)
        self._room = PAGE_BYTES
        self._total_bytes = 0
        self._has_long_line = False  # the file that is being searched
        self._partly = 0  # files with lines that were passed
        self._skipped = 0  # files that are too large, have a second name, or were removed
        self.is_cut = False

    @property
    def notes(self) -> Iterator[str]:
        """Notes about skipped files and reached bounds."""
        if self.is_cut:
            yield "there is more: narrow the search with path, glob or a longer query"
        if self._skipped:
            files = pluralize(self._skipped, "file")
            yield f"{files} not searched (too large, or with a second name)"
        if self._partly:
            files = pluralize(self._partly, "file")
            yield f"{files} not searched in lines too long for this expression: a simpler one finds more"

    def _pass_line(self) -> None:
        self._has_long_line = True

    def lines(self) -> Iterator[str]:
        """Yield the lines to show, up to the bounds."""
        for found in self.walk.files():
            if self._means is not None and not self._means(
                found.path.removeprefix(self.walk.prefix)
            ):
                continue
            content = self._read(found)
            if content is None:
                continue
            for line in self._in_file(found.path, content):
                self._room -= len(line.encode()) + 1
                if self._room < 0:
                    self.is_cut = True
                    return
                yield line
            if self.is_cut:
                return

    def _read(self, found: Found) -> bytes | None:
        content = read_plain(found, MAX_FILE_BYTES)
        if content is None:
            self._skipped += 1
            return None
        self._total_bytes += len(content)
        if self._total_bytes > MAX_TOTAL_BYTES:
            self.is_cut = True
        if content.find(b"\0", 0, _PROBE_BYTES) >= 0:
            return None
        content = content.removeprefix(BOM_UTF8)
        if self._is_confined and len(content) <= MAX_DOCUMENT_BYTES:
            content = without_blocks(content)
        return content.replace(b"\r\n", b"\n") if b"\r" in content else content

    def _in_file(self, path: str, content: bytes) -> list[str]:
        self._has_long_line = False
        is_found = self._find(content, 0) >= 0  # not in most files; cheaper than the generator
        hits = list(islice(find_hits(content, self._find), self._limit + 1)) if is_found else []
        self._partly += self._has_long_line
        if not hits:
            return []
        if len(hits) > self._limit:
            self.is_cut = True
            hits.pop()
        self._limit -= len(hits)
        return render_hits(visible(path), content, hits, self._context)


def _query(
    arguments: Arguments, is_over: Callable[[], bool], pass_line: Callable[[], None]
) -> Find:
    try:
        return compile_query(
            arguments["query"],
            is_regex=arguments.get("regex", False),
            ignores_case=arguments.get("ignore_case", False),
            is_over=is_over,
            pass_line=pass_line,
        )
    except BadQuery as error:
        raise ToolFailure(f"the query: {error}") from None


# --- both ----------------------------------------------------------------------------------------


def _walk(
    workspace: Workspace, top: str, arguments: Arguments, personal: PersonalExcludes | None
) -> WorkspaceWalk:
    is_complete = arguments.get("include_ignored", False)
    return WorkspaceWalk(
        workspace, workspace.resolve(top), None if is_complete else Ignores(workspace, personal)
    )


def _walk_notes(walk: WorkspaceWalk) -> list[str]:
    ended = [f"the search ended early {walk.stopped}: name a folder"] if walk.stopped else []
    if walk.closed:
        folders = pluralize(walk.closed, "folder")
        ended.append(f"{folders} not entered (without permission, or too deep)")
    return [*ended, *(() if walk.ignores is None else walk.ignores.notes())]


def _output(lines: list[str], notes: list[str], *, is_cut: bool) -> ToolOutput:
    text = "\n".join([*lines, *([f"[{'; '.join(notes)}]"] if notes else [])])
    return ToolOutput(text=text, is_truncated=is_cut)
