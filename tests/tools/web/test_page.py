"""The text of a body that a model is shown."""

import pytest
from html_to_markdown import PanicError

from palyra.errors import Unavailable
from palyra.tools.web.page import check_type, is_page, render, to_markdown
from tests.rows import every_row

READ = [
    "text/html", "TEXT/HTML; charset=utf-8", "text/plain", "text/csv", "application/json",
    "application/problem+json", "application/atom+xml", "application/xhtml+xml",
    "application/javascript", "image/svg+xml",
]  # fmt: skip
REFUSED = [
    "", "text", "image/png", "application/octet-stream", "application/zip", "video/mp4",
    "application/pdf", "application/wasm", "multipart/form-data", "application/jsonx",
]  # fmt: skip


@every_row("content_type", READ)
def test_text_is_read(content_type: str) -> None:
    """Text, JSON and XML of every kind."""
    check_type(content_type)


@every_row("content_type", REFUSED)
def test_anything_else_is_not(content_type: str) -> None:
    """The refusal names the type."""
    with pytest.raises(Unavailable, match="content type"):
        check_type(content_type)


@every_row(
    ("content_type", "body", "expected"),
    [
        ("text/plain", "é".encode(), "é"),
        ("text/plain; charset=iso-8859-1", b"\xe9", "é"),
        ('text/plain; charset="Windows-1252"', b"\x80", "€"),
        ("text/plain; charset=shift_jis", "日本".encode("shift_jis"), "日本"),
        ("text/plain; charset=utf-16", "é".encode("utf-16"), "é"),
        ("text/plain", b"\xff", "\ufffd"),
        ("text/plain; charset=punycode", b"abc-", "abc-"),
        ("text/plain; charset=unicode_escape", b"\\x41", "\\x41"),
        ("text/plain; charset=no-such", b"x", "x"),
        ("text/html", b"<meta charset=latin-1><p>\xe9", "é"),
        ("text/html; charset=utf-8", b"<meta charset=latin-1><p>\xc3\xa9", "é"),
    ],
)
def test_charsets(content_type: str, body: bytes, expected: str) -> None:
    """As the header says, else as the page says, else UTF-8; codecs that are none do not count."""
    assert expected == render(body, content_type)


def test_only_pages_become_markdown() -> None:
    """Source stays source."""
    assert is_page("text/html; charset=utf-8")
    assert "<b>x</b>" == render(b"<b>x</b>", "text/plain")
    assert "**x**" == render(b"<b>x</b>", "application/xhtml+xml")


@every_row(
    "hidden",
    [
        '<p style="display:none">EVIL</p>', '<p style="DISPLAY : None">EVIL</p>',
        "<p hidden>EVIL</p>", '<p style="visibility:hidden">EVIL</p>',
        '<p style="font-size:0">EVIL</p>', '<p style="opacity:0">EVIL</p>',
        '<p style="opacity: 0; color: red">EVIL</p>',
        '<p style="position:absolute;left:-9999px">EVIL</p>',
        '<p style="text-indent:-9999px">EVIL</p>', "<!-- EVIL -->", "<script>EVIL</script>",
        "<style>EVIL</style>", "<template>EVIL</template>", "<noscript>EVIL</noscript>",
        '<p style="opacity:0;color:red">EVIL</p>', "<p style='opacity:.0'>EVIL</p>",
        '<p class=x style = "color:red; opacity : 0.0 !important">EVIL</p>',
        '<p style="position:absolute;left:-500em">EVIL</p>',
        '<p style="color: transparent">EVIL</p>', '<p style="transform:scale(0)">EVIL</p>',
        '<p style="clip: rect(0,0,0,0)">EVIL</p>', '<p style="clip-path:inset(100%)">EVIL</p>',
        '<input type=hidden value="EVIL">',
        '<meta name=description content="EVIL">',
        '<div style="display:none"><div><p>EVIL</p></div></div>',
    ],
)  # fmt: skip
def test_hidden_text_is_dropped(hidden: str) -> None:
    """Text that a reader would not see is not shown to a model; the control shows it."""
    assert "seen" == to_markdown(f"<p>seen</p>{hidden}")
    assert "seen\n\nEVIL" == to_markdown("<p>seen</p><p>EVIL</p>")


@every_row("style", ["opacity:0.5", "opacity:0.05", "display:block", "left:9px", "margin:-4px"])
def test_visible_text_stays(style: str) -> None:
    """A style that hides nothing takes nothing away."""
    assert "seen" == to_markdown(f'<p style="{style}">seen</p>')


@pytest.mark.parametrize("tag", ["<div>", "<blockquote>", "<ul><li>", "<table><tr><td>", "<b>"])
def test_deep_nesting_ends(tag: str) -> None:
    """Neither a crash nor an error, whatever is left of it."""
    to_markdown(tag * 20_000 + "x")


def test_a_page_the_converter_cannot_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its panic is an error like any other."""

    def panic(*_: object) -> None:
        raise PanicError("at the disco")

    monkeypatch.setattr("html_to_markdown.convert", panic)
    with pytest.raises(Unavailable, match="PanicError"):
        to_markdown("<p>x</p>")
