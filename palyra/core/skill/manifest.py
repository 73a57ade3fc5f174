"""Skill manifests, grants and records.

A skill is a WASM module with the tools it provides.  The publisher declares capabilities, and an
operator grants some of them.  Class and risk of a tool are the publisher's claims, capped by the
grants.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from palyra.core.journal.records import SkillState
from palyra.core.text.canonical_json import canonical_json, sha256_hex
from palyra.core.text.json_schema import UnusableSchema
from palyra.core.tool.arguments import compile_parameters
from palyra.core.tool.spec import Risk, ToolClass, ToolSpec
from palyra.core.trust.external_descriptions import fenced_words, without_words
from palyra.errors import InvalidParams

FORMAT = 1
MODULE = "module.wasm"
MANIFEST = "manifest.json"
SIGNATURE = "signature.json"
SIGNED_PREFIX = b"palyra-skill-v1\0"  # keeps the key's other signatures from passing for a skill's
MAX_MANIFEST_BYTES = 131_072
ENFORCEMENT = "A+wasmtime"  # level A sandbox with the WASM guest inside
GRACE_S = 3.0  # added to the guest's deadline: waiting for a worker, and the guest's shutdown

S = TypeVar("S", bound=msgspec.Struct)
# With `wasm:` and the dot at most 64 characters, the limit of tool names.
_Word = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
SkillId = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,23}$")]
_Publisher = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9.-]{0,63}$")]
_Version = Annotated[str, Meta(pattern=r"^(0|[1-9][0-9]{0,5})(\.(0|[1-9][0-9]{0,5})){2}$")]
_Text = Annotated[
    str, Meta(min_length=1, max_length=1_024, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]+$")
]
_Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]
_FileName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]

_CAPABILITY = re.compile(
    r"clock|random|log|fetch:[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|secret:[A-Za-z][A-Za-z0-9_-]{0,63}"
)
_RISKS: tuple[Risk, ...] = ("low", "medium", "high", "critical")


class SkillRefused(InvalidParams):
    """A package was refused; the message says why."""


class FileFact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Size and digest of one file of a package."""

    sha256: _Sha256
    size: Annotated[int, Meta(ge=0)]


class SkillTool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool that the module implements."""

    name: _Word
    description: _Text
    parameters: dict[str, Any]  # JSON Schema of an object
    tool_class: Literal["read_only_safe", "idempotent_network", "effect"] = "effect"
    risk: Risk = "medium"
    deadline_s: Annotated[float, Meta(ge=0.1, le=30)] = 5.0


class SkillDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Description of a skill, as written by its author."""

    id: SkillId
    version: _Version
    publisher: _Publisher
    description: _Text
    tools: Annotated[tuple[SkillTool, ...], Meta(min_length=1, max_length=32)]
    capabilities: Annotated[tuple[str, ...], Meta(max_length=32)] = ()


class Manifest(SkillDescription, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Description of a skill and the files of its package; this is what is signed."""

    format: Literal[1]
    files: Annotated[dict[_FileName, FileFact], Meta(min_length=1, max_length=16)]


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Signature of a manifest, with the signer's key."""

    public_key: _Sha256  # also 32 bytes in hex
    signature: Annotated[str, Meta(pattern=r"^[0-9a-f]{128}$")]


class SkillRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An installed skill."""

    manifest: Manifest
    public_key: str  # hex
    package_sha256: str
    granted: tuple[str, ...]
    state: SkillState
    installed_ms: int
    changed_ms: int
    changed_by: str
    reason: str = ""  # of the quarantine


class InstallSkill(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's request to install an uploaded package."""

    sha256: str
    granted: tuple[str, ...] = ()
    trust_key: str | None = None  # the publisher's key in hex, obtained separately


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Result of checking an installed skill."""

    skill: SkillRecord
    problems: tuple[str, ...] = ()  # empty: unchanged since install and within its declarations
    imports: tuple[str, ...] = ()
    functions: int = 0
    module_bytes: int = 0


class SkillIndex(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All installed skills by id, and the key of each publisher that ever had one installed."""

    format: int = 1
    skills: Mapping[str, SkillRecord] = {}
    publishers: Mapping[str, str] = {}  # name -> public key, hex


def make_manifest(description: SkillDescription, files: Mapping[str, bytes]) -> bytes:
    """Render the manifest of these files in the form that is signed.  Raises SkillRefused."""
    facts = {
        name: {"sha256": sha256_hex(content), "size": len(content)}
        for name, content in files.items()
    }
    plain = {**msgspec.to_builtins(description), "format": FORMAT, "files": facts}
    parse_manifest(canonical_json(plain))
    return canonical_json(plain)


def parse_manifest(text: bytes) -> Manifest:
    """Parse a manifest.  Raises SkillRefused for an invalid one."""
    if len(text) > MAX_MANIFEST_BYTES:
        raise SkillRefused(f"{MANIFEST} has {len(text)} bytes; the limit is {MAX_MANIFEST_BYTES}")
    manifest = _decode(text, Manifest, MANIFEST)
    if MODULE not in manifest.files:
        raise SkillRefused(f"{MANIFEST} names no {MODULE}")
    check_description(manifest)
    return manifest


def parse_signature(text: bytes) -> Signature:
    """Parse key and signature.  Raises SkillRefused."""
    return _decode(text, Signature, SIGNATURE)


def _decode(text: bytes, kind: type[S], name: str) -> S:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SkillRefused(f"{name}: {error}") from None


def check_description(description: SkillDescription) -> None:
    """Raise SkillRefused for duplicate tools, unsupported schemas or unknown capabilities."""
    names = [tool.name for tool in description.tools]
    if len(set(names)) < len(names):
        raise SkillRefused("two tools have one name")
    for tool in description.tools:
        try:
            compile_parameters(tool.parameters)
        except (UnusableSchema, RecursionError) as error:
            raise SkillRefused(f"{tool.name}: parameters: {error}") from None
    for capability in description.capabilities:
        if not _CAPABILITY.fullmatch(capability):
            raise SkillRefused(
                f"capability {capability!r}: there are clock, random, log, fetch:HOST, secret:NAME"
            )


def check_grants(granted: Iterable[str], declared: Iterable[str]) -> tuple[str, ...]:
    """Return the grants, sorted.  Raises InvalidParams for one that the skill does not declare."""
    wanted, known = set(granted), set(declared)
    if wanted - known:
        raise InvalidParams(
            f"the skill does not declare {', '.join(sorted(wanted - known))}; "
            f"it declares {', '.join(sorted(known)) or 'nothing'}",
            field="grant",
        )
    return tuple(sorted(wanted))


def kinds_of(capabilities: Iterable[str]) -> frozenset[str]:
    """Return the kinds of capabilities: `fetch` for `fetch:example.com`, and so on."""
    return frozenset(each.partition(":")[0] for each in capabilities)


def version_key(version: str) -> tuple[int, ...]:
    """Return the sort key of a version."""
    return tuple(int(part) for part in version.split("."))


def tool_specs(record: SkillRecord) -> list[ToolSpec]:
    """Return the skill's tools for the catalogue.

    The version contains the digest of the package, so an approval or a running call applies to
    exactly these bytes.  The publisher's texts are untrusted, so they are fenced.
    """
    manifest = record.manifest
    return [
        ToolSpec(
            name=f"wasm:{manifest.id}.{tool.name}",
            version=f"{manifest.version}+{record.package_sha256[:12]}",
            description=fenced_words(f"wasm:{manifest.id}.{tool.name}", tool.description),
            parameters=without_words(tool.parameters),
            tool_class=capped_class(tool.tool_class, record.granted),
            risk=capped_risk(tool.risk, record.granted),
            capabilities=_tool_capabilities(record.granted),
            deadline_s=tool.deadline_s + GRACE_S,
            executor="wasm",
            enforcement=ENFORCEMENT,
        )
        for tool in manifest.tools
    ]


def capped_class(claimed: ToolClass, granted: Iterable[str]) -> ToolClass:
    """Return the claimed class, or `effect` if network access is granted.

    A tool with network access is never read-only: the daemon cannot tell a request that changes
    something from one that does not.
    """
    return "effect" if "fetch" in kinds_of(granted) else claimed


def capped_risk(claimed: Risk, granted: Iterable[str]) -> Risk:
    """Return the claimed risk, at least medium with the network and high with a secret."""
    kinds = kinds_of(granted)
    least: Risk = "high" if "secret" in kinds else "medium" if "fetch" in kinds else "low"
    return max(claimed, least, key=_RISKS.index)


def _tool_capabilities(granted: Iterable[str]) -> tuple[str, ...]:
    words = {"fetch": "network", "secret": "secret"}
    return tuple(sorted({words[kind] for kind in kinds_of(granted) if kind in words}))
