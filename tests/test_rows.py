"""A test over a table runs every row and names those that fail."""

import inspect
from collections.abc import Callable

import pytest

from tests.rows import every_row


def test_every_row_runs_and_every_failure_is_reported() -> None:
    """A failed row does not hide those below it; each failure names its row."""
    seen: list[int] = []

    @every_row(("number", "square"), [(1, 1), (2, 5), (3, 9), (4, 15)])
    def check(number: int, square: int) -> None:
        seen.append(number)
        assert number**2 == square

    with pytest.RaisesGroup(AssertionError, AssertionError, match="2 of 4 rows failed") as raised:
        check()
    assert [1, 2, 3, 4] == seen
    notes = [failure.__notes__[-1] for failure in raised.value.exceptions]
    assert ["with {'number': 2, 'square': 5}", "with {'number': 4, 'square': 15}"] == notes


def crash() -> None:
    raise KeyError("missing")


@pytest.mark.parametrize(("end", "kind"), [(pytest.fail, pytest.fail.Exception), (crash, KeyError)])
def test_any_kind_of_failure_counts(end: Callable[[], None], kind: type[BaseException]) -> None:
    """`pytest.fail` and an unexpected error fail the row as an assertion does."""

    @every_row("number", [1])
    def check(number: int) -> None:
        assert number
        end()

    with pytest.RaisesGroup(kind, match="1 of 1 rows failed"):
        check()


def test_an_interrupt_is_no_failed_row() -> None:
    """Ctrl-C stops the table at once."""

    @every_row("number", [1, 2])
    def check(number: int) -> None:
        assert number == 1
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check()


def test_an_empty_table_fails() -> None:
    """A table that lost its rows does not pass unseen."""

    @every_row("number", [])
    def check(number: int) -> None:
        assert number

    with pytest.raises(AssertionError, match="a table without rows"):
        check()


def test_stacked_tables_run_every_combination() -> None:
    """Other parameters remain for pytest, or for the next table."""
    seen: list[tuple[str, int, object]] = []

    @every_row("letter", ["a", "b"])
    @every_row("number", [1, 2])
    def check(letter: str, number: int, fixture: object) -> None:
        seen.append((letter, number, fixture))

    assert ["fixture"] == list(inspect.signature(check).parameters)
    check(fixture=None)
    assert [("a", 1, None), ("a", 2, None), ("b", 1, None), ("b", 2, None)] == seen


def test_a_column_without_a_parameter_is_refused() -> None:
    """A misspelt column is an error when the table is read."""
    with pytest.raises(AssertionError, match="no parameters"):

        @every_row("nmber", [1])
        def check(number: int) -> None:
            assert number
