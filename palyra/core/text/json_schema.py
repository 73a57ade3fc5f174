"""JSON Schema 2020-12 from untrusted sources, checked against values at a bounded cost.

The verdict is that of the library jsonschema-rs.  A check cannot be interrupted, so its cost is
bounded beforehand.  A reference that takes part in a recursion is evaluated once per value, so a
check visits at most `paths * values` pairs, where `paths` counts the subschemas with every
reference expanded (a recursive one once).  Patterns use an engine that is linear in the text.  The
library's own explanation of a failure copies the value into every alternative, so `schema_mismatch`
explains failures instead: it descends to the innermost subschema that refuses, and lets the library
explain that one.

Every schema is read as 2020-12, whatever `$schema` says.  `format` is asserted where the
specification defines the format, and is an annotation otherwise.  References must stay inside the
document.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import msgspec

from palyra.core.text.excerpt import truncate_safely
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

OF_NAMES = ("properties", "patternProperties", "dependentSchemas")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SINGLES = (
    "not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
DEFINITIONS = ("$defs", "definitions")
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


def compiled(schema: Json) -> "CompiledSchema":
    """Return the compiled form of a schema that has passed `check_schema`."""
    return _compiled(_encoded(schema))


def _encoded(schema: object) -> bytes:
    try:
        return msgspec.json.encode(schema)
    except (RecursionError, TypeError, ValueError):
        raise UnusableSchema("the schema is no JSON, or nested too deeply") from None


@lru_cache(maxsize=16)
def _compiled(encoded: bytes) -> "CompiledSchema":
    return CompiledSchema(msgspec.json.decode(encoded))


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


def _all_of(schema: Any, pointer: str = "", depth: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:  # noqa: ANN401 - any JSON
    """Yield every schema object with its pointer, including definitions.  Raises UnusableSchema."""
    if depth > MAX_DEPTH:
        raise UnusableSchema(f"#{pointer}: schemas are nested deeper than {MAX_DEPTH}")
    if not isinstance(schema, dict):
        return
    yield pointer, schema
    defined = (
        ((word, name), inner)
        for word in DEFINITIONS
        for name, inner in schema.get(word, {}).items()
    )
    for place, inner in (*_subschemas(schema), *defined):
        yield from _all_of(inner, pointer + pointer_of(place), depth + 1)


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

    def __init__(self, schema: Any) -> None:  # noqa: ANN401 - any JSON
        """Prepare the schema for checks.  Raises UnusableSchema."""
        import jsonschema_rs  # noqa: PLC0415 - 15 MB of machine code that most starts never need

        self._library = jsonschema_rs
        if not isinstance(schema, dict):
            raise UnusableSchema("the schema is no JSON object")
        try:
            jsonschema_rs.meta.validate({k: v for k, v in schema.items() if k != "$schema"})
        except jsonschema_rs.ValidationError as error:
            place = "".join(f".{part}" for part in error.instance_path)
            said = truncate_safely(error.message, 200)
            raise UnusableSchema(f"the schema{place}: no JSON Schema: {said}") from None
        self.schema: Json = {k: v for k, v in schema.items() if k not in {"$schema", "$id"}}
        self._prepare_words()
        self._drop_patterns_that_are_not_linear()
        self._anchors = {
            each["$anchor"]: pointer for pointer, each in _all_of(self.schema) if "$anchor" in each
        }
        self._known = {id(each) for _, each in _all_of(self.schema)}
        self._counted: dict[int, int] = {}
        self._paths = self._count(self.schema, "")
        self._reads = self._text_rules()
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
        for pointer, each in _all_of(self.schema):
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
        schemas = list(_all_of(self.schema))
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
            if not self._takes(fancy, text):
                raise UnusableSchema(f"the pattern {text!r} is none, or too large")
            if inverts or text in names:
                raise UnusableSchema(
                    f"the pattern {text!r} cannot be checked in linear time (look-around, "
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

    def _text_rules(self) -> int:
        """Count the rules anywhere in the schema that read a text to its end."""
        return sum(
            ("pattern" in each) + ("format" in each) + len(each.get("patternProperties", ()))
            for _, each in _all_of(self.schema)
        )

    def is_too_much(self, value: object) -> bool:
        """True if checking the value could cost more than MAX_WORK."""
        nodes = chars = depth = 0
        level: list[Any] = [value]
        while level:
            depth += 1
            nodes += len(level)
            chars += sum(len(item) for item in level if isinstance(item, str))
            work = self._paths * nodes + self._reads * chars // _CHARS_A_STEP
            if depth > MAX_VALUE_DEPTH or work > MAX_WORK:
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
