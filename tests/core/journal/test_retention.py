"""Limits of retention: which configuration has a bound."""

import msgspec
import pytest

from palyra.core.journal.retention import RetentionLimits


@pytest.mark.parametrize("name", RetentionLimits.__struct_fields__)
def test_each_bound_alone_sets_retention(name: str) -> None:
    """Limits without a bound are not set, and any single one sets them."""
    none = RetentionLimits()
    assert not none.are_set
    assert msgspec.structs.replace(none, **{name: 1}).are_set
