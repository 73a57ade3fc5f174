"""Texts of validation errors."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from palyra.core.text.validation_errors import WORDS, explain, show
from tests.rows import every_row

Window = Literal["run"]
Short = Annotated[str, msgspec.Meta(max_length=3, pattern="^[a-z]+$", extra={WORDS: "a to z"})]


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Circle(msgspec.Struct, tag="circle"):
    radius: int


class Square(msgspec.Struct, tag="square"):
    side: int


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    mode: Literal["ask", "deny"] = "ask"
    by: Window | Literal["day"] | None = None
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    name: Short = "abc"
    key: Annotated[str, msgspec.Meta(min_length=1)] = "k"
    states: tuple[Literal["done", "failed"], ...] = ()
    few: Annotated[tuple[int, ...], msgspec.Meta(max_length=1)] = ()
    inner: Inner | None = None
    limits: dict[str, Annotated[int, msgspec.Meta(le=9)]] = {}
    is_on: bool = False
    wrapped: Annotated[Inner, msgspec.Meta(description="said about it")] | None = None
    either: Circle | Square | None = None
    pair: tuple[Inner, int] | None = None


@every_row(
    ("given", "message"),
    [
        ({"mode": "auto"}, 'mode: expected "ask" or "deny", got "auto"'),
        ({"by": "week"}, 'by: expected "run" or "day", got "week"'),
        ({"share": 2}, "share: expected a number from 0 to 1, got 2"),
        ({"name": "A"}, 'name: expected a text of at most 3 characters: a to z, got "A"'),
        (
            {"name": "a" * 97},
            'name: expected a text of at most 3 characters: a to z, got 97 characters: "%s\\u2026"'
            % ("a" * 96),
        ),
        ({"key": ""}, 'key: expected a text of at least 1 character, got ""'),
        ({"states": ["done", "x"]}, 'states[1]: expected "done" or "failed", got "x"'),
        ({"few": [1, 2]}, "few: expected a list of at most 1 member, got 2 members"),
        ({"inner": {"size": 0}}, "inner.size: expected a whole number of at least 1, got 0"),
        ({"inner": 3}, "inner: expected an object, got 3"),
        ({"limits": {"a": 10}}, "limits[...]: expected a whole number of at most 9"),
        ({"is_on": "yes"}, 'is_on: expected true or false, got "yes"'),
        ({"key": "é" * 97, "mode": 5}, 'mode: expected "ask" or "deny", got 5'),
        ({"mode": {}}, 'mode: expected "ask" or "deny", got an object'),
        ({"wrapped": {"size": 0}}, "wrapped.size: expected a whole number of at least 1, got 0"),
        ([], "expected an object, got 0 members"),
        (
            {"either": {"type": "square", "side": "a"}},
            'either.side: expected a whole number, got "a"',
        ),
        ({"pair": ["a", 1]}, "pair[0]: expected `object`, got `str`"),
        ({"pair": [{"size": 0}, 1]}, "pair[0].size: expected `int` >= 1"),
    ],
)
def test_where_what_and_what_came(given: Any, message: str) -> None:
    """The path, what is allowed there in words, and the value that came."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Outer)
    assert message == explain(caught.value, Outer, given).message


def test_a_list_is_shown_by_its_kind() -> None:
    """The error shows the kind of a list, not its content."""
    assert "an array" == show(["s3cret"])


def test_secrets_are_not_repeated() -> None:
    """The error of a field with a secret names only the expected type."""
    given = {"mode": "s3cret"}
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Outer)
    fault = explain(caught.value, Outer, given, frozenset({"mode"}))
    assert 'mode: expected "ask" or "deny"' == fault.message


@every_row(
    ("given", "field", "message"),
    [
        ({"inner": {"x": 1}}, "inner.x", 'unknown field "inner.x"'),
        ({"x": 1}, "x", 'unknown field "x"'),
        ({"either": {"type": "square"}}, "either.side", 'missing field "either.side"'),
    ],
)
def test_a_field_too_many_or_too_few_is_named(given: Any, field: str, message: str) -> None:
    """The path leads to the field itself, not to the object around it."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Outer)
    assert (field, message) == explain(caught.value, Outer, given)
