"""Images: checked attachments of kind `image`, and their form on the tape and in the prompt.

The bytes are an artifact of the session.  The tape holds only the digest, so no event grows beyond
its limit and no redactor changes an image.  Attachments of other kinds are recorded unchanged.
"""

import binascii
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from palyra.errors import InvalidParams, TooLarge

MAX_ATTACHMENTS = 32  # of one message
MAX_TYPE_CHARS = 64
MAX_PICTURES = 8  # of one message
MAX_PICTURE_BYTES = 5_242_880
MAX_SIDE = 8_000  # pixels; providers refuse a larger picture, and all of the request with it
MAX_SHOWN = 20  # of one request to a model, newest first; providers limit the body
MAX_SHOWN_BYTES = 20_971_520
PICTURE_TOKENS = 1_600  # about the count for an image of maximal width and height
IMAGE = "image"
_FIELD = "attachments"
_KEYS = frozenset({"type", "media_type", "data", "artifact", "name"})
_MAX_NAME_CHARS = 256


class Picture(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An image of a message; its bytes are an artifact of the session."""

    artifact: str  # SHA-256, hex
    session_id: str  # owner of the artifact; a forked conversation has another session
    media_type: str
    size_bytes: int


class Given(NamedTuple):
    """An image as sent by a client: its bytes, or the name of an artifact that has them."""

    data: bytes | None
    artifact: str
    media_type: str  # "": not given
    name: str


def is_picture(attachment: Mapping[str, Any]) -> bool:
    """True if the attachment is an image."""
    return attachment.get("type") == IMAGE


def check_attachments(attachments: Sequence[Mapping[str, Any]]) -> None:
    """Raise InvalidParams for too many attachments, or for one without a valid type."""
    if len(attachments) > MAX_ATTACHMENTS:
        raise InvalidParams(
            f"{len(attachments)} attachments; a message may have {MAX_ATTACHMENTS}", field=_FIELD
        )
    for at, each in enumerate(attachments):
        kind = each.get("type")
        if not (isinstance(kind, str) and 0 < len(kind) <= MAX_TYPE_CHARS):
            raise _refused(
                at, f'it needs a type of 1 to {MAX_TYPE_CHARS} characters, such as "{IMAGE}"'
            )


def media_type_of(data: bytes) -> str | None:
    """Return the media type by the leading bytes; None for a type that no model accepts."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    return None


def pixel_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height from the header; None if it does not have them where it should.

    Sources: PNG specification 11.2.2, GIF89a 18, RFC 9649 (WebP), ITU-T T.81 B.2.2 (JPEG).
    """
    match media_type_of(data):
        case "image/png" if data[12:16] == b"IHDR" and len(data) >= 24:  # noqa: PLR2004 - the end of the field
            return _big(data, 16, 4), _big(data, 20, 4)
        case "image/gif" if len(data) >= 13:  # noqa: PLR2004 - likewise
            return _little(data, 6, 2), _little(data, 8, 2)
        case "image/webp" if len(data) >= 30:  # noqa: PLR2004 - likewise
            return _webp_size(data)
        case "image/jpeg":
            return _jpeg_size(data)
        case _:
            return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8X":
            return 1 + _little(data, 24, 3), 1 + _little(data, 27, 3)
        case b"VP8L":
            bits = _little(data, 21, 4)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
        case _:
            return None


# Markers of a frame header; C4, C8 and CC in this range are something else.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Walk the segments up to the frame header; each begins with its marker and its length."""
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:  # noqa: PLR2004 - every marker begins so
        marker = data[at + 1]
        if marker in _FRAMES:
            return _big(data, at + 7, 2), _big(data, at + 5, 2)
        if marker == 0xFF:  # noqa: PLR2004 - a fill byte
            at += 1
            continue
        at += 2 + max(2, _big(data, at + 2, 2))
    return None


def _big(data: bytes, start: int, size: int) -> int:
    return int.from_bytes(data[start : start + size], "big")


def _little(data: bytes, start: int, size: int) -> int:
    return int.from_bytes(data[start : start + size], "little")


def read_given(attachments: Sequence[Mapping[str, Any]]) -> dict[int, Given]:
    """Return the images among the attachments, by index.  Blocks: some milliseconds per megabyte.

    Raises InvalidParams or TooLarge, naming the attachment and the limit.
    """
    places = [at for at, each in enumerate(attachments) if is_picture(each)]
    if len(places) > MAX_PICTURES:
        raise InvalidParams(
            f"{len(places)} pictures; a message may have {MAX_PICTURES}", field=_FIELD
        )
    return {at: _read_one(attachments[at], at) for at in places}


def _read_one(attachment: Mapping[str, Any], at: int) -> Given:
    unknown = attachment.keys() - _KEYS
    if unknown:
        raise _refused(at, f"{min(unknown)!r} is no key of a picture; give data or artifact")
    texts = {key: attachment.get(key) or "" for key in _KEYS}
    if not all(isinstance(text, str) for text in texts.values()):
        raise _refused(at, "its members must be texts")
    if bool(texts["data"]) == bool(texts["artifact"]):
        raise _refused(at, "give its bytes as base64 in data, or the name of an artifact, not both")
    data = _decode(texts["data"], at) if texts["data"] else None
    name = texts["name"][:_MAX_NAME_CHARS]
    return Given(data, texts["artifact"], texts["media_type"], name)


def _decode(text: str, at: int) -> bytes:
    if len(text) * 3 // 4 > MAX_PICTURE_BYTES + 2:
        raise _too_large(at, len(text) * 3 // 4)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise _refused(at, "its data is no base64") from None


def describe(given: Given, data: bytes, session_id: str, at: int) -> dict[str, Any]:
    """Return the attachment as recorded on the tape.  Raises InvalidParams or TooLarge."""
    if len(data) > MAX_PICTURE_BYTES:
        raise _too_large(at, len(data))
    found = media_type_of(data)
    if found is None:
        raise _refused(at, "it is no PNG, JPEG, GIF or WebP")
    if given.media_type.lower().replace("image/jpg", "image/jpeg") not in {"", found}:
        raise _refused(at, f"it says {given.media_type[:64]!r} and is {found}")
    size = pixel_size(data)
    if size is not None and max(size) > MAX_SIDE:
        raise TooLarge(
            f"attachment {at} has {size[0]} x {size[1]} pixels; a side may have {MAX_SIDE}",
            field=_FIELD,
        )
    picture = Picture(
        artifact=hashlib.sha256(data).hexdigest(),
        session_id=session_id,
        media_type=found,
        size_bytes=len(data),
    )
    name = {"name": given.name} if given.name else {}
    return {"type": IMAGE, **msgspec.structs.asdict(picture), **name}


def recorded_pictures(attachments: Iterable[Mapping[str, Any]]) -> tuple[Picture, ...]:
    """Return the images recorded on a tape; an attachment of another form has no stored bytes."""
    return tuple(found for each in attachments if (found := _recorded(each)) is not None)


def _recorded(attachment: Mapping[str, Any]) -> Picture | None:
    if not is_picture(attachment):
        return None
    try:
        return msgspec.convert(attachment, Picture)
    except msgspec.ValidationError:
        return None


def newest(pictures: Sequence[Picture]) -> list[Picture]:
    """Return the images that a request can carry: the newest, without duplicates.

    `pictures` holds all images of the request, oldest first; the result is newest first.
    """
    chosen: dict[str, Picture] = {}
    left_bytes = MAX_SHOWN_BYTES
    for picture in reversed(pictures):
        if picture.artifact in chosen:
            continue
        left_bytes -= picture.size_bytes
        if left_bytes < 0 or len(chosen) == MAX_SHOWN:
            break
        chosen[picture.artifact] = picture
    return list(chosen.values())


def _refused(at: int, why: str) -> InvalidParams:
    return InvalidParams(f"attachment {at} is no picture that can be sent: {why}", field=_FIELD)


def _too_large(at: int, size_bytes: int) -> TooLarge:
    return TooLarge(
        f"attachment {at} has {size_bytes} bytes; a picture may have {MAX_PICTURE_BYTES}",
        field=_FIELD,
    )
