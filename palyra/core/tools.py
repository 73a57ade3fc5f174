"""Tools as data: what a tool is, what a call is, what came out, and which calls may overlap."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from palyra.core.canonical import digest_of
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
    "succeeded", "failed", "denied", "rejected", "timed_out", "cancelled", "unknown"
]


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One tool: what the model sees of it, and how the daemon treats it."""

    name: str
    version: str
    description: str
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
    executor: str = "inline"  # inline | thread | async | process | wasm | mcp
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


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """One allowed call, as the executor gets it: nothing in here may change after the gate."""

    call_id: str
    run_id: str
    session_id: str
    principal: str
    tool: str
    tool_version: str
    arguments: Mapping[str, Any]


class ToolOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool gave back."""

    text: str
    is_truncated: bool = False
    executor: str = "inline"  # inline | thread | process | wasm | mcp
    enforcement: str = "none"  # which walls stood round it


class ToolFailure(PalyraError):
    """The tool ran and failed; the text is for the model (what was wrong, what would work)."""

    code = "tool_failed"
