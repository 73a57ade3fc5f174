"""Numbers of examples of property tests: a quarter by default, all of them in `make torture`."""

import os

FEWEST = 20


def examples(count: int) -> int:
    """Return `count` with EXAMPLES=all in the environment, otherwise a quarter of it."""
    if os.environ.get("EXAMPLES") == "all":
        return count
    return min(count, max(FEWEST, count // 4))
