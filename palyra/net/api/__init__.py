"""The API for clients: backend, idempotency, limits, tokens, dispatch, schema."""
