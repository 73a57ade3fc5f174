"""Presets: commented user policies that ship with the program, and their files.

A preset becomes an ordinary file of the policy folder, `preset-NAME.cedar`, which its owner may edit.  Its
first line has the SHA-256 of the rest, so an undo removes what was written and never an edited file.
All functions block.
"""

import re
from pathlib import Path
from typing import Literal, get_args

import msgspec

from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import Conflict, NotFound, Unavailable
from palyra.tools.policy.cases import check_policies
from palyra.tools.policy.rules import MAX_FILES, SHIPPED
from palyra.tools.policy.suggested_files import create_file, remove_file

PresetName = Literal["coding", "research", "locked"]
PRESETS: tuple[PresetName, ...] = get_args(PresetName)
_HEAD = re.compile(r"// palyra preset ([a-z]+), sha256 ([0-9a-f]{64})\n")


class PolicyPreset(msgspec.Struct, frozen=True, kw_only=True):
    """A preset in a policy folder."""

    name: PresetName
    file: str
    rules: tuple[str, ...]  # ids, in order
    cedar: str


def write_preset(folder: Path, name: PresetName) -> PolicyPreset:
    """Write a preset to a file of its own; a file that exists is never changed.

    Raises Conflict for an existing file or a full folder, Unavailable, BrokenPolicy if the folder's
    policies are broken; then nothing was written.
    """
    path, text = _path(folder, name), read_preset(name)
    if folder.exists():
        check_policies(folder)
        if path.exists():
            raise Conflict(
                f"{path} exists; palyra policy init {name} --undo removes it if unedited"
            )
        if len(list(folder.glob("*.cedar"))) >= MAX_FILES:
            raise Conflict(f"{folder} has {MAX_FILES} policy files, which is the limit: join some")
    head = f"// palyra preset {name}, sha256 {sha256_hex(text.encode())}\n"
    try:
        create_file(path, (head + text).encode())
    except FileExistsError:
        raise Conflict(f"{path} exists already") from None
    except OSError as error:
        raise Unavailable(f"{path} could not be written: {error}") from error
    return _preset(path, name, text)


def remove_preset(folder: Path, name: PresetName) -> PolicyPreset:
    """Remove the file of a preset.  Raises NotFound, Conflict for an edited file, Unavailable."""
    path = _path(folder, name)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"{path} does not exist: nothing to undo") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path} could not be read: {error}") from error
    head = _HEAD.match(text)
    body = "" if head is None else text[head.end() :]
    if head is None or head[2] != sha256_hex(body.encode()):
        raise Conflict(f"{path} was edited since it was written: remove the file by hand")
    try:
        remove_file(path)
    except OSError as error:
        raise Unavailable(f"{path} could not be removed: {error}") from error
    return _preset(path, name, body)


def read_preset(name: PresetName) -> str:
    """Return the text of a shipped preset."""
    return (SHIPPED / f"preset-{name}.cedar").read_text(encoding="utf-8")


def _path(folder: Path, name: PresetName) -> Path:
    return folder / f"preset-{name}.cedar"


def _preset(path: Path, name: PresetName, text: str) -> PolicyPreset:
    rules = tuple(re.findall(r'^@id\("([a-z]+)"\)', text, re.MULTILINE))
    return PolicyPreset(name=name, file=str(path), rules=rules, cedar=text)
