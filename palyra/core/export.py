"""A tape outside the daemon: one line per event and a seal, provable without the journal.

Pure: whoever calls brings the signature check.  Each line carries every field that its link
covers and the link itself; the seal is a signature over the last link, so an edited, missing,
inserted, reordered or cut-off line is found by computing the chain again (`core.chain`).
"""

from collections.abc import Callable, Sequence

import msgspec

from palyra.core.chain import GENESIS, link
from palyra.core.tape import TapeRow
from palyra.errors import InvariantBroken

IsSigned = Callable[[bytes, bytes, bytes], bool]  # public key, message, signature


class ExportLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event with its place in the journal and its link (hex)."""

    run_id: str
    session_id: str
    seq: int
    at_ms: int
    kind: str
    data: msgspec.Raw
    principal: str
    redacted: bool
    position: int
    hash: str


class ExportSeal(
    msgspec.Struct, frozen=True, kw_only=True, tag="palyra.export.v1", tag_field="seal"
):
    """The last line of an export; keys and signatures in hex."""

    run_id: str
    seq: int
    public_key: str
    signature: str


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a verification; `problem` is None when everything holds."""

    run_id: str | None
    checked_events: int
    public_key: str | None
    bad_seq: int | None = None
    problem: str | None = None


class Forged(Exception):
    """The export is not what the daemon wrote."""

    def __init__(self, problem: str, seq: int | None = None) -> None:
        super().__init__(problem)
        self.problem = problem
        self.seq = seq


_LINE = msgspec.json.Decoder(ExportLine)
_SEAL = msgspec.json.Decoder(ExportSeal)


def claim(run_id: str, seq: int, last_link: bytes) -> bytes:
    """The bytes under a seal's signature: which run has which link at which seq."""
    return b"palyra.export.v1\0%b\0%d\0%b" % (run_id.encode(), seq, last_link)


def render_seal(seal: ExportSeal) -> str:
    """The seal as the last line of a file."""
    return msgspec.json.encode(seal).decode() + "\n"


def verify_export(content: bytes, is_signed: IsSigned, trusted_key: bytes | None) -> ExportReport:
    """Whether the file is a whole tape as the daemon signed it.

    Without a trusted key the one in the file is taken at its word: that finds accidents, but not
    somebody who signed again with a key of his own.
    """
    lines = content.splitlines()
    checked: list[ExportLine] = []
    seal: ExportSeal | None = None
    try:
        seal = _read_seal(lines)
        last_link = _verify_chain(lines[:-1], seal.run_id, checked)
        _verify_seal(seal, len(lines) - 2, last_link, is_signed, trusted_key)
    except Forged as forged:
        return _report(checked, seal, forged)
    return _report(checked, seal, None)


def _report(
    checked: Sequence[ExportLine], seal: ExportSeal | None, forged: Forged | None
) -> ExportReport:
    return ExportReport(
        run_id=seal.run_id if seal else None,
        checked_events=len(checked),
        public_key=seal.public_key if seal else None,
        bad_seq=forged.seq if forged else None,
        problem=forged.problem if forged else None,
    )


def _read_seal(lines: Sequence[bytes]) -> ExportSeal:
    try:
        return _SEAL.decode(lines[-1] if lines else b"")
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Forged("the last line is no seal: the end of the file is missing") from None


def _verify_chain(lines: Sequence[bytes], run_id: str, checked: list[ExportLine]) -> bytes:
    """The last link; each line that holds is added to `checked`."""
    prev = GENESIS
    for seq, text in enumerate(lines):
        line = _read_line(text, seq)
        if (line.run_id, line.seq) != (run_id, seq):
            raise Forged(f"expected seq {seq} of {run_id}, found {line.seq} of {line.run_id}", seq)
        prev = _link(prev, line)
        if prev.hex() != line.hash:
            raise Forged("the event is not the one its link was made for", seq)
        checked.append(line)
    return prev


def _link(prev: bytes, line: ExportLine) -> bytes:
    try:
        return link(prev, line.position, _to_row(line))
    except InvariantBroken as error:
        raise Forged(error.message, line.seq) from None


def _read_line(text: bytes, seq: int) -> ExportLine:
    try:
        return _LINE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Forged(f"not a line of an export: {error}", seq) from None


def _to_row(line: ExportLine) -> TapeRow:
    return TapeRow(
        run_id=line.run_id,
        session_id=line.session_id,
        seq=line.seq,
        at_ms=line.at_ms,
        kind=line.kind,
        principal=line.principal,
        redacted=line.redacted,
        data=bytes(line.data),
    )


def _verify_seal(
    seal: ExportSeal,
    last_seq: int,
    last_link: bytes,
    is_signed: IsSigned,
    trusted_key: bytes | None,
) -> None:
    if seal.seq != last_seq:
        raise Forged(f"the seal is for seq {seal.seq}, the file ends with {last_seq}", last_seq)
    try:
        key, signature = bytes.fromhex(seal.public_key), bytes.fromhex(seal.signature)
    except ValueError:
        raise Forged("the seal's key or signature is not hexadecimal") from None
    if trusted_key not in {None, key}:
        raise Forged(f"sealed with another key: {seal.public_key[:16]}…")
    if not is_signed(key, claim(seal.run_id, seal.seq, last_link), signature):
        raise Forged("the seal's signature does not fit the last event")
