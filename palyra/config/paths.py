"""Where the configuration file and the data directory are.

Apart from the rest of the configuration, because a client looks for its daemon there.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import platformdirs

from palyra.errors import InvalidParams

HOME_VARIABLE = "PALYRA_HOME"
FILE_NAME = "palyra.toml"


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of the configuration file and the data directory; derived, not configured."""

    config_file: Path
    data_dir: Path

    @property
    def config_dir(self) -> Path:
        """Directory of the configuration file."""
        return self.config_file.parent

    @property
    def policies(self) -> Path:
        """Default directory of user policies."""
        return self.config_dir / "policies"


def find_paths(home: Path | None, environ: Mapping[str, str] = os.environ) -> Paths:
    """Return `home` or $PALYRA_HOME for both paths, else the platform's directories.

    Raises InvalidParams for an empty variable, which must not mean the current directory.
    """
    chosen = home or environ.get(HOME_VARIABLE)
    if chosen is not None:
        if not str(chosen).strip():
            raise InvalidParams(
                f"{HOME_VARIABLE} is empty: name a directory there, or unset it",
                field=HOME_VARIABLE,
            )
        directory = absolute(Path(chosen))
        return Paths(config_file=directory / FILE_NAME, data_dir=directory)
    return Paths(
        config_file=platformdirs.user_config_path("palyra") / FILE_NAME,
        data_dir=platformdirs.user_data_path("palyra"),
    )


def absolute(path: Path) -> Path:
    """Return the path with `~` and symbolic links resolved.  Raises InvalidParams on failure."""
    try:
        found = path.expanduser().resolve()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            found.stat()  # raises for a loop of links, which `resolve` accepts from Python 3.13 on
    except (OSError, RuntimeError) as error:  # a loop of links, or no such user
        raise InvalidParams(f"{path}: not a usable path: {error}") from None
    return found


# --- Loading -------------------------------------------------------------------------------------
