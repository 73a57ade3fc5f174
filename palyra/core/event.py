"""The base of all events; the kinds are in `core.events`."""

from typing import ClassVar

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all events."""

    KIND: ClassVar[str]
    HAS_FOREIGN_TEXT: ClassVar[bool] = True  # False: ids, numbers and the daemon's words only
