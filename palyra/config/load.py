"""Loading and validation of the configuration.

Owns: nothing; reads one file and the environment.  Called by: the command line, the composition
root.  Never: holds a secret; a key of a provider is given by reference
(`env:`, `file:`, `keyring:`, `vault:`).

Order of precedence, highest first:

1. the command line (`overrides`)
2. the environment (`PALYRA_SECTION__KEY`)
3. the file
4. the default

An unknown key is an error with a suggestion.  The error for an invalid value names its key, its
source and the allowed values.
"""

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
from msgspec import inspect

from palyra.config.paths import Paths, absolute, find_paths
from palyra.config.sections import (
    SECTIONS,
    ContextConfig,
    DocumentsConfig,
    Fetch,
    HealingConfig,
    JournalConfig,
    LearningConfig,
    Logging,
    Mcp,
    MemoryConfig,
    Models,
    Network,
    Notify,
    PolicyConfig,
    RetentionConfig,
    RunsConfig,
    SandboxConfig,
    Secrets,
    Server,
    TasksConfig,
    ToolsConfig,
    UsageConfig,
    Wasm,
)
from palyra.core.configuration import ConfigSource
from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.outbound import Outbound, read_outbound
from palyra.core.redaction.secret_references import is_reference
from palyra.errors import InvalidParams

ENV_PREFIX = "PALYRA_"
_SHOWN_CHARS = 80  # longest part of an invalid value in a message

# Former names of keys: they are read, and a note says so.
OLD_KEYS = {
    f"files.{key}": f"retention.{key}"
    for key in ("artifacts_days", "artifacts_mib", "checkpoints_days", "checkpoints_mib")
}
_OLD_SECTIONS = {name.partition(".")[0] for name in OLD_KEYS}

# --- The whole -----------------------------------------------------------------------------------


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """All sections, the paths of the daemon, and the sources of the values that are no defaults."""

    paths: Paths
    sources: Mapping[str, ConfigSource] = msgspec.field(default_factory=dict)  # by section.key
    notes: tuple[str, ...] = ()  # old names that were given
    server: Server = Server()
    journal: JournalConfig = JournalConfig()
    runs: RunsConfig = RunsConfig()
    context: ContextConfig = ContextConfig()
    memory: MemoryConfig = MemoryConfig()
    learning: LearningConfig = LearningConfig()
    tasks: TasksConfig = TasksConfig()
    tools: ToolsConfig = ToolsConfig()
    wasm: Wasm = Wasm()
    retention: RetentionConfig = RetentionConfig()
    documents: DocumentsConfig = DocumentsConfig()
    fetch: Fetch = Fetch()
    network: Network = Network()
    mcp: Mcp = Mcp()
    sandbox: SandboxConfig = SandboxConfig()
    secrets: Secrets = Secrets()
    models: Models = Models()
    usage: UsageConfig = UsageConfig()
    notify: Notify = Notify()
    policy: PolicyConfig = PolicyConfig()
    healing: HealingConfig = HealingConfig()
    logging: Logging = Logging()

    @property
    def workspace(self) -> Path:
        """Absolute path of the default workspace; the tools validate it."""
        return absolute(Path(self.tools.workspace or "."))

    @property
    def workspaces(self) -> dict[str, Path]:
        """Absolute paths of all workspaces by name, the default one first; the tools validate them."""
        found = {DEFAULT_WORKSPACE: self.workspace}
        return found | {each.name: absolute(Path(each.path)) for each in self.tools.workspaces}

    @property
    def outbound(self) -> Outbound:
        """The section `network`, completed from the environment.  Raises InvalidParams."""
        return read_outbound(
            os.environ,
            proxy=self.network.proxy,
            direct=self.network.no_proxy,
            ca_file=os.path.expanduser(self.network.ca_file),  # noqa: PTH111 - "" stays ""
        )

    @property
    def policy_dir(self) -> Path:
        """Absolute path of the directory of user policies."""
        return absolute(Path(self.policy.dir)) if self.policy.dir else self.paths.policies


class _Given(NamedTuple):
    """One configured value and its source."""

    section: str
    key: str
    value: object
    origin: str
    is_text: bool = False  # the value is text, whatever the type of its key (environment)
    source: ConfigSource = "file"


def load(
    path: Path | None = None,
    *,
    home: Path | None = None,
    overrides: Mapping[str, object] | None = None,
    environ: Mapping[str, str] = os.environ,
    text: str | None = None,
) -> Config:
    """Load the configuration from file, environment and `overrides` (`{"server.port": 0}`).

    `path` names another file, which must exist; `text` is the content of the file, which is then not
    read.  Raises InvalidParams with key, value and remedy.
    """
    paths = find_paths(home, environ)
    if path is not None:
        paths = msgspec.structs.replace(paths, config_file=absolute(path))
    sections: dict[str, dict[str, object]] = {name: {} for name in SECTIONS}
    given = [
        *_from_file(paths.config_file, text, is_required=path is not None),
        *_from_environ(environ),
        *_from_overrides(overrides or {}),
    ]
    sources: dict[str, ConfigSource] = {}
    for each in _renamed(given):  # later sources override earlier ones
        _check_section(each.section, each.origin)
        sections[each.section][each.key] = _checked(each)
        sources[f"{each.section}.{each.key}"] = each.source
    kinds = {name: SECTIONS[name](**values) for name, values in sections.items()}
    notes = tuple(_note_renamed(given))
    return msgspec.structs.replace(Config(paths=paths, sources=sources, notes=notes), **kinds)


def _renamed(given: Sequence[_Given]) -> Iterator[_Given]:
    """Yield what is given, under the new names of its keys; a key that has both names has its new one."""
    named = {f"{each.section}.{each.key}" for each in given}
    for each in given:
        new = OLD_KEYS.get(f"{each.section}.{each.key}")
        if new is None:
            yield each
        elif new not in named:
            section, _, key = new.partition(".")
            yield each._replace(section=section, key=key)


def _note_renamed(given: Iterable[_Given]) -> Iterator[str]:
    for each in given:
        old = f"{each.section}.{each.key}"
        if old in OLD_KEYS:
            yield f"{each.origin}: {old} is {OLD_KEYS[old]} now: rename it"


def refuse_secrets(config: Config, redact: Callable[[str], tuple[str, bool]]) -> None:
    """Raise InvalidParams if a value contains a secret; the error does not repeat the secret."""
    for name in SECTIONS:
        for key, value in msgspec.structs.asdict(getattr(config, name)).items():
            if redact(msgspec.json.encode(value).decode())[1]:
                raise InvalidParams(
                    f"{name}.{key} holds something that looks like a secret: put a reference to it "
                    "there, such as vault:NAME (`palyra secrets set NAME`)",
                    field=f"{name}.{key}",
                )


def parse_value(name: str, text: str) -> object:
    """Return the value of a key given as text, as plain JSON; a list of tables is JSON itself.

    Tables have the given keys alone, without defaults.  Raises InvalidParams for an unknown key, and
    for a value that it does not take.
    """
    section, _, key = name.partition(".")
    _check_section(section, "the command line", key)
    given = _Given(section, key, text, "the command line", is_text=True)
    converted = _checked(given)
    if isinstance(converted, tuple) and any(isinstance(each, msgspec.Struct) for each in converted):
        return _list_of(text)[0]
    plain: object = msgspec.json.decode(msgspec.json.encode(converted))
    return plain


def check_value(name: str, value: object) -> None:
    """Raise InvalidParams for an unknown key, and for a value that it does not take."""
    section, _, key = name.partition(".")
    _check_section(section, "the change", key)
    _checked(_Given(section, key, value, "the change"))


def _from_file(path: Path, text: str | None, *, is_required: bool) -> Iterator[_Given]:
    found = _read_toml(path, is_required=is_required) if text is None else _parse_toml(path, text)
    for section, keys in found.items():
        if not isinstance(keys, dict):
            raise InvalidParams(f"{path}: {section} is outside of a section", field=section)
        if section not in _OLD_SECTIONS:
            _check_section(section, str(path))  # also checks a section without keys
        for key, value in keys.items():
            yield _Given(section, key, value, str(path))


def _read_toml(path: Path, *, is_required: bool) -> dict[str, Any]:
    try:
        return _parse_toml(path, path.read_text(encoding="utf-8"))
    except (
        FileNotFoundError,
        NotADirectoryError,
    ):  # the daemon refuses a home that is a file
        if is_required:
            raise InvalidParams(f"{path}: the file does not exist") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidParams(f"{path}: cannot be read: {error}") from None


def _parse_toml(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidParams(f"{path}: cannot be read: {error}") from None


def _from_environ(environ: Mapping[str, str]) -> Iterator[_Given]:
    for name, value in environ.items():
        section, separator, key = name.removeprefix(ENV_PREFIX).lower().partition("__")
        if name.startswith(ENV_PREFIX) and separator:
            yield _Given(section, key, value, name, is_text=True, source="environment")


def _from_overrides(overrides: Mapping[str, object]) -> Iterator[_Given]:
    for dotted, value in overrides.items():
        section, _, key = dotted.partition(".")
        is_text = isinstance(value, str)
        yield _Given(
            section, key, value, "the command line", is_text=is_text, source="command_line"
        )


# --- Checking ------------------------------------------------------------------------------------


def _check_section(name: str, origin: str, key: str = "") -> None:
    if (new := OLD_KEYS.get(f"{name}.{key}")) is not None:
        raise InvalidParams(f"{origin}: {name}.{key} is {new} now", field=new)
    if name not in SECTIONS:
        raise InvalidParams(
            f"{origin}: there is no section [{name}]{_suggest(name, SECTIONS)}", field=name
        )


def _checked(given: _Given) -> object:
    """Return the value converted to the type of its key.  Raises InvalidParams."""
    hints = get_type_hints(SECTIONS[given.section], include_extras=True)
    name = f"{given.section}.{given.key}"
    if given.key not in hints:
        raise InvalidParams(
            f"{given.origin}: there is no key {name}{_suggest(given.key, hints, given.section)}",
            field=name,
        )
    hint, value, is_text = hints[given.key], given.value, given.is_text
    if is_text and _is_list(hint):
        value, is_text = _list_of(str(value))
    try:
        converted: object = msgspec.convert(value, hint, strict=not is_text)
        msgspec.json.encode(converted)
    except UnicodeEncodeError:
        raise InvalidParams(
            f"{given.origin}: {name} is no text: it holds half a character", field=name
        ) from None
    except msgspec.ValidationError as error:
        problem = _explained(error, name, hint, value) or (
            f"{name}{_shown(given.value)}: expected {allowed_values(hint)}"
        )
        raise InvalidParams(f"{given.origin}: {problem}", field=name) from None
    _require_references(given, name, hint, converted)
    return converted


def _require_references(given: _Given, name: str, hint: object, value: object) -> None:
    """Raise InvalidParams, without the value, if a secret is where a reference to one belongs."""
    if isinstance(value, tuple):
        for item in (each for each in value if isinstance(each, msgspec.Struct)):
            for key, inner in get_type_hints(type(item), include_extras=True).items():
                _require_references(given, f"{name}.{key}", inner, getattr(item, key))
        return
    if isinstance(value, str) and value and _is_of_reference(hint) and not is_reference(value):
        raise InvalidParams(
            f"{given.origin}: {name} is no reference to a secret: put the secret elsewhere and name "
            "it as env:NAME, file:PATH, keyring:SERVICE/NAME or vault:NAME (`palyra secrets set`)",
            field=f"{given.section}.{given.key}",
        )


def _is_of_reference(hint: object) -> bool:
    found = inspect.type_info(hint)
    words = found.extra_json_schema if isinstance(found, inspect.Metadata) else None
    return str((words or {}).get("description", "")).startswith("Reference to")


def _explained(error: msgspec.ValidationError, name: str, hint: object, value: object) -> str:
    """Return the error in a list of tables, with its position; "" for any other key.

    The message never contains the value, because tables may contain secrets.
    """
    tables = _type_of(hint)
    if not isinstance(tables, inspect.VarTupleType) or not isinstance(value, list):
        return ""
    item = tables.item_type
    if not isinstance(item, inspect.StructType):
        return ""
    from palyra.core.text.validation_errors import explain  # noqa: PLC0415 - for errors only

    fault = explain(error, hint, value)  # type: ignore[arg-type]  # any type that msgspec accepts
    if fault.message.startswith("unknown field"):
        keys = {field.encode_name: field.type for field in item.fields}
        key = fault.field.rpartition(".")[2]
        return f"{name}{fault.field}: there is no such key{_suggest(key, keys)}"
    said = fault.message.removeprefix(f"{fault.field}: ").partition(", got ")[0]
    return f"{name}{fault.field}: {said}"


def _is_list(hint: object) -> bool:
    return isinstance(_type_of(hint), inspect.VarTupleType)


def _list_of(text: str) -> tuple[list[object], bool]:
    """Return a list given as text, JSON or separated by commas, and whether its items are texts."""
    with suppress(msgspec.DecodeError):
        decoded = msgspec.json.decode(text)
        if isinstance(decoded, list):
            return decoded, False
    return [part.strip() for part in text.split(",") if part.strip()], True


def _shown(value: object) -> str:
    """Return " = " and the value, truncated and redacted; "" for tables, which may have secrets."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return ""
    from palyra.core.redaction.redactor import Redactor  # noqa: PLC0415 - compiles the rules, for errors only

    text, _ = Redactor([]).redact_text(repr(value))
    return f" = {text}" if len(text) <= _SHOWN_CHARS else f" = {text[:_SHOWN_CHARS]}…"


def _suggest(name: str, known: Mapping[str, object], section: str = "") -> str:
    near = get_close_matches(name, known, n=1)
    return (
        f"; did you mean {section}{'.' * bool(section)}{near[0]}?"
        if near
        else f"; there are {', '.join(known)}"
    )


def _type_of(hint: object) -> inspect.Type:
    found = inspect.type_info(hint)
    return found.type if isinstance(found, inspect.Metadata) else found


def allowed_values(hint: object) -> str:
    """Describe the allowed values of a key."""
    match _type_of(hint):
        case inspect.IntType(ge=least, le=most):
            return f"a whole number from {least} to {most}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType(values=values):
            return f"one of {', '.join(str(each) or 'empty' for each in sorted(values, key=str))}"
        case inspect.VarTupleType(item_type=item):
            return f"a list of {_allowed_items(item)}"
        case _:
            return "a string"


# --- Schema and first file -----------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration file."""
    references, components = msgspec.json.schema_components(SECTIONS.values())
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "properties": dict(zip(SECTIONS, references, strict=True)),
        "$defs": components,
    }


def first_file() -> str:
    """Return a configuration file with the description and default of every key, commented out."""
    lines = ["# Palyra.  Every key is optional; the values shown are the defaults."]
    for name, kind in SECTIONS.items():
        lines += ["", f"# {kind.__doc__}", f"[{name}]"]
        for key, described in schema()["$defs"][kind.__name__]["properties"].items():
            default = msgspec.json.encode(described["default"]).decode()  # plain JSON is TOML too
            lines += [f"# {described['description']}", f"# {key} = {default}"]
    return "\n".join([*lines, ""])


def _allowed_items(item: inspect.Type) -> str:
    match item:
        case inspect.StructType():
            return "tables with the keys of the schema (`palyra config schema`)"
        case inspect.Metadata(extra={"words": str(words)}):
            return words
        case _:
            return "strings" if isinstance(item, inspect.StrType) else "numbers"
