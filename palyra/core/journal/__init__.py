"""Data of the journal: records, changes, tape rows, hash chain, idempotency keys."""
