"""WASM runtime for skills: worker processes, their pool, and the protocol to them."""
