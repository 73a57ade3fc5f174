"""Allowed values and units of configuration keys, parameters of methods and options of commands."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import click
import msgspec

from palyra.cli.main import cli
from palyra.net.api.methods.table import METHODS
from palyra.net.api.schema import describe_protocol

Schema = dict[str, Any]

# By the end of a name; the first that fits.  Moments are numbers of milliseconds as well.
MOMENTS = frozenset(
    {
        "at_ms",
        "before_ms",
        "expires_ms",
        "not_before_ms",
        "since_ms",
        "until_ms",
        "valid_from_ms",
    }
)
MAX_PATTERN_CHARS = 60  # a longer one says nothing to a reader
UNITS = {
    "usd_micros": "millionths of a US dollar",
    "_ms": "milliseconds",
    "_s": "seconds",
    "_days": "days",
    "_bytes": "bytes",
    "_mib": "MiB",
    "tokens": "tokens",
    "_chars": "characters",
    "_bps": "ten-thousandths",
}
UNBOUNDED = 2**53 - 1  # the largest integer of the wire, which says nothing about a parameter

Place = tuple[str, ...]  # words of a command


def with_unit(name: str, takes: str) -> str:
    """The description of a number with the unit that its name ends with."""
    if "number" not in takes:
        return takes
    if name in MOMENTS:
        return f"{takes}, milliseconds since 1970 (UTC)"
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), None)
    return f"{takes}, {unit}" if unit else takes


def render_methods() -> str:
    """Every method of the protocol with its parameters."""
    described = describe_protocol(METHODS)
    used: dict[str, None] = {}
    lines: list[str] = []
    for name in sorted(described.methods):
        method = described.methods[name]
        noun = name.partition(".")[0]
        if f"## {noun}\n" not in lines:
            lines.append(f"## {noun}\n")
        scope = f"scope `{method.scope}`" if method.scope else "any token"
        struct = described.schemas[_name_of(method.params)]
        key = "; takes `idempotency_key`" if "idempotency_key" in struct["properties"] else ""
        lines += [f"### `{name}`\n", f"Needs {scope}{key}.\n"]
        lines += _members_of(struct, described.schemas, used)
        result = described.schemas.get(_name_of(method.result), {})
        fields = ", ".join(f"`{each}`" for each in result.get("properties", ()))
        lines.append(f"Result: {fields or 'nothing'}.\n")
    lines.append("## Objects in parameters\n")
    rest: list[str] = []
    shown: set[str] = set()
    while set(used) > shown:  # a member may be another object
        for each in [each for each in used if each not in shown]:
            shown.add(each)
            rest += [
                f"### {each}\n",
                *_members_of(described.schemas[each], described.schemas, used),
            ]
    return "\n".join([*lines, *rest])


def _name_of(schema: Schema) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _members_of(struct: Schema, schemas: Schema, used: dict[str, None]) -> Iterator[str]:
    members = {**struct.get("properties", {})}
    members.pop("idempotency_key", None)  # always the same, and said once
    if not members:
        yield "No parameters.\n"
        return
    required = struct.get("required", ())
    yield "| Parameter | Default | Takes |\n|---|---|---|"
    for key, member in members.items():
        takes = with_unit(key, _takes(member, schemas, used)).replace("|", "\\|")
        yield f"| `{key}` | {_default_of(member, is_required=key in required)} | {takes} |"
    yield ""


def _default_of(member: Schema, *, is_required: bool) -> str:
    if is_required:
        return "required"
    if member.get("default") is None:
        return "-"
    return f"`{msgspec.json.encode(member['default']).decode()}`"


def _takes(schema: Schema, schemas: Schema, used: dict[str, None]) -> str:
    """The values that a schema allows, in words; `used` collects the objects it names."""
    takes = partial(_takes, schemas=schemas, used=used)
    name = _name_of(schema)
    if name and "properties" not in schemas[name]:
        return takes(schemas[name])
    if name:
        used[name] = None
        return f"an object [{name}](#{name.lower()})"
    if branches := schema.get("anyOf"):
        kinds = (takes(each) for each in branches if each.get("type") != "null")
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return "one of " + ", ".join(f"`{value}`" for value in schema["enum"] if value is not None)
    if schema.get("type") == "array":
        return f"a list of {_bounds(schema, 'Items')}{takes(schema['items'])}"
    return _scalar(schema)


def _scalar(schema: Schema) -> str:
    kind = schema.get("type", "")
    if kind == "string":
        pattern = schema.get("pattern", "")
        shown = f" like `{pattern}`" if pattern else ""
        if len(pattern) > MAX_PATTERN_CHARS:
            shown = " of printable characters in one line"
        return f"a string{shown}{_bounds(schema, 'Length')}"
    named = {
        "integer": f"a whole number{_range_of(schema)}",
        "number": f"a number{_range_of(schema)}",
        "boolean": "`true` or `false`",
        "object": "an object",
    }
    return named.get(kind, "any JSON")


def _range_of(schema: Schema) -> str:
    least = schema.get("minimum")
    if (above := schema.get("exclusiveMinimum")) is not None:
        least = above + 1
    most = schema.get("maximum")
    bounds = [
        f" from {least}" if least is not None and abs(least) < UNBOUNDED else "",
        f" to {most}" if most is not None and most < UNBOUNDED else "",
    ]
    return "".join(bounds)


def _bounds(schema: Schema, what: str) -> str:
    """Bounds of a text's length, behind it, or of a list's items, before them."""
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    if what == "Items":
        return f"at most {most}: " if most is not None else ""
    parts = [f"at least {least}" if least else "", f"at most {most}" if most is not None else ""]
    said = " and ".join(filter(None, parts))
    return f", {said} characters" if said else ""


# --- Commands ------------------------------------------------------------------------------------

COMMON = frozenset({"--home", "--url", "--json", "-h"})  # of nearly all commands: named once


def render_commands() -> str:
    """Every command with its arguments and options."""
    return "\n".join(line for name in cli.list_commands(_context()) for line in _command((name,)))


def _context() -> click.Context:
    return click.Context(cli, info_name="palyra")


def _command(place: Place) -> Iterator[str]:
    context = _context()
    command: click.Command = cli
    for word in place:
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None
        command, context = found, click.Context(found, info_name=word, parent=context)
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"{'#' * (len(place) + 1)} `palyra {' '.join(place)}`\n"
    yield f"{_text(command.help or '')}\n"
    options = [each for each in command.params if not COMMON & {*each.opts}]
    if not isinstance(command, click.Group):
        yield f"```text\npalyra {' '.join(place)} {usage}\n```\n"
    rows = [_option(each, context) for each in options if isinstance(each, click.Option)]
    if rows:
        yield "\n".join(["| Option | Default | Takes | Meaning |\n|---|---|---|---|", *rows, ""])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _command((*place, name))


def _text(help_text: str) -> str:
    """The help without the marks of click; an indented list stays text."""
    text = help_text.replace("\b", "").replace("<", "&lt;").replace("*", "\\*")
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def _option(option: click.Option, context: click.Context) -> str:
    names = " / ".join(
        f"`{', '.join(group)}`" for group in (option.opts, option.secondary_opts) if group
    )
    default = option.get_default(context)
    is_shown = isinstance(default, str | int | float) and str(default) and not option.is_flag
    shown = f"`{default}`" if is_shown else "-"
    if option.required:
        shown = "required"
    takes = "-" if option.is_flag else _values(option.type, option.make_metavar(context))
    if option.multiple:
        takes = f"{takes}; may be repeated"
    meaning = " ".join((option.help or "").split())
    return " | ".join(["|", names, shown, takes, f"{meaning} |"]).replace("| |", "|", 1)


def _values(kind: click.ParamType[Any], metavar: str) -> str:
    """The values of an option, in words."""
    match kind:
        case click.Choice(choices=choices):
            return "one of " + ", ".join(f"`{each}`" for each in choices)
        case click.IntRange(min=least, max=most) | click.FloatRange(min=least, max=most):
            noun = "a whole number" if isinstance(kind, click.IntRange) else "a number"
            low = f" from {least}" if least is not None else ""
            return noun + low + (f" to {most}" if most is not None else "")
        case _:
            pass
    named = {
        "text": "a text",
        "integer": "a whole number",
        "span": "a period, such as `30s`, `15m`, `12h`, `7d`",
        "path": "a path",
        "directory": "a folder",
        "file": "a file",
    }
    return named.get(kind.name, f"`{metavar}`")
