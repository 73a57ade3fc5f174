"""Text of an option: as it stands, or read from a file."""

from pathlib import Path

from palyra.cli.exits import Stop


def read_text(value: str) -> str:
    """The text, or with `@FILE` what the file holds.  Raises Stop for a file that cannot be read."""
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(f"{value[1:]}: {error}", "name a readable file of UTF-8 text") from None
