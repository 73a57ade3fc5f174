"""The journal on SQLite: one file, one writer, any number of readers.

In the order of a reader: `journal` opens and closes the file and is the `JournalStore`; `writer`
commits; `tapes` and `queries` read; `schema` holds tables, indexes and triggers; `connection` sets
SQLite up; `integrity` checks the pages.

To store a new record type:

1. `core/journal/records`: the struct, and its name in the union `Record`.
2. `schema`: a migration with the table, its indexes, and a trigger for what is never overwritten.
3. `queries`: a row of `TABLES`, the methods of `Queries`, a line of `_EXPIRED` if records expire.
4. `core/ports`: the signatures of these methods, in the Protocol that `JournalStore` extends.

Nothing else in this room changes: writer, journal and retention work on `TABLES`.
"""
