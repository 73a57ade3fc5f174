"""What a model is shown of a body: text in its charset, HTML as Markdown without what it hides."""

import re

import re2

from palyra.errors import Unavailable

# The converter takes time that grows with the square of some hostile pages: 4 s at this size.
MAX_PAGE_BYTES = 524_288
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXTUAL = frozenset(
    {
        "application/json", "application/ld+json", "application/x-ndjson", "application/xml",
        "application/javascript", "application/ecmascript", "application/yaml",
        "application/x-yaml", "application/toml", "application/sql", "application/graphql",
        "application/x-www-form-urlencoded", "application/rss+xml", "application/atom+xml",
    }
)  # fmt: skip
_SUFFIXES = ("+json", "+xml", "+yaml")
_TYPE = re.compile(r"[a-z0-9.+-]{1,20}/[a-z0-9.+-]{1,40}")  # fit to be shown: it is not our word
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_META_BYTES = 1_024  # where a page may name its charset, as the HTML standard has it
# Python's codecs include some that are no charsets (punycode, unicode_escape); these are.
_CHARSETS = re.compile(
    r"utf-?8|utf-?16(?:-?[lb]e)?|us-ascii|ascii|latin-?1|iso-?8859-\d{1,2}|windows-12\d\d|cp12\d\d"
    r"|koi8-[ru]|shift[_-]jis|euc-(?:jp|kr)|iso-2022-jp|gb2312|gbk|gb18030|big5",
    re.IGNORECASE,
)
# Ways to hide text by its own style that the converter does not know; it knows display,
# visibility, hidden and font size.  Found ones are told to it in its own words.
_UNSEEN = re2.compile(
    r"""(?i)(<[a-z][^<>]*\sstyle\s*=\s*)(["'])([^"'<>]*(?:"""
    r"""\bopacity\s*:\s*0*(?:\.0*)?%?\s*(?:;|!|["'])"""
    r"""|:\s*-\d{3,}(?:\.\d*)?(?:px|em|rem|ex|ch|vw|vh|%|pt|cm|in)"""
    r"""|\bcolor\s*:\s*transparent|\bscale\(\s*0|\bclip\s*:\s*rect\(\s*[01]|\binset\(\s*(?:50|100)%"""
    r""")[^"'<>]*)"""
)


def check_type(content_type: str) -> None:
    """Raises Unavailable for a type that is no text."""
    kind = _kind(content_type)
    if not (kind.startswith("text/") or kind in _TEXTUAL | _HTML or kind.endswith(_SUFFIXES)):
        shown = kind if _TYPE.fullmatch(kind) else "none that is known"
        raise Unavailable(f"the content type is {shown}, and only text, JSON and XML are read")


def render(body: bytes, content_type: str) -> str:
    """The body as text; of a page at most MAX_PAGE_BYTES are read (blocks for some 0.1 s).

    What is no text in its charset is replaced character by character.  Raises Unavailable for a
    page that the converter cannot take.
    """
    if not is_page(content_type):
        return body.decode(_charset(content_type, b""), "replace")
    page = body[:MAX_PAGE_BYTES]
    return to_markdown(page.decode(_charset(content_type, page), "replace"))


def is_page(content_type: str) -> bool:
    """Whether it is HTML."""
    return _kind(content_type) in _HTML


def to_markdown(page: str) -> str:
    """HTML as Markdown, without scripts, styles and what the page hides from its reader.

    What a style sheet hides is not known here: that would take a browser.
    """
    import html_to_markdown as library  # noqa: PLC0415 - native code that only a page needs

    failures = (
        library.ConversionError,
        library.exceptions.InvalidInputError,
        library.PanicError,
        library.exceptions.ParseError,
    )
    try:
        marked = _UNSEEN.sub(r"\1\2display:none;\3", page)
        options = library.ConversionOptions(extract_metadata=False)
        return (library.convert(marked, options).content or "").strip()
    except failures as error:
        raise Unavailable(f"the page cannot be converted ({type(error).__name__})") from None


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _charset(content_type: str, page: bytes) -> str:
    found = _CHARSET.search(content_type) or _CHARSET.search(page[:_META_BYTES].decode("latin-1"))
    name = found.group(1) if found else ""
    return name if _CHARSETS.fullmatch(name) else "utf-8"
