"""Pictures: what may be attached, what the tape holds, how many a request carries."""

from typing import Any

import pytest

from palyra.core.model.images import (
    MAX_PICTURE_BYTES,
    MAX_PICTURES,
    MAX_SHOWN,
    MAX_SHOWN_BYTES,
    MAX_SIDE,
    PICTURE_TOKENS,
    Given,
    Picture,
    describe,
    newest,
    read_given,
    recorded_pictures,
)
from palyra.core.model.messages import UserMessage, message_tokens
from palyra.errors import InvalidParams, PalyraError, TooLarge
from tests.pictures import GIF, JPEG, PNG, WEBP, WEBP_LOSSLESS, attached, png
from tests.rows import every_row


def recorded(attachment: dict[str, Any]) -> dict[str, Any]:
    """As the tape has it, of the session `ses_1`."""
    found = read_given([attachment])[0]
    assert found.data is not None
    return describe(found, found.data, "ses_1", 0)


@every_row(
    ("data", "media_type"),
    [(PNG, "image/png"), (JPEG, "image/jpeg"), (GIF, "image/gif"),
     (b"GIF87a" + GIF[6:], "image/gif"), (WEBP, "image/webp"), (WEBP_LOSSLESS, "image/webp")],
)  # fmt: skip
def test_the_type_of_a_picture_follows_from_its_bytes(data: bytes, media_type: str) -> None:
    """The media type comes from the bytes, declared or not; the tape has none of them."""
    for more in ({}, {"media_type": media_type}, {"media_type": media_type.upper()}):
        found = recorded(attached(data, name="a.x", **more))
        assert ("image", media_type, len(data), "ses_1", "a.x") == (
            found["type"], found["media_type"], found["size_bytes"], found["session_id"],
            found["name"],
        )  # fmt: skip
        assert "data" not in found
        (picture,) = recorded_pictures([found])
        assert (found["artifact"], media_type) == (picture.artifact, picture.media_type)
    assert "image/jpeg" == recorded(attached(JPEG, media_type="image/jpg"))["media_type"]


@every_row(
    ("attachment", "error", "said"),
    [
        (attached(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), InvalidParams, "no PNG"),
        (attached(b"BM bitmap"), InvalidParams, "no PNG"),
        (attached(b"RIFF\x10\0\0\0WAVE"), InvalidParams, "no PNG"),
        (attached(PNG, media_type="image/jpeg"), InvalidParams, "'image/jpeg' and is image/png"),
        (attached(PNG, media_type="text/html"), InvalidParams, "and is image/png"),
        (attached(PNG, url="http://x/"), InvalidParams, "'url' is no key"),
        (attached(PNG, session_id="ses_2"), InvalidParams, "'session_id' is no key"),
        (attached(PNG, artifact="ab"), InvalidParams, "not both"),
        ({"type": "image"}, InvalidParams, "not both"),
        ({"type": "image", "data": 7}, InvalidParams, "must be texts"),
        ({"type": "image", "data": "a b="}, InvalidParams, "no base64"),
        ({"type": "image", "data": "é"}, InvalidParams, "no base64"),
        ({"type": "image", "data": "data:image/png;base64,AAAA"}, InvalidParams, "no base64"),
        (attached(PNG[:-1]), InvalidParams, "truncated"),
        (attached(b"\x89PNG\r\n\x1a\n" + bytes(60)), InvalidParams, "checksum of the chunk"),
        (attached(PNG + b"\0" * MAX_PICTURE_BYTES), TooLarge, f"{MAX_PICTURE_BYTES}"),
    ],
)
def test_an_invalid_picture_is_refused(
    attachment: dict[str, Any], error: type[PalyraError], said: str
) -> None:
    """The error names the place, the file, the problem and the limit."""
    with pytest.raises(error, match=r"attachment 0 \(plan\.png\)|no key|texts|not both") as caught:
        recorded(attachment | {"name": "plan.png"})
    assert said in caught.value.message
    assert "attachments" == caught.value.field


def test_bounds_are_exact() -> None:
    """Eight of a message, five mebibytes each; other attachments do not count."""
    assert MAX_PICTURE_BYTES == recorded(attached(PNG.ljust(MAX_PICTURE_BYTES)))["size_bytes"]
    other = {"type": "file", "data": 7}
    assert [1] * MAX_PICTURES == [
        1 for _ in read_given([other, *[attached()] * MAX_PICTURES, other]).values()
    ]
    with pytest.raises(InvalidParams, match=f"may have {MAX_PICTURES}"):
        read_given([attached()] * (MAX_PICTURES + 1))
    assert {} == read_given([other])


@every_row(
    "attachment",
    [
        {"type": "image", "data": "AAAA"},  # before pictures were understood
        {"type": "image", "artifact": 7, "session_id": "s", "media_type": "x", "size_bytes": 1},
        {"type": "file", "artifact": "a", "session_id": "s", "media_type": "x", "size_bytes": 1},
        {},
    ],
)
def test_an_old_tape_stays_readable(attachment: dict[str, Any]) -> None:
    """Attachments in an older form are read as no pictures."""
    assert () == recorded_pictures([attachment])


def test_a_picture_counts() -> None:
    """As a number of tokens, so that a history's budget bounds pictures, too."""
    picture = Picture(artifact="a", session_id="s", media_type="image/png", size_bytes=1)
    plain = message_tokens(UserMessage("hello"))
    assert plain + 2 * PICTURE_TOKENS == message_tokens(UserMessage("hello", (picture, picture)))


def a_picture(number: int, size_bytes: int = 1) -> Picture:
    """One of its own."""
    return Picture(
        artifact=str(number), session_id="s", media_type="image/png", size_bytes=size_bytes
    )


def test_a_request_carries_the_newest() -> None:
    """Each once, within both bounds."""
    many = [a_picture(number) for number in range(MAX_SHOWN + 5)]
    assert many[:4:-1] == newest(many)
    assert [a_picture(1), a_picture(0)] == newest([a_picture(0), a_picture(1), a_picture(1)])
    assert [a_picture(1, MAX_SHOWN_BYTES)] == newest([a_picture(0), a_picture(1, MAX_SHOWN_BYTES)])
    assert [] == newest([a_picture(0, MAX_SHOWN_BYTES + 1)])


@pytest.mark.parametrize(("width", "height"), [(MAX_SIDE + 1, 1), (1, MAX_SIDE + 1)])
def test_too_many_pixels_are_refused(width: int, height: int) -> None:
    """The message names the size and the limit; the limit itself is taken."""
    given_one = Given(png(width, height), "", "", "")
    assert given_one.data is not None
    with pytest.raises(TooLarge, match=f"{width} x {height} pixels; a side may have {MAX_SIDE}"):
        describe(given_one, given_one.data, "ses", 0)
    assert describe(given_one, png(MAX_SIDE, MAX_SIDE), "ses", 0)
