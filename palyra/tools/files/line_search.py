"""Search for lines of a file, shown as `grep -n` does, in linear time.

The engine is RE2 on UTF-8: no pattern can make it backtrack, and none matches across a line end.

Linear is not cheap: the engine takes up to one step for each byte and each instruction of the compiled pattern,
and counted repetition makes thousands of these.  So a pattern has a bound of instructions, and a call of the
engine, which nothing interrupts, one of steps: a text is searched in pieces of whole lines, between which the
search may end.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import re2

from palyra.core.redaction.scanner import Expression

MAX_QUERY_CHARS = 1_000
LINE_BYTES = 400  # shown of one line; of a longer one the part around the match
MAX_PROGRAM_BYTES = 8_388_608  # of a compiled pattern and the engine's cache
MAX_INSTRUCTIONS = 20_000  # of a compiled pattern; ordinary ones have less than 200
MAX_STEPS = 300_000_000  # instructions times bytes of one call: at 3.5 ns at worst a second

Find = Callable[[bytes, int], int]  # (content, start) -> offset of the match, -1 for none


class BadQuery(ValueError):
    """An invalid query; the text describes the error."""


class Hit(NamedTuple):
    """A matching line: its number from 1, and offsets into the content."""

    number: int
    start: int
    end: int  # without its line end
    at: int  # of the match


def compile_text(pattern: str, *, ignores_case: bool = False) -> Expression:
    """Compile the expression over UTF-8 bytes, line by line.  Raises BadQuery."""
    options = re2.Options()
    options.never_nl = options.never_capture = True
    options.log_errors = False  # a model's text must not reach stderr
    options.case_sensitive = not ignores_case
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        expression: Expression = re2.compile(f"(?m){pattern}".encode(), options)
    except (re2.error, UnicodeEncodeError) as error:
        raise BadQuery(f"not a regular expression: {_reason(error)}") from None
    return expression


def _reason(error: Exception) -> str:
    said = error.args[0]
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else "it is no UTF-8"


def compile_query(
    query: str,
    *,
    is_regex: bool,
    ignores_case: bool,
    is_over: Callable[[], bool] = lambda: False,
    pass_line: Callable[[], None] = lambda: None,
) -> Find:
    """Return the search function of a query.  Raises BadQuery.

    It finds nothing more once `is_over`, and calls `pass_line` for a line that is too long for its bound of steps.
    """
    if not query or len(query) > MAX_QUERY_CHARS:
        raise BadQuery(f"a query has 1 to {MAX_QUERY_CHARS} characters")
    if "\n" in query:
        raise BadQuery("a query is found inside one line, so it cannot hold a line end")
    if not is_regex and not ignores_case and _is_utf8(query):
        needle = query.encode()
        return lambda content, start: content.find(needle, start)  # a third of the engine's time
    expression = compile_text(query if is_regex else re2.escape(query), ignores_case=ignores_case)
    most_bytes = MAX_STEPS // _count_instructions(expression)

    def find(content: bytes, start: int) -> int:
        while start <= len(content) and not is_over():
            end = _end_of_piece(content, start, most_bytes)
            if end - start > most_bytes:
                pass_line()
            elif (match := expression.search(content, start, end)) is not None:
                return match.span()[0]
            start = end + 1
        return -1

    return find


def _count_instructions(expression: Expression) -> int:
    """Return the size of the larger program, of those for the two directions.  Raises BadQuery."""
    count = max(expression.programsize, expression.reverseprogramsize)
    if count > MAX_INSTRUCTIONS:
        raise BadQuery(
            f"the expression has {count} instructions, at most {MAX_INSTRUCTIONS}: repeat less, such as "
            "{1,20} for {1,1000}, or search for a part of it"
        )
    return count


def _end_of_piece(content: bytes, start: int, most_bytes: int) -> int:
    """Return the end of as many lines as fit, of one line if none does; without its line feed."""
    if len(content) - start <= most_bytes:
        return len(content)
    end = content.rfind(b"\n", start, start + most_bytes + 1)
    if end < 0:
        end = content.find(b"\n", start)
    return len(content) if end < 0 else end


def _is_utf8(query: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in query)


def find_hits(content: bytes, find: Find) -> Iterator[Hit]:
    """Yield each matching line once, in order.  Lines end with a line feed."""
    number, counted, start = 1, 0, 0
    while start < len(content) and (at := find(content, start)) >= 0:
        start = content.rfind(b"\n", 0, at) + 1
        if start == len(content):  # no line follows the last line end
            return
        end = content.find(b"\n", at)
        end = len(content) if end < 0 else end
        number += content.count(b"\n", counted, start)
        yield Hit(number, start, end, at)
        counted, start = start, end + 1


def render_hits(path: str, content: bytes, hits: Sequence[Hit], context: int) -> list[str]:
    """`path:line:text` for each hit, `path-line-text` for context lines, `--` between gaps."""
    if not context:
        return [f"{path}:{hit.number}:{_shown(content, hit)}" for hit in hits]
    lines = content.removesuffix(b"\n").split(b"\n")
    found = {hit.number: hit for hit in hits}
    shown: list[str] = []
    last = 0
    for hit in hits:
        first = max(last + 1, hit.number - context)
        if shown and first > last + 1:
            shown.append("--")
        last = min(len(lines), hit.number + context)
        for number in range(first, last + 1):
            other = found.get(number)
            if other is None:
                shown.append(f"{path}-{number}-{_text(lines[number - 1], 0)}")
            else:
                shown.append(f"{path}:{number}:{_shown(content, other)}")
    return shown


def _shown(content: bytes, hit: Hit) -> str:
    return _text(content[hit.start : hit.end], hit.at - hit.start)


def _text(line: bytes, at: int) -> str:
    """Return the line, or the part of it around `at`."""
    if len(line) <= LINE_BYTES:
        return line.decode("utf-8", "replace")
    first = max(0, min(at - LINE_BYTES // 4, len(line) - LINE_BYTES))
    piece = line[first : first + LINE_BYTES].decode("utf-8", "ignore")
    return f"{'…' * (first > 0)}{piece}{'…' * (first + LINE_BYTES < len(line))}"
