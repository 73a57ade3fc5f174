"""Server-sent events: every cut, every line end, the cap."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.model.messages import ModelFailure
from palyra.models.sse import SseParser
from tests.rows import every_row


def parse(*chunks: bytes, cap: int = 262_144) -> list[str]:
    """The data of all events of a response that came in these pieces."""
    parser = SseParser(cap)
    found = [data for chunk in chunks for data in parser.feed(chunk)]
    last = parser.finish()
    return found if last is None else [*found, last]


STREAM = (
    '\ufeffevent: a\ndata: {"x": "\u2028é"}\n\n: comment\n\n'
    "data: one\ndata:two\nid: 7\nretry: 5\nunknown: 1\n\ndata\n\ndata: [DONE]\n\n"
).encode()
EVENTS = ['{"x": "\u2028é"}', "one\ntwo", "", "[DONE]"]


@every_row("end", [b"\n", b"\r\n", b"\r"])
def test_every_cut_gives_the_same_events(end: bytes) -> None:
    """A stream cut at any byte, even between CR and LF or in a character, has the same events."""
    stream = STREAM.replace(b"\n", end)
    assert EVENTS == parse(stream)
    for at in range(len(stream) + 1):
        assert EVENTS == parse(stream[:at], stream[at:]), at
    assert EVENTS == parse(*(stream[at : at + 1] for at in range(len(stream))))


@given(st.lists(st.sampled_from([b"data: a", b"data:", b":c", b"", b"x: y"])), st.data())
def test_line_ends_may_be_mixed(lines: list[bytes], data: st.DataObject) -> None:
    """Mixed line ends and any cut give the same events as plain line feeds."""
    ends = [data.draw(st.sampled_from([b"\n", b"\r\n", b"\r"])) for _ in lines]
    plain = b"".join(line + b"\n" for line in lines)
    # A lone CR before an empty line that ends with LF is one CRLF, so those stay apart.
    mixed = b"".join(
        line + (b"\r\n" if end == b"\r" else end) for line, end in zip(lines, ends, strict=True)
    )
    at = data.draw(st.integers(0, len(mixed)))
    assert parse(plain) == parse(mixed[:at], mixed[at:])


@every_row("tail", [b"", b"\n", b"\r", b"\r\n"])
def test_a_last_event_without_its_empty_line_is_delivered(tail: bytes) -> None:
    """An event that the end of the response completes is delivered."""
    assert ["a", "[DONE]"] == parse(b"data: a\n\ndata: [DONE]" + tail)


def test_one_blank_after_the_colon_is_no_data() -> None:
    """The others are."""
    assert [" a ", "b", ""] == parse(b"data:  a \n\ndata:b\n\ndata: \n\n")


def test_nothing_is_no_event() -> None:
    """An empty response, and one of comments only, have no events."""
    assert [] == parse(b"") == parse(b": ping\n\n: ping\n\n") == parse(b"\xef\xbb")


@pytest.mark.parametrize("size", [101, 5_000])
def test_an_event_over_the_cap_ends_the_response(size: int) -> None:
    """An event over the cap fails, in one line, in many or in an endless line."""
    with pytest.raises(ModelFailure, match="more than 100 bytes"):
        parse(b"data: " + b"x" * size + b"\n\n", cap=100)
    with pytest.raises(ModelFailure, match="more than 100 bytes"):
        parse(*[b"data: " + b"x" * 10 + b"\n"] * (size // 10), cap=100)
    with pytest.raises(ModelFailure, match="more than 100 bytes"):
        parse(*[b"x" * 10] * (size // 10 + 1), cap=100)
    assert ["x" * 90] == parse(b"data: " + b"x" * 90 + b"\n\n", cap=100)


def test_broken_characters_are_replaced() -> None:
    """Bytes that are no UTF-8 do not end the response."""
    assert ["a\ufffdb"] == parse(b"data: a\xffb\n\n")
