"""Response bodies as text for a model: decoded by charset, HTML converted to Markdown.

Text that a page hides by inline style is left out, because hidden text is a common carrier of
prompt injection.
"""

import re

import re2

from palyra.errors import Unavailable

# Conversion time is quadratic for some hostile pages: 4 s at this size.
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
_TYPE = re.compile(r"[a-z0-9.+-]{1,20}/[a-z0-9.+-]{1,40}")  # from the server; bounded for messages
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_META_BYTES = 1_024  # prefix scanned for a charset declaration (HTML standard)
# Allowed charsets: Python's codecs also include others (punycode, unicode_escape).
_CHARSETS = re.compile(
    r"utf-?8|utf-?16(?:-?[lb]e)?|us-ascii|ascii|latin-?1|iso-?8859-\d{1,2}|windows-12\d\d|cp12\d\d"
    r"|koi8-[ru]|shift[_-]jis|euc-(?:jp|kr)|iso-2022-jp|gb2312|gbk|gb18030|big5",
    re.IGNORECASE,
)
# Inline styles that hide text and that the converter does not handle; it handles display,
# visibility, hidden and font size.  `to_markdown` adds `display:none` to each match.
_UNSEEN = re2.compile(
    r"""(?i)(<[a-z][^<>]*\sstyle\s*=\s*)(["'])([^"'<>]*(?:"""
    r"""\bopacity\s*:\s*0*(?:\.0*)?%?\s*(?:;|!|["'])"""
    r"""|:\s*-\d{3,}(?:\.\d*)?(?:px|em|rem|ex|ch|vw|vh|%|pt|cm|in)"""
    r"""|\bcolor\s*:\s*transparent|\bscale\(\s*0|\bclip\s*:\s*rect\(\s*[01]|\binset\(\s*(?:50|100)%"""
    r""")[^"'<>]*)"""
)


def check_type(content_type: str) -> None:
    """Raise Unavailable for a content type that is not text."""
    kind = _kind(content_type)
    if not (kind.startswith("text/") or kind in _TEXTUAL | _HTML or kind.endswith(_SUFFIXES)):
        shown = kind if _TYPE.fullmatch(kind) else "none that is known"
        raise Unavailable(f"the content type is {shown}, and only text, JSON and XML are read")


def render(body: bytes, content_type: str) -> str:
    """Convert the body to text (blocks, ~0.1 s); HTML is cut at MAX_PAGE_BYTES.

    Bytes that are invalid in the charset become replacement characters.  Raises Unavailable for a
    page that the converter rejects.
    """
    if not is_page(content_type):
        return body.decode(_charset(content_type, b""), "replace")
    page = body[:MAX_PAGE_BYTES]
    return to_markdown(page.decode(_charset(content_type, page), "replace"))


def is_page(content_type: str) -> bool:
    """True if the content type is HTML or XHTML."""
    return _kind(content_type) in _HTML


def to_markdown(page: str) -> str:
    """Convert HTML to Markdown without scripts, styles and text hidden by inline style.

    Text hidden by a style sheet is kept: detecting it would need a browser.
    Raises Unavailable when the conversion fails.
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
