"""One test for all rows of a table, instead of a test for each.

`every_row` is used like `pytest.mark.parametrize` and does the same checks.  A test of its own costs
some milliseconds on its way through pytest and its workers, which for a row of microseconds is nearly
everything.  Rows with fixtures, tasks, processes or a mark remain tests of their own.
"""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

FAILURES = (Exception, pytest.fail.Exception)  # the latter is no Exception


def every_row(
    names: str | tuple[str, ...], rows: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run the test once for each row and report every row that fails.

    Each failure in the group has a note with its row.  A table without rows fails.  Stacked, the
    decorators run every combination, like those of pytest.
    """
    columns = tuple(names.replace(",", " ").split()) if isinstance(names, str) else names
    table = [row if len(columns) > 1 else (row,) for row in rows]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def check(**others: Any) -> None:
            assert table, "a table without rows"
            failures: list[BaseException] = []
            for row in table:
                values = dict(zip(columns, row, strict=True))
                try:
                    test(**others, **values)
                except FAILURES as failure:
                    failure.add_note(f"with {values!r}")
                    failures.append(failure)
            if failures:
                message = f"{len(failures)} of {len(table)} rows failed"
                raise BaseExceptionGroup(message, failures)

        signature = inspect.signature(test)
        missing = set(columns) - signature.parameters.keys()
        assert not missing, f"{test.__name__} has no parameters {sorted(missing)}"
        others = [one for name, one in signature.parameters.items() if name not in columns]
        check.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return check

    return decorate
