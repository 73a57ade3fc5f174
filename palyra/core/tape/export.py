"""Export of a tape: one line per event and a seal, verifiable without the journal.

Pure: the caller supplies the signature check.  Each line carries every field that its chain hash
covers, and the hash itself.  The seal is a signature over the last hash, so an edited, missing,
inserted, reordered or cut-off line is found by computing the chain again
(`core.journal.tape_row`).  The file is compared as bytes: a line with the same values in another
encoding than the daemon's is invalid.
"""

from collections.abc import Callable, Sequence

import msgspec

from palyra.core.journal.purged_row import read_tombstone
from palyra.core.journal.tape_row import GENESIS, TapeRow, link
from palyra.core.tape.events import RunPurged, ToolAttested
from palyra.core.tape.purge import find_fault
from palyra.core.tool.attestation import find_broken_link, verify_attestation
from palyra.errors import InvariantBroken

IsSigned = Callable[[bytes, bytes, bytes], bool]  # public key, message, signature


class ExportLine(msgspec.Struct, frozen=True, kw_only=True):
    """One event with its position in the journal and its chain hash (hex)."""

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
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="palyra.export.v1",
    tag_field="seal",
    omit_defaults=True,
):
    """The last line of an export; keys and signatures in hex."""

    run_id: str
    seq: int
    public_key: str
    signature: str
    former_keys: tuple[str, ...] = ()  # that signed attestations and purges before a restore


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a verification; `problem` is None if everything is valid."""

    run_id: str | None
    checked_events: int
    checked_attestations: int = 0
    purged_events: int = 0  # without their payload, by a recorded purge
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
_ATTESTED = msgspec.json.Decoder(ToolAttested)


def claim(run_id: str, seq: int, last_link: bytes, former_keys: Sequence[str] = ()) -> bytes:
    """Return the bytes that a seal signs: run, seq and chain hash of the last event, former keys."""
    former = b"".join(b"\0%b" % key.encode() for key in former_keys)
    return b"palyra.export.v1\0%b\0%d\0%b%b" % (run_id.encode(), seq, last_link, former)


def render_seal(seal: ExportSeal) -> str:
    """Render the seal as the last line of a file."""
    return msgspec.json.encode(seal).decode() + "\n"


def verify_export(content: bytes, is_signed: IsSigned, trusted_key: bytes | None) -> ExportReport:
    """Verify that the file is a complete tape as the daemon signed it.

    Without a trusted key the key in the file is used: that detects accidents, but not an attacker who
    signed the file again with another key.
    """
    *lines, rest = content.split(b"\n")
    if rest:
        lines.append(rest)
    checked: list[ExportLine] = []
    seal: ExportSeal | None = None
    try:
        seal = _read_seal(lines)
        last_link = _verify_chain(lines[:-1], checked)
        _verify_seal(seal, checked, last_link, is_signed, trusted_key)
        _verify_records(checked, _read_keys(seal), is_signed)
        _verify_end(rest)
    except Forged as forged:
        return _report(checked, seal, forged)
    return _report(checked, seal, None)


def _report(
    checked: Sequence[ExportLine], seal: ExportSeal | None, forged: Forged | None
) -> ExportReport:
    kept = [line for line in checked if not _is_purged(line)]
    attested = sum(1 for line in kept if line.kind == ToolAttested.KIND)
    return ExportReport(
        run_id=seal.run_id if seal else None,
        checked_events=len(checked),
        checked_attestations=attested if forged is None else 0,
        purged_events=len(checked) - len(kept) if forged is None else 0,
        public_key=seal.public_key if seal else None,
        bad_seq=forged.seq if forged else None,
        problem=forged.problem if forged else None,
    )


def read_rows(content: bytes) -> list[TapeRow]:
    """Parse the events of a file as rows, without verification.  Raises Forged."""
    *lines, seal = content.removesuffix(b"\n").split(b"\n")
    try:
        _SEAL.decode(seal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        lines.append(seal)  # a part of an export
    return [_to_row(_read_line(text, seq)) for seq, text in enumerate(lines)]


def _verify_end(rest: bytes) -> None:
    if rest:
        raise Forged("the seal's line does not end: the last byte of the file is missing")


def _read_seal(lines: Sequence[bytes]) -> ExportSeal:
    text = lines[-1] if lines else b""
    try:
        seal = _SEAL.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Forged("the last line is not a seal: the end of the file is missing") from None
    if msgspec.json.encode(seal) != text:
        raise Forged("the seal is not encoded as the daemon encodes it")
    return seal


def _verify_chain(lines: Sequence[bytes], checked: list[ExportLine]) -> bytes:
    """Return the last chain hash; add each valid line to `checked`."""
    prev = GENESIS
    for seq, text in enumerate(lines):
        line = _read_line(text, seq)
        run_id = checked[0].run_id if checked else line.run_id
        if (line.run_id, line.seq) != (run_id, seq):
            raise Forged(f"expected seq {seq} of {run_id}, found {line.seq} of {line.run_id}", seq)
        prev = _unhex(line.hash) if _is_purged(line) else _link(prev, line)
        if prev.hex() != line.hash:
            raise Forged("the event does not match its chain hash", seq)
        checked.append(line)
    return prev


def _is_purged(line: ExportLine) -> bool:
    """True for a line without its payload, which `_verify_purge` proves."""
    return read_tombstone(bytes(line.data)) is not None


def _verify_purge(lines: Sequence[ExportLine], keys: Sequence[bytes], is_signed: IsSigned) -> None:
    """Check that removed payloads are on record as a purge, signed with one of the keys."""
    first = next((line for line in lines if _is_purged(line) or line.kind == RunPurged.KIND), None)
    if first is None:
        return
    links = ((line.position, bytes.fromhex(line.hash), _to_row(line)) for line in lines)
    fault = find_fault(
        first.run_id, links, lambda text, proof: any(is_signed(key, text, proof) for key in keys)
    )
    if fault is not None:
        raise Forged(fault, first.seq)


def _link(prev: bytes, line: ExportLine) -> bytes:
    try:
        return link(prev, line.position, _to_row(line))
    except InvariantBroken as error:
        raise Forged(error.message, line.seq) from None


def _read_line(text: bytes, seq: int) -> ExportLine:
    try:
        line = _LINE.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Forged(f"not a line of an export: {error}", seq) from None
    if msgspec.json.encode(line) != text:
        raise Forged("the line is not encoded as the daemon encodes it", seq)
    return line


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
    checked: Sequence[ExportLine],
    last_link: bytes,
    is_signed: IsSigned,
    trusted_key: bytes | None,
) -> None:
    last_seq = len(checked) - 1
    if seal.seq != last_seq:
        raise Forged(f"the seal is for seq {seal.seq}, the file ends with {last_seq}", last_seq)
    if checked and checked[0].run_id != seal.run_id:
        raise Forged(f"the seal is for {seal.run_id}, the file is of {checked[0].run_id}")
    key, signature = _unhex(seal.public_key), _unhex(seal.signature)
    if trusted_key not in {None, key}:
        raise Forged(f"sealed with another key: {seal.public_key[:16]}…")
    if not is_signed(key, claim(seal.run_id, seal.seq, last_link, seal.former_keys), signature):
        raise Forged("the seal's signature does not match the last event")


def _read_keys(seal: ExportSeal) -> list[bytes]:
    return [_unhex(key) for key in (seal.public_key, *seal.former_keys)]


def _unhex(text: str) -> bytes:
    """Decode lower-case hexadecimal, the only form that the daemon writes."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if data.hex() != text:
        raise Forged("the seal's key or signature is not lower-case hexadecimal")
    return data


def _verify_records(
    lines: Sequence[ExportLine], keys: Sequence[bytes], is_signed: IsSigned
) -> None:
    """Check what the events themselves have signed: the purge of the run, and attestations."""
    _verify_purge(lines, keys, is_signed)
    _verify_attestations(lines, keys, is_signed)


def _verify_attestations(
    lines: Sequence[ExportLine], keys: Sequence[bytes], is_signed: IsSigned
) -> None:
    """Check that each attestation is signed with one of the keys and names the previous one."""
    seqs = [line.seq for line in lines if line.kind == ToolAttested.KIND and not _is_purged(line)]
    events = [_read_attestation(lines[seq]) for seq in seqs]
    for seq, event in zip(seqs, events, strict=True):
        if not verify_attestation(
            event.attestation,
            event.signature,
            lambda digest, signature: any(is_signed(key, digest, signature) for key in keys),
        ):
            raise Forged(f"the attestation of {event.call_id} is not signed with the key", seq)
    broken = find_broken_link([event.attestation for event in events])
    if broken is not None:
        raise Forged("the attestation does not follow the one before it", seqs[broken])


def _read_attestation(line: ExportLine) -> ToolAttested:
    try:
        return _ATTESTED.decode(line.data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Forged(f"not an attestation: {error}", line.seq) from None
