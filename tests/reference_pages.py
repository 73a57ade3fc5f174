"""The parts of docs/ that are generated from code, between `<!-- generated: NAME -->` and `<!-- end -->`.

`python -m tests.reference_pages` writes them; `test_reference_pages.py` fails when they are outdated.
"""

import re
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from palyra.config.load import allowed_values, schema
from palyra.config.parts import PARTS as OPTIONAL
from palyra.config.sections import SECTIONS, McpServerConfig, ModelProvider, ModelRoute
from palyra.core.model.messages import FAILURE_CLASSES
from palyra.models.scripted.directives import DIRECTIVES, MAX_DELAY_MS, MAX_TOKENS
from palyra.models.scripted.scripts import scripts_schema
from tests.client_reference import (
    render_client_blocking,
    render_client_functions,
    render_client_members,
    render_client_types,
)
from tests.layers import FREE_FOR_ALL, MAY_IMPORT, ONLY, ROOMS
from tests.reference_tables import render_commands, render_methods, with_unit

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "docs/architecture.md",
    "docs/commands.md",
    "docs/configuration.md",
    "docs/decisions/README.md",
    "docs/licences.md",
    "docs/methods.md",
    "docs/models.md",
    "docs/python.md",
    "docs/python-types.md",
    "docs/scripted.md",
)
PART = re.compile(r"(?s)(<!-- generated: (?P<name>\w+) -->\n).*?(<!-- end -->)")

Schema = dict[str, Any]


def render_settings() -> str:
    """A table for each section of the configuration."""
    return "\n".join(line for name in SECTIONS for line in _settings_of(name))


def _settings_of(name: str) -> Iterator[str]:
    kind = SECTIONS[name]
    hints = get_type_hints(kind, include_extras=True)
    yield f"### `[{name}]`\n\n{kind.__doc__}\n"
    yield "| Key | Default | Takes | Meaning |\n|---|---|---|---|"
    for key, described in schema()["$defs"][kind.__name__]["properties"].items():
        default = msgspec.json.encode(described["default"]).decode()
        takes = with_unit(key, allowed_values(hints[key]))
        yield f"| `{key}` | `{default}` | {takes} | {described['description']} |"
    yield ""


def render_servers() -> str:
    """A table of the settings of one MCP server."""
    return _entries_of("server", McpServerConfig)


def render_providers() -> str:
    """A table of the settings of one model provider."""
    return _entries_of("provider", ModelProvider)


def render_routes() -> str:
    """A table of the settings of one model route."""
    return _entries_of("route", ModelRoute)


def _entries_of(noun: str, kind: type) -> str:
    described: Schema = schema()["$defs"][kind.__name__]["properties"]
    hints = get_type_hints(kind, include_extras=True)
    rows = (
        f"| `{key}` | {_default_of(member)} | {with_unit(key, allowed_values(hints[key]))} "
        f"| {member['description']} |"
        for key, member in described.items()
    )
    head = f"| Key of a {noun} | Default | Takes | Meaning |\n|---|---|---|---|"
    return "\n".join([head, *rows, ""])


def _default_of(member: Schema) -> str:
    if "default" not in member:
        return "required"
    return f"`{msgspec.json.encode(member['default']).decode()}`"


def render_directives() -> str:
    """The language of directives as a table, with its limits."""
    rows = [f"| `{each.usage}` | {each.meaning} |" for each in DIRECTIVES.values()]
    classes = ", ".join(f"`{name}`" for name in FAILURE_CLASSES)
    return "\n".join(
        [
            "| Line | What it does |\n|---|---|",
            *rows,
            f"\nN is at most {MAX_TOKENS}, MS at most {MAX_DELAY_MS}. The classes of failure:\n{classes}.\n",
        ]
    )


def render_scripts() -> str:
    """Every object of a script book with its members."""
    definitions: Schema = scripts_schema()["$defs"]
    order = ("ScriptBook", "Script", "ScriptTurn", "ScriptCall", "ScriptFailure")
    assert set(order) == set(definitions), "the page leaves something out"
    return "\n".join(line for name in order for line in _members_of(name, definitions[name]))


def _members_of(name: str, definition: Schema) -> Iterator[str]:
    yield f"**{name}** — {definition['description']}\n"
    yield "| Member | Type | Default |\n|---|---|---|"
    for key, member in definition["properties"].items():
        default = msgspec.json.encode(member["default"]).decode() if "default" in member else None
        yield f"| `{key}` | {_type_of(member)} | {f'`{default}`' if default else 'required'} |"
    yield ""


def _type_of(member: Schema) -> str:
    if "$ref" in member:
        return str(member["$ref"]).rpartition("/")[2]
    if "anyOf" in member:
        return " or ".join(_type_of(each) for each in member["anyOf"])
    if "enum" in member:
        return ", ".join(f"`{value}`" for value in member["enum"])
    if member.get("type") == "array":
        return f"list of {_type_of(member['items'])}"
    return str(member.get("type", "any JSON"))


def render_floors() -> str:
    """The floors of `tests/layers.py`, highest first, each with its imports and its rooms.

    An import that follows from another one is left out: `net` imports `actors`, hence also `core`.
    """
    floors = sorted(MAY_IMPORT.keys() - FREE_FOR_ALL, key=lambda floor: (-_height(floor), floor))
    width = max(map(len, floors))
    lines = [line for floor in floors for line in _floor(floor, width)]
    return "\n".join(["```text", *lines, "```", ""])


def _height(floor: str) -> int:
    """Length of the longest chain of imports below a floor."""
    return max((_height(each) + 1 for each in MAY_IMPORT[floor]), default=0)


def _floor(floor: str, width: int) -> Iterator[str]:
    below = MAY_IMPORT[floor]
    whole = {each for each in below if (floor, each) not in ONLY}
    direct = [each for each in below if not any(_reaches(other, each) for other in whole - {each})]
    order = sorted(direct, key=lambda each: (-_height(each), each))
    shown = " ".join(_seen_from(floor, each) for each in order)
    yield f"{floor:{width}} → {shown}" if shown else floor
    for rooms in textwrap.wrap(" ".join(ROOMS.get(floor, ())), 80):
        yield f"{'':{width}}     {rooms}"


def _reaches(floor: str, target: str) -> bool:
    """True if `floor` may import all of `target`, directly or through another floor."""
    below = [each for each in MAY_IMPORT[floor] if (floor, each) not in ONLY]
    return target in below or any(_reaches(each, target) for each in below)


def _seen_from(floor: str, below: str) -> str:
    """Name of a floor as seen from one above it, with the modules to which ONLY limits the view."""
    only = ONLY.get((floor, below))
    if only is None:
        return below
    return " ".join(each.removeprefix("palyra.").replace(".", "/") for each in only)


# Licences of packages whose metadata names none, as their licence files say, and old names of others.
LICENCES = {
    "apsw": "any licence approved by the OSI",
    "cedarpy": "Apache-2.0",
    "hyperframe": "MIT",
    "numpy": "BSD-3-Clause, parts under others",  # more of them with each version
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
PINNED = re.compile(r"(?m)^(?P<name>[A-Za-z0-9._-]+)==")
PACKAGE = re.compile(r"[^A-Za-z0-9._-]")  # what ends the name in a requirement
MAX_LICENCE_CHARS = 60  # a longer one is the text of the licence


def render_licences() -> str:
    """A table of the packages that are installed with the daemon."""
    pinned = (ROOT / "requirements/run.txt").read_text(encoding="utf-8")
    names = dict.fromkeys(match["name"] for match in PINNED.finditer(pinned))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra_of = {
        PACKAGE.split(line, maxsplit=1)[0]: f"`{extra}`"
        for extra, lines in extras["optional-dependencies"].items()
        for line in lines
        if extra in {part.extra for part in OPTIONAL}
    }
    rows = "\n".join(
        f"| {name} | {extra_of.get(name, '')} | {licence_of(name)} |" for name in names
    )
    return f"| Package | Extra | Licence |\n|---|---|---|\n{rows}\n"


def licence_of(name: str) -> str:
    """The licence of an installed package.  Raises KeyError if neither it nor `LICENCES` has one."""
    described = metadata.metadata(name)
    named = [
        *(described.get_all("License-Expression") or ()),
        *(described.get_all("License") or ()),
    ]
    classified = [
        each.rpartition(" :: ")[2]
        for each in described.get_all("Classifier") or []
        if each.startswith("License ::")
    ]
    known: tuple[str, ...] = (LICENCES.get(name, ""), *named)
    for found in known:
        if found and len(found) <= MAX_LICENCE_CHARS:
            return LICENCES.get(found, found)
    return " OR ".join(LICENCES[each] for each in classified) or LICENCES[name]


def render_decisions() -> str:
    """A line for each decision, with its title."""
    pages = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    titles = [page.read_text(encoding="utf-8").partition("\n")[0] for page in pages]
    lines = [
        f"- [{title.removeprefix('# ')}]({page.name})"
        for page, title in zip(pages, titles, strict=True)
    ]
    return "\n".join([*lines, ""])


PARTS: dict[str, Callable[[], str]] = {
    "client_blocking": render_client_blocking,
    "client_functions": render_client_functions,
    "client_members": render_client_members,
    "client_types": render_client_types,
    "commands": render_commands,
    "decisions": render_decisions,
    "floors": render_floors,
    "licences": render_licences,
    "methods": render_methods,
    "settings": render_settings,
    "servers": render_servers,
    "providers": render_providers,
    "routes": render_routes,
    "directives": render_directives,
    "scripts": render_scripts,
}


def render(page: str) -> str:
    """The page as it should be."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return PART.sub(lambda part: f"{part[1]}\n{PARTS[part['name']]()}\n{part[3]}", text)


if __name__ == "__main__":
    for written in PAGES:
        (ROOT / written).write_text(render(written), encoding="utf-8")
