"""Presets: commented user policies that ship with the program, and their files.

A preset becomes an ordinary file of the policy folder, `preset-NAME.cedar`, which its owner may edit.
All functions block.
"""

import re
from pathlib import Path
from typing import Literal, get_args

import msgspec

from palyra.tools.policy.cases import check_policies
from palyra.tools.policy.generated_files import remove_generated, write_generated
from palyra.tools.policy.rules import SHIPPED

PresetName = Literal["coding", "research", "locked"]
PRESETS: tuple[PresetName, ...] = get_args(PresetName)


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
    exists = f"{path} exists; palyra policy init {name} --undo removes it if unedited"
    write_generated(path, f"preset {name}", text, exists=exists)
    return _preset(path, name, text)


def remove_preset(folder: Path, name: PresetName) -> PolicyPreset:
    """Remove the file of a preset.  Raises NotFound, Conflict for an edited file, Unavailable."""
    path = _path(folder, name)
    return _preset(path, name, remove_generated(path, re.compile(f"preset {name}")).body)


def read_preset(name: PresetName) -> str:
    """Return the text of a shipped preset."""
    return (SHIPPED / f"preset-{name}.cedar").read_text(encoding="utf-8")


def _path(folder: Path, name: PresetName) -> Path:
    return folder / f"preset-{name}.cedar"


def _preset(path: Path, name: PresetName, text: str) -> PolicyPreset:
    rules = tuple(re.findall(r'^@id\("([a-z]+)"\)', text, re.MULTILINE))
    return PolicyPreset(name=name, file=str(path), rules=rules, cedar=text)
