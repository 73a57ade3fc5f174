"""Way back from damage that ends a daemon: the newest good backup of its home."""

from contextlib import suppress
from pathlib import Path

import apsw
import msgspec

from palyra.errors import PalyraError

_DAMAGE = (apsw.Error, msgspec.MsgspecError, UnicodeError)
_OTHERS = (apsw.BusyError, apsw.FullError, apsw.NoMemError)  # errors of the storage that are none


def is_damage(error: BaseException, data_dir: Path) -> bool:
    """Return True if a cause of the error is damaged data, or a file of the home that fails."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _DAMAGE) and not isinstance(cause, _OTHERS):
            return True
        if isinstance(cause, OSError) and f"{cause.filename}".startswith(f"{data_dir}/"):
            return True
        cause = cause.__cause__
    return False


def find_way_back(data_dir: Path) -> str | None:
    """Return the newest backup that is good, None if there is none.  Blocks: it is read whole."""
    from palyra.store.backup.home import read_trusted  # noqa: PLC0415 - a heavy import, for a damaged home
    from palyra.store.backup.inspection import find_good_backup  # noqa: PLC0415 - as above

    trusted: tuple[bytes, ...] = ()
    with suppress(OSError, PalyraError):
        trusted = read_trusted(data_dir)
    with suppress(OSError, PalyraError, *_DAMAGE):
        found = find_good_backup(data_dir, trusted)
        return None if found is None else found.path
    return None
