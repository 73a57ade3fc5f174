"""The worker protocol: frames as they are cut up, and frames that are none."""

import pytest

from palyra.tools.wasm import protocol
from palyra.tools.wasm.limits import GuestLimits
from tests.rows import every_row

MESSAGES = [
    protocol.Compile(module=b"\0asm", cpu_s=2.0),
    protocol.LoadModule(compiled=b"code" * 100),
    protocol.RunGuest(input=b"{}", limits=GuestLimits(), granted=("log",)),
    protocol.HostReply(reply=b"r"),
]


def test_frames_come_out_however_they_are_cut() -> None:
    """The same messages in the same order, for every size of the pieces."""
    stream = b"".join(protocol.encode(message) for message in MESSAGES)
    for size in range(1, len(stream) + 1):
        deframer, found = protocol.Deframer(), []
        for at in range(0, len(stream), size):
            deframer.feed(stream[at : at + size])
            while (body := deframer.next_body()) is not None:
                found.append(protocol.decode_request(body))
        assert MESSAGES == found


def test_answers_are_distinguished() -> None:
    """Each by its tag."""
    answers = [
        protocol.WorkerHello(),
        protocol.Compiled(compiled=b"c"),
        protocol.Loaded(),
        protocol.HostCall(function="log", argument=b"a"),
        protocol.Done(output=b"{}"),
        protocol.Failed(problem="trapped", text="why"),
    ]
    for answer in answers:
        assert answer == protocol.decode_answer(protocol.encode(answer)[4:])


@every_row("body", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\x91\xa5hello\x00", b"\x90"])
def test_an_invalid_message_is_refused(body: bytes) -> None:
    """A worker that was taken over may send any bytes."""
    with pytest.raises(protocol.BadWorkerFrame):
        protocol.decode_answer(body)


def test_a_request_is_no_answer() -> None:
    """Neither side takes the other's part."""
    with pytest.raises(protocol.BadWorkerFrame):
        protocol.decode_answer(protocol.encode(MESSAGES[0])[4:])


def test_a_frame_over_the_limit_is_refused_at_its_length() -> None:
    """Before any of it is kept."""
    deframer = protocol.Deframer(max_bytes=10)
    deframer.feed(b"\0\0\0\x0b")
    with pytest.raises(protocol.BadWorkerFrame, match="11 bytes; the limit is 10"):
        deframer.next_body()
    with pytest.raises(protocol.BadWorkerFrame, match="too large to send"):
        protocol.encode(protocol.LoadModule(compiled=b"x" * protocol.MAX_FRAME_BYTES))
