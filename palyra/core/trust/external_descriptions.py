"""Untrusted tool descriptions, made safe to show to a model.

The description is fenced.  A schema has no place for a fence, so its sentences are removed; the
remaining names, patterns and choices must not hide text.  A tool is refused if its texts look like
an instruction to the model or contain a secret.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from palyra.core.text.json_schema import RULES, rewrite
from palyra.core.trust.fences import fence, make_nonce, neutralise
from palyra.core.trust.injection_scan import find_injections

RedactText = Callable[[str], tuple[str, bool]]  # redacted text; whether it had a secret


def fenced_words(tool: str, description: str) -> str:
    """Return the tool's description between fences.

    The fence needs no key, so the catalogue is the same in every daemon.  The nonce is a digest of
    the text, and a text cannot contain its own digest.
    """
    nonce = make_nonce(b"", tool, description)
    return fence(description, nonce=nonce, trust="external_untrusted", source=tool)


def without_words(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without its sentences, because they cannot be fenced."""
    kept: dict[str, Any] = rewrite(
        schema, lambda each: {word: rule for word, rule in each.items() if word != "description"}
    )
    return kept


def only_rules(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without annotations and unknown keywords, which do not constrain values.

    `format` is an annotation too unless a validator chooses to assert it, and servers use it loosely.
    """
    rules = RULES - {"format"}
    kept: dict[str, Any] = rewrite(
        schema, lambda each: {word: rule for word, rule in each.items() if word in rules}
    )
    return kept


def find_order(description: str, schema: Mapping[str, Any]) -> str:
    """Explain why these texts are refused if they look like an instruction to the model; or "".

    The sentences of the schema are checked too.  The model does not see them, but they describe the
    tool.
    """
    encoded = msgspec.json.encode(schema, order="sorted").decode()
    found = (*find_injections(description), *find_injections(encoded))
    return f"its description reads like an instruction ({found[0].kind})" if found else ""


def find_secret(name: str, description: str, schema: Mapping[str, Any], redact: RedactText) -> str:
    """Explain why these texts are refused if they contain a secret, of the daemon too; or ""."""
    encoded = msgspec.json.encode(schema, order="sorted").decode()
    is_secret = any(redact(text)[1] for text in (name, description, encoded))
    return "its words hold something that looks like a secret" if is_secret else ""


def find_disguise(schema: Mapping[str, Any]) -> str:
    """Explain why the schema is refused if its remaining parts hide text; or ""."""
    shown = msgspec.json.encode(schema).decode()
    if neutralise(shown) == shown:
        return ""
    return "its schema holds characters that hide, or something like a fence"


def find_hidden(description: str) -> str:
    """Explain why a description is refused if a part of it is invisible to a person; or ""."""
    if neutralise(description) == description:
        return ""
    return "its description holds characters that hide, or something like a fence"
