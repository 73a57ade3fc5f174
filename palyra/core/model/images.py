"""Images: checked attachments of kind `image`, and their form on the tape and in the prompt.

The bytes are an artifact of the session.  The tape holds only the digest, so no event grows beyond
its limit and no redactor changes an image.  Attachments of other kinds are recorded unchanged.
"""

import binascii
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from palyra.core.model.picture_files import BrokenPicture, HugePicture, PictureFile, read_picture
from palyra.core.text.visible import visible
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
_KEYS = frozenset({"type", "media_type", "data", "artifact", "name", "call_id"})
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
    call_id: str = ""  # of the call of a client's tool whose result has it


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
    name = texts["name"][:_MAX_NAME_CHARS]
    data = _decode(texts["data"], at, name) if texts["data"] else None
    return Given(data, texts["artifact"], texts["media_type"], name, texts["call_id"])


def _decode(text: str, at: int, name: str) -> bytes:
    if len(text) * 3 // 4 > MAX_PICTURE_BYTES + 2:
        raise _too_large(at, len(text) * 3 // 4, name)
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise _refused(at, "its data is no base64", name) from None


def describe(given: Given, data: bytes, session_id: str, at: int) -> dict[str, Any]:
    """Return the attachment as recorded on the tape.  Blocks: some milliseconds per megabyte.

    Raises InvalidParams for a file that does not decode, or TooLarge.
    """
    if len(data) > MAX_PICTURE_BYTES:
        raise _too_large(at, len(data), given.name)
    try:
        found = check_picture(data)
    except HugePicture as huge:
        called = f"attachment {at}{_called(given.name)}"
        raise TooLarge(f"{called}: {huge.message}", field=_FIELD) from None
    except BrokenPicture as broken:
        raise _refused(at, broken.message, given.name) from None
    if given.media_type.lower().replace("image/jpg", "image/jpeg") not in {"", found.media_type}:
        why = f"it says {given.media_type[:64]!r} and is {found.media_type}"
        raise _refused(at, why, given.name)
    picture = picture_of(data, found, session_id)
    more = {"name": given.name, "call_id": given.call_id}
    kept = {key: text for key, text in more.items() if text}
    return {"type": IMAGE, **msgspec.structs.asdict(picture), **kept}


def check_picture(data: bytes) -> PictureFile:
    """Return type and size of a file that models can be shown.  Raises BrokenPicture.  Blocks."""
    return read_picture(data, MAX_SIDE)


def picture_of(data: bytes, found: PictureFile, session_id: str) -> Picture:
    """Return the reference to a picture file of a session."""
    return Picture(
        artifact=hashlib.sha256(data).hexdigest(),
        session_id=session_id,
        media_type=found.media_type,
        size_bytes=len(data),
    )


def recorded_pictures(attachments: Iterable[Mapping[str, Any]]) -> tuple[Picture, ...]:
    """Return the images recorded on a tape; an attachment of another form has no stored bytes."""
    return tuple(found for each in attachments if (found := _recorded(each)) is not None)


def sort_pictures(
    attachments: Iterable[Mapping[str, Any]], calls: Collection[str]
) -> tuple[tuple[Picture, ...], dict[str, tuple[Picture, ...]]]:
    """Return the recorded images of the message itself, and those of results by their call.

    One that names none of `calls` is the message's own.
    """
    own: list[Picture] = []
    of_calls: dict[str, tuple[Picture, ...]] = {}
    for attachment in attachments:
        picture, call_id = _recorded(attachment), attachment.get("call_id")
        if picture is None:
            continue
        if isinstance(call_id, str) and call_id in calls:
            of_calls[call_id] = (*of_calls.get(call_id, ()), picture)
        else:
            own.append(picture)
    return tuple(own), of_calls


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


def _refused(at: int, why: str, name: str = "") -> InvalidParams:
    return InvalidParams(
        f"attachment {at}{_called(name)} is no picture that can be sent: {why}", field=_FIELD
    )


def _too_large(at: int, size_bytes: int, name: str = "") -> TooLarge:
    return TooLarge(
        f"attachment {at}{_called(name)} has {size_bytes} bytes; a picture may have "
        f"{MAX_PICTURE_BYTES}",
        field=_FIELD,
    )


def _called(name: str) -> str:
    return f" ({visible(name)})" if name else ""
