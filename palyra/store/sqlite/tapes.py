"""Reading the tape table, a page at a time.

A page is read in one step of SQLite, as one JSON text of the small columns and one blob of all
payloads: 1 000 rows compete once for the interpreter lock instead of 1 000 times.
Types are cast in SQL, so that a tampered row can be read and is detected by its hash.
"""

import apsw
import msgspec

from palyra.core.journal.changes import ChainedRow, TapePage
from palyra.core.journal.tape_row import TapeRow
from palyra.store.journal.append_check import NO_HEAD, ChainLink, TapeHead
from palyra.store.journal.verification import PAGE_ROWS, SCAN_BYTES, ChainHead, TapeExtent

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


class Tapes:
    """The tapes as one connection sees them: a `CommittedTapes` and a `ChainReader`."""

    __slots__ = ("_connection",)

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def find_head(self, run_id: str) -> TapeHead:
        """Return the run's last row, NO_HEAD for an empty tape."""
        found = self._connection.execute(
            "SELECT seq, hash FROM tape WHERE run_id = ? ORDER BY seq DESC LIMIT 1", (run_id,)
        ).get
        return NO_HEAD if found is None else TapeHead(*found)

    def find_row(self, run_id: str, seq: int) -> TapeRow | None:
        """Return one row, None if it does not exist."""
        links = self.read_links(run_id, after_seq=seq - 1, limit=1)
        return links[0].row if links and links[0].row.seq == seq else None

    def find_before(self, run_id: str, seq: int) -> ChainHead | None:
        """Return the run's last row below `seq`."""
        found = self._connection.execute(
            "SELECT seq, position, hash FROM tape WHERE run_id = ? AND seq < ?"
            " ORDER BY seq DESC LIMIT 1",
            (run_id, seq),
        ).get
        return None if found is None else ChainHead(*found)

    def find_earlier(self, run_id: str, position: int) -> ChainHead | None:
        """Return the run's last row below `position`; reads the whole run."""
        found = self._connection.execute(
            "SELECT seq, max(position), hash FROM tape WHERE run_id = ? AND position < ?",
            (run_id, position),
        ).get
        return None if found[0] is None else ChainHead(*found)

    def find_cut_tape(self) -> tuple[str, int] | None:
        """Return a run whose record counts more events than its tape has, and the first missing seq."""
        found: tuple[str, int] | None = self._connection.execute(
            """SELECT run_id, last + 1 FROM (
                   SELECT run_id, iif(json_valid(record), record ->> 'head_seq', -1) AS head_seq,
                          coalesce((SELECT max(seq) FROM tape t WHERE t.run_id = r.run_id), -1) AS last
                   FROM runs r)
               WHERE head_seq > last LIMIT 1"""
        ).get
        return found

    def read_extent(self) -> TapeExtent:
        """Read the recorded and the real last position in one snapshot."""
        return TapeExtent(
            *self._connection.execute(
                "SELECT head_position, coalesce((SELECT max(position) FROM tape), 0) FROM owner"
            ).get
        )

    def read_page(self, run_id: str, *, after_seq: int, limit: int, max_bytes: int) -> TapePage:
        """Return rows of one run with seq > after_seq; at least one if there is any."""
        text, payloads, head_seq, floor_seq = self._connection.execute(
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
        self,
        run_id: str,
        *,
        after_seq: int,
        limit: int = PAGE_ROWS,
        max_bytes: int = PAGE_BYTES,
    ) -> list[ChainLink]:
        """Return the same rows with position and hash."""
        text, payloads, _, _ = self._connection.execute(
            _RUN_PAGE, (run_id, after_seq, limit, max_bytes)
        ).get
        return _parse_links(text, payloads or b"")

    def read_chain(self, run_id: str, *, after_seq: int, limit: int) -> list[ChainedRow]:
        """Return the same rows as structs, for export."""
        links = self.read_links(run_id, after_seq=after_seq, limit=limit)
        return [ChainedRow(position=place, hash=digest, row=row) for place, digest, row in links]

    def scan(self, *, after: int, through: int) -> list[ChainLink]:
        """Return rows of all runs, by position; a page for verification."""
        text, payloads = self._connection.execute(
            _SCAN_PAGE, (after, through, PAGE_ROWS, SCAN_BYTES)
        ).get
        return _parse_links(text, payloads or b"")

    def read_hashes(self, *, first: int, through: int) -> list[bytes]:
        """Return the hashes at these positions, in order; fewer if rows are missing."""
        text: str = self._connection.execute(
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
