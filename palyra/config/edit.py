"""Changes of palyra.toml by commands: the text is edited, comments and order are kept.

Never: writes a file.  The result is parsed again and compared with the intended values, so a file
of an unusual shape (dotted keys, tables in another order) is refused and never damaged.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, TypeVar

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, AoT, Array

from palyra.errors import InvalidParams, Unavailable

T = TypeVar("T", bound=AbstractTable)


def set_entry(text: str, section: str, key: str, entry: Mapping[str, object]) -> str:
    """Return the text with the entry in the list of tables `section.key`.

    An entry of the same `name` gets the given values and keeps its others.  Raises InvalidParams
    for a text that is no TOML, Unavailable for one that cannot be edited safely.
    """
    opened = _uncommented(text, section, key, "[]")

    def change(values: dict[str, Any]) -> None:
        _merge(values.setdefault(section, {}).setdefault(key, []), entry)

    return _edited(text, change, lambda: _set_entry(tomlkit.parse(opened), section, key, entry))


def set_value(text: str, section: str, key: str, value: object) -> str:
    """Return the text with the value of that key; raises like `set_entry`."""
    opened = _uncommented(text, section, key, '""')

    def change(values: dict[str, Any]) -> None:
        values.setdefault(section, {})[key] = value

    return _edited(text, change, lambda: _set_value(tomlkit.parse(opened), section, key, value))


def unset_value(text: str, section: str, key: str) -> str:
    """Return the text without that key; raises like `set_entry`."""

    def change(values: dict[str, Any]) -> None:
        values.get(section, {}).pop(key, None)

    def edit() -> tomlkit.TOMLDocument:
        document = tomlkit.parse(text)
        if section in document:
            document[section].pop(key, None)
        return document

    return _edited(text, change, edit)


def _parse(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidParams(f"the configuration cannot be read: {error}") from None


def _uncommented(text: str, section: str, key: str, value: str) -> str:
    """Return the text with the value where the first file has the key's default as a comment.

    Without this line a new key would come after the comment that introduces the next section.
    """
    header = re.search(rf"(?m)^\[{re.escape(section)}\][ \t]*$", text)
    if header is None or key in _parse(text).get(section, {}):
        return text
    end = re.compile(r"(?m)^\[").search(text, header.end())
    stop = len(text) if end is None else end.start()
    found = re.compile(rf"(?m)^# {re.escape(key)} = .*$").search(text, header.end(), stop)
    if found is None:
        return text
    return f"{text[: found.start()]}{key} = {value}{text[found.end() :]}"


def _merge(entries: list[dict[str, Any]], entry: Mapping[str, object]) -> None:
    for each in entries:
        if each.get("name") == entry["name"]:
            each.update(deepcopy(dict(entry)))
            return
    entries.append(deepcopy(dict(entry)))


def _edited(
    text: str, change: Callable[[dict[str, Any]], None], edit: Callable[[], tomlkit.TOMLDocument]
) -> str:
    """Return the edited text if it means what the change makes of the values, and nothing else."""
    before, wanted = _parse(text), _parse(text)
    try:
        change(wanted)
        made: str = tomlkit.dumps(edit())
        is_right = tomllib.loads(made) == wanted
    except (TOMLKitError, tomllib.TOMLDecodeError, TypeError, ValueError, AttributeError):
        is_right = False
    if not is_right:
        raise Unavailable(
            "the configuration has a form that this command cannot edit without loss; "
            "edit it yourself"
        )
    return text if before == wanted else made


def _set_entry(
    document: tomlkit.TOMLDocument, section: str, key: str, entry: Mapping[str, object]
) -> tomlkit.TOMLDocument:
    if section not in document:
        document.add(section, tomlkit.table())
    table = document[section]
    if key not in table:
        table.append(key, tomlkit.aot())
    entries = table[key]
    found = next((each for each in entries if each.get("name") == entry["name"]), None)
    if found is not None:
        for name, value in entry.items():
            found[name] = value
    elif isinstance(entries, AoT):
        entries.append(_filled(tomlkit.table(), entry))
    elif isinstance(entries, Array):
        entries.append(_filled(tomlkit.inline_table(), entry))
        entries.multiline(multiline=True)
    return document


def _filled(made: T, entry: Mapping[str, object]) -> T:
    made.update(entry)
    return made


def _set_value(
    document: tomlkit.TOMLDocument, section: str, key: str, value: object
) -> tomlkit.TOMLDocument:
    if section not in document:
        document.add(section, tomlkit.table())
    is_tables = isinstance(value, list) and any(isinstance(each, dict) for each in value)
    if is_tables and not isinstance(document[section].get(key), AoT):
        value = _tables(value)
    document[section][key] = value
    return document


def _tables(entries: Any) -> Array:  # noqa: ANN401 - a list of tables as the loader checked it
    """Return the entries as an array of one line each: a header would end the section's own keys."""
    made = tomlkit.array()
    for each in entries:
        made.append(_filled(tomlkit.inline_table(), each))
    return made.multiline(multiline=True)
