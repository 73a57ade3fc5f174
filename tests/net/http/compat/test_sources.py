"""Requests that follow the same response take turns; others do not wait."""

import gc

from palyra.net.http.compat.sources import ResponseTurns


def test_one_lock_for_each_response() -> None:
    """The lock exists while a request holds it."""
    turns = ResponseTurns()
    first = turns.of("run_1")
    assert turns.of("run_1") is first
    assert turns.of("run_2") is not first
    del first
    gc.collect()
    assert not turns._locks
