"""Text of an option, as it stands or read from a file; and files that a command writes."""

import os
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE

from palyra.cli.exits import Stop


def read_text(value: str) -> str:
    """The text, or with `@FILE` what the file holds.  Raises Stop for a file that cannot be read."""
    if not value.startswith("@"):
        return value
    try:
        return Path(value[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Stop(f"{value[1:]}: {error}", "name a readable file of UTF-8 text") from None


def replace_file(path: Path, content: bytes) -> None:
    """Make that the file's content, at once: what was there stays until all of it is written.

    It keeps its permissions.  A device or a pipe is written to as it is.  Raises Stop.
    """
    target = path.resolve()  # of a link the file that it leads to is replaced
    is_other = target.exists() and not target.is_file()
    try:
        target.write_bytes(content) if is_other else _replace(target, content)
    except OSError as error:
        raise Stop(f"{path}: {error.strerror}", "name a file that can be written") from None


def _replace(target: Path, content: bytes) -> None:
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("xb") as file:
            if target.exists():
                draft.chmod(S_IMODE(target.stat().st_mode))
            file.write(content)
            file.flush()
            with suppress(OSError):  # a file system that cannot
                os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
