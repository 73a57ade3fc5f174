"""Storage of pictures: from a message or a tool into the session's artifacts, and on to a model.

Owns: nothing.  Talks to: the artifact store, in threads.

The tape has only the hash and the description of a picture.  Its bytes are an artifact, and are
loaded again for each model request.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from palyra.core.model.images import (
    MAX_PICTURE_BYTES,
    MAX_PICTURES,
    Picture,
    check_attachments,
    check_picture,
    describe,
    is_picture,
    newest,
    picture_of,
    read_given,
)
from palyra.core.model.messages import Message, ModelRequest, pictures_of, without_pictures
from palyra.core.model.picture_files import BrokenPicture
from palyra.core.ports import Artifacts, RunBlocking
from palyra.core.session.commands import StartRun
from palyra.core.text.visible import pluralize
from palyra.core.tool.artifacts import NAME_CHARS, Artifact
from palyra.core.tool.spec import ToolCall, ToolOutput
from palyra.errors import NotFound, Unavailable

TOOL = "attachment"  # value of `Artifact.tool` for a picture
Attachments = tuple[dict[str, Any], ...]


async def keep_pictures(
    artifacts: Artifacts,
    run_blocking: RunBlocking,
    session_id: str,
    command: StartRun,
    now_ms: int,
) -> StartRun:
    """Store the pictures of a command and return it with their descriptions for the tape.

    Raises InvalidParams (of any attachment), TooLarge, NotFound (an artifact the session does not
    have), Unavailable.
    Cancellation: deferred until all pictures are stored; stored pictures stay.
    """
    check_attachments(command.attachments)
    if not any(map(is_picture, command.attachments)):
        return command
    kept = await run_blocking(_keep, artifacts, session_id, command.attachments, now_ms)
    return msgspec.structs.replace(command, attachments=kept)


def _keep(
    artifacts: Artifacts, session_id: str, attachments: Attachments, at_ms: int
) -> Attachments:
    described = list(attachments)
    for at, given in read_given(attachments).items():
        data = given.data
        if data is None:
            data = _find(artifacts, session_id, given.artifact)
        described[at] = describe(given, data, session_id, at)
        if given.data is not None:
            kept = Artifact(
                artifact=hashlib.sha256(data).hexdigest(),
                session_id=session_id,
                run_id="",
                call_id="",
                tool=TOOL,
                size_bytes=len(data),
                created_ms=at_ms,
                trust="trusted_local",
            )
            artifacts.put(kept, data)
    return tuple(described)


def _find(artifacts: Artifacts, session_id: str, name: str) -> bytes:
    found = artifacts.find(session_id, name)
    if found is None:
        raise NotFound(artifacts.explain_absence(session_id, name[:64]), field="attachments")
    return found[1]


class KeptPictures(NamedTuple):
    """Pictures of a tool's output that are stored, and a line of text for each, stored or not."""

    pictures: tuple[Picture, ...]
    lines: tuple[str, ...]


def keep_returned(
    artifacts: Artifacts, call: ToolCall, output: ToolOutput, now_ms: int
) -> KeptPictures:
    """Check and store the pictures of an output.  Blocks: some milliseconds per megabyte.

    A picture that cannot be sent, and each beyond MAX_PICTURES, costs itself only.
    """
    kept: list[Picture] = []
    lines: list[str] = []
    for number, given in enumerate(output.pictures[:MAX_PICTURES], start=1):
        try:
            picture, size = _keep_one(artifacts, call, output, given, now_ms)
        except (BrokenPicture, Unavailable) as refused:
            lines.append(f"[picture {number} left out: {refused.message}]")
            continue
        kept.append(picture)
        described = f"{picture.media_type}, {size}, {pluralize(picture.size_bytes, 'byte')}"
        lines.append(f"[picture {number}: {described}; artifact {picture.artifact[:NAME_CHARS]}]")
    more = len(output.pictures) - MAX_PICTURES
    if more > 0:
        lines.append(
            f"[{pluralize(more, 'more picture')} left out: a result may have {MAX_PICTURES}]"
        )
    return KeptPictures(tuple(kept), tuple(lines))


def _keep_one(
    artifacts: Artifacts, call: ToolCall, output: ToolOutput, given: bytes | str, now_ms: int
) -> tuple[Picture, str]:
    if len(given) > MAX_PICTURE_BYTES * 4 // 3 + 4:
        raise BrokenPicture(f"a picture may have {MAX_PICTURE_BYTES} bytes")
    try:
        data = given if isinstance(given, bytes) else binascii.a2b_base64(given, strict_mode=True)
    except (binascii.Error, ValueError):
        raise BrokenPicture("its data is no base64") from None
    if len(data) > MAX_PICTURE_BYTES:
        raise BrokenPicture(f"it has {len(data)} bytes; a picture may have {MAX_PICTURE_BYTES}")
    found = check_picture(data)
    picture = picture_of(data, found, call.session_id)
    artifact = Artifact(
        artifact=picture.artifact,
        session_id=call.session_id,
        run_id=call.run_id,
        call_id=call.call_id,
        tool=call.tool,
        size_bytes=len(data),
        created_ms=now_ms,
        trust=output.trust,
    )
    artifacts.put(artifact, data)
    return picture, f"{found.width} x {found.height} pixels"


async def show_pictures(
    artifacts: Artifacts, run_blocking: RunBlocking, request: ModelRequest
) -> ModelRequest:
    """Return the request with the bytes of its newest pictures; deleted pictures are left out.

    A picture is sent once, in the first of its messages, so that a prompt grows at its end only.
    Cancellation: deferred until the pictures are read.
    """
    asked = [picture for message in request.messages for picture in pictures_of(message)]
    if not asked:
        return request
    shown = await run_blocking(_read, artifacts, newest(asked))
    names = [picture.artifact for picture in asked]
    messages = request.messages if len(names) == len(set(names)) else _once(request.messages)
    return msgspec.structs.replace(request, messages=messages, pictures=shown)


def _once(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages with a line in place of each picture that an earlier one shows."""
    seen: set[str] = set()
    made: list[Message] = []
    for message in messages:
        made.append(without_pictures(message, "an earlier message shows it", seen))
        seen.update(picture.artifact for picture in pictures_of(message))
    return tuple(made)


def _read(artifacts: Artifacts, wanted: Sequence[Picture]) -> Mapping[str, str]:
    shown: dict[str, str] = {}
    for picture in wanted:
        with suppress(Unavailable):  # a damaged artifact is treated as deleted
            found = artifacts.find(picture.session_id, picture.artifact)
            if found is not None:
                shown[picture.artifact] = base64.b64encode(found[1]).decode("ascii")
    return shown
