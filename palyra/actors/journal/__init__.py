"""The one writer: batching, retry after a refused write, integrity check."""
