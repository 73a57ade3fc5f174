"""The configuration file while a daemon runs: values with their sources, and one value changed.

Never: writes a file that the loader would refuse, or over a change of another program.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE
from typing import Any

import msgspec

from palyra.config.load import (
    OLD_KEYS,
    Config,
    check_value,
    first_file,
    load,
    refuse_secrets,
    schema,
)
from palyra.config.sections import SECTIONS
from palyra.core.configuration import (
    ConfigChange,
    ConfigChanged,
    ConfigEffect,
    ConfigEntry,
    ConfigView,
)
from palyra.errors import Conflict, InvalidParams, Unavailable

# Keys that a running daemon reads again when the file changes: prices and budgets by
# `wiring.usage.UsageFile`, the others by `wiring.live_settings.LiveSettings`.
_FOLLOWED = frozenset({
    "tools.workspaces", "models.default", "models.providers", "models.routing", "models.routes",
    "models.failover", "mcp.servers", "notify.webhook", "notify.topic", "notify.after_s",
})  # fmt: skip
LIVE_KEYS = frozenset({"usage.prices", "usage.budgets", *_FOLLOWED})
_PRIVATE_MODE, _PRIVATE_FILE_MODE = 0o700, 0o600

Redact = Callable[[str], tuple[str, bool]]
FileStamp = tuple[int, int, int] | None  # of the file's inode, size and time; None: no file


def _accept(_config: Config) -> None:
    return None


class ConfigFile:
    """The file that a configuration was loaded from.  All methods block."""

    def __init__(
        self,
        running: Config,
        redact: Redact,
        check: Callable[[Config], object] = _accept,
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """`check` raises InvalidParams for a configuration that cannot be started with."""
        self.running = running  # the configuration in force
        self._redact = redact
        self._check = check
        self._environ = environ
        self.path = running.paths.config_file

    def read(self) -> ConfigView:
        """Return all keys.  An error in the file is its `problem`.  Raises Unavailable, Conflict."""
        text = self._read()
        problem, next_start = "", self.running
        if text is not None:
            try:
                next_start = self._load(text)
            except InvalidParams as error:
                problem = error.message
        else:
            next_start = self._load("")
        return ConfigView(
            entries=tuple(_entries(self.running, next_start)),
            config_file=str(self.path),
            digest=_digest(text),
            problem=problem,
        )

    def change(self, change: ConfigChange) -> ConfigChanged:
        """Write one value, or remove it; the file is complete and valid at every moment.

        Raises InvalidParams for a value that the daemon would not start with, Conflict for a file that
        changed since `change.digest` or meanwhile, Unavailable for one that cannot be edited or
        written.
        """
        from palyra.config.edit import set_value, unset_value, without_nulls  # noqa: PLC0415 - imports tomlkit

        before = self._read()
        if change.digest is not None and change.digest != _digest(before):
            raise Conflict(f"{self.path} has changed meanwhile: read it again", field="digest")
        section, _, key = change.key.partition(".")
        text = first_file() if before is None else before
        if change.value is None:
            if change.key not in OLD_KEYS:
                check_value(change.key, _default(change.key))
            after = unset_value(text, section, key)
        else:
            check_value(change.key, change.value)
            check_value(change.key, without_nulls(change.value))
            after = set_value(text, section, key, change.value)
        loaded = self._load(after)
        self._check(loaded)
        if after != before:
            replace_text(self.path, before, after)
        source = loaded.sources.get(change.key, "default")
        return ConfigChanged(
            key=change.key,
            value=_default(change.key) if change.value is None else without_nulls(change.value),
            effect=_effect(change.key, source),
            source=source,
            digest=_digest(after),
            config_file=str(self.path),
        )

    def look(self) -> FileStamp:
        """Return what differs after a change of the file."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def load_live(self) -> Config:
        """Return the configuration in force with the followed keys as the file has them now.

        Raises InvalidParams, Unavailable.
        """
        found, made = self._load(self._read() or ""), self.running
        for name in _FOLLOWED:
            section, _, key = name.partition(".")
            part = getattr(made, section)
            value = getattr(getattr(found, section), key)
            changed = {section: msgspec.structs.replace(part, **{key: value})}
            made = msgspec.structs.replace(made, **changed)
        kept = {name: given for name, given in made.sources.items() if name not in _FOLLOWED}
        taken = {name: given for name, given in found.sources.items() if name in _FOLLOWED}
        return msgspec.structs.replace(made, sources={**kept, **taken})

    def _read(self) -> str | None:
        try:
            return self.path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(f"{self.path}: cannot be read: {error}") from None

    def _load(self, text: str) -> Config:
        """Return what the next start with this text and the same command line would load."""
        found = load(self.path, environ=self._environ, text=text)
        refuse_secrets(found, self._redact)
        running = self.running
        kept = {name: given for name, given in running.sources.items() if given == "command_line"}
        for name in kept:
            section, _, key = name.partition(".")
            part = getattr(found, section)
            value = getattr(getattr(running, section), key)
            changed = {section: msgspec.structs.replace(part, **{key: value})}
            found = msgspec.structs.replace(found, **changed)
        return msgspec.structs.replace(
            found, paths=running.paths, sources={**found.sources, **kept}
        )


def _effect(key: str, source: str) -> ConfigEffect:
    if source in {"environment", "command_line"}:
        return "overridden"
    return "now" if key in LIVE_KEYS else "restart"


def _entries(running: Config, next_start: Config) -> list[ConfigEntry]:
    described = schema()["$defs"]
    found = []
    for section, kind in SECTIONS.items():
        for key, words in described[kind.__name__]["properties"].items():
            name = f"{section}.{key}"
            value, following = (
                msgspec.to_builtins(getattr(getattr(each, section), key))
                for each in (running, next_start)
            )
            is_read = name in LIVE_KEYS - _FOLLOWED  # `running` is not updated with these
            now = next_start if is_read else running
            found.append(
                ConfigEntry(
                    key=name,
                    value=following if is_read else value,
                    source=now.sources.get(name, "default"),
                    next_value=following,
                    default=words["default"],
                    description=words["description"],
                    is_live=name in LIVE_KEYS,
                )
            )
    return found


def _default(name: str) -> Any:  # noqa: ANN401 - of any key
    """Return the default of a key.  Raises InvalidParams for an unknown key."""
    section, _, key = OLD_KEYS.get(name, name).partition(".")
    if section not in SECTIONS or key not in SECTIONS[section].__struct_fields__:
        check_value(name, None)  # names the nearest key
    return msgspec.to_builtins(getattr(SECTIONS[section](), key))


def _digest(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()


def replace_text(path: Path, before: str | None, after: str) -> None:
    """Replace the file by the text `after`, unless its text is not `before` (None: no file) any more.

    Raises Conflict, Unavailable.
    """
    try:
        now: str | None = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        now = None
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path}: cannot be read: {error}") from None
    if now != before:
        raise Conflict(f"{path} has changed meanwhile: try again", field="digest")
    write = _create if now is None else replace_content
    try:
        write(path.resolve(), after.encode())
    except FileExistsError:
        raise Conflict(f"{path} has changed meanwhile: try again", field="digest") from None
    except OSError as error:
        raise Unavailable(f"{path}: cannot be written: {error.strerror}") from None


def _create(path: Path, content: bytes) -> None:
    path.parent.mkdir(mode=_PRIVATE_MODE, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with os.fdopen(os.open(path, flags, _PRIVATE_FILE_MODE), "wb") as file:
        file.write(content)


def replace_content(target: Path, content: bytes) -> None:
    """Replace a regular file atomically and keep its permissions.  Raises OSError."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("xb") as file:
            if target.exists():
                draft.chmod(S_IMODE(target.stat().st_mode))
            file.write(content)
            file.flush()
            with suppress(OSError):  # some file systems do not support fsync
                os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
