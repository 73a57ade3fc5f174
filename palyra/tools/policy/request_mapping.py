"""Mapping of a policy request to Cedar: request, context and entities.

Cedar's own schema check of a request costs as much as the decision.  The check is therefore made
here, by decoding the encoded context with msgspec types equal to those of the schema.  A property
test compares both checks (`tests/tools/policy/test_request_mapping.py`).
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, get_args

import cedarpy
import msgspec
from msgspec import UNSET, Meta, UnsetType

from palyra.core.policy.request import Action, PolicyRequest
from palyra.core.tool.hosts import host_marks
from palyra.core.tool.paths import call_path_marks, composed
from palyra.core.tool.words import NO_WORDS, folders_of, read_words

ACTIONS: frozenset[str] = frozenset(get_args(Action))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Facts = tuple[str, str, str, tuple[str, ...], str, str, str, tuple[str, ...]]
_Long = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    pass


class _Principal(_Part, frozen=True, kw_only=True, gc=False):
    type: Literal["Principal"]
    id: str


class _Agent(_Part, frozen=True, kw_only=True, gc=False):
    type: Literal["Agent"]
    id: str


class _ToPrincipal(_Part, frozen=True, kw_only=True, rename={"entity": "__entity"}, gc=False):
    entity: _Principal


class _ToAgent(_Part, frozen=True, kw_only=True, rename={"entity": "__entity"}, gc=False):
    entity: _Agent


class _Extension(_Part, frozen=True, kw_only=True, gc=False):
    fn: Literal["datetime"]
    arg: Annotated[str, Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\.[0-9]{3}Z$")]


class _Instant(_Part, frozen=True, kw_only=True, rename={"extension": "__extn"}, gc=False):
    extension: _Extension


class _Run(_Part, frozen=True, kw_only=True, gc=False):
    id: str
    owner: _ToPrincipal
    origin: str
    taint: bool
    depth: _Long


class Context(_Part, frozen=True, kw_only=True, gc=False):
    """Context of a request; equals `type Call` of the schema."""

    agent: _ToAgent
    session: str
    run: _Run
    in_scope: bool
    paths: list[str]
    path_marks: list[str]
    host_marks: list[str]
    secrets: list[str]
    size_bytes: _Long
    folders: list[str]
    command: str
    argv: list[str]
    argv_under: list[str]
    argc: _Long
    flags: list[str]
    odd_words: _Long
    is_reader: bool
    cwd: str
    arguments: str
    grant_key: str
    approval: str
    now: _Instant
    workspace: str
    path: str | UnsetType = UNSET
    executable: str | UnsetType = UNSET
    subcommand: str | UnsetType = UNSET
    host: str | UnsetType = UNSET
    decision: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET


_ENCODER = msgspec.json.Encoder()
_CHECK = msgspec.json.Decoder(Context)


def question(
    request: PolicyRequest,
    state: Sequence[str],
    *,
    shows_paths: bool = True,
    shows_words: bool = True,
) -> tuple[dict[str, Any], Context]:
    """Return the Cedar request and its context.

    Entity ids are passed as objects, so that no id is parsed as Cedar text.
    `shows_paths` is False if no rule reads the list of paths; a list of thousands dominates the
    cost of a decision.  `shows_words` is False if no rule reads the words of a command or the
    folders of a call.
    Raises ValueError for a request outside the schema.
    """
    if request.action not in ACTIONS:
        raise ValueError(f"there is no action {request.action!r}")
    context = _context(request, state, shows_paths=shows_paths, shows_words=shows_words)
    text = _ENCODER.encode(context)
    _CHECK.decode(text)
    principal = request.principal
    try:
        said = str(text, "ascii")
    except UnicodeDecodeError:
        said = composed(text.decode())  # as the text of the rules
    asked = {
        "principal": {
            "type": "Principal",
            "id": principal if principal.isascii() else composed(principal),
        },
        "action": {"type": "Action", "id": request.action},
        "resource": {"type": "Tool", "id": request.tool},
        "context": said,
    }
    return asked, context


def _context(
    request: PolicyRequest, state: Sequence[str], *, shows_paths: bool, shows_words: bool
) -> Context:
    facets, paths = request.facets, request.paths
    words = read_words(facets.argv) if shows_words else NO_WORDS
    has_folders = shows_words and "outside" not in paths.marks
    return Context(
        agent=_ToAgent(entity=_Agent(type="Agent", id=request.agent)),
        session=request.session_id,
        run=_Run(
            id=request.run_id,
            owner=_ToPrincipal(entity=_Principal(type="Principal", id=request.owner)),
            origin=request.origin,
            taint=request.is_tainted,
            depth=request.depth,
        ),
        in_scope=request.in_scope,
        path=UNSET if paths.single is None else paths.single,
        paths=list(paths.inside) if shows_paths else [],
        path_marks=sorted(call_path_marks(paths, state)),
        executable=facets.executable or UNSET,
        subcommand=facets.subcommand or UNSET,
        host=facets.host or UNSET,
        host_marks=sorted(host_marks(facets.host)),
        secrets=sorted(facets.secrets),
        size_bytes=request.size_bytes,
        folders=list(folders_of(paths.inside)) if has_folders else [],
        command=facets.command,
        argv=list(words.argv),
        argv_under=list(words.argv_under),
        argc=len(facets.argv) if facets.argv else 0,
        flags=list(words.flags),
        odd_words=words.odd_words,
        is_reader=facets.is_reader,
        cwd=facets.cwd,
        arguments=request.digest,
        grant_key=facets.grant_key,
        approval=request.approval,
        now=_Instant(extension=_Extension(fn="datetime", arg=_instant(request.now_ms))),
        workspace=request.workspace,
        decision=request.decision or UNSET,
        scope=request.scope or UNSET,
    )


def _instant(at_ms: int) -> str:
    """Format Unix milliseconds for Cedar.  Raises ValueError beyond the year 9999."""
    try:
        at = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        raise ValueError(f"{at_ms} ms is no time") from None
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"


# --- entities ------------------------------------------------------------------------------------


def facts(request: PolicyRequest) -> Facts:
    """Return the facts that determine the entities; equal facts give equal entities."""
    return (
        request.principal, request.role,
        request.agent, request.agent_labels,
        request.tool, request.tool_class, request.risk, request.capabilities,
    )  # fmt: skip


def build_entities(*known: *Facts) -> cedarpy.Entities:
    """Build the parsed Cedar entities: principal, agent and tool with their attributes."""
    principal, role, agent, labels, tool, tool_class, risk, capabilities = known
    attributes = {"name": tool, "class": tool_class, "risk": risk, "capabilities": capabilities}
    entities = [
        _entity("Principal", principal, {"role": role}),
        _entity("Agent", agent, {"name": agent, "labels": labels}),
        _entity("Tool", tool, attributes),
    ]
    return cedarpy.Entities.from_json_str(composed(_ENCODER.encode(entities).decode()))


def _entity(kind: str, name: str, attributes: dict[str, Any]) -> dict[str, Any]:
    return {"uid": {"type": kind, "id": name}, "attrs": attributes, "parents": []}
