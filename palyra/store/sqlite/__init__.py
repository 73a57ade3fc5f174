"""The journal on SQLite: connection, writer, tables, queries."""
