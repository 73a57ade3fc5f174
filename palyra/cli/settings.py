"""The configuration as a command sees it: loaded, or a usage error with the remedy."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from palyra.cli.exits import USAGE, Stop
from palyra.config import Config, load
from palyra.errors import InvalidParams


def load_config(
    home: Path | None, file: Path | None, overrides: Mapping[str, Any] | None = None
) -> Config:
    """The configuration, with what the command line says on top; None there says nothing."""
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    try:
        return load(file, home=home, overrides=given)
    except InvalidParams as error:
        remedy = "`palyra config schema` says what is allowed"
        if error.field is None:  # it is about the file, not about what stands in it
            remedy = "mend the file, or name another one with --config"
        raise Stop(error.message, remedy, code=USAGE, kind=error.code, field=error.field) from None
