"""The TypeScript types: each form of a schema, the copy in the repository, and the compiler."""

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palyra import __version__
from palyra.net.api.methods.table import METHODS
from palyra.net.api.schema import ProtocolSchema, describe_protocol
from palyra.net.api.typescript import render_type, render_typescript
from palyra.net.protocol.notifications import PROTOCOL
from tests.optional import needs
from tests.rows import every_row

FOLDER = Path(__file__).parents[3] / "clients/typescript"
# Names of TypeScript's own that the module uses, or that readers of it take for granted.
TAKEN = {"Record", "Array", "Promise", "Error", "Method", "Methods", "Params", "Result", "Events"}


def render() -> str:
    return render_typescript(describe_protocol(METHODS), name=PROTOCOL, version=__version__)


@every_row(
    ("schema", "text"),
    [
        ({"type": "string", "maxLength": 3}, "string"),
        ({"type": "integer", "minimum": 1, "default": 2}, "number"),
        ({"enum": ["b", "a"]}, '"b" | "a"'),
        ({"enum": [1, None]}, "1 | null"),
        ({"$ref": "#/schemas/Run", "default": {}}, "Run"),
        ({"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]}, "number | null"),
        ({"type": "array", "items": {"type": "string"}}, "string[]"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, '("a" | "b")[]'),
        ({"type": "array"}, "unknown[]"),
        (
            {"type": "array", "prefixItems": [{"type": "integer"}, {"$ref": "#/x/A"}], "items": False,
             "minItems": 2, "maxItems": 2},
            "[number, A]",
        ),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, "Record<string, boolean>"),
        ({"type": "object"}, "Record<string, unknown>"),
        ({}, "unknown"),
        ({"description": "Any JSON.", "default": None}, "unknown"),
        (
            {"type": "object", "required": ["a"], "properties": {
                "a": {"type": "string"}, "b-c": {"type": "null", "description": "Ends */ here."}}},
            '{\n  a: string;\n  /** Ends * / here. */\n  "b-c"?: null;\n}',
        ),
    ],
)  # fmt: skip
def test_each_form_has_its_type(schema: dict[str, Any], text: str) -> None:
    """A default or a bound changes no type; a member that may be left out has a question mark."""
    assert text == render_type(schema)


@every_row(
    "schema",
    [
        {"type": "string", "const": "a"},
        {"allOf": [{"type": "string"}]},
        {"type": ["string", "null"]},
        {"anyOf": [{"not": {}}]},
        {"type": "date"},
    ],
)
def test_an_unknown_form_is_an_error(schema: dict[str, Any]) -> None:
    """A type is never lost without anybody noticing."""
    with pytest.raises(ValueError, match="no type for the schema"):
        render_type(schema)


def test_every_name_of_the_protocol_is_there() -> None:
    """Methods, notifications, kinds of events and structs, each once."""
    described = describe_protocol(METHODS)
    lines = render().splitlines()
    for name in (*described.methods, *described.notifications, *described.events):
        assert 1 <= sum(line.startswith(f'  "{name}": ') for line in lines), name
    for name in described.schemas:
        declared = (f"export interface {name} {{", f"export type {name} =")
        assert 1 == sum(line.startswith(declared) for line in lines), name
    assert set() == TAKEN & {*described.schemas}


def test_the_copy_in_the_repository_is_current() -> None:
    """A removed or renamed field shows in the history of that file."""
    path = FOLDER / "palyra.d.ts"
    written = path.read_text("utf-8")
    assert render() == written, "palyra schema --format typescript > clients/typescript/palyra.d.ts"


def test_a_removed_field_changes_the_types() -> None:
    """The control: the comparison sees one field."""
    described = describe_protocol(METHODS)
    schemas = {**described.schemas}
    pong = {**schemas["Pong"], "properties": {}}
    fewer = msgspec.structs.replace(described, schemas={**schemas, "Pong": pong})
    assert isinstance(fewer, ProtocolSchema)
    assert render() != render_typescript(fewer, name=PROTOCOL, version=__version__)


@pytest.mark.real
@needs("tsc")
def test_the_compiler_takes_types_and_example(tmp_path: Path) -> None:
    """Strictly; the example has four lines that must be errors."""
    for path in (*FOLDER.glob("*.d.ts"), FOLDER / "example.ts"):
        (tmp_path / path.name).write_text(path.read_text("utf-8"), "utf-8")
    command = ["tsc", "--strict", "--noEmit", "--target", "es2022", "--module", "nodenext"]
    done = subprocess.run(
        [*command, "--lib", "es2022,dom", *(path.name for path in tmp_path.iterdir())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stdout)


def test_each_name_of_the_client_has_its_type() -> None:
    """What the modules export is what their declarations say, but for types."""
    exported = re.compile(r"(?m)^export (?:async )?(?:const|function|class) (\w+)")
    for name in ("client", "node"):
        declared = exported.findall((FOLDER / f"{name}.d.ts").read_text("utf-8"))
        written = exported.findall((FOLDER / f"{name}.js").read_text("utf-8"))
        assert sorted(written) == sorted(declared)
