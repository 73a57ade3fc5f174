"""Tools as data: what a tool is, what a call is, what came out, and which calls may overlap."""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from palyra.core.text.canonical_json import digest_of
from palyra.core.tool.paths import normal_path
from palyra.core.trust.labels import Trust
from palyra.errors import PalyraError

ToolClass = Literal[
    "read_only_safe",  # no effect, any order, parallel
    "path_scoped",  # parallel unless the same path key
    "idempotent_network",  # GET, HEAD; parallel
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
    "handed_over",  # to the client, which runs it
]
HANDED_OVER: OutcomeStatus = "handed_over"
CLIENT = "client"  # the executor of tools that a client declared


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One tool: what the model sees of it, and how the daemon treats it."""

    name: str
    foreign_name: str = ""  # what its server or publisher calls it, where that differs
    version: str
    description: str  # as the model sees it: a stranger's is fenced
    parameters: dict[str, Any]  # JSON Schema of an object
    tool_class: ToolClass
    risk: Risk
    capabilities: tuple[str, ...] = ()  # fs.read, fs.write, process, network, secret, …
    deadline_s: float = 5.0
    is_idempotent: bool = False  # may be run again after a crash without an outcome
    path_argument: str | None = None  # the argument that is the conflict key of path_scoped
    never_coerced: tuple[str, ...] = ()  # arguments that are paths, commands, urls, bodies, secrets
    input_cap_bytes: int = 65_536
    excerpt_bytes: int = 8_192  # how much of the output the model is shown
    executor: str = "inline"  # inline | thread | async | process | wasm | mcp | client
    enforcement: str = "none"  # which walls stand round it

    @property
    def may_rerun(self) -> bool:
        """Whether a started call without outcome may simply be started again."""
        return self.is_idempotent or self.tool_class in {"read_only_safe", "idempotent_network"}


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The tools one turn can call, and the hash of exactly that list."""

    tools: Mapping[str, ToolSpec]
    hash: str


def build_catalogue(specs: Iterable[ToolSpec]) -> Catalogue:
    """A catalogue; equal lists of tools, in whatever order, have equal hashes."""
    tools = {spec.name: spec for spec in sorted(specs, key=lambda spec: spec.name)}
    listed = [msgspec.to_builtins(spec) for spec in tools.values()]
    return Catalogue(tools=tools, hash=digest_of(listed))


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules may look at in a call's arguments, besides the arguments; pure, no I/O."""

    paths: tuple[str, ...] = ()  # every path the call names, as proposed
    executable: str = ""
    subcommand: str = ""  # of git, npm, pip, cargo, docker
    host: str = ""  # where the first request goes
    secrets: tuple[str, ...] = ()  # names of what would be taken from the vault
    grant_key: str = ""  # what a grant beyond once is keyed by; "": there is none to be had
    only_reads: bool = False  # this very call changes nothing, though others of its tool do


NO_FACETS = CallFacts()
SHARED_HOST = "shared_host"  # capability: a program that no namespace keeps from the host
_WRITE = "fs.write"


class Preflight(msgspec.Struct, frozen=True, kw_only=True):
    """What the world says about a call, before anybody is asked and again before it runs."""

    binary: str = ""  # the executable, resolved
    cwd: str = ""
    environment: Mapping[str, str] = {}
    operands: Mapping[str, str] = {}  # files named as operands: path to SHA-256, hex
    profile: str = ""  # of the sandbox


def path_facets(spec: ToolSpec, arguments: Mapping[str, Any]) -> CallFacts:
    """The facets of a tool that says nothing else: its path argument; left out, the root."""
    name = spec.path_argument
    if name is None:
        return NO_FACETS
    path = str(arguments.get(name, ""))
    return CallFacts(
        paths=(path,), grant_key=folder_key(path) if _WRITE in spec.capabilities else ""
    )


def folder_key(path: str) -> str:
    """What a grant to write there is keyed by: the folder the path is in; "" for none."""
    normal = normal_path(path)
    return "" if not normal else f"{posixpath.dirname(normal) or '.'}/"


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One allowed call, as the executor gets it: nothing in here may change after the gate."""

    call_id: str
    run_id: str
    session_id: str
    principal: str
    tool: str
    tool_version: str
    arguments: Mapping[str, Any]
    inspection: Preflight | None = None  # of tools that inspect


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool gave back."""

    text: str  # whole; what of it the model is shown, the caller decides
    is_truncated: bool = False  # even so: the tool itself left something out
    is_failure: bool = False  # the call failed, and the text tells how: a command's exit code, say
    trust: Trust = "workspace"
    executor: str = ""  # inline | thread | async | process | wasm | mcp; "": as its spec says
    enforcement: str = ""  # which walls stood round it; "": as its spec says


class ToolFailure(PalyraError):
    """The tool ran and failed; the text is for the model (what was wrong, what would work)."""

    code = "tool_failed"
