"""Markdown as rich renders it, with headings at the left and code without a frame."""

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.syntax import Syntax


class LeftHeading(Heading):
    """A heading that begins where the text does."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:  # noqa: PLW3201 - rich's
        """Yield the text with the style of its level."""
        del console, options
        self.text.justify = "left"
        yield self.text


class BareCode(CodeBlock):
    """Code in colours, indented, on the background of the terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:  # noqa: PLW3201 - rich's
        """Yield the code; a line that is too long continues on the next one."""
        del console, options
        yield Syntax(
            str(self.text).rstrip(),
            self.lexer_name,
            theme=self.theme,
            word_wrap=True,
            padding=(0, 2),
        )


class PlainMarkdown(Markdown):
    """Markdown of a given parser, with the addresses of links."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": LeftHeading,
        "code_block": BareCode,
        "fence": BareCode,
    }

    def __init__(self, markup: str, parser: MarkdownIt, code_theme: str) -> None:
        super().__init__("", code_theme=code_theme, hyperlinks=False)
        self.markup = markup
        self.parsed = parser.parse(markup)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":  # a line of the text stays one
                    child.type = "hardbreak"
