"""wasmtime engine and bounds-checked access to guest memory.

Imported by workers only, never by the daemon.
"""

import wasmtime

from palyra.tools.wasm.limits import NUMBERS, OFF, GuestFailure


def make_engine() -> wasmtime.Engine:
    """Create an engine with fuel, epochs and the settings of `limits.OFF` and `limits.NUMBERS`."""
    config = wasmtime.Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    for name in OFF:
        setattr(config, name, False)
    for name, number in NUMBERS.items():
        setattr(config, name, number)
    return wasmtime.Engine(config)


def unsigned(value: int) -> int:
    """Convert a signed i32 from wasmtime to the unsigned value."""
    return value & 0xFFFF_FFFF


class GuestMemory:
    """Memory of one instance, valid during one call into the host or the guest."""

    def __init__(self, memory: object, context: "wasmtime.Store | wasmtime.Caller") -> None:
        if not isinstance(memory, wasmtime.Memory):
            raise GuestFailure("invalid_module", "the module does not export a memory")
        self._memory = memory
        self._context = context

    def read(self, start: int, length: int) -> bytes:
        """Return a copy of the range.  Raises GuestFailure (`trapped`) if it is out of bounds."""
        start, length = unsigned(start), unsigned(length)
        self._check(start, length)
        return bytes(self._memory.read(self._context, start, start + length))

    def write(self, start: int, content: bytes) -> None:
        """Write the bytes.  Raises GuestFailure (`trapped`) if the range is out of bounds."""
        start = unsigned(start)
        self._check(start, len(content))
        if content:
            self._memory.write(self._context, content, start)

    def _check(self, start: int, length: int) -> None:
        size = self._memory.data_len(self._context)
        if start + length > size:
            raise GuestFailure(
                "trapped", f"the guest named {length} bytes at {start}; its memory has {size}"
            )
