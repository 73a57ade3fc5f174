"""Outcomes: the comparison of an answer with the expected one."""

from typing import Any

from palyra.harness.cases import Expectation
from palyra.harness.outcome import find_missed
from tests.rows import every_row


def expect(**given: Any) -> Expectation:
    return Expectation(**given)


@every_row(
    ("expected", "answer", "reason", "missed"),
    [
        (expect(contains="b"), "abc", "answered", ()),
        (expect(contains="x"), "abc", "answered", ("contains",)),
        (expect(contains=""), None, "cancelled", ("contains",)),
        (expect(equals="abc"), "abc", "answered", ()),
        (expect(equals="abc"), "abc ", "answered", ("equals",)),
        (expect(equals="abc"), None, None, ("equals",)),
        (expect(json={"a": [1, 2.0]}), ' {"a":[1.0,2]} ', "answered", ()),
        (expect(json=1), "true", "answered", ("json",)),
        (expect(json=None), "null", "answered", ()),
        (expect(json=None), None, "answered", ("json",)),
        (expect(json={}), "{", "answered", ("json",)),
        (expect(json=1), "1e999", "answered", ("json",)),
        (expect(reason="cancelled"), None, "cancelled", ()),
        (expect(reason="answered"), "abc", "partial", ("reason",)),
        (expect(contains="x", reason="y"), "abc", "z", ("contains", "reason")),
    ],
)
def test_missed_expectations_are_named(
    expected: Expectation, answer: str | None, reason: str | None, missed: tuple[str, ...]
) -> None:
    """Exactly the expectations that do not hold are named; without an answer none about it does."""
    assert missed == find_missed(expected, answer, reason)
