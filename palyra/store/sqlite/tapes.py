"""Reading the tape table, a page at a time.

A page is read in one step of SQLite, as one JSON text of the small columns and one blob of all
payloads: 1 000 rows compete once for the interpreter lock instead of 1 000 times.
Types are cast in SQL, so that a tampered row can be read and is detected by its hash.
"""

from collections.abc import Sequence

import apsw
import msgspec

from palyra.core.journal.changes import ChainedRow, SaidText, TapePage
from palyra.core.journal.tape_row import TapeRow
from palyra.store.journal.admission import NO_HEAD, ChainHead, ChainLink, TapeExtent, TapeHead

# ?1 and ?2 bound the range, ?3 limits the rows and ?4 the bytes: the page ends before its payloads
# exceed ?4, but has at least one row.  SQLite knows the length of a payload without reading it.
_PAGE = """
SELECT CAST(json_group_array(json_array(position, CAST(run_id AS TEXT), CAST(session_id AS TEXT),
           CAST(seq AS INTEGER), CAST(at_ms AS INTEGER), CAST(kind AS TEXT),
           CAST(principal AS TEXT), CAST(redacted AS INTEGER), length(data), hex(hash))) AS BLOB),
       CAST(group_concat(data, '') AS BLOB){more}
FROM (SELECT * FROM tape WHERE {range} AND {key} <= coalesce(
          (SELECT max({key}) FROM (
               SELECT {key}, sum(length(data)) OVER (ORDER BY {key}) AS through FROM tape
               WHERE {range} ORDER BY {key} LIMIT ?3) WHERE through <= ?4),
          (SELECT min({key}) FROM tape WHERE {range}))
      ORDER BY {key})
"""
_RUN_PAGE = _PAGE.format(
    key="seq",
    range="run_id = ?1 AND seq > ?2",
    more=""",
       (SELECT max(seq) FROM tape WHERE run_id = ?1),
       (SELECT min(seq) FROM tape WHERE run_id = ?1)""",
)
_SCAN_PAGE = _PAGE.format(key="position", range="position > ?1 AND position <= ?2", more="")
_DECODER = msgspec.json.Decoder(list[tuple[int, str, str, int, int, str, str, int, int, str]])
_NO_HASH = b""  # of a row that no writer can have written: verification fails


PAGE_BYTES = 2_097_152  # payload of one page; docs/protocol.md


def find_head(connection: apsw.Connection, run_id: str) -> TapeHead:
    """Return the run's last row, NO_HEAD for an empty tape."""
    found = connection.execute(
        "SELECT seq, hash FROM tape WHERE run_id = ? ORDER BY seq DESC LIMIT 1", (run_id,)
    ).get
    return NO_HEAD if found is None else TapeHead(*found)


def find_row(connection: apsw.Connection, run_id: str, seq: int) -> TapeRow | None:
    """Return one row, None if it does not exist."""
    links = read_links(connection, run_id, after_seq=seq - 1, limit=1)
    return links[0].row if links and links[0].row.seq == seq else None


def find_before(connection: apsw.Connection, run_id: str, seq: int) -> ChainHead | None:
    """Return the run's last row below `seq`."""
    found = connection.execute(
        "SELECT seq, position, hash FROM tape WHERE run_id = ? AND seq < ?"
        " ORDER BY seq DESC LIMIT 1",
        (run_id, seq),
    ).get
    return None if found is None else ChainHead(*found)


def find_earlier(connection: apsw.Connection, run_id: str, position: int) -> ChainHead | None:
    """Return the run's last row below `position`; reads the whole run."""
    found = connection.execute(
        "SELECT seq, max(position), hash FROM tape WHERE run_id = ? AND position < ?",
        (run_id, position),
    ).get
    return None if found[0] is None else ChainHead(*found)


def find_cut_tape(connection: apsw.Connection) -> tuple[str, int] | None:
    """Return a run whose record counts more events than its tape has, and the first missing seq."""
    found: tuple[str, int] | None = connection.execute(
        """SELECT run_id, last + 1 FROM (
               SELECT run_id, iif(json_valid(record), record ->> 'head_seq', -1) AS head_seq,
                      coalesce((SELECT max(seq) FROM tape t WHERE t.run_id = r.run_id), -1) AS last
               FROM runs r)
           WHERE head_seq > last LIMIT 1"""
    ).get
    return found


def read_extent(connection: apsw.Connection) -> TapeExtent:
    """Read the recorded and the real last position in one snapshot."""
    return TapeExtent(
        *connection.execute(
            "SELECT head_position, coalesce((SELECT max(position) FROM tape), 0) FROM owner"
        ).get
    )


def read_page(
    connection: apsw.Connection, run_id: str, *, after_seq: int, limit: int, max_bytes: int
) -> TapePage:
    """Return rows of one run with seq > after_seq; at least one if there is any."""
    text, payloads, head_seq, floor_seq = connection.execute(
        _RUN_PAGE, (run_id, after_seq, limit, max_bytes)
    ).get
    rows = [link.row for link in _parse_links(text, payloads or b"")]
    head = -1 if head_seq is None else head_seq
    return TapePage(
        rows=rows,
        head_seq=head,
        floor_seq=floor_seq or 0,
        next_after_seq=rows[-1].seq if rows and rows[-1].seq < head else None,
        size_bytes=len(payloads or b""),
    )


def read_links(
    connection: apsw.Connection,
    run_id: str,
    *,
    after_seq: int,
    limit: int,
    max_bytes: int = PAGE_BYTES,
) -> list[ChainLink]:
    """Return the same rows with position and hash."""
    text, payloads, _, _ = connection.execute(_RUN_PAGE, (run_id, after_seq, limit, max_bytes)).get
    return _parse_links(text, payloads or b"")


def read_chain(
    connection: apsw.Connection, run_id: str, *, after_seq: int, limit: int
) -> list[ChainedRow]:
    """Return the same rows as structs, for export."""
    links = read_links(connection, run_id, after_seq=after_seq, limit=limit)
    return [ChainedRow(position=place, hash=digest, row=row) for place, digest, row in links]


def scan(
    connection: apsw.Connection, *, after: int, through: int, limit: int, max_bytes: int
) -> list[ChainLink]:
    """Return rows of all runs, by position."""
    text, payloads = connection.execute(_SCAN_PAGE, (after, through, limit, max_bytes)).get
    return _parse_links(text, payloads or b"")


def read_hashes(connection: apsw.Connection, *, first: int, through: int) -> list[bytes]:
    """Return the hashes at these positions, in order; fewer if rows are missing."""
    text: str = connection.execute(
        "SELECT coalesce(group_concat(hex(hash), ','), '') FROM"
        " (SELECT hash FROM tape WHERE position BETWEEN ? AND ? ORDER BY position)",
        (first, through),
    ).get
    return [bytes.fromhex(part) for part in text.split(",")] if text else []


def _parse_links(text: bytes, payloads: bytes) -> list[ChainLink]:
    """Build the rows of one page; bytes that are not UTF-8 become U+FFFD."""
    links = []
    start = 0
    for (
        position,
        run_id,
        session_id,
        seq,
        at_ms,
        kind,
        principal,
        redacted,
        size,
        digest,
    ) in _DECODER.decode(text.decode("utf-8", "replace")):
        end = start + size
        row = TapeRow(
            run_id, session_id, seq, at_ms, kind, principal, redacted == 1, payloads[start:end]
        )
        is_possible = redacted in (0, 1)  # noqa: PLR6201 - a tuple is as fast
        links.append(ChainLink(position, bytes.fromhex(digest) if is_possible else _NO_HASH, row))
        start = end
    return links


MESSAGE, TURN = "message.received", "turn.completed"  # kinds of events with a text that was said
_SAID = """
SELECT CAST('[' || group_concat(found, ',') || ']' AS BLOB) FROM (
    SELECT json_array(run_id, session_id, seq, at_ms, kind, said) AS found FROM (
        SELECT *, CASE WHEN json_valid(CAST(data AS TEXT))
            THEN CAST(data AS TEXT) ->> '$.text' END AS said
        FROM tape WHERE run_id IN (SELECT value FROM json_each(?)) AND kind IN (?, ?))
    WHERE said <> '' ORDER BY run_id, seq)
"""
_SAID_DECODER = msgspec.json.Decoder(list[tuple[str, str, int, int, str, str]])


def list_said(connection: apsw.Connection, run_ids: Sequence[str]) -> list[SaidText]:
    """Return users' messages and models' answers of these runs, by run and seq."""
    wanted = msgspec.json.encode(run_ids).decode()
    found = connection.execute(_SAID, (wanted, MESSAGE, TURN)).get
    rows = [] if found is None else _SAID_DECODER.decode(found)
    return [
        SaidText(run_id, session_id, seq, at_ms, kind == MESSAGE, text)
        for run_id, session_id, seq, at_ms, kind, text in rows
    ]
