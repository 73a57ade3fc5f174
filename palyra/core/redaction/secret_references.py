"""References to secrets: what a configuration holds in place of a secret.

env:NAME               a variable of the daemon's environment
file:PATH              the content of a file that others may not read
keyring:SERVICE/NAME   an entry of the system's keyring (extra `palyra[keyring]`)
vault:NAME             an entry of the daemon's own vault (`palyra secrets set NAME`)
"""

import re
from typing import Literal, cast

import msgspec

from palyra.errors import InvalidParams

Kind = Literal["env", "file", "keyring", "vault"]
_REFERENCE = re.compile(r"(env|file|keyring|vault):(.+)", re.DOTALL)
_NAMES = {
    "env": re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}"),
    "file": re.compile(r"[^\x00-\x1f\x7f]{1,4096}"),
    "keyring": re.compile(r"[^\x00-\x1f\x7f/]{1,128}/[^\x00-\x1f\x7f]{1,128}"),
    "vault": re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"),
}


class SecretReference(msgspec.Struct, frozen=True):
    """The location of a secret."""

    kind: Kind
    name: str

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.kind}:{self.name}"


def is_reference(text: str) -> bool:
    """Return True if the text has the form of a reference instead of a secret."""
    return _REFERENCE.fullmatch(text) is not None


def parse_reference(text: str) -> SecretReference:
    """The reference.  Raises InvalidParams, without the text: it may be the secret itself."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise InvalidParams(
            "a secret is named by a reference: env:NAME, file:PATH, keyring:SERVICE/NAME or "
            "vault:NAME"
        )
    kind, name = found.groups(default="")
    if not _NAMES[kind].fullmatch(name):
        raise InvalidParams(f"this is no {kind} reference: {_EXPECTED[kind]}")
    return SecretReference(cast("Kind", kind), name)


_EXPECTED = {
    "env": "expected the name of a variable",
    "file": "expected a path",
    "keyring": "expected a service and a name, as in keyring:palyra/github",
    "vault": "a name has 1 to 64 letters, digits, dots, - and _",
}
