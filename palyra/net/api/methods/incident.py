"""incident.*: what was found to be wrong, for who sees everybody; operators say that it is over."""

from typing import Annotated

import msgspec

from palyra.core.journal.changes import IncidentFilter
from palyra.core.journal.records import (
    IncidentDomain,
    IncidentRecord,
    IncidentSeverity,
    IncidentState,
)
from palyra.net.api.method import Id, Limit, Method, MethodCall, Mutation, Result, cursor_of
from palyra.net.protocol.params import Params

States = Annotated[list[IncidentState], msgspec.Meta(max_length=4)]
Reason = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]


class IncidentListParams(Params, frozen=True, kw_only=True):
    """Newest first; `cursor` is the `next_cursor` of the page before."""

    states: States | None = None
    domain: IncidentDomain | None = None
    limit: Limit = 100
    cursor: Annotated[str, cursor_of("inc")] | None = None


class IncidentGet(Params, frozen=True, kw_only=True):
    """One incident."""

    incident_id: Id


class IncidentResolve(Mutation, frozen=True, kw_only=True):
    """An incident that is over, and why."""

    incident_id: Id
    reason: Reason


class IncidentShown(Result, frozen=True, kw_only=True):
    """What was found, how often, and what became of it."""

    incident_id: str
    domain: IncidentDomain
    key: str
    severity: IncidentSeverity
    state: IncidentState
    summary: str
    evidence: dict[str, str | int]
    count: int
    opened_ms: int
    last_ms: int
    attempts: int = 0
    resolves_itself: bool = False
    resolved_ms: int | None = None
    by: str | None = None
    reason: str = ""


class IncidentPage(Result, frozen=True, kw_only=True):
    """A page of incidents."""

    incidents: list[IncidentShown]
    next_cursor: str | None = None


async def list_(call: MethodCall, params: IncidentListParams) -> IncidentPage:
    wanted = IncidentFilter(
        states=tuple(params.states or ()),
        domain=params.domain,
        before=params.cursor,
        limit=params.limit,
    )
    found, next_cursor = await call.backend.incidents.list_page(call.caller, wanted)
    return IncidentPage(incidents=[_show(each) for each in found], next_cursor=next_cursor)


async def get(call: MethodCall, params: IncidentGet) -> IncidentShown:
    return _show(await call.backend.incidents.get(call.caller, params.incident_id))


async def resolve(call: MethodCall, params: IncidentResolve) -> IncidentShown:
    incidents = call.backend.incidents
    return _show(
        await call.once(
            IncidentRecord,
            lambda: incidents.resolve(call.caller, params.incident_id, params.reason, call.key),
            is_kept_by_effect=True,
        )
    )


def _show(incident: IncidentRecord) -> IncidentShown:
    return IncidentShown(**msgspec.structs.asdict(incident))


METHODS = (
    Method("incident.list", IncidentListParams, IncidentPage, "incidents:read", list_),
    Method("incident.get", IncidentGet, IncidentShown, "incidents:read", get),
    Method("incident.resolve", IncidentResolve, IncidentShown, "incidents:write", resolve),
)
