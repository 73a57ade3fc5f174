"""Vectors in 8 bits a component."""

import math
import sys

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.memory.vectors import StoredVector, quantise
from tests.rows import every_row


def floats(vector: StoredVector) -> list[float]:
    return [vector.scale * (byte - 256 if byte > 127 else byte) for byte in vector.values]


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=50))
def test_each_component_is_within_half_a_step(vector: list[float]) -> None:
    """Storing changes a component by at most half of the scale."""
    stored = quantise(vector)
    assert len(vector) == stored.dimensions
    for wanted, found in zip(vector, floats(stored), strict=True):
        assert math.isclose(wanted, found, abs_tol=stored.scale / 2 + 1e-12)


def test_zeros_have_no_scale() -> None:
    """A vector of zeros is stored as zeros."""
    assert StoredVector(0.0, b"\0\0") == quantise([0.0, 0.0])
    assert StoredVector(0.0, b"") == quantise([])


@every_row("tiny", [5e-324, 190 * 5e-324, sys.float_info.min])
def test_nearly_zeros_are_zeros(tiny: float) -> None:
    """A component too small for a scale does not divide by zero, and does not change its sign."""
    assert StoredVector(0.0, b"\0\0") == quantise([tiny, -tiny])
