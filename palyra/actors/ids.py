"""Fresh ids: the one place where the daemon makes a UUIDv7."""

from uuid_utils import uuid7

from palyra.core.ids import Prefix


def new_id(prefix: Prefix) -> str:
    """`run_018f…`: sorts by creation time."""
    return f"{prefix}_{uuid7()}"
