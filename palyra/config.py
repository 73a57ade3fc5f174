"""The configuration: typed, every key with a default, a range and a line that says what it is.

Order of precedence: command line, environment (`PALYRA_SECTION__KEY`), file, default.  Unknown
keys are errors with a suggestion; a bad value names key, value and what is allowed.  Paths:
`PALYRA_HOME` or `--home` keeps configuration and data together, else the platform's directories.
"""

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
import platformdirs
from msgspec import Meta

from palyra.errors import InvalidParams

_Port = Annotated[int, Meta(ge=0, le=65_535)]
_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Bytes = Annotated[int, Meta(ge=1_024, le=1_073_741_824)]
_Millis = Annotated[int, Meta(ge=100, le=604_800_000)]
ENV_PREFIX = "PALYRA_"


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections; `DOC` of a subclass explains each key."""


class Server(Section, frozen=True, kw_only=True):
    """Where clients connect, and what one connection may use."""

    host: Annotated[str, Meta(description="Address to listen on; loopback unless you know why.")] = "127.0.0.1"
    port: Annotated[_Port, Meta(description="Port; 0 takes a free one.")] = 7467
    allowed_hosts: Annotated[tuple[str, ...], Meta(description="Names beside loopback that a Host header may carry.")] = ()
    allowed_origins: Annotated[tuple[str, ...], Meta(description="Origins beside our own that a browser page may have.")] = ()
    max_connections: Annotated[_Count, Meta(description="Connections at once.")] = 512
    max_message_bytes: Annotated[_Bytes, Meta(description="Largest message a client may send.")] = 1_048_576
    max_inflight: Annotated[_Count, Meta(description="Requests of one connection at once.")] = 64
    max_subscriptions: Annotated[_Count, Meta(description="Subscriptions of one connection.")] = 256
    outbox_bytes: Annotated[_Bytes, Meta(description="What may wait for one slow connection.")] = 8_388_608
    requests_per_s: Annotated[_Count, Meta(description="Requests a second of one connection.")] = 100


class JournalConfig(Section, frozen=True, kw_only=True):
    """The durable store."""

    synchronous: Annotated[Literal["full", "normal"], Meta(description="full survives power loss; normal only kill -9.")] = "full"


class Runs(Section, frozen=True, kw_only=True):
    """Bounds of runs."""

    wall_ms: Annotated[_Millis, Meta(description="How long a run may take, waiting for people excluded.")] = 900_000
    approval_ms: Annotated[_Millis, Meta(description="How long a person has to answer.")] = 900_000
    max_turns: Annotated[_Count, Meta(description="Model turns of one run.")] = 256
    max_open: Annotated[_Count, Meta(description="Open runs at once.")] = 10_000
    queue_cap: Annotated[_Count, Meta(description="Messages that may wait in one session.")] = 20
    drain_ms: Annotated[_Millis, Meta(description="How long runs may finish when the daemon stops.")] = 10_000


class Tools(Section, frozen=True, kw_only=True):
    """What tools may touch."""

    workspace: Annotated[str, Meta(description="The directory tools work in; empty: the current one.")] = ""


class Models(Section, frozen=True, kw_only=True):
    """Which model answers."""

    default: Annotated[str, Meta(description="Model of runs that name none.")] = "scripted"


class PolicyConfig(Section, frozen=True, kw_only=True):
    """The rules."""

    dir: Annotated[str, Meta(description="Directory of your own *.cedar files; empty: policies/ beside the configuration.")] = ""


class Logging(Section, frozen=True, kw_only=True):
    """What the daemon says about itself, on standard error."""

    format: Annotated[Literal["console", "json"], Meta(description="For people or for programs.")] = "console"
    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Least level shown.")] = "info"


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """Where things lie; derived, not configured."""

    config_dir: Path
    data_dir: Path

    @property
    def config_file(self) -> Path:
        """`palyra.toml`."""
        return self.config_dir / "palyra.toml"

    @property
    def policies(self) -> Path:
        """The default place of user policies."""
        return self.config_dir / "policies"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sections."""

    server: Server = Server()
    journal: JournalConfig = JournalConfig()
    runs: Runs = Runs()
    tools: Tools = Tools()
    models: Models = Models()
    policy: PolicyConfig = PolicyConfig()
    logging: Logging = Logging()
    paths: Paths = Paths(config_dir=Path("."), data_dir=Path("."))

    @property
    def workspace(self) -> Path:
        """The directory tools work in, absolute."""
        return Path(self.tools.workspace or ".").resolve()

    @property
    def policy_dir(self) -> Path:
        """Where the user's policies lie."""
        return Path(self.policy.dir) if self.policy.dir else self.paths.policies


SECTIONS: dict[str, type[Section]] = {
    "server": Server, "journal": JournalConfig, "runs": Runs, "tools": Tools, "models": Models,
    "policy": PolicyConfig, "logging": Logging,
}
Values = dict[str, dict[str, Any]]


def find_paths(home: Path | None, environ: Mapping[str, str] = os.environ) -> Paths:
    """Where configuration and data lie."""
    chosen = home or (Path(environ["PALYRA_HOME"]) if environ.get("PALYRA_HOME") else None)
    if chosen is not None:
        chosen = chosen.expanduser().resolve()
        return Paths(config_dir=chosen, data_dir=chosen)
    return Paths(
        config_dir=Path(platformdirs.user_config_dir("palyra")),
        data_dir=Path(platformdirs.user_data_dir("palyra")),
    )


def load(
    path: Path | None = None,
    *,
    home: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Config:
    """The configuration from file, environment and `overrides` (`{"server.port": 0}`).

    Raises InvalidParams naming the key, the value and the remedy.
    """
    paths = find_paths(home, environ)
    values = _read_file(path or paths.config_file, is_required=path is not None)
    _merge(values, _from_environ(environ))
    _merge(values, _nested(overrides or {}))
    sections = {name: _section(name, given) for name, given in values.items()}
    return msgspec.structs.replace(Config(paths=paths), **sections)


def _read_file(path: Path, *, is_required: bool) -> Values:
    try:
        parsed = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if is_required:
            raise InvalidParams(f"{path}: no such configuration file") from None
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidParams(f"{path}: cannot be read: {error}") from None
    for name, section in parsed.items():
        if not isinstance(section, dict):
            raise InvalidParams(f"{path}: {name!r} is not a section; write [{name}]")
    return parsed


def _from_environ(environ: Mapping[str, str]) -> Values:
    """`PALYRA_SERVER__PORT=0` as `{"server": {"port": "0"}}`; others are not ours."""
    found = {
        name.removeprefix(ENV_PREFIX).lower().replace("__", ".", 1): value
        for name, value in environ.items()
        if name.startswith(ENV_PREFIX) and "__" in name
    }
    return _nested(found)


def _nested(flat: Mapping[str, Any]) -> Values:
    values: Values = {}
    for dotted, value in flat.items():
        section, _, key = dotted.partition(".")
        values.setdefault(section, {})[key] = value
    return values


def _merge(values: Values, over: Values) -> None:
    for section, keys in over.items():
        values.setdefault(section, {}).update(keys)


def _section(name: str, given: Mapping[str, Any]) -> Section:
    """One section.  Raises InvalidParams."""
    kind = SECTIONS.get(name)
    if kind is None:
        raise InvalidParams(f"no section [{name}]{_suggest(name, SECTIONS)}", field=name)
    for key, value in given.items():
        _check_key(kind, name, key, value)
    return msgspec.convert(_split_lists(kind, given), kind, strict=False)


def _check_key(kind: type[Section], section: str, key: str, value: Any) -> None:
    """Raise for an unknown key or a value it does not take."""
    hints = get_type_hints(kind, include_extras=True)
    if key not in hints:
        raise InvalidParams(
            f"no key {section}.{key}{_suggest(key, hints)}", field=f"{section}.{key}"
        )
    try:
        msgspec.convert(_split_lists(kind, {key: value}), kind, strict=False)
    except msgspec.ValidationError as error:
        reason = str(error).partition(" - at ")[0]
        raise InvalidParams(
            f"{section}.{key} = {value!r}: {reason}", field=f"{section}.{key}"
        ) from None


def _split_lists(kind: type[Section], given: Mapping[str, Any]) -> dict[str, Any]:
    """A list may be written as one comma-separated text, as the environment has to."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(kind)}
    return {
        key: [part.strip() for part in value.split(",") if part.strip()]
        if isinstance(value, str) and isinstance(defaults.get(key), tuple)
        else value
        for key, value in given.items()
    }


def _suggest(name: str, known: Mapping[str, Any]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(known))}"


def schema() -> dict[str, Any]:
    """JSON Schema of the configuration file."""
    described = {name: msgspec.json.schema(kind) for name, kind in SECTIONS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "additionalProperties": False,
        "properties": described,
    }


def first_file() -> str:
    """A configuration file with every key, its meaning and its default, all commented out."""
    lines = ["# Palyra.  Every key is optional; what stands here is the default.", ""]
    for name, kind in SECTIONS.items():
        lines += [f"# {(kind.__doc__ or '').splitlines()[0]}", f"[{name}]"]
        properties = msgspec.json.schema(kind)["$defs"][kind.__name__]["properties"]
        for key, described in properties.items():
            default = msgspec.json.encode(described.get("default")).decode()
            lines += [f"# {described.get('description', '')}", f"# {key} = {default}"]
        lines.append("")
    return "\n".join(lines)
