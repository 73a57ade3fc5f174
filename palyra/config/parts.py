"""Parts of Palyra that are installed by choice: an extra of the package, and what is missing without it.

A part is a feature whose packages are large.  The daemon runs without any of them; whatever asks
for a missing one gets `find_missing` as its message.
"""

from functools import cache
from importlib.util import find_spec
from typing import Literal, NamedTuple

Extra = Literal["vectors", "wasm"]


class Part(NamedTuple):
    """An extra of the package, the modules that it installs, and what the daemon does without."""

    extra: Extra
    modules: tuple[str, ...]
    without: str


PARTS = (
    Part("vectors", ("numpy", "faiss"), "the memory is searched by words alone"),
    Part("wasm", ("wasmtime",), "skills cannot be called"),
)


def find_missing(extra: Extra) -> str:
    """Return what is not installed of a part, with the command that installs it; "" for nothing."""
    missing = _missing_modules(extra)
    if not missing:
        return ""
    are = "are" if len(missing) > 1 else "is"
    return f"{' and '.join(missing)} {are} not installed: pip install 'palyra[{extra}]'"


def list_installed() -> tuple[Extra, ...]:
    """Return the extras whose modules are all installed."""
    return tuple(part.extra for part in PARTS if not _missing_modules(part.extra))


def list_absent() -> tuple[str, ...]:
    """Return a sentence for each missing part: what is not installed, and what is lost."""
    return tuple(
        f"{find_missing(part.extra)} (without it {part.without})"
        for part in PARTS
        if _missing_modules(part.extra)
    )


@cache  # a package that is installed later is found by the next process
def _missing_modules(extra: Extra) -> tuple[str, ...]:
    part = next(part for part in PARTS if part.extra == extra)
    return tuple(module for module in part.modules if not _is_importable(module))


def _is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
