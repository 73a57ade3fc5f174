"""WASM guests: the worker processes they run in, and the daemon's end of the pipe."""
