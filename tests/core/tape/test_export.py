"""Exports: whatever is changed in the file is found, and nothing else is."""

import hashlib
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.journal.tape_row import GENESIS, TapeRow, link
from palyra.core.tape.events import Event, MessageCompleted, ToolAttested, encode_event
from palyra.core.tape.export import (
    ExportLine,
    ExportSeal,
    Forged,
    claim,
    read_rows,
    render_seal,
    verify_export,
)
from palyra.core.tool.attestation import FIRST, Attestation, seal_attestation
from tests.rows import every_row

RUN = "run_1"
KEY = b"k" * 32


def sign(key: bytes, message: bytes) -> bytes:
    """A substitute for Ed25519: the signature depends on a key."""
    return hashlib.sha256(key + message).digest()


def is_signed(key: bytes, message: bytes, signature: bytes) -> bool:
    return sign(key, message) == signature


def make_lines(count: int) -> tuple[list[bytes], bytes]:
    """Export lines and the last link."""
    lines, prev = [], GENESIS
    for seq in range(count):
        data = b'{"text":"%d"}' % seq
        row = TapeRow(
            run_id=RUN,
            session_id="ses_1",
            seq=seq,
            at_ms=100 + seq,
            kind="message.completed",
            principal="owner",
            redacted=False,
            data=data,
        )
        position = 7 + 2 * seq
        prev = link(prev, position, row)
        fields = {**msgspec.structs.asdict(row), "data": msgspec.Raw(data)}
        line = ExportLine(**fields, position=position, hash=prev.hex())
        lines.append(msgspec.json.encode(line))
    return lines, prev


def make_export(count: int = 3, key: bytes = KEY) -> bytes:
    lines, last = make_lines(count)
    seal = ExportSeal(
        run_id=RUN,
        seq=count - 1,
        public_key=key.hex(),
        signature=sign(key, claim(RUN, count - 1, last)).hex(),
    )
    return b"".join(line + b"\n" for line in lines) + render_seal(seal).encode()


def test_untouched_export_holds() -> None:
    """A file as it was written verifies, with and without a trusted key."""
    for trusted in (KEY, None):
        report = verify_export(make_export(), is_signed, trusted)
        assert None is report.problem
        assert (RUN, 3, KEY.hex()) == (report.run_id, report.checked_events, report.public_key)


@every_row("count", [0, 1, 20])
def test_any_length_holds(count: int) -> None:
    """A tape of any length verifies."""
    assert count == verify_export(make_export(count), is_signed, KEY).checked_events


Damage = Callable[[list[bytes]], list[bytes]]
DAMAGE: dict[str, tuple[Damage, int]] = {
    "edited": (lambda lines: [lines[0], lines[1].replace(b'"1"', b'"9"'), *lines[2:]], 1),
    "time": (lambda lines: [lines[0], lines[1].replace(b"101", b"102"), *lines[2:]], 1),
    "missing": (lambda lines: [lines[0], *lines[2:]], 1),
    "repeated": (lambda lines: [lines[0], *lines], 1),
    "reordered": (lambda lines: [lines[1], lines[0], *lines[2:]], 0),
    "garbage": (lambda lines: [lines[0], b"{", *lines[2:]], 1),
    "not text": (lambda lines: [lines[0], b'{"run_id":"\xff"}', *lines[2:]], 1),
    "number": (lambda lines: [lines[0], lines[1].replace(b":9,", b":%d," % 2**70), *lines[2:]], 1),
    "tail": (lambda lines: [*lines[:2], lines[3]], 1),
}


@every_row("name", DAMAGE)
def test_damage_is_found(name: str) -> None:
    """Each kind of damage is found and the first bad seq named."""
    damage, bad_seq = DAMAGE[name]
    report = verify_export(b"\n".join(damage(make_export().splitlines())), is_signed, KEY)
    assert None is not report.problem
    assert bad_seq == report.bad_seq


@every_row("content", [b"", b"\xff", b"\n".join(make_lines(3)[0])])
def test_missing_seal_is_found(content: bytes) -> None:
    """A file without its last line is not taken for a whole one."""
    assert "seal" in str(verify_export(content, is_signed, KEY).problem)


def test_other_key_is_found() -> None:
    """A file sealed with another key does not pass for the daemon's."""
    report = verify_export(make_export(key=b"x" * 32), is_signed, KEY)
    assert "another key" in str(report.problem)


def test_wrong_signature_is_found() -> None:
    """A seal whose signature was made over something else does not pass."""
    lines = make_export().splitlines()
    seal = msgspec.json.decode(lines[-1], type=ExportSeal)
    forged = msgspec.structs.replace(seal, signature=(b"0" * 32).hex())
    content = b"\n".join([*lines[:-1], render_seal(forged).encode()])
    assert "does not match" in str(verify_export(content, is_signed, KEY).problem)


def test_seal_must_be_hexadecimal() -> None:
    """A seal that is no hexadecimal text is a finding, not a crash."""
    lines = make_export().splitlines()
    seal = msgspec.json.decode(lines[-1], type=ExportSeal)
    forged = msgspec.structs.replace(seal, signature="zz")
    content = b"\n".join([*lines[:-1], render_seal(forged).encode()])
    assert "hexadecimal" in str(verify_export(content, is_signed, KEY).problem)


# --- any byte ------------------------------------------------------------------------------------


def attested(call_id: str, prev: str, key: bytes = KEY) -> ToolAttested:
    """An attestation as the engine makes it, signed with the key."""
    document = Attestation(
        call_id=call_id,
        tool="echo",
        arguments_sha256="a",
        output_sha256="b",
        raw_output_sha256="c",
        status="succeeded",
        executor="inline",
        enforcement="none",
        policy_hash="p",
        started_ms=1,
        finished_ms=2,
        prev=prev,
    )
    sealed = seal_attestation(document, lambda message: sign(key, message))
    return ToolAttested(
        call_id=call_id,
        attestation=sealed.document,
        digest=sealed.digest,
        signature=sealed.signature,
    )


def export_of(*events: Event) -> bytes:
    """These events, chained and sealed."""
    lines, prev = [], GENESIS
    for seq, event in enumerate(events):
        data = encode_event(event)
        row = TapeRow(RUN, "ses_1", seq, 100, event.KIND, "zoë", False, data)  # noqa: FBT003 - of a row
        prev = link(prev, seq + 1, row)
        fields = {**msgspec.structs.asdict(row), "data": msgspec.Raw(data)}
        line = ExportLine(**fields, position=seq + 1, hash=prev.hex())
        lines.append(msgspec.json.encode(line) + b"\n")
    seal = ExportSeal(
        run_id=RUN,
        seq=len(events) - 1,
        public_key=KEY.hex(),
        signature=sign(KEY, claim(RUN, len(events) - 1, prev)).hex(),
    )
    return b"".join(lines) + render_seal(seal).encode()


def proved_export() -> bytes:
    """A small export with two attestations."""
    first = attested("c1", FIRST)
    return export_of(MessageCompleted(text="a é\\n"), first, attested("c2", first.digest))


def test_attestations_are_counted() -> None:
    """The verification counts the signed outcomes of a file."""
    report = verify_export(proved_export(), is_signed, KEY)
    assert (None, 2) == (report.problem, report.checked_attestations)


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80])
def test_every_changed_byte_is_found_and_named(mask: int) -> None:
    """Whatever byte is changed, the event it belongs to is named, or the seal."""
    content = proved_export()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= mask
        report = verify_export(bytes(changed), is_signed, KEY)
        assert report.problem is not None, place
        line = content[:place].count(b"\n")
        if line < 3 and not (line == 2 and content[place : place + 1] == b"\n"):
            assert line == report.bad_seq, (place, report)
        else:
            assert "seal" in report.problem, (place, report)


@settings(max_examples=300)
@given(data=st.data())
def test_every_other_byte_is_found(data: st.DataObject) -> None:
    """Any byte in any place, a lost one and an added one."""
    content = proved_export()
    place = data.draw(st.integers(min_value=0, max_value=len(content) - 1))
    other = data.draw(st.integers(min_value=0, max_value=255).filter(lambda b: b != content[place]))
    byte = bytes([other])
    for changed in (
        content[:place] + byte + content[place + 1 :],
        content[:place] + content[place + 1 :],
        content[:place] + byte + content[place:],
    ):
        if changed != content:
            assert verify_export(changed, is_signed, KEY).problem is not None


@every_row("end", [b"\r\n", b"", b"\n\n"])
def test_other_ends_of_lines_are_found(end: bytes) -> None:
    """A file that passed through a program which knows better is not the daemon's file."""
    content = proved_export()
    assert verify_export(content[:-1] + end, is_signed, KEY).problem is not None
    assert verify_export(content.replace(b"\n", b"\r\n"), is_signed, KEY).problem is not None


def test_an_attestation_of_another_key_is_named() -> None:
    """A tape that was sealed over a forged attestation shows it."""
    first = attested("c1", FIRST)
    content = export_of(first, attested("c2", first.digest, key=b"x" * 32))
    report = verify_export(content, is_signed, KEY)
    assert (1, 0) == (report.bad_seq, report.checked_attestations)
    assert "attestation of c2 is not signed" in str(report.problem)


def test_an_attestation_that_was_left_out_is_named() -> None:
    """Each attestation names the one before it in the run."""
    report = verify_export(export_of(attested("c2", "d" * 64)), is_signed, KEY)
    assert 0 == report.bad_seq
    assert "does not follow" in str(report.problem)


def test_an_invalid_attestation_is_a_finding() -> None:
    """An attestation event with other content is a finding, not a crash."""
    text = MessageCompleted(text="x")
    content = export_of(text).replace(b"message.completed", b"tool.attested")
    line = msgspec.json.decode(content.splitlines()[0], type=ExportLine)
    row = TapeRow(RUN, "ses_1", 0, 100, "tool.attested", "zoë", False, encode_event(text))  # noqa: FBT003 - of a row
    last = link(GENESIS, 1, row)
    forged = msgspec.structs.replace(line, hash=last.hex())
    seal = ExportSeal(
        run_id=RUN, seq=0, public_key=KEY.hex(), signature=sign(KEY, claim(RUN, 0, last)).hex()
    )
    report = verify_export(
        msgspec.json.encode(forged) + b"\n" + render_seal(seal).encode(), is_signed, KEY
    )
    assert 0 == report.bad_seq
    assert "not an attestation" in str(report.problem)


def test_rows_are_read_without_proof() -> None:
    """The events of a file, also of one without its seal; of garbage, the line."""
    content = make_export()
    assert [0, 1, 2] == [row.seq for row in read_rows(content)]
    assert 3 == len(read_rows(b"\n".join(content.splitlines()[:3])))
    with pytest.raises(Forged) as found:
        read_rows(content.replace(b'{"text":"1"}', b"{"))
    assert 1 == found.value.seq


def test_a_line_in_another_encoding_is_forged() -> None:
    """The same values with another spelling are not what the daemon wrote."""
    first, rest = make_export().split(b"\n", 1)
    assert first.startswith(b'{"')
    report = verify_export(first.replace(b'{"', b'{ "', 1) + b"\n" + rest, is_signed, KEY)
    assert 0 == report.bad_seq
    assert "not encoded as the daemon encodes it" in str(report.problem)
