"""Skills as data: what a manifest may say, what a skill may be granted, what a record keeps.

A skill is a WASM module with the tools it offers.  Its publisher declares capabilities, an operator
grants some of them; class and risk are the publisher's words as far as the grants allow them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from palyra.core.text.argument_schema import check_schema
from palyra.core.text.canonical_json import canonical_json, sha256_hex
from palyra.core.tool.spec import Risk, ToolClass, ToolSpec
from palyra.core.trust.external_descriptions import fenced_words, without_words
from palyra.errors import InvalidParams, InvariantBroken

FORMAT = 1
MODULE = "module.wasm"
MANIFEST = "manifest.json"
SIGNATURE = "signature.json"
SIGNED_PREFIX = b"palyra-skill-v1\0"  # so that no other signature of the key is one of a skill
MAX_MANIFEST_BYTES = 131_072
ENFORCEMENT = "A+wasmtime"  # the jail of level A, and the guest inside
GRACE_S = 3.0  # a tool's deadline beyond its guest's: for a worker to be free, and for its end

S = TypeVar("S", bound=msgspec.Struct)
# Together with `wasm:` and the dot at most 64 characters, as every name of a tool.
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
    """The package is not taken; the message says why."""


class FileFact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of a package."""

    sha256: _Sha256
    size: Annotated[int, Meta(ge=0)]


class SkillTool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool that the module answers to."""

    name: _Word
    description: _Text
    parameters: dict[str, Any]  # JSON Schema of an object
    tool_class: Literal["read_only_safe", "idempotent_network", "effect"] = "effect"
    risk: Risk = "medium"
    deadline_s: Annotated[float, Meta(ge=0.1, le=30)] = 5.0


class SkillDescription(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an author writes of a skill."""

    id: SkillId
    version: _Version
    publisher: _Publisher
    description: _Text
    tools: Annotated[tuple[SkillTool, ...], Meta(min_length=1, max_length=32)]
    capabilities: Annotated[tuple[str, ...], Meta(max_length=32)] = ()


class Manifest(SkillDescription, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The same with the files of the package: what is signed."""

    format: Literal[1]
    files: Annotated[dict[_FileName, FileFact], Meta(min_length=1, max_length=16)]


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who signed the manifest."""

    public_key: _Sha256  # 32 bytes, as it happens
    signature: Annotated[str, Meta(pattern=r"^[0-9a-f]{128}$")]


SkillState = Literal["enabled", "quarantined"]


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
    reason: str = ""  # why it is quarantined


class InstallSkill(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator says of an uploaded package."""

    sha256: str
    granted: tuple[str, ...] = ()
    trust_key: str | None = None  # the publisher's key in hex, told by other means


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What can be said of an installed skill now."""

    skill: SkillRecord
    problems: tuple[str, ...] = ()  # none: it is what was installed, and keeps to what it declares
    imports: tuple[str, ...] = ()
    functions: int = 0
    module_bytes: int = 0


class SkillIndex(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All installed skills by id, and the one key of each publisher that ever had one installed."""

    format: int = 1
    skills: Mapping[str, SkillRecord] = {}
    publishers: Mapping[str, str] = {}  # name -> public key, hex


def make_manifest(description: SkillDescription, files: Mapping[str, bytes]) -> bytes:
    """The manifest of these files, as it is signed.  Raises SkillRefused."""
    facts = {
        name: {"sha256": sha256_hex(content), "size": len(content)}
        for name, content in files.items()
    }
    plain = {**msgspec.to_builtins(description), "format": FORMAT, "files": facts}
    parse_manifest(canonical_json(plain))
    return canonical_json(plain)


def parse_manifest(text: bytes) -> Manifest:
    """The manifest.  Raises SkillRefused for whatever cannot be kept."""
    if len(text) > MAX_MANIFEST_BYTES:
        raise SkillRefused(f"{MANIFEST} has {len(text)} bytes; the limit is {MAX_MANIFEST_BYTES}")
    manifest = _decode(text, Manifest, MANIFEST)
    if MODULE not in manifest.files:
        raise SkillRefused(f"{MANIFEST} names no {MODULE}")
    check_description(manifest)
    return manifest


def parse_signature(text: bytes) -> Signature:
    """Key and signature.  Raises SkillRefused."""
    return _decode(text, Signature, SIGNATURE)


def _decode(text: bytes, kind: type[S], name: str) -> S:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SkillRefused(f"{name}: {error}") from None


def check_description(description: SkillDescription) -> None:
    """Raise SkillRefused for tools of one name, schemas nobody keeps, unknown capabilities."""
    names = [tool.name for tool in description.tools]
    if len(set(names)) < len(names):
        raise SkillRefused("two tools have one name")
    for tool in description.tools:
        if tool.parameters.get("type") != "object":
            raise SkillRefused(f"{tool.name}: parameters must describe an object")
        try:
            check_schema(tool.parameters, tool.name)
        except (InvariantBroken, RecursionError) as error:
            raise SkillRefused(f"parameters: {error}") from None
    for capability in description.capabilities:
        if not _CAPABILITY.fullmatch(capability):
            raise SkillRefused(
                f"capability {capability!r}: there are clock, random, log, fetch:HOST, secret:NAME"
            )


def check_grants(granted: Iterable[str], declared: Iterable[str]) -> tuple[str, ...]:
    """The grants, sorted.  Raises InvalidParams for one that the skill does not declare."""
    wanted, known = set(granted), set(declared)
    if wanted - known:
        raise InvalidParams(
            f"the skill does not declare {', '.join(sorted(wanted - known))}; "
            f"it declares {', '.join(sorted(known)) or 'nothing'}",
            field="grant",
        )
    return tuple(sorted(wanted))


def kinds_of(capabilities: Iterable[str]) -> frozenset[str]:
    """`fetch` for `fetch:example.com`, and so on."""
    return frozenset(each.partition(":")[0] for each in capabilities)


def version_key(version: str) -> tuple[int, ...]:
    """What versions are ordered by."""
    return tuple(int(part) for part in version.split("."))


def tool_specs(record: SkillRecord) -> list[ToolSpec]:
    """The skill's tools as the catalogue shows them.

    The version carries the digest of the package: an approval, and a call under way, are for
    exactly these bytes.  A publisher's words are a stranger's: they are fenced.
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
    """What the tool says it is, unless it was granted more than that can be.

    Nothing outside can be read only: the daemon cannot tell a request that changes something from
    one that does not.
    """
    return "effect" if "fetch" in kinds_of(granted) else claimed


def capped_risk(claimed: Risk, granted: Iterable[str]) -> Risk:
    """At least medium with the network, at least high with a secret."""
    kinds = kinds_of(granted)
    least: Risk = "high" if "secret" in kinds else "medium" if "fetch" in kinds else "low"
    return max(claimed, least, key=_RISKS.index)


def _tool_capabilities(granted: Iterable[str]) -> tuple[str, ...]:
    words = {"fetch": "network", "secret": "secret"}
    return tuple(sorted({words[kind] for kind in kinds_of(granted) if kind in words}))
