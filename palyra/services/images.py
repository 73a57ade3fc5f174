"""Storage of pictures: from a message into the session's artifacts, and from there to a model.

Owns: nothing.  Talks to: the artifact store, in threads.

The tape has only the hash and the description of a picture.  Its bytes are an artifact, and are
loaded again for each model request.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from palyra.core.model.images import (
    Picture,
    check_attachments,
    describe,
    is_picture,
    newest,
    read_given,
)
from palyra.core.model.messages import ModelRequest, UserMessage
from palyra.core.ports import Artifacts, RunBlocking
from palyra.core.session.commands import StartRun
from palyra.core.tool.artifacts import Artifact
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
        raise NotFound(f"the session has no artifact {name[:64]!r}", field="attachments")
    return found[1]


async def show_pictures(
    artifacts: Artifacts, run_blocking: RunBlocking, request: ModelRequest
) -> ModelRequest:
    """Return the request with the bytes of its newest pictures; deleted pictures are left out.

    Cancellation: deferred until the pictures are read.
    """
    asked = [
        picture
        for message in request.messages
        if isinstance(message, UserMessage)
        for picture in message.pictures
    ]
    if not asked:
        return request
    shown = await run_blocking(_read, artifacts, newest(asked))
    return msgspec.structs.replace(request, pictures=shown)


def _read(artifacts: Artifacts, wanted: Sequence[Picture]) -> Mapping[str, str]:
    shown: dict[str, str] = {}
    for picture in wanted:
        with suppress(Unavailable):  # a damaged artifact is treated as deleted
            found = artifacts.find(picture.session_id, picture.artifact)
            if found is not None:
                shown[picture.artifact] = base64.b64encode(found[1]).decode("ascii")
    return shown
