"""Many rows in few statements.

Every step of SQLite gives the interpreter lock away and must win it back from a busy main
thread; `executemany` steps once per row.  One statement with many rows steps once.
"""

from collections.abc import Sequence
from itertools import chain

import apsw

SQLValue = None | int | float | str | bytes
Row = tuple[SQLValue, ...]

# Each size is one cached statement.  256 rows of ten columns stay below SQLite's limit of 32 766
# parameters and below the statement length that apsw still caches.
CHUNKS = (256, 64, 16, 4, 1)


class BulkInsert:
    """`INSERT INTO table (columns) VALUES …` for any number of rows; `suffix` is its ON CONFLICT."""

    __slots__ = ("_statements",)

    def __init__(self, table: str, columns: Sequence[str], suffix: str = "") -> None:
        places = f"({', '.join('?' * len(columns))})"
        head = f"INSERT INTO {table} ({', '.join(columns)}) VALUES "  # noqa: S608 - names of our own tables
        self._statements = tuple(
            (size, head + ", ".join([places] * size) + f" {suffix}") for size in CHUNKS
        )

    def append(self, connection: apsw.Connection, rows: Sequence[Row]) -> None:
        """Write the rows in order.  Raises what the constraints of the table say."""
        start = 0
        for size, statement in self._statements:
            while len(rows) - start >= size:
                values = tuple(chain.from_iterable(rows[start : start + size]))
                connection.execute(statement, values)
                start += size
