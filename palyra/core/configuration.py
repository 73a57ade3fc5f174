"""Views of the configuration and of the vault: values with their sources, changes, names of secrets."""

from typing import Any, Literal

import msgspec

ConfigSource = Literal["default", "file", "environment", "command_line"]
ConfigEffect = Literal["now", "restart", "overridden"]


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One key; `next_value` is that of the next start, which differs after a change."""

    key: str  # section.key
    value: Any
    source: ConfigSource  # of `value`
    next_value: Any
    default: Any
    description: str
    is_live: bool  # a change takes effect without a restart


class ConfigView(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration in force, and the file as it is now."""

    entries: tuple[ConfigEntry, ...]
    config_file: str
    digest: str  # SHA-256 of the file, hexadecimal; "" if there is none
    problem: str = ""  # the error in the file, which the next start would report


class ConfigChange(msgspec.Struct, frozen=True, kw_only=True):
    """A new value of one key, JSON; None removes the key from the file, so that its default applies."""

    key: str
    value: Any
    digest: str | None = None  # of the file that the change was made for


class ConfigChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A written change."""

    key: str
    value: Any  # of the file now, or the default
    effect: ConfigEffect  # overridden: the environment or the command line has another value
    source: ConfigSource  # of the value that the next start uses
    digest: str
    config_file: str


class StoredSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A secret of the vault, without its value."""

    name: str  # the reference is vault:NAME
    set_ms: int
