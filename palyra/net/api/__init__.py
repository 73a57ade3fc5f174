"""What clients can ask for: backend, idempotency, limits, tokens, dispatch, schema."""
