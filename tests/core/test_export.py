"""Exports: whatever is changed in the file is found, and nothing else is."""

import hashlib
from collections.abc import Callable

import msgspec
import pytest

from palyra.core.chain import GENESIS, link
from palyra.core.export import ExportLine, ExportSeal, claim, render_seal, verify_export
from palyra.core.tape import TapeRow

RUN = "run_1"
KEY = b"k" * 32


def sign(key: bytes, message: bytes) -> bytes:
    """Stands for Ed25519: only who knows the key gets this."""
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


@pytest.mark.parametrize("count", [0, 1, 20])
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


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(name: str) -> None:
    """Each kind of damage is found and the first bad seq named."""
    damage, bad_seq = DAMAGE[name]
    report = verify_export(b"\n".join(damage(make_export().splitlines())), is_signed, KEY)
    assert None is not report.problem
    assert bad_seq == report.bad_seq


@pytest.mark.parametrize("content", [b"", b"\xff", b"\n".join(make_lines(3)[0])])
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
    assert "does not fit" in str(verify_export(content, is_signed, KEY).problem)


def test_seal_must_be_hexadecimal() -> None:
    """A seal that is no hexadecimal text is a finding, not a crash."""
    lines = make_export().splitlines()
    seal = msgspec.json.decode(lines[-1], type=ExportSeal)
    forged = msgspec.structs.replace(seal, signature="zz")
    content = b"\n".join([*lines[:-1], render_seal(forged).encode()])
    assert "hexadecimal" in str(verify_export(content, is_signed, KEY).problem)
