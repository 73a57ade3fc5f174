"""Changes of palyra.toml by commands: the text is edited, comments and order are kept.

Never: writes a file.  The result is parsed again and compared with the intended values, so a file
of an unusual shape (dotted keys, tables in another order) is refused and never damaged.
"""

import json
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
    entry = without_nulls(entry)

    def change(values: dict[str, Any]) -> None:
        entries = values.setdefault(section, {}).setdefault(key, [])
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise InvalidParams(
                f"the configuration has {section}.{key}, which is no list of tables", field=key
            )
        _merge(entries, entry)

    return _edited(text, change, lambda: _set_entry(tomlkit.parse(opened), section, key, entry))


def set_value(text: str, section: str, key: str, value: object) -> str:
    """Return the text with the value of that key; raises like `set_entry`.

    Tables of the list keep their comments; keys that are null are left out, because TOML has no null.
    """
    opened = _uncommented(text, section, key, '""')
    value = without_nulls(value)

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


def without_nulls(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return the JSON value without the keys of its tables that are null."""
    if isinstance(value, Mapping):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [without_nulls(each) for each in value]
    return value


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
    for name, values in before.items():
        if not isinstance(values, dict):
            raise InvalidParams(f"{name} is outside of a section", field=name)
    change(wanted)
    try:
        made: str = tomlkit.dumps(edit())
        is_right = tomllib.loads(made) == wanted
    except (TOMLKitError, tomllib.TOMLDecodeError, LookupError):
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
    document: tomlkit.TOMLDocument,
    section: str,
    key: str,
    value: Any,  # noqa: ANN401 - JSON
) -> tomlkit.TOMLDocument:
    if section not in document:
        document.add(section, tomlkit.table())
    is_tables = isinstance(value, list) and any(isinstance(each, dict) for each in value)
    found = document[section].get(key)
    if is_tables and isinstance(found, AoT | Array) and _replace_tables(found, value):
        return document
    if is_tables and not isinstance(found, AoT):
        value = _tables(value)
    document[section][key] = value
    return document


def _replace_tables(found: AoT | Array, entries: list[dict[str, Any]]) -> bool:
    """Change the list in place, so that its tables keep their comments; False if that is not possible.

    Tables are matched by name, id or model, else by content.  It is not possible if their order changes or
    two are alike.
    """
    old, new = _identities(found.unwrap(), entries)
    kept = [each for each in old if each in new]
    is_plain = len({*old}) == len(old) and len({*new}) == len(new)
    if not kept or not is_plain or kept != [each for each in new if each in old]:
        return False
    for at in reversed(range(len(old))):
        if old[at] not in new:
            del found[at]
    for at, (identity, entry) in enumerate(zip(new, entries, strict=True)):
        if identity in old:
            _update(found[at], entry)
        else:
            made = tomlkit.table() if isinstance(found, AoT) else tomlkit.inline_table()
            found.insert(at, _filled(made, entry))
    return True


def _identities(*lists: list[dict[str, Any]]) -> tuple[list[str], ...]:
    """Return what identifies each table within its list."""
    for key in ("name", "id", "model"):
        found = tuple([str(each.get(key, "")) for each in entries] for entries in lists)
        if all(all(names) and len({*names}) == len(names) for names in found):
            return found
    return tuple([json.dumps(each, sort_keys=True, default=str) for each in a] for a in lists)


def _update(table: Any, entry: Mapping[str, Any]) -> None:  # noqa: ANN401 - tomlkit's
    for key in [key for key in table if key not in entry]:
        del table[key]
    for key, value in entry.items():
        if key not in table or table[key] != value:
            table[key] = value


def _tables(entries: Any) -> Array:  # noqa: ANN401 - a list of tables as the loader checked it
    """Return the entries as an array of one line each: a header would end the section's own keys."""
    made = tomlkit.array()
    for each in entries:
        made.append(_filled(tomlkit.inline_table(), each))
    return made.multiline(multiline=True)
