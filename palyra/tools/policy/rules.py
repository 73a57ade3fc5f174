"""Immutable rule sets: policy files in layers, parsed and validated once.

The layers are, from lowest to highest: built-in forbids, shipped defaults, user policies.  A
forbid of any layer denies a call.  Among the matching permits only those of the highest layer
count; if one of them requires an approval, the decision is ask.
"""

import hashlib
import os
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import cedarpy
import msgspec

from palyra.core.tool.paths import composed
from palyra.tools.policy.mentions import Mentions, find_mentions, mentions_words
from palyra.tools.policy.probe import probe
from palyra.tools.policy.text import BrokenPolicy, check_policy_text, statements

Fingerprint = tuple[tuple[str, int, int, int], ...] | None
Layer = Literal["builtin", "default", "user"]
LAYERS: tuple[Layer, ...] = ("builtin", "default", "user")
MAX_FILES = 64
MAX_TOTAL_CHARS = 262_144  # total of all files; bounds the duration of a reload
SHIPPED = Path(__file__).resolve().parents[2] / "policies"
_ANNOTATIONS = frozenset({"id", "approval", "reason"})


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """Text of one policy file and its origin."""

    layer: Layer
    name: str
    text: str
    path: str = ""

    @property
    def place(self) -> str:
        """Name of the file in messages."""
        return self.path or f"{self.name}.cedar"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One policy, as reported by decisions."""

    id: str  # builtin/private, default/ask, user/<file>/<label or number>
    label: str | None  # value of @id
    rank: int  # index of its layer; higher wins
    asks: bool  # True for a permit that requires an approval
    reason: str


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A validated rule set; `rules` is keyed by the engine's policy ids."""

    policies: cedarpy.PolicySet
    schema: cedarpy.Schema
    rules: Mapping[str, PolicyRule]
    version: str
    mentions: Mentions  # context attributes that the rules read
    reads_words: bool  # some rule reads the words of a command or the folders of a call


class _Annotated(msgspec.Struct):
    effect: Literal["permit", "forbid"]
    annotations: dict[str, str | None] = {}


class _Parsed(msgspec.Struct, rename="camel"):
    static_policies: dict[str, _Annotated]
    templates: dict[str, msgspec.Raw]


_PARSED = msgspec.json.Decoder(_Parsed)


def read_policy_files(folder: Path, layer: Layer) -> list[PolicyFile]:
    """Read the `*.cedar` files of a folder, ordered by name; [] if the folder does not exist.

    Raises BrokenPolicy for an unreadable file and for more than MAX_FILES files.
    """
    paths = sorted(folder.glob("*.cedar"))
    if len(paths) > MAX_FILES:
        raise BrokenPolicy(f"{folder}: {len(paths)} policy files; at most {MAX_FILES} are read")
    return [PolicyFile(layer, path.stem, _read(path), str(path)) for path in paths]


def shipped_files() -> list[PolicyFile]:
    """Read the shipped files: built-in forbids and defaults."""
    builtin, default = SHIPPED / "builtin.cedar", SHIPPED / "default.cedar"
    return [
        PolicyFile("builtin", "builtin", _read(builtin)),
        PolicyFile("default", "default", _read(default)),
    ]


def folder_fingerprint(folder: Path) -> Fingerprint:
    """Return a value that changes with every change of the policy files (blocks).

    None without a folder.  The value uses ctime, because programs cannot set it back.
    """
    try:
        entries = [entry for entry in os.scandir(folder) if entry.name.endswith(".cedar")]
    except OSError:
        return None
    return tuple(sorted((entry.name, *_stamp(entry)) for entry in entries))


def _stamp(entry: "os.DirEntry[str]") -> tuple[int, int, int]:
    try:
        found = entry.stat()  # follows a symbolic link
    except OSError:
        return (0, 0, 0)
    return (found.st_ctime_ns, found.st_size, found.st_ino)


def build_rules(files: Sequence[PolicyFile]) -> RuleSet:
    """Parse and validate all files (blocks).  Raises BrokenPolicy with the first error.

    User policies are first parsed in a separate process (`probe`).  The text is read in NFC, as are
    the requests, so a rule about a file holds for every Unicode form of its name.
    """
    files = [replace(file, text=composed(file.text)) for file in files]
    schema_text = _read(SHIPPED / "schema.cedarschema")
    _probe_user_files(schema_text, files)
    schema = cedarpy.Schema.from_str(schema_text)
    rules = [rule for file in files for rule in _read_rules(file, schema)]
    names = [rule.id for rule in rules]
    if len(set(names)) != len(names):
        raise BrokenPolicy(f"two rules have the same name among {', '.join(sorted(names))}")
    whole = "\n".join(file.text for file in files)
    if len(whole) > MAX_TOTAL_CHARS:
        raise BrokenPolicy(f"{len(whole)} characters of policies; at most {MAX_TOTAL_CHARS}")
    static = msgspec.json.decode(cedarpy.policies_to_json_str(whole))["staticPolicies"]
    mentions = find_mentions(static)
    return RuleSet(
        cedarpy.PolicySet.from_str(whole, release_gil=True),
        schema,
        {f"policy{n}": rule for n, rule in enumerate(rules)},  # numbered in the order of the text
        _version(schema_text, files),
        mentions,
        mentions_words(mentions),
    )


def _probe_user_files(schema: str, files: Sequence[PolicyFile]) -> None:
    """Probe the user policies.  Raises BrokenPolicy naming the first unsafe or invalid file."""
    user_files = [file for file in files if file.layer == "user" and file.text.strip()]
    for file in user_files:
        check_policy_text(file.place, file.text)
    if not user_files or probe(schema, tuple(file.text for file in user_files)) is None:
        return
    for file in user_files:  # find the broken file
        why = probe(schema, (file.text,))
        if why is not None:
            raise BrokenPolicy(f"{file.place}{_line_of(schema, file)}: {why}")
    raise BrokenPolicy("the user policies cannot be parsed together")


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenPolicy(f"{path.name}: cannot be read: {error}") from error


def _read_rules(file: PolicyFile, schema: cedarpy.Schema) -> list[PolicyRule]:
    check_policy_text(file.place, file.text)
    try:
        parsed = _PARSED.decode(cedarpy.policies_to_json_str(file.text))
        found = cedarpy.validate_policies(file.text, schema, release_gil=True)
    except ValueError as error:
        raise BrokenPolicy(f"{file.place}: {error}") from error
    if parsed.templates:
        raise BrokenPolicy(f"{file.place}: templates (?principal, ?resource) are not supported")
    if not found.validation_passed:
        raise BrokenPolicy("; ".join(_flaws(file, found.errors)))
    ordered = sorted(parsed.static_policies, key=lambda key: int(key.removeprefix("policy")))
    return [_rule(file, n, parsed.static_policies[key]) for n, key in enumerate(ordered)]


def _line_of(schema: str, file: PolicyFile) -> str:
    """Return the line of the first rule that breaks the parsing, as `:3`; "" for none."""
    rules = list(statements(file.text))
    first = bisect_left(
        range(1, len(rules) + 1),
        True,  # noqa: FBT003 - the searched value
        key=lambda count: (
            probe(schema, ("\n".join(text for _, text in rules[:count]),)) is not None
        ),
    )
    return f":{rules[first][0]}" if first < len(rules) else ""


def _flaws(file: PolicyFile, errors: Iterable[cedarpy.ValidationError]) -> list[str]:
    """Format validation errors with their lines; errors repeated per action appear once."""
    lines = [line for line, _ in statements(file.text)]
    found: dict[tuple[str, str], str] = {}
    for error in errors:
        number = int(error.policy_id.removeprefix("policy"))
        at = f":{lines[number]}" if number < len(lines) else ""
        why = error.error.removeprefix(f"for policy `{error.policy_id}`, ")
        found.setdefault((at, why.partition(" for Action::")[0]), f"{file.place}{at}: {why}")
    return list(found.values())


def _rule(file: PolicyFile, number: int, policy: _Annotated) -> PolicyRule:
    marks = policy.annotations
    place = f"user/{file.name}" if file.layer == "user" else file.layer
    name = f"{place}/{marks.get('id') or number}"
    if marks.keys() - _ANNOTATIONS:
        unknown = ", ".join(sorted(marks.keys() - _ANNOTATIONS))
        raise BrokenPolicy(f"{name}: unknown annotation {unknown}; known: id, approval, reason")
    is_good = policy.effect == "permit" and marks.get("approval") == "required"
    if "approval" in marks and not is_good:
        raise BrokenPolicy(f'{name}: @approval must be @approval("required"), on a permit')
    return PolicyRule(
        id=name,
        label=marks.get("id"),
        rank=LAYERS.index(file.layer),
        asks="approval" in marks,
        reason=marks.get("reason") or "",
    )


def _version(schema_text: str, files: Sequence[PolicyFile]) -> str:
    parts = [schema_text, *(part for file in files for part in (file.layer, file.name, file.text))]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()
