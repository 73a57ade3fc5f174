"""Who follows one response takes turns with those that follow the same one, and nobody else."""

import gc

from palyra.net.http.compat.sources import ResponseTurns


def test_one_lock_for_each_response() -> None:
    """As long as somebody holds it; then nothing is kept."""
    turns = ResponseTurns()
    first = turns.of("run_1")
    assert turns.of("run_1") is first
    assert turns.of("run_2") is not first
    del first
    gc.collect()
    assert not turns._locks
