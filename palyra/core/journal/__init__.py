"""What is stored: records, changes, tape rows, hash chain, idempotency keys."""
