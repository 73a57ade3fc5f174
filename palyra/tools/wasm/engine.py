"""wasmtime, set up.  Imported by workers only, never by the daemon."""

import wasmtime

from palyra.tools.wasm.settings import NUMBERS, OFF


def make_engine() -> wasmtime.Engine:
    """An engine that counts fuel and epochs, with everything above."""
    config = wasmtime.Config()
    config.consume_fuel = True
    config.epoch_interruption = True
    for name in OFF:
        setattr(config, name, False)
    for name, number in NUMBERS.items():
        setattr(config, name, number)
    return wasmtime.Engine(config)
