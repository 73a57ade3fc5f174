"""Explain where and why a value does not fit its JSON Schema, so that a model can repair it.

The search descends from the schema and the whole value to the innermost subschema that refuses its
part.  It asks each subschema only whether the part fits, and lets the library explain the broken
rule at the end.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import msgspec

from palyra.core.redaction.key_names import names_secret
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.json_schema import (
    DEFINITIONS,
    LISTS,
    OF_NAMES,
    SINGLES,
    CompiledSchema,
    Json,
    compiled,
    pointer_of,
)
from palyra.core.text.visible import visible

_SHOWN_CHARS, _PLACE_CHARS, _REASON_CHARS = 80, 200, 200
_APPLIED = frozenset(
    {*OF_NAMES, *LISTS, *SINGLES, *DEFINITIONS, "$ref", "$anchor", "minContains", "maxContains"}
)


Path = tuple[str | int, ...]


def find_mismatch(schema: Json, value: object, name: str = "the answer") -> str | None:
    """Describe where and why the value, called `name`, does not fit; None if it fits.

    The description includes the value found there.  The schema must have passed `check_schema`.
    """
    ready = compiled(schema)
    if ready.is_too_much(value):
        return f"{name}: too many values, or nested too deeply, to be checked against the schema"
    if ready.fits("", value):
        return None
    path, found, reason = _Explainer(ready).explain(value)
    return f"{_place(name, path)}: {reason} (got {_shown(found, path)})"


class _Explainer:
    """Search for the broken rule of one schema in one value."""

    def __init__(self, schema: CompiledSchema) -> None:
        self._schema = schema

    def explain(self, value: Any) -> tuple[Path, object, str]:  # noqa: ANN401 - any JSON
        """Return path, value and reason of the mismatch in a value that does not fit."""
        pointer: str = ""
        schema: Any = self._schema.schema
        path: Path = ()
        seen = set()
        while (pointer, path) not in seen:  # a schema may refer to itself
            seen.add((pointer, path))
            refused = next(
                (each for each in self._applied(pointer, schema, value) if self._refuses(each)),
                None,
            )
            if refused is None:
                break
            pointer, schema, value = refused.pointer, refused.schema, refused.value
            path = (*path, *refused.step)
        return path, value, self._reason(pointer, schema, value)

    def _refuses(self, part: "_Part") -> bool:
        return not self._schema.fits(part.pointer, part.value)

    def _applied(self, pointer: str, schema: Any, value: Any) -> "Iterator[_Part]":  # noqa: ANN401 - any JSON
        """Yield the subschemas that the value or its parts must fit for the schema to accept it."""
        if not isinstance(schema, dict):
            return
        yield from self._of_members(pointer, schema, value if isinstance(value, dict) else {})
        yield from _of_items(pointer, schema, value if isinstance(value, list) else [])
        in_place: list[tuple[str, ...]] = [
            ("allOf", str(index)) for index in range(len(schema.get("allOf", ())))
        ]
        if "if" in schema:
            in_place.append(("then",) if self._schema.fits(f"{pointer}/if", value) else ("else",))
        for place in in_place:
            if place[0] in schema:
                yield _Part.inside(pointer, schema, place, value)
        if "$ref" in schema:
            yield _Part(*self._schema.target(schema["$ref"]), value)
        for word in ("anyOf", "oneOf"):
            yield from self._meant(pointer, schema, word, value)

    def _of_members(self, pointer: str, schema: Json, value: Json) -> "Iterator[_Part]":
        patterns = schema.get("patternProperties", {})
        for name, item in value.items():
            places: list[tuple[str, ...]] = []
            if name in schema.get("properties", {}):
                places.append(("properties", name))
            places += [("patternProperties", p) for p in patterns if self._schema.matches(p, name)]
            if not places and "additionalProperties" in schema:
                places = [("additionalProperties",)]
            for place in places:
                yield _Part.inside(pointer, schema, place, item, name)
            if "propertyNames" in schema:
                yield _Part.inside(pointer, schema, ("propertyNames",), name)
            if name in schema.get("dependentSchemas", {}):
                yield _Part.inside(pointer, schema, ("dependentSchemas", name), value)

    def _meant(self, pointer: str, schema: Json, word: str, value: object) -> "Iterator[_Part]":
        """Yield the alternative that the value resembles, if it fits none and resembles one."""
        parts = [
            _Part.inside(pointer, schema, (word, str(index)), value)
            for index in range(len(schema.get(word, ())))
        ]
        if all(map(self._refuses, parts)):
            meant = [part for part in parts if self._is_meant(part)]
            yield from meant[:1] if len(meant) == 1 else ()

    def _is_meant(self, part: "_Part") -> bool:
        """True if the value has the alternative's type, and its members the required constants."""
        schema = part.schema
        if isinstance(schema, dict) and "$ref" in schema:
            _, schema = self._schema.target(schema["$ref"])
        if not isinstance(schema, dict):
            return False
        constants = {
            name: {word: rule for word, rule in inner.items() if word in {"const", "enum"}}
            for name, inner in schema.get("properties", {}).items()
            if isinstance(inner, dict)
        }
        shallow = {word: schema[word] for word in ("type", "const", "enum") if word in schema}
        return self._schema.validator({**shallow, "properties": constants}).is_valid(part.value)

    def _reason(self, pointer: str, schema: Any, value: Any) -> str:  # noqa: ANN401 - any JSON
        """Return the reason why the value does not fit although its parts fit their subschemas."""
        if not isinstance(schema, dict):
            return "it is not allowed here"
        own = {word: rule for word, rule in schema.items() if word not in _APPLIED}
        if error := next(iter(self._schema.validator(own).iter_errors(value)), None):
            return truncate_safely(visible(error.message), _REASON_CHARS)
        for word in ("anyOf", "oneOf"):
            options = range(len(schema.get(word, ())))
            fitting = sum(
                self._schema.fits(f"{pointer}/{word}/{index}", value) for index in options
            )
            if options and (not fitting or (word == "oneOf" and fitting > 1)):
                return f"it fits {fitting or 'none'} of the {len(options)} forms of {word}"
        if "not" in schema and self._schema.fits(f"{pointer}/not", value):
            return "it fits what `not` excludes"
        if "contains" in schema and isinstance(value, list):
            least, most = schema.get("minContains", 1), schema.get("maxContains", len(value))
            fitting = sum(self._schema.fits(f"{pointer}/contains", item) for item in value)
            if not least <= fitting <= most:
                return f"{fitting} of its items fit `contains`, {least} to {most} must"
        return "it holds what no rule allows (unevaluatedProperties or unevaluatedItems)"


class _Part(NamedTuple):
    """A subschema with the value that must fit it."""

    pointer: str
    schema: Any
    value: Any
    step: Path = ()  # path from the value of the parent schema

    @classmethod
    def inside(
        cls, pointer: str, schema: Json, place: tuple[str, ...], value: object, *step: str | int
    ) -> Self:
        """Return the part for the subschema at `place` of another one."""
        found: Any = schema
        for part in place:
            found = found[int(part)] if isinstance(found, list) else found[part]
        return cls(pointer + pointer_of(place), found, value, step)


def _of_items(pointer: str, schema: Json, value: list[Any]) -> Iterator[_Part]:
    first = len(schema.get("prefixItems", ()))
    for index, item in enumerate(value):
        place = ("prefixItems", str(index)) if index < first else ("items",)
        if place[0] in schema:
            yield _Part.inside(pointer, schema, place, item, index)


def _place(name: str, path: Path) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return visible(truncate_safely(name + "".join(steps), _PLACE_CHARS))


def _shown(value: object, path: Path) -> str:
    """Render the value, truncated; a possible secret is shown only by its type."""
    if any(names_secret(step) for step in path if isinstance(step, str)):
        return "a value that is not shown"
    return visible(truncate_safely(msgspec.json.encode(value).decode(), _SHOWN_CHARS))
