"""The configuration: typed, every key with a default, a range and a line that says what it is.

Owns: nothing; reads one file and the environment.  Talked to by: the command line, the composition
root.  Never: holds a secret; keys of providers come from the environment or from files.

A value comes from the command line, else from the environment (`PALYRA_SECTION__KEY`), else from
the file, else it is the default.  Unknown keys are errors with a suggestion; a bad value is named
with its key, where it stands and what is allowed there.
"""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
import platformdirs
from msgspec import inspect

from palyra.config.sections import (
    SECTIONS,
    Fetch,
    FilesConfig,
    JournalConfig,
    Logging,
    Mcp,
    Models,
    PolicyConfig,
    RunsConfig,
    SandboxConfig,
    Secrets,
    Server,
    ToolsConfig,
    UsageConfig,
    Wasm,
)
from palyra.errors import InvalidParams

ENV_PREFIX = "PALYRA_"
HOME_VARIABLE = "PALYRA_HOME"
FILE_NAME = "palyra.toml"
_SHOWN_CHARS = 80  # of a bad value in a message

# --- The whole -----------------------------------------------------------------------------------


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Where things lie; derived, not configured."""

    config_file: Path
    data_dir: Path

    @property
    def config_dir(self) -> Path:
        """The directory of the configuration file."""
        return self.config_file.parent

    @property
    def policies(self) -> Path:
        """The default place of user policies."""
        return self.config_dir / "policies"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All sections, and where things lie."""

    paths: Paths
    server: Server = Server()
    journal: JournalConfig = JournalConfig()
    runs: RunsConfig = RunsConfig()
    tools: ToolsConfig = ToolsConfig()
    wasm: Wasm = Wasm()
    files: FilesConfig = FilesConfig()
    fetch: Fetch = Fetch()
    mcp: Mcp = Mcp()
    sandbox: SandboxConfig = SandboxConfig()
    secrets: Secrets = Secrets()
    models: Models = Models()
    usage: UsageConfig = UsageConfig()
    policy: PolicyConfig = PolicyConfig()
    logging: Logging = Logging()

    @property
    def workspace(self) -> Path:
        """The directory tools work in, absolute.  Whether it may be one, the tools decide."""
        return _absolute(Path(self.tools.workspace or "."))

    @property
    def policy_dir(self) -> Path:
        """Where the user's policies lie, absolute."""
        return _absolute(Path(self.policy.dir)) if self.policy.dir else self.paths.policies


def find_paths(home: Path | None, environ: Mapping[str, str] = os.environ) -> Paths:
    """`home` or $PALYRA_HOME for both, else the platform's places.

    Raises InvalidParams for an empty variable: it names no directory, least of all the current one.
    """
    chosen = home or environ.get(HOME_VARIABLE)
    if chosen is not None:
        if not str(chosen).strip():
            raise InvalidParams(
                f"{HOME_VARIABLE} is empty: name a directory there, or unset it",
                field=HOME_VARIABLE,
            )
        directory = _absolute(Path(chosen))
        return Paths(config_file=directory / FILE_NAME, data_dir=directory)
    return Paths(
        config_file=platformdirs.user_config_path("palyra") / FILE_NAME,
        data_dir=platformdirs.user_data_path("palyra"),
    )


def _absolute(path: Path) -> Path:
    """The path without links and `~`.  Raises InvalidParams where that leads nowhere."""
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError) as error:  # a loop of links, or no such user
        raise InvalidParams(f"{path}: no usable path: {error}") from None


# --- Loading -------------------------------------------------------------------------------------


class _Given(NamedTuple):
    """One value, and where somebody wrote it."""

    section: str
    key: str
    value: object
    origin: str
    is_text: bool = False  # written as text whatever its type, as the environment has to


def load(
    path: Path | None = None,
    *,
    home: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """The configuration out of file, environment and `overrides` (`{"server.port": 0}`).

    `path`: another file, which must be there.  Raises InvalidParams with key, value and remedy.
    """
    paths = find_paths(home, environ)
    if path is not None:
        paths = msgspec.structs.replace(paths, config_file=_absolute(path))
    sections: dict[str, dict[str, object]] = {name: {} for name in SECTIONS}
    given = [
        *_from_file(paths.config_file, is_required=path is not None),
        *_from_environ(environ),
        *_from_overrides(overrides or {}),
    ]
    for each in given:  # the later wins
        _check_section(each.section, each.origin)
        sections[each.section][each.key] = _checked(each)
    kinds = {name: SECTIONS[name](**values) for name, values in sections.items()}
    return msgspec.structs.replace(Config(paths=paths), **kinds)


def refuse_secrets(config: Config, redact: Callable[[str], tuple[str, bool]]) -> None:
    """Raise InvalidParams, which does not repeat it, for a secret that stands in a value."""
    for name in SECTIONS:
        for key, value in msgspec.structs.asdict(getattr(config, name)).items():
            if redact(msgspec.json.encode(value).decode())[1]:
                raise InvalidParams(
                    f"{name}.{key} holds something that looks like a secret: put a reference to it "
                    "there, such as vault:NAME (`palyra secrets set NAME`)",
                    field=f"{name}.{key}",
                )


def _from_file(path: Path, *, is_required: bool) -> Iterator[_Given]:
    for section, keys in _read_toml(path, is_required=is_required).items():
        if not isinstance(keys, dict):
            raise InvalidParams(f"{path}: {section} stands outside of a section", field=section)
        _check_section(section, str(path))  # here, because it may be empty
        for key, value in keys.items():
            yield _Given(section, key, value, str(path))


def _read_toml(path: Path, *, is_required: bool) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (
        FileNotFoundError,
        NotADirectoryError,
    ):  # a home that is a file is the daemon's to refuse
        if is_required:
            raise InvalidParams(f"{path}: there is no such file") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidParams(f"{path}: cannot be read: {error}") from None


def _from_environ(environ: Mapping[str, str]) -> Iterator[_Given]:
    for name, value in environ.items():
        section, separator, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
        if name.startswith(ENV_PREFIX) and separator:
            yield _Given(section, key, value, name, is_text=True)


def _from_overrides(overrides: Mapping[str, object]) -> Iterator[_Given]:
    for dotted, value in overrides.items():
        section, _, key = dotted.partition(".")
        yield _Given(section, key, value, "the command line", is_text=isinstance(value, str))


# --- Checking ------------------------------------------------------------------------------------


def _check_section(name: str, origin: str) -> None:
    if name not in SECTIONS:
        raise InvalidParams(
            f"{origin}: there is no section [{name}]{_suggest(name, SECTIONS)}", field=name
        )


def _checked(given: _Given) -> object:
    """The value as its key wants it."""
    hints = get_type_hints(SECTIONS[given.section], include_extras=True)
    name = f"{given.section}.{given.key}"
    if given.key not in hints:
        raise InvalidParams(
            f"{given.origin}: there is no key {name}{_suggest(given.key, hints)}", field=name
        )
    hint = hints[given.key]
    value = _split(given.value) if given.is_text and _is_list(hint) else given.value
    try:
        converted: object = msgspec.convert(value, hint, strict=not given.is_text)
    except msgspec.ValidationError as error:
        problem = _explained(error, name, hint, value) or (
            f"{name}{_shown(given.value)}: expected {allowed_values(hint)}"
        )
        raise InvalidParams(f"{given.origin}: {problem}", field=name) from None
    return converted


def _explained(error: msgspec.ValidationError, name: str, hint: object, value: object) -> str:
    """What is wrong in which of several tables; "" for anything else.

    Never with the value: secrets may stand in tables.
    """
    tables = _type_of(hint)
    if not isinstance(tables, inspect.VarTupleType) or not isinstance(value, list):
        return ""
    item = tables.item_type
    if not isinstance(item, inspect.StructType):
        return ""
    from palyra.core.text.validation_errors import explain  # noqa: PLC0415 - only an error needs it

    fault = explain(error, hint, value)  # type: ignore[arg-type]  # whatever msgspec takes
    if fault.message.startswith("unknown field"):
        keys = {field.encode_name: field.type for field in item.fields}
        key = fault.field.rpartition(".")[2]
        return f"{name}{fault.field}: there is no such key{_suggest(key, keys)}"
    said = fault.message.removeprefix(f"{fault.field}: ").partition(", got ")[0]
    return f"{name}{fault.field}: {said}"


def _is_list(hint: object) -> bool:
    return isinstance(_type_of(hint), inspect.VarTupleType)


def _split(value: object) -> list[str]:
    """A list as the environment has it: divided by commas."""
    return [part.strip() for part in str(value).split(",") if part.strip()]


def _shown(value: object) -> str:
    """The value behind a sign, cut and redacted; of tables nothing, secrets may stand in them."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return ""
    from palyra.core.redaction.redactor import Redactor  # noqa: PLC0415 - only an error needs the rules compiled

    text, _ = Redactor([]).redact_text(repr(value))
    return f" = {text}" if len(text) <= _SHOWN_CHARS else f" = {text[:_SHOWN_CHARS]}…"


def _suggest(name: str, known: Mapping[str, object]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def _type_of(hint: object) -> inspect.Type:
    found = inspect.type_info(hint)
    return found.type if isinstance(found, inspect.Metadata) else found


def allowed_values(hint: object) -> str:
    """What a key takes, in words."""
    match _type_of(hint):
        case inspect.IntType(ge=least, le=most):
            return f"a whole number from {least} to {most}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(map(str, sorted(values, key=str)))}"
        case inspect.VarTupleType(item_type=inspect.StructType()):
            return "a list of tables with the keys of the schema (`palyra config schema`)"
        case inspect.VarTupleType(item_type=item):
            return "a list of texts" if isinstance(item, inspect.StrType) else "a list of numbers"
        case _:
            return "a text"


# --- Describing ----------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """JSON Schema of the configuration file."""
    references, components = msgspec.json.schema_components(SECTIONS.values())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "properties": dict(zip(SECTIONS, references, strict=True)),
        "$defs": components,
    }


def first_file() -> str:
    """A configuration file with every key, its meaning and its default, all commented out."""
    lines = ["# Palyra.  Every key is optional; what stands here is the default."]
    for name, kind in SECTIONS.items():
        lines += ["", f"# {kind.__doc__}", f"[{name}]"]
        for key, described in schema()["$defs"][kind.__name__]["properties"].items():
            default = msgspec.json.encode(described["default"]).decode()  # plain JSON is TOML too
            lines += [f"# {described['description']}", f"# {key} = {default}"]
    return "\n".join([*lines, ""])
