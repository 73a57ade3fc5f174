"""incident.*: recorded defects of the daemon, for roles that see all principals.

Operators resolve them.
"""

from typing import Annotated

import msgspec

from palyra.core.healing.rules import RULES, kind_of
from palyra.core.journal.changes import IncidentFilter
from palyra.core.journal.records import (
    IncidentDomain,
    IncidentRecord,
    IncidentState,
)
from palyra.net.api.method import Id, Limit, Method, MethodCall, Mutation, cursor_of
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import IncidentPage, IncidentView

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
    """The incident to resolve, and why it is over."""

    incident_id: Id
    reason: Reason


async def list_(call: MethodCall, params: IncidentListParams) -> IncidentPage:
    wanted = IncidentFilter(
        states=tuple(params.states or ()),
        domain=params.domain,
        before=params.cursor,
        limit=params.limit,
    )
    found, next_cursor = await call.backend.incidents.list_page(call.caller, wanted)
    return IncidentPage(incidents=[_show(each) for each in found], next_cursor=next_cursor)


async def get(call: MethodCall, params: IncidentGet) -> IncidentView:
    return _show(await call.backend.incidents.get(call.caller, params.incident_id))


async def resolve(call: MethodCall, params: IncidentResolve) -> IncidentView:
    incidents = call.backend.incidents
    return _show(
        await call.once(
            IncidentRecord,
            lambda: incidents.resolve(call.caller, params.incident_id, params.reason, call.key),
            is_kept_by_effect=True,
        )
    )


def _show(incident: IncidentRecord) -> IncidentView:
    rule = RULES.get(kind_of(incident.key))
    return IncidentView(
        **msgspec.structs.asdict(incident),
        remedies=list(rule.remedies) if rule else [],
        may_change=rule.blast if rule else "",
    )


METHODS = (
    Method("incident.list", IncidentListParams, IncidentPage, "incidents:read", list_),
    Method("incident.get", IncidentGet, IncidentView, "incidents:read", get),
    Method("incident.resolve", IncidentResolve, IncidentView, "incidents:write", resolve),
)
