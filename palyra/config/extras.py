"""Parts of Palyra that are installed only where they are wanted: `pip install 'palyra[NAME]'`.

Each is the native code of one feature.  A daemon without it works, lacks the feature, and says so
where it is asked for, in the problems of `system.status` and in `palyra doctor`.
"""

from importlib.util import find_spec
from typing import Final

import msgspec


class Extra(msgspec.Struct, frozen=True):
    """One part: its modules, and the feature that is missing without them."""

    modules: tuple[str, ...]
    feature: str


EXTRAS: Final = {
    "vectors": Extra(("faiss", "numpy"), "memory is searched by words alone, conversations not"),
    "wasm": Extra(("wasmtime",), "skills cannot be built or called"),
    "mcp": Extra(("mcp",), "no MCP server is started"),
    "keyring": Extra(("keyring",), "no secret is read from the keyring"),
}


def find_missing(name: str) -> str:
    """Return what is not installed and how to install it, on one line; "" if nothing is missing.

    Imports nothing.
    """
    missing = [module for module in EXTRAS[name].modules if find_spec(module) is None]
    if not missing:
        return ""
    return f"not installed: {', '.join(missing)}: pip install 'palyra[{name}]'"
