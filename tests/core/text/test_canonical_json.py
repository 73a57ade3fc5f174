"""Canonical JSON: the RFC's bytes, by whichever way."""

from typing import Any, cast

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.core.text.canonical_json import (
    MAX_DEPTH,
    MAX_SAFE_INTEGER,
    NotCanonical,
    canonical_json,
    digest_of,
    digest_of_any,
    sha256_hex,
)
from tests.rows import every_row

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-MAX_SAFE_INTEGER, MAX_SAFE_INTEGER)
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
ANYTHING = st.recursive(
    SCALARS | st.floats() | st.integers() | st.binary() | st.characters(categories=["Cs"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters()) | st.integers(), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=8,
)
NESTED: Any = []
for _ in range(3000):
    NESTED = [NESTED]


@settings(derandomize=True, max_examples=300)
@given(VALUES)
def test_bytes_are_those_of_the_reference(value: object) -> None:
    """Every JSON value is written as the reference implementation writes it."""
    assert rfc8785.dumps(cast("Any", value)) == canonical_json(value)


def test_example_of_the_rfc() -> None:
    """The example of RFC 8785 section 3.2.2 comes out as printed there."""
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    expected = (
        '{"literals":[null,true,false],'
        '"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert expected.encode() == canonical_json(value)


def test_keys_sort_by_utf16() -> None:
    """Keys outside ASCII sort by UTF-16 code units, as in RFC 8785 section 3.2.3."""
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    expected = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    written = canonical_json(dict.fromkeys(keys, 0)).decode()
    assert expected == sorted(keys, key=written.replace("\\r", "\r").index)


@every_row(
    "value",
    [
        float("nan"), float("inf"), MAX_SAFE_INTEGER + 1, -MAX_SAFE_INTEGER - 1, 10**5000,
        "\ud800", {"\ud800": 1}, {"a": "\udfff"}, b"bytes", {1: 2}, {"a": {3}}, NESTED,
    ],
)  # fmt: skip
def test_a_value_without_a_canonical_form_is_refused(value: object) -> None:
    """A value that JSON cannot express exactly is a typed error."""
    with pytest.raises(NotCanonical):
        canonical_json(value)


@settings(derandomize=True, max_examples=300)
@given(ANYTHING)
def test_every_value_has_a_digest(value: object) -> None:
    """A proposal can be attested whatever it holds; a proper one by its canonical digest."""
    try:
        expected = digest_of(value)
    except NotCanonical:
        expected = None
    found = digest_of_any(value)
    assert (expected or found, 64) == (found, len(found))


@every_row(
    "value",
    [10**5000, NESTED, {"a": "\ud800"}, (float("nan"), [])],
)
def test_malformed_values_keep_their_own_digest(value: object) -> None:
    """The digest of a malformed value differs from that of its neighbour."""
    assert digest_of_any(value) != digest_of_any([value])


def test_digest_is_over_the_canonical_text() -> None:
    """Equal values have equal digests, in whatever order they were written."""
    assert sha256_hex(b'{"a":1,"b":2}') == digest_of({"b": 2, "a": 1})


def nest(levels: int, leaf: object) -> object:
    value = leaf
    for _ in range(levels):
        value = [value]
    return value


@every_row("leaf", [1, 1.5, "é", {}])
def test_nesting_is_limited_by_a_number_and_not_by_the_interpreter(leaf: object) -> None:
    """A value at the limit has canonical JSON, one level more has none, on every Python."""
    deepest = MAX_DEPTH - isinstance(leaf, dict)
    assert canonical_json(nest(deepest, leaf)).startswith(b"[" * deepest)
    with pytest.raises(NotCanonical):
        canonical_json(nest(deepest + 1, leaf))
