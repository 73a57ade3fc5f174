"""Tools as data: specification and risk, catalogue, call, preflight, output."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from palyra.core.audience import Audience
from palyra.core.journal.records import DEFAULT_WORKSPACE, Usage
from palyra.core.text.canonical_json import digest_of
from palyra.core.tool.paths import composed, normal_path
from palyra.core.trust.labels import Trust
from palyra.errors import PalyraError

ToolClass = Literal[
    "read_only_safe",  # no effect, any order, parallel
    "path_scoped",  # parallel unless the same path key
    "idempotent_network",  # GET, HEAD; parallel
    "delegation",  # a run of its own: beside other delegations only
    "effect",  # anything else: alone
]
PARALLEL: frozenset[str] = frozenset({"read_only_safe", "path_scoped", "idempotent_network"})
Risk = Literal["low", "medium", "high", "critical"]
OutcomeStatus = Literal[
    "succeeded",
    "failed",
    "denied",
    "rejected",
    "timed_out",
    "cancelled",
    "unknown",
    "handed_over",  # sent to the client, which executes it
]
DELEGATION: ToolClass = "delegation"
HANDED_OVER: OutcomeStatus = "handed_over"
CLIENT = "client"  # the executor of tools that a client declared
MEMORY_READ, MEMORY_WRITE = "memory.read", "memory.write"  # capabilities
SHARED_HOST = "shared_host"  # capability: a program without namespaces of its own
_WRITE = "fs.write"


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One tool: its description for the model, and its execution rules."""

    name: str
    foreign_name: str = ""  # its name at the server or publisher, if that differs
    version: str
    description: str  # for the model; fenced if it comes from a third party
    parameters: dict[str, Any]  # JSON Schema of an object
    tool_class: ToolClass
    risk: Risk
    capabilities: tuple[str, ...] = ()  # fs.read, fs.write, process, network, secret, …
    deadline_s: float = 5.0
    is_idempotent: bool = False  # may be executed again after a crash without an outcome
    path_argument: str | None = None  # the argument that is the conflict key of path_scoped
    never_coerced: tuple[str, ...] = ()  # arguments that are paths, commands, urls, bodies, secrets
    input_cap_bytes: int = 65_536
    excerpt_bytes: int = 8_192  # of the output in the model's context
    executor: str = "inline"  # inline | thread | async | process | wasm | mcp | client
    enforcement: str = "none"  # isolation layers
    principal: str = ""  # whose runs alone have it; "": those of all
    workspace: str = ""  # whose runs alone have it; "": those of all

    @property
    def may_rerun(self) -> bool:
        """True if a started call without an outcome may be executed again."""
        return self.is_idempotent or self.tool_class in {"read_only_safe", "idempotent_network"}


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The tools one turn can call, and the hash of that list."""

    tools: Mapping[str, ToolSpec]
    hash: str
    has_owned: bool = False  # some belong to one principal or workspace


def build_catalogue(specs: Iterable[ToolSpec]) -> Catalogue:
    """Build a catalogue; the hash does not depend on the order of tools."""
    tools = {spec.name: spec for spec in sorted(specs, key=lambda spec: spec.name)}
    listed = [msgspec.to_builtins(spec) for spec in tools.values()]
    for each in listed:
        for field in ("principal", "workspace"):
            if not each[field]:
                del each[field]  # hashes on tapes are older than the field
    has_owned = any(spec.principal or spec.workspace for spec in tools.values())
    return Catalogue(tools=tools, hash=digest_of(listed), has_owned=has_owned)


# --- risk ----------------------------------------------------------------------------------------

_HARMLESS = frozenset({"fs.read", MEMORY_READ})  # reading these changes nothing outside of them
_RISKS: tuple[Risk, ...] = ("low", "medium", "high", "critical")
_LEAST_RISK: dict[str, Risk] = {
    "fs.write": "medium",
    "network": "medium",
    "process": "high",
    "secret": "high",
}


def compute_risk(spec: ToolSpec, *, is_tainted: bool) -> Risk:
    """Return the tool's risk, at least that of its capabilities; a tainted run raises it.

    Taint is one step up for anything beyond reading, and critical with a way out to the network.
    """
    levels = [_LEAST_RISK.get(capability, "low") for capability in spec.capabilities]
    level = max(_RISKS.index(risk) for risk in (spec.risk, *levels))
    if is_tainted and "network" in spec.capabilities:
        return "critical"
    if is_tainted and is_sensitive(spec):
        level = min(level + 1, len(_RISKS) - 1)
    return _RISKS[level]


def is_sensitive(spec: ToolSpec) -> bool:
    """True if the tool does more than read the workspace."""
    return spec.tool_class != "read_only_safe" or not _HARMLESS.issuperset(spec.capabilities)


# --- a call --------------------------------------------------------------------------------------


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts derived from a call's arguments, for the rules; without I/O."""

    paths: tuple[str, ...] = ()  # all paths of the call, as proposed
    executable: str = ""
    subcommand: str = ""  # of git, npm, pip, cargo, docker
    host: str = ""  # of the first request
    secrets: tuple[str, ...] = ()  # names of secrets to read from the vault
    grant_key: str = ""  # key of a grant beyond one call; "": no such grant
    argv: tuple[str, ...] = ()  # words of a command, if they alone say what runs
    cwd: str = ""  # of a command, in normal form
    command: str = ""  # the words that name what runs; "" if arguments may be code
    only_reads: bool = False  # this call has no effect, although its tool can have one
    is_reader: bool = (
        False  # a command that only reads, by its options (`core.tool.harmless_options`)
    )
    # Commands of a line for the shell, if it is a list of plain calls: each is decided.
    parts: "tuple[CallFacts, ...]" = ()


NO_FACETS = CallFacts()


def path_facets(spec: ToolSpec, arguments: Mapping[str, Any]) -> CallFacts:
    """Return the default facts of a tool: its path argument, by default the root."""
    name = spec.path_argument
    if name is None:
        return NO_FACETS
    path = str(arguments.get(name, ""))
    return CallFacts(paths=(path,), grant_key=file_key(path) if _WRITE in spec.capabilities else "")


def file_key(path: str) -> str:
    """Return the key of a write grant: the file, its names in NFC; "" for none."""
    normal = composed(normal_path(path) or "")
    return normal if normal.isprintable() else ""


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """Inspection of a call's environment, before the approval and again before its execution."""

    binary: str = ""  # the executable, resolved
    cwd: str = ""
    environment: Mapping[str, str] = {}
    operands: Mapping[str, str] = {}  # files named as operands: path to SHA-256, hex
    profile: str = ""  # of the sandbox


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One allowed call, immutable after the gate."""

    call_id: str
    run_id: str
    session_id: str
    principal: str
    tool: str
    tool_version: str
    arguments: Mapping[str, Any]
    inspection: Preflight | None = None  # for tools with an inspection
    # Facts of the run, so the execution object has them by its run_id.
    audience: Audience = Audience()
    trust: Trust = "trusted_local"  # lowest label of the texts that the model has read
    workspace: str = DEFAULT_WORKSPACE  # by name


class DelegatedWork(msgspec.Struct, frozen=True, kw_only=True):
    """Task of a delegated run: `tools` None means all of the calling run, "" agent and model the same."""

    task: str
    tools: tuple[str, ...] | None = None
    agent: str = ""
    model: str = ""


class DelegatedEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a delegated run, as `delegation.ended` records it."""

    state: Literal["done", "partial", "failed", "cancelled", "refused"]
    reason: str
    run_id: str = ""
    session_id: str = ""
    usage: Usage = Usage()  # with that of the runs below it
    cost_usd_micros: int = 0
    turns: int = 0
    tool_calls: int = 0
    people_ms: int = (
        0  # the clock of the delegating run was paused, as delegated runs asked a person
    )


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a tool."""

    text: str  # complete; the caller selects the excerpt for the model
    is_truncated: bool = False  # the tool itself left something out
    is_failure: bool = (
        False  # the call failed; the text describes the failure, such as an exit code
    )
    trust: Trust = "workspace"
    executor: str = ""  # inline | thread | async | process | wasm | mcp; "": as in its spec
    enforcement: str = ""  # which walls stood round it; "": as in its spec
    pictures: tuple[
        bytes | str, ...
    ] = ()  # files to show to the model, unchecked; a text is base64
    findings: tuple[str, ...] = ()  # known before the scan of the text: what a delegated run read
    delegated: DelegatedEnd | None = None  # the end of the run that the call delegated to


class ToolFailure(PalyraError):
    """A failed call; the text tells the model the cause and what would work."""

    code = "tool_failed"
