"""Pages of an artifact: together they are all of it."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.tool.artifacts import line_offset, read_page

_TEXTS = st.text(st.sampled_from("aé€😀\n"), max_size=60).map(str.encode)


@given(_TEXTS, st.integers(4, 20))
def test_pages_together_are_everything(data: bytes, limit_bytes: int) -> None:
    """Whatever their size: no byte is lost or doubled, no character torn, no line but a long one."""
    pages, offset = [], 0
    while True:
        page = read_page(data, offset, limit_bytes)
        assert page is not None
        assert len(page.text.encode()) <= limit_bytes
        assert page.offset == offset
        assert page.line == data[:offset].count(b"\n") + 1
        pages.append(page.text)
        if page.next_offset is None:
            break
        offset = page.next_offset
    assert data.decode() == "".join(pages)


@given(st.binary(max_size=30), st.integers(0, 40), st.integers(4, 8))
def test_any_offset_in_any_bytes(data: bytes, offset: int, limit_bytes: int) -> None:
    """A page begins there or a little before, and gets further; behind the end there is none."""
    page = read_page(data, offset, limit_bytes)
    if page is None:
        assert offset >= len(data)
        return
    assert offset - 3 <= page.offset <= offset
    assert page.next_offset is None or page.next_offset > offset or data[offset:] == b""


@given(st.lists(st.text("ab", max_size=4), max_size=8))
def test_lines_are_found(lines: list[str]) -> None:
    """By their number, from 1."""
    data = "".join(f"{line}\n" for line in lines).encode()
    for number in range(1, len(lines) + 1):
        assert len("".join(f"{line}\n" for line in lines[: number - 1])) == line_offset(
            data, number
        )
    assert line_offset(data, len(lines) + 2) is None


def test_a_page_with_invalid_utf8_is_read() -> None:
    """Continuation bytes without a start byte are read unchanged."""
    page = read_page(b"\x80" * 9, 5, 4)
    assert page is not None
    assert (5, 9, "\ufffd" * 4) == (page.offset, page.next_offset or 9, page.text)
    assert read_page(b"a\x80\x80", 1, 4) is not None
