"""Limits of retention: which configuration has a bound."""

import msgspec

from palyra.core.journal.retention import RetentionLimits
from tests.rows import every_row


@every_row("name", RetentionLimits.__struct_fields__)
def test_each_bound_alone_sets_retention(name: str) -> None:
    """Limits without a bound are not set, and any single one sets them."""
    none = RetentionLimits()
    assert not none.are_set
    assert msgspec.structs.replace(none, **{name: 1}).are_set
