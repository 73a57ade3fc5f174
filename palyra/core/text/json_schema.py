"""JSON Schema 2020-12 from untrusted sources, checked against values at a bounded cost.

The verdict is that of the library jsonschema-rs.  A check cannot be interrupted, so its cost is
bounded beforehand.  A reference that takes part in a recursion is evaluated once per value, so a
check visits at most `paths * values` pairs, where `paths` counts the subschemas with every
reference expanded (a recursive one once).  Patterns use an engine that is linear in the text.  The
library's own explanation of a failure copies the value into every alternative, so `explain` descends
instead: from the schema and the whole value to the innermost subschema that refuses its part.  It
asks each subschema only whether the part fits, and lets the library explain the broken rule at the
end.

This is the only validator: structured answers (`find_mismatch`) and the arguments of tools
(`core.tool.arguments`) are checked by it.

Every schema is read as 2020-12, whatever `$schema` says.  `format` is asserted where the
specification defines the format, and is an annotation otherwise.  References must stay inside the
document.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import quote, unquote

import msgspec

from palyra.core.redaction.key_names import names_secret
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import visible
from palyra.errors import PalyraError

if TYPE_CHECKING:
    import jsonschema_rs


MAX_DEPTH = 64  # of a schema; the library's own limit is 255
MAX_PATHS = 10_000  # subschemas of a schema with its references expanded
MAX_WORK = 2_000_000  # (subschema, value) pairs of one check: about 0.1 s at worst
MAX_PATTERN_BYTES = 8_388_608  # of all compiled patterns of a schema together
MAX_VALUE_DEPTH = 200
_ONE_PATTERN_BYTES = 1_048_576
_CHARS_A_STEP = 8  # characters read by patterns and formats in the time of one pair
_URI = "urn:schema"
_URI_CHARS = "#%/?:@!$&'()*+,;=-._~"  # RFC 3986, except brackets, which no fragment contains
_SHOWN_CHARS, _PLACE_CHARS, _REASON_CHARS = 80, 200, 200

OF_NAMES = ("properties", "patternProperties", "dependentSchemas")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SINGLES = (
    "not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
DEFINITIONS = ("$defs", "definitions")
# The keywords of 2020-12 that can refuse a value.
RULES = frozenset(
    {
        *OF_NAMES, *LISTS, *SINGLES, *DEFINITIONS, "$ref", "$anchor", "type", "enum", "const",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength",
        "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "minContains", "maxContains",
        "minProperties", "maxProperties", "required", "dependentRequired", "format",
    }
)  # fmt: skip
ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated",
        "readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema",
    }
)  # fmt: skip
# Keywords that change the meaning of others, or of older drafts, which would not be enforced.
_REFUSED = frozenset(
    {"$dynamicRef", "$recursiveRef", "$vocabulary", "dependencies", "additionalItems"}
)
# Keywords through which a wider subschema can make the whole schema narrower.
_INVERTING = frozenset(
    {"not", "if", "oneOf", "maxContains", "unevaluatedItems", "unevaluatedProperties"}
)

Json = Mapping[str, Any]


class UnusableSchema(PalyraError):
    """The value is not a schema, or it cannot be checked at a bounded cost."""

    code = "unusable_schema"


def check_schema(schema: object) -> None:
    """Raise UnusableSchema unless values can be checked against the schema."""
    _compiled(_encoded(schema))


def find_mismatch(schema: Json, value: object, name: str = "the answer") -> str | None:
    """Describe where and why the value, called `name`, does not fit; None if it fits.

    The description includes the value found there.  The schema must have passed `check_schema`.
    """
    ready = _compiled(_encoded(schema))
    if ready.is_too_much(value):
        return f"{name}: too many values, or nested too deeply, to be checked against the schema"
    if ready.fits("", value):
        return None
    found = explain(ready, value)
    return f"{_place(name, found.path)}: {found.reason} (got {_shown(found.value, found.path)})"


def _encoded(schema: object) -> bytes:
    try:
        return msgspec.json.encode(schema)
    except (RecursionError, TypeError, ValueError):
        raise UnusableSchema("the schema is no JSON, or nested too deeply") from None


@lru_cache(maxsize=16)
def _compiled(encoded: bytes) -> "CompiledSchema":
    return CompiledSchema(msgspec.json.decode(encoded))


def rewrite(schema: Any, change: Callable[[Json], Json]) -> Any:  # noqa: ANN401 - any JSON
    """Return the schema with each of its subschemas changed, outer ones first."""
    if not isinstance(schema, Mapping):
        return schema
    changed = dict(change(schema))
    for word, rule in changed.items():
        if word in OF_NAMES or word in DEFINITIONS:
            changed[word] = {name: rewrite(inner, change) for name, inner in rule.items()}
        elif word in LISTS:
            changed[word] = [rewrite(inner, change) for inner in rule]
        elif word in SINGLES:
            changed[word] = rewrite(rule, change)
    return changed


# --- reading a schema ----------------------------------------------------------------------------


def _subschemas(schema: Json) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the subschemas applied together with the schema, with their places; not definitions."""
    for word in OF_NAMES:
        for name, inner in schema.get(word, {}).items():
            yield (word, name), inner
    for word in LISTS:
        for index, inner in enumerate(schema.get(word, ())):
            yield (word, str(index)), inner
    for word in SINGLES:
        if word in schema:
            yield (word,), schema[word]


def pointer_of(place: tuple[str, ...]) -> str:
    """Return the place as a JSON pointer, escaped as in the fragment of a URI."""
    escaped = (part.replace("~", "~0").replace("/", "~1") for part in place)
    return "".join(f"/{quote(part, safe='~')}" for part in escaped)


def all_subschemas(
    schema: Any,  # noqa: ANN401 - any JSON
    pointer: str = "",
    depth: int = 0,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema object with its pointer, including definitions.  Raises UnusableSchema."""
    if depth > MAX_DEPTH:
        raise UnusableSchema(f"schemas are nested deeper than {MAX_DEPTH}, at #{pointer}")
    if not isinstance(schema, dict):
        return
    yield pointer, schema
    defined = (
        ((word, name), inner)
        for word in DEFINITIONS
        for name, inner in schema.get(word, {}).items()
    )
    for place, inner in (*_subschemas(schema), *defined):
        yield from all_subschemas(inner, pointer + pointer_of(place), depth + 1)


def _without_patterns(part: Any, dropped: set[str]) -> Any:  # noqa: ANN401 - any JSON
    """Return the schema, or a part of one, without these patterns."""
    if isinstance(part, list):
        return [_without_patterns(item, dropped) for item in part]
    if not isinstance(part, dict):
        return part
    return {
        word: _without_patterns(rule, dropped)
        for word, rule in part.items()
        if not (word == "pattern" and isinstance(rule, str) and rule in dropped)
    }


class CompiledSchema:
    """A usable schema with its validators."""

    def __init__(
        self,
        schema: Any,  # noqa: ANN401 - any JSON
        prepare: Callable[[dict[str, Any]], dict[str, Any]] = lambda schema: schema,
    ) -> None:
        """Prepare the schema for checks.  `prepare` changes it once it is known to be well-formed.

        Raises UnusableSchema.
        """
        import jsonschema_rs  # noqa: PLC0415 - 15 MB of machine code, not for the command line

        self._library = jsonschema_rs
        if not isinstance(schema, dict):
            raise UnusableSchema("the schema is no JSON object")
        try:
            jsonschema_rs.meta.validate({k: v for k, v in schema.items() if k != "$schema"})
        except jsonschema_rs.ValidationError as error:
            place = "".join(f".{part}" for part in error.instance_path)
            said = truncate_safely(error.message, 200)
            raise UnusableSchema(f"the schema{place}: no JSON Schema: {said}") from None
        self.schema = {k: v for k, v in schema.items() if k not in {"$schema", "$id"}}
        self._prepare_words()
        self.schema = prepare(self.schema)
        self._drop_patterns_that_are_not_linear()
        every = list(all_subschemas(self.schema))
        self._anchors = {each["$anchor"]: pointer for pointer, each in every if "$anchor" in each}
        self._known = {id(each) for _, each in every}
        self._counted: dict[int, int] = {}
        self._paths = self._count(self.schema, "")
        self._reads = sum(  # rules that read a text to its end
            ("pattern" in each) + ("format" in each) + len(each.get("patternProperties", ()))
            for _, each in every
        )
        self._validators: dict[str, jsonschema_rs.Draft202012Validator] = {}
        try:
            self._registry = jsonschema_rs.Registry(
                [(_URI, self.schema)], draft=jsonschema_rs.Draft202012
            )
            self.fits("", None)
        except (jsonschema_rs.ReferencingError, ValueError) as error:
            said = truncate_safely(str(error).partition("\n")[0], 200)
            raise UnusableSchema(f"the schema: {said}") from None

    def _prepare_words(self) -> None:
        for pointer, each in all_subschemas(self.schema):
            if refused := each.keys() & _REFUSED:
                raise UnusableSchema(f"#{pointer}: {min(refused)} is not supported")
            if "$id" in each:
                raise UnusableSchema(f"#{pointer}: $id is supported at the top only")
            if "$ref" in each:  # type names are often used as references without escaping
                each["$ref"] = quote(each["$ref"], safe=_URI_CHARS)

    # patterns

    def _drop_patterns_that_are_not_linear(self) -> None:
        """Remove patterns with look-around or back-references.

        They are left to the model and its provider.

        Raises UnusableSchema where the removal could refuse a valid value, and for a pattern that
        is invalid or too large.
        """
        schemas = list(all_subschemas(self.schema))
        texts = {
            text
            for _, each in schemas
            for text in (each.get("pattern"), *each.get("patternProperties", ()))
            if text is not None
        }
        size = min(_ONE_PATTERN_BYTES, MAX_PATTERN_BYTES // max(1, len(texts)))
        rs = self._library
        self._linear = rs.RegexOptions(size_limit=size, dfa_size_limit=size)
        fancy = rs.FancyRegexOptions(size_limit=size, dfa_size_limit=size)
        bad = {text for text in texts if not self._takes(self._linear, text)}
        if not bad:
            return
        inverts = any(_INVERTING & each.keys() for _, each in schemas)
        names = {name for _, each in schemas for name in each.get("patternProperties", ())}
        for text in sorted(bad):
            shown = truncate_safely(repr(text), _PLACE_CHARS)
            if not self._takes(fancy, text):
                raise UnusableSchema(f"the pattern {shown} is invalid, or too large")
            if inverts or text in names:
                raise UnusableSchema(
                    f"the pattern {shown} cannot be checked in linear time (look-around, "
                    f"back-references) in a schema with {', '.join(sorted(_INVERTING))} or as a "
                    "name in patternProperties"
                )
        self.schema = _without_patterns(self.schema, bad)

    def _takes(self, engine: Any, text: str) -> bool:  # noqa: ANN401 - one of the library's two
        try:
            self._library.Draft202012Validator(
                {"pattern": text}, offline=True, pattern_options=engine
            )
        except self._library.ValidationError:
            return False
        return True

    # cost

    def _count(self, schema: Any, pointer: str) -> int:  # noqa: ANN401 - any JSON
        """Count the subschemas with references expanded.  Raises UnusableSchema."""
        if not isinstance(schema, dict):
            return 1
        if id(schema) in self._counted:
            return self._counted[id(schema)]
        self._counted[id(schema)] = 1  # value for a recursive visit
        total = 1 + sum(isinstance(one, dict | list) for one in schema.get("enum", ()))
        inner = [(pointer + pointer_of(place), each) for place, each in _subschemas(schema)]
        if "$ref" in schema:
            inner.append(self.target(schema["$ref"], pointer))
        # Finding the evaluated parts evaluates the subschemas once more (or twice: `if`).
        again = 4 if schema.keys() & {"unevaluatedItems", "unevaluatedProperties"} else 1
        for where, each in inner:
            total += again * self._count(each, where)
            if total > MAX_PATHS:
                raise UnusableSchema(
                    f"#{pointer}: more than {MAX_PATHS} subschemas once references are written out"
                )
        self._counted[id(schema)] = total
        return total

    def target(self, reference: str, pointer: str = "") -> tuple[str, Any]:
        """Resolve a reference to its pointer and schema.  Raises UnusableSchema."""
        fragment = reference.removeprefix("#")
        fragment = self._anchors.get(fragment, fragment)
        found: Any = self.schema if reference.startswith("#") else None
        if fragment and not fragment.startswith("/"):
            found = None
        for part in unquote(fragment).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list):
                found = found[int(key)] if key.isdigit() and int(key) < len(found) else None
            else:
                found = found.get(key) if isinstance(found, dict) else None
        if not isinstance(found, bool) and id(found) not in self._known:  # data is not a schema
            raise UnusableSchema(f"#{pointer}: {reference!r} leads to no schema in the document")
        return fragment, found

    def work(self, nodes: int, chars: int) -> int:
        """Bound the (subschema, value) pairs of a check; names in objects count as values."""
        return self._paths * nodes + self._reads * chars // _CHARS_A_STEP

    def is_too_much(self, value: object) -> bool:
        """True if checking the value could cost more than MAX_WORK."""
        nodes = chars = depth = 0
        level: list[Any] = [value]
        while level:
            depth += 1
            nodes += len(level)
            chars += sum(len(item) for item in level if isinstance(item, str))
            if depth > MAX_VALUE_DEPTH or self.work(nodes, chars) > MAX_WORK:
                return True
            level = [part for item in level for part in _parts(item)]
        return False

    # verdict

    def validator(self, schema: Any) -> "jsonschema_rs.Draft202012Validator":  # noqa: ANN401 - any JSON
        return self._library.Draft202012Validator(
            schema,
            registry=self._registry,
            offline=True,
            validate_formats=True,
            pattern_options=self._linear,
            mask="it",
        )

    def matches(self, pattern: str, name: str) -> bool:
        """True if the name matches the pattern."""
        key = f"pattern {pattern}"  # distinct from pointers, which start with a slash
        if key not in self._validators:
            self._validators[key] = self.validator({"pattern": pattern})
        return self._validators[key].is_valid(name)

    def fits(self, pointer: str, value: object) -> bool:
        """True if the subschema at that pointer accepts the value."""
        if pointer not in self._validators:
            self._validators[pointer] = self.validator({"$ref": f"{_URI}#{pointer}"})
        return self._validators[pointer].is_valid(value)


def _parts(item: object) -> list[Any]:
    if isinstance(item, dict):
        return [*item.keys(), *item.values()]
    return item if isinstance(item, list) else []


# --- explanation ---------------------------------------------------------------------------------


Path = tuple[str | int, ...]


class Mismatch(NamedTuple):
    """The innermost part of a value that its subschema refuses."""

    path: Path
    value: Any
    schema: Any
    outer: Any  # the schema that applies `schema`
    reason: str  # without the value


def explain(schema: CompiledSchema, value: object) -> Mismatch:
    """Find where and why a value does not fit.  The value must not fit."""
    return _Explainer(schema).explain(value)


_APPLIED = frozenset(
    {*OF_NAMES, *LISTS, *SINGLES, *DEFINITIONS, "$ref", "$anchor", "minContains", "maxContains"}
)


class _Explainer:
    """Search for the broken rule of one schema in one value."""

    def __init__(self, schema: CompiledSchema) -> None:
        self._schema = schema

    def explain(self, value: Any) -> "Mismatch":  # noqa: ANN401 - any JSON
        pointer: str = ""
        schema: Any = self._schema.schema
        outer: Any = {}
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
            outer = schema
            pointer, schema, value = refused.pointer, refused.schema, refused.value
            path = (*path, *refused.step)
        return Mismatch(path, value, schema, outer, self._reason(pointer, schema, value))

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
