"""Output while it comes: what is kept, what is passed on, when it is a flood."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.tools.programs.output import FLOOD_BYTES, KEPT_BYTES, OutputBuffer


@given(st.lists(st.binary(max_size=50)), st.integers(2, 60))
def test_head_and_tail_are_kept(pieces: list[bytes], kept: int) -> None:
    """However it is cut into pieces: the beginning, the end, and how much is missing between."""
    whole, half = b"".join(pieces), kept // 2
    output = OutputBuffer(head_bytes=half, tail_bytes=half)
    for piece in pieces:
        output.append(piece)
    found = output.result()
    assert len(whole) == found.total_bytes
    assert max(0, len(whole) - 2 * half) == found.left_out_bytes
    assert found.is_truncated is (found.left_out_bytes > 0)
    if found.is_truncated:
        gap = f"\n[… {found.left_out_bytes} bytes left out …]\n"
        head, tail = whole[:half], whole[-half:]
        expected = head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace")
    else:
        expected = whole.decode("utf-8", "replace")
    assert expected == found.text


@given(st.text(), st.integers(1, 5))
def test_text_is_passed_on_whole(text: str, size: int) -> None:
    """Characters that arrive in parts are passed on whole."""
    received: list[str] = []
    output = OutputBuffer(received.append)
    content = text.encode("utf-8", "replace")
    for start in range(0, len(content), size):
        output.append(content[start : start + size])
    assert content.decode("utf-8", "replace") == "".join(received)


def test_passing_on_ends_where_keeping_ends() -> None:
    """A flood is not passed on; and it is known for one."""
    received: list[str] = []
    output = OutputBuffer(received.append, head_bytes=50, tail_bytes=50)
    for _ in range(FLOOD_BYTES // 65_536 + 1):
        assert not output.is_flood
        output.append(b"x" * 65_536)
    assert output.is_flood
    assert 1 == len(received)


@given(st.lists(st.binary(min_size=1, max_size=40)), st.integers(0, 300), st.integers(1, 50))
def test_pages_are_stretches_of_what_was_written(
    pieces: list[bytes], start: int, limit: int
) -> None:
    """A page holds exactly the bytes it says."""
    output = OutputBuffer()
    for piece in pieces:
        output.append(piece)
    whole = b"".join(pieces)
    page = output.read(start, limit)
    assert min(start, len(whole)) == page.start
    assert whole[page.start : page.end].decode("utf-8", "replace") == page.text
    assert page.end - page.start <= limit
    assert len(whole) == page.total


@pytest.mark.parametrize("size", [1_000, 65_536])
def test_200_kib_can_be_paged_completely(size: int) -> None:
    """Page after page gives everything, once."""
    whole = "".join(f"line {number} é\n" for number in range(16_000)).encode()
    output = OutputBuffer()
    for start in range(0, len(whole), size):
        output.append(whole[start : start + size])
    text, at = "", 0
    while at < output.total_bytes:
        page = output.read(at, 16_000)
        text, at = text + page.text, page.end
    assert len(whole) > 200 * 1024
    assert whole.decode() == text


def test_only_the_end_of_a_long_output_is_kept() -> None:
    """A page after dropped output starts at the first kept byte and says so."""
    output = OutputBuffer()
    for number in range(100):
        output.append(bytes([number]) * 65_536)
    page = output.read(0, 10)
    assert page.start >= output.total_bytes - KEPT_BYTES - 65_536
    assert chr(page.start // 65_536) == page.text[0]
