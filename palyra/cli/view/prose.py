"""Text of a model at a terminal that shows styles: Markdown and code, while it streams.

Theory: a block of Markdown can be rendered only when the next one has begun, since its last line may
still change its kind.  Finished blocks are rendered and printed, and the rest is shown raw in live lines
until then.  The parser of the renderer finds the blocks, so that both agree.

Nothing is hidden from the reader: tags and underscores are text, links and pictures show their address, a
definition of links is a paragraph.  Terminal controls are escaped before the text is parsed and once more after it, because an
entity (`&#x202e;`) may stand for one.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from palyra.cli.command.output import line_width, open_console, safe, uses_style, wrap_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from rich.segment import Segment
    from rich.style import Style

MARK = "● "  # begins an answer in a conversation
MIN_WIDTH = 20
SEEN_CHARS = 2_000  # of a text behind a gap
SMALL_CHARS = 4_000  # of a block that is parsed at each of its lines
CODE_THEME = "ansi_dark"  # the colours of the terminal, on its own background


class Prose:
    """One text after another, printed block by block."""

    def __init__(
        self,
        print_text: Callable[[str], None],
        show_live: Callable[[Sequence[str]], None],
        find_size: Callable[[], tuple[int, int]],  # columns, and rows of the part in progress
        mark: str = "",
    ) -> None:
        self._print = print_text
        self._show_live = show_live
        self._find_size = find_size
        self._mark = mark
        self._rest = ""
        self._behind_gap = ""  # shown live alone
        self._parse_chars = 0  # length of the rest that is worth a look for finished blocks
        self._has_begun = False

    def add(self, text: str, *, is_live: bool = True) -> None:
        """Append a piece of the text; blocks that it finishes are printed, and the rest is shown if live."""
        if not self._has_begun and not self._rest:
            text = text.lstrip("\n")
        self._rest += safe(text)
        # A long block is parsed at steps, or the work would grow with the square of its length.
        if "\n" in text and len(self._rest) >= self._parse_chars:
            finished, self._rest = split_blocks(self._rest)
            self._parse_chars = len(self._rest) * 9 // 8 if len(self._rest) > SMALL_CHARS else 0
            self._print_block(finished)
        if self._rest and is_live:
            self._show_live(self._wrap_rest())

    def show_behind_gap(self, text: str) -> None:
        """Show a piece whose place is not known until the text is complete; it is never printed."""
        self._behind_gap = (self._behind_gap + safe(text))[-SEEN_CHARS:]
        self._show_live(self._wrap_rest())

    def end(self) -> None:
        """Print what is left, with an empty line below a text that has a mark."""
        rest, self._rest, self._parse_chars = self._rest, "", 0
        if self._behind_gap:
            self._behind_gap = ""
            self._show_live(())
        self._print_block(rest)
        if self._has_begun and self._mark:
            self._print("\n")
        self._has_begun = False

    def _wrap_rest(self) -> list[str]:
        """Return the last rows of the block in progress, where they will be when it is rendered."""
        columns, rows = self._find_size()
        width = max(columns - len(self._mark), MIN_WIDTH)
        text = f"{self._rest} … {self._behind_gap}".lstrip() if self._behind_gap else self._rest
        shown = wrap_words(text[-width * (rows + 1) :], width)[-rows:]
        first, other = self._mark, " " * len(self._mark)
        indents = [other if self._has_begun else first, *[other] * len(shown)]
        lines = [f"{indent}{row}" for indent, row in zip(indents, shown, strict=False)]
        return ["", *lines] if self._has_begun or self._mark else lines

    def _print_block(self, text: str) -> None:
        if not text.strip():
            return
        columns, _rows = self._find_size()
        first, other = self._mark, " " * len(self._mark)
        lines = render_markdown(text, max(columns - len(first), MIN_WIDTH))
        indents = [other if self._has_begun else first, *[other] * len(lines)]
        shown = "".join(
            f"{indent if line else indent.rstrip()}{line}\n"
            for indent, line in zip(indents, lines, strict=False)
        )
        self._show_live(())
        self._print(f"\n{shown}" if self._has_begun or self._mark else shown)
        self._has_begun = True


def split_blocks(text: str) -> tuple[str, str]:
    """Return the blocks that nothing can change any more, and the rest."""
    starts = [
        token.map[0]
        for token in _block_parser().parse(text)
        if token.level == 0 and token.map is not None
    ]
    if len(starts) < 2:  # noqa: PLR2004 - the last one is not finished
        return "", text
    lines = text.split("\n")
    return "\n".join(lines[: starts[-1]]), "\n".join(lines[starts[-1] :])


def lay_out(text: str) -> list[str]:
    """Return the painted lines of a whole text; as they are where styles are not shown."""
    shown = safe(text).rstrip("\n")
    return (
        render_markdown(shown, max(line_width(), MIN_WIDTH)) if uses_style() else shown.split("\n")
    )


def render_markdown(text: str, width: int) -> list[str]:
    """Return the lines of a text of Markdown, with the styles of the terminal and no other control."""
    from rich.segment import Segment, Segments  # noqa: PLC0415 - only for a terminal

    from palyra.cli.view.rich_markdown import PlainMarkdown  # noqa: PLC0415 - see above

    console = open_console(width)
    markdown = PlainMarkdown(text, _parser(), CODE_THEME)
    lines = []
    for segments in console.render_lines(markdown, pad=False):
        pieces = [
            Segment(safe(each.text), _without_ground(each.style))
            for each in segments
            if not each.control
        ]
        with console.capture() as captured:
            console.print(Segments(_without_blanks(pieces)), end="", soft_wrap=True)
        lines.append(captured.get())
    while lines and not lines[-1]:
        lines.pop()
    while lines and not lines[0]:
        lines.pop(0)
    return lines


def _without_ground(style: Style | None) -> Style | None:
    """Return the style on the background of the terminal, which may be light."""
    if style is None or style.bgcolor is None:
        return style
    return type(style)(
        color=style.color, bold=style.bold, italic=style.italic, underline=style.underline
    )


def _without_blanks(pieces: list[Segment]) -> list[Segment]:
    """Return the pieces of a line without blanks at its end."""
    while pieces and not pieces[-1].text.strip():
        pieces.pop()
    if pieces:
        pieces[-1] = pieces[-1]._replace(text=pieces[-1].text.rstrip())
    return pieces


@cache
def _block_parser() -> MarkdownIt:
    return _make_parser().disable("inline")  # what is within a block does not end it


@cache
def _parser() -> MarkdownIt:
    return _make_parser()


def _make_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only for a terminal

    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    parser.disable(["reference", "html_block", "html_inline", "image"])
    parser.inline.ruler.at("emphasis", _find_emphasis)
    return parser


def _find_emphasis(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - the parser's signature
    """Take the stars of an emphasis; underscores belong to names, as in `__init__.py`."""
    from markdown_it.rules_inline import emphasis  # noqa: PLC0415 - only for a terminal

    return state.src[state.pos] != "_" and emphasis.tokenize(state, silent)
