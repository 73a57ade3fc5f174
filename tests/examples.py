"""How many examples a test has by default; all of them in `make torture`."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

FEWEST = 20
IS_WHOLE = os.environ.get("EXAMPLES") == "all"


def examples(count: int) -> int:
    """Return `count` with EXAMPLES=all in the environment, otherwise a quarter of it."""
    if IS_WHOLE:
        return count
    return min(count, max(FEWEST, count // 4))


def one_of_three(rows: Iterable[Any]) -> list[Any]:
    """Parameters of a test: of rows that are alike and slow, two of three wait for the slow suites."""
    return [
        pytest.param(
            *(row if isinstance(row, tuple) else (row,)),
            marks=() if number % 3 == 0 else pytest.mark.slow,
        )
        for number, row in enumerate(rows)
    ]
