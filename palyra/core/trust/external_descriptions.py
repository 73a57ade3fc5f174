"""What a stranger says of a tool, as far as a model may see it.

The description stands between fences.  A schema has no place for a fence, so its sentences go; the
names, patterns and choices that are left must not hide anything.  A tool whose words read like an
order, or hold a secret, is not taken at all.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from palyra.core.trust.fences import fence, make_nonce, neutralise
from palyra.core.trust.injection_scan import find_injections

RedactText = Callable[[str], tuple[str, bool]]  # the text without secrets; whether it had any


def fenced_words(tool: str, description: str) -> str:
    """The description of that tool between fences.

    Without a key, so that the catalogue is the same in every daemon: the nonce is a digest of the
    text, and nobody writes a text that holds its own digest.
    """
    nonce = make_nonce(b"", tool, description)
    return fence(description, nonce=nonce, trust="external_untrusted", source=tool)


def without_words(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without the stranger's sentences, which no fence can stand round."""
    kept = {key: value for key, value in schema.items() if key != "description"}
    if "properties" in kept:
        kept["properties"] = {
            name: without_words(inner) for name, inner in kept["properties"].items()
        }
    if "items" in kept:
        kept["items"] = without_words(kept["items"])
    return kept


def find_order(description: str, schema: Mapping[str, Any]) -> str:
    """Why these words are not taken, if they read like an order to the model; or "".

    The sentences of the schema are read too: they go, but they say what the tool is for.
    """
    told = msgspec.json.encode(schema, order="sorted").decode()
    found = (*find_injections(description), *find_injections(told))
    return f"its description reads like an instruction ({found[0].kind})" if found else ""


def find_secret(name: str, description: str, schema: Mapping[str, Any], redact: RedactText) -> str:
    """Why these words are not taken, if they hold a secret, ours for example; or ""."""
    told = msgspec.json.encode(schema, order="sorted").decode()
    is_secret = any(redact(text)[1] for text in (name, description, told))
    return "its words hold something that looks like a secret" if is_secret else ""


def find_disguise(schema: Mapping[str, Any]) -> str:
    """Why the schema is not shown, if what is left of it hides something; or ""."""
    shown = msgspec.json.encode(schema).decode()
    if neutralise(shown) == shown:
        return ""
    return "its schema holds characters that hide, or something like a fence"
