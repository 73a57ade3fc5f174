"""Statements that look at a whole tape without decoding it: codes of an outline, candidates of a search.

Each is one step of SQLite, which holds no lock of the interpreter meanwhile.
"""

from collections.abc import Sequence

import apsw
import msgspec
from msgspec import convert

from palyra.core.journal.purged_row import PREFIX as PURGED
from palyra.core.tape import outline
from palyra.core.tape.search import EventRow, TapeSearch

# Rows, and bytes of their payloads, of the parts that one search looks at: a near hit is found at once.
PARTS = ((4_000, 4_194_304), (96_000, 67_108_864))
_EDGE = {False: 0, True: 2**63 - 1}  # where a search begins that names no seq
MAX_CANDIDATES = 2_000  # that are decoded


def _any(needles: tuple[bytes, ...]) -> str:
    """Return the expression of a place where the payload has one of the needles, 0 if it has none."""
    places = [f"instr(data, X'{needle.hex()}')" for needle in needles]
    return f"max(0, {', '.join(places)})"


def _code(kind: str) -> str:
    """Return the expression of the code of an event of that kind; see `outline.code_of`."""
    terms = [str(outline.FIRST + 4 * outline.KINDS.index(kind))]
    if kind in outline.GOOD:
        kept = f"substr(data, 1, {len(PURGED)}) <> X'{PURGED.hex()}'"
        terms.append(f"{outline.IS_BAD} * ({_any(outline.GOOD[kind])} = 0 AND {kept})")
    if kind in outline.TAINTED:
        terms.append(f"{outline.IS_TAINTED} * ({_any(outline.TAINTS)} > 0)")
    return f"WHEN '{kind}' THEN char({' + '.join(terms)})"


# Kinds of every call come first, since a CASE compares in order.
_OFTEN = ("tool.completed", "tool.decided", "tool.proposed", "tool.started", "tool.attested")
_KINDS = (*_OFTEN, *(kind for kind in outline.KINDS if kind not in _OFTEN))
_CODE = f"CASE kind {' '.join(map(_code, _KINDS))} ELSE char({ord(outline.UNKNOWN)}) END"
_CODES = (
    f"SELECT group_concat({_CODE}, '') FROM"  # noqa: S608 - only literals
    " (SELECT kind, data FROM tape WHERE run_id = ? ORDER BY seq)"
)
# The last seq of a part that has at most so many rows and bytes, but at least one row.
_PART = """
SELECT coalesce(
    (SELECT {last}(seq) FROM (
        SELECT seq, sum(length(data)) OVER (ORDER BY seq {order}) AS through FROM tape
        WHERE run_id = ?1 AND seq {beyond} ?2 ORDER BY seq {order} LIMIT ?3) WHERE through <= ?4),
    (SELECT {first}(seq) FROM tape WHERE run_id = ?1 AND seq {beyond} ?2)),
    (SELECT {last}(seq) FROM tape WHERE run_id = ?1)
"""
_FORWARDS = _PART.format(last="max", first="min", order="ASC", beyond=">=")
_BACKWARDS = _PART.format(last="min", first="max", order="DESC", beyond="<=")


def find_latest(connection: apsw.Connection, run_ids: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return kind and time of the last event of each run."""
    found = connection.execute(
        "SELECT value, CAST(latest.kind AS BLOB), latest.at_ms FROM json_each(?) JOIN tape AS latest"
        " ON latest.run_id = value AND latest.seq = (SELECT max(seq) FROM tape WHERE run_id = value)",
        (msgspec.json.encode([*run_ids]).decode(),),
    )
    return {
        run_id: (kind.decode(errors="replace"), at_ms)
        for run_id, kind, at_ms in convert([*found], list[tuple[str, bytes, int]])
    }


def read_codes(connection: apsw.Connection, run_id: str) -> str:
    """Return the codes of all events of a run, in order."""
    codes: str | None = connection.execute(_CODES, (run_id,)).get
    return codes or ""


def search_tape(
    connection: apsw.Connection, run_id: str, wanted: TapeSearch
) -> tuple[list[EventRow], int | None]:
    """Return candidates of a bounded part, and the seq behind it; None: it was the last part."""
    start = wanted.from_seq if wanted.from_seq is not None else _EDGE[wanted.backwards]
    rows: list[EventRow] = []
    for most_rows, most_bytes in PARTS:
        part = _BACKWARDS if wanted.backwards else _FORWARDS
        last, end = connection.execute(part, (run_id, start, most_rows, most_bytes)).get
        if last is None:  # nothing is there
            return rows, None
        found, more = _read_part(connection, run_id, wanted, start, last)
        rows += found
        start = last + (-1 if wanted.backwards else 1)
        if more is not None or last == end:
            return rows, more
        if len(rows) > wanted.limit:
            break
    return rows, start


def _read_part(
    connection: apsw.Connection, run_id: str, wanted: TapeSearch, first: int, last: int
) -> tuple[list[EventRow], int | None]:
    """Return candidates between both numbers, and the next candidate if there are too many."""
    condition, values = _condition(wanted)
    most = MAX_CANDIDATES if wanted.text else wanted.limit
    found = connection.execute(
        "SELECT seq, at_ms, CAST(kind AS BLOB), CAST(data AS BLOB) FROM tape"  # noqa: S608 - only literals
        f" WHERE run_id = ? AND seq BETWEEN ? AND ? AND {condition}"
        f" ORDER BY seq {'DESC' if wanted.backwards else 'ASC'} LIMIT {most + 1}",
        (run_id, min(first, last), max(first, last), *values),
    ).fetchall()
    rows = [
        EventRow(seq=seq, at_ms=at_ms, kind=kind.decode(errors="replace"), data=data)
        for seq, at_ms, kind, data in convert(found, list[tuple[int, int, bytes, bytes]])
    ]
    return (rows[:most], rows[most].seq) if len(rows) > most else (rows, None)


def _condition(wanted: TapeSearch) -> tuple[str, list[str | bytes]]:
    """Return what a row must have to be a candidate; `core.tape.search` decides on its values."""
    parts, values = ["TRUE"], list[str | bytes]()
    if wanted.kinds:
        kinds = {*wanted.kinds}  # once each: a statement has a bound of parameters
        parts.append(f"kind IN ({', '.join('?' * len(kinds))})")
        values += kinds
    if wanted.marks:
        parts.append(f"instr(?, {_CODE})")
        values.append(outline.codes_with(wanted.marks))
    if wanted.call_id is not None:
        parts.append("instr(data, ?)")
        values.append(b'"call_id":' + msgspec.json.encode(wanted.call_id))
    if wanted.text:
        inside = msgspec.json.encode(wanted.text)[1:-1].decode()
        for special in "\\%_":
            inside = inside.replace(special, "\\" + special)
        parts.append("CAST(data AS TEXT) LIKE ? ESCAPE '\\'")
        values.append(f"%{inside}%")
    return " AND ".join(parts), values
