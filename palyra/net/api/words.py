"""Words that the daemon writes itself, which no secret may be a part of.

Derived from the structs that decode and encode the protocol: names of methods, notifications and
members, kinds of events, values of enumerations.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from msgspec.structs import asdict

from palyra.core.access import SCOPES
from palyra.core.incident import kinds
from palyra.errors import PalyraError
from palyra.net.api.methods.table import METHODS
from palyra.net.api.schema import MethodSchema, describe_protocol


@cache
def protocol_words() -> str:
    """Return the words, one a line."""
    protocol = describe_protocol(METHODS)
    words = {word for part in asdict(protocol).values() for word in _words(part)}
    scopes = {scope for held in SCOPES.values() for scope in held}
    incidents = {kind for kind in vars(kinds).values() if isinstance(kind, str) and kind.islower()}
    return "\n".join(sorted({*words, *SCOPES, *scopes, *incidents, *_codes(PalyraError)}))


def _codes(error: type[PalyraError]) -> Iterator[str]:
    yield error.code
    for derived in error.__subclasses__():
        yield from _codes(derived)


def _constants(value: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str):
            yield each


def _words(schema: Any) -> Iterator[str]:  # noqa: ANN401 - any JSON
    """Yield names and constants of a JSON schema, at any depth."""
    match schema:
        case dict():
            for name, value in schema.items():
                if name in {"enum", "const"}:
                    yield from _constants(value)
                elif name not in {"description", "title", "default", "pattern"}:
                    yield name
                    yield from _words(value)
        case list() | tuple():
            for item in schema:
                yield from _words(item)
        case MethodSchema():
            yield from _words([schema.params, schema.result])
        case _:
            pass
