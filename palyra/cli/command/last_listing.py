"""The ids that a terminal showed last, so that a person can name a row by its number.

One small file for the user, with the last listing of each kind for each terminal: a listing in
another terminal does not renumber this one's.  Without a terminal nothing is kept.
"""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

MAX_TERMINALS = 20  # whose listings are kept
STATE_VARIABLE = "XDG_STATE_HOME"
_ID = re.compile(r"([a-z]+)_[0-9a-f]{8}-[0-9a-f-]{27}")

# Terminal, then prefix of the ids.
Listings = dict[str, dict[str, list[str]]]


def remember_listing(ids: Sequence[str]) -> bool:
    """Keep the ids that this terminal is about to show as rows 1, 2, …, instead of the last listing.

    Returns False if the texts are not ids of one kind, the output is no terminal, or the state
    directory cannot be written: the rows then have no numbers.
    """
    prefixes = {match[1] if (match := _ID.fullmatch(each)) else "" for each in ids}
    terminal = _terminal()
    if terminal is None or len(prefixes) != 1 or "" in prefixes:
        return False
    path = _state_file()
    kept = _read(path)
    own = {**kept.pop(terminal, {}), prefixes.pop(): list(ids)}
    kept = dict([*kept.items(), (terminal, own)][-MAX_TERMINALS:])
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(kept))
        draft.replace(path)
    except OSError:
        return False
    return True


def last_listing(prefix: str) -> list[str]:
    """Return the ids with this prefix that this terminal showed last, by row; empty if none."""
    terminal = _terminal()
    return [] if terminal is None else _read(_state_file()).get(terminal, {}).get(prefix, [])


def _terminal() -> str | None:
    """Return the name of the terminal that shows the output; None if the output goes elsewhere."""
    with suppress(OSError, ValueError, AttributeError):  # a closed or replaced stream
        if sys.stdout.isatty():
            return os.ttyname(sys.stdout.fileno())
    return None


def _state_file() -> Path:
    folder = os.environ.get(STATE_VARIABLE) or Path.home() / ".local" / "state"
    return Path(folder) / "palyra" / "listings.json"


def _read(path: Path) -> Listings:
    """Return the listings; none for a missing or damaged file."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=Listings)
    return {}
