"""learning.*: candidates that runs taught: list, accept, reject, edit, undo, and read a run.

A caller works on its own candidates; operators on those of any principal.
"""

from typing import Annotated

import msgspec

from palyra.core.journal.changes import CandidateFilter
from palyra.core.journal.records import CandidateKind, CandidateRecord, CandidateState
from palyra.core.learning.views import CandidateChanged, Reflected
from palyra.errors import InvalidParams
from palyra.net.api.method import Id, Limit, Method, MethodCall, Mutation, cursor_of
from palyra.net.api.methods.memory import Principal
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import CandidatePage, LearningCandidate

Cursor = Annotated[str, cursor_of("can")]
States = Annotated[tuple[CandidateState, ...], msgspec.Meta(max_length=6)]
Kinds = Annotated[tuple[CandidateKind, ...], msgspec.Meta(max_length=3)]


class LearningList(Params, frozen=True, kw_only=True):
    """Newest first; `cursor` is the `next_cursor` of the page before."""

    states: States = ("proposed",)
    kinds: Kinds = ()
    limit: Limit = 100
    cursor: Cursor | None = None
    principal: Principal | None = None


class LearningGet(Params, frozen=True, kw_only=True):
    """One candidate."""

    candidate_id: Id


class LearningChange(Mutation, frozen=True, kw_only=True):
    """The candidate to change."""

    candidate_id: Id


class LearningEdit(Mutation, frozen=True, kw_only=True):
    """The candidate, and the text that it would store or, of a procedure, the name of the tool."""

    candidate_id: Id
    text: str | None = None
    name: str | None = None


class LearningReflect(Params, frozen=True, kw_only=True):
    """The run to read; it has ended."""

    run_id: Id


async def list_(call: MethodCall, params: LearningList) -> CandidatePage:
    wanted = CandidateFilter(
        principal=params.principal,
        states=params.states,
        kinds=params.kinds,
        before=params.cursor,
        limit=params.limit,
    )
    found = await call.backend.learning.list_candidates(call.caller, wanted)
    is_full = len(found) == params.limit
    return CandidatePage(
        candidates=[_show(each) for each in found],
        next_cursor=found[-1].candidate_id if is_full else None,
    )


async def get(call: MethodCall, params: LearningGet) -> LearningCandidate:
    return _show(await call.backend.learning.get(call.caller, params.candidate_id))


def _show(candidate: CandidateRecord) -> LearningCandidate:
    fields = msgspec.structs.asdict(candidate)
    for name in ("key", "memory_revision", "revision_before", "superseded_id"):
        del fields[name]
    return LearningCandidate(**fields)


async def accept(call: MethodCall, params: LearningChange) -> CandidateChanged:
    learning = call.backend.learning
    return await call.once(
        CandidateChanged, lambda: learning.accept(call.caller, params.candidate_id)
    )


async def reject(call: MethodCall, params: LearningChange) -> CandidateChanged:
    learning = call.backend.learning
    return await call.once(
        CandidateChanged, lambda: learning.reject(call.caller, params.candidate_id)
    )


async def edit(call: MethodCall, params: LearningEdit) -> CandidateChanged:
    learning, text, name = call.backend.learning, params.text, params.name
    if name is not None and text is None:
        return await call.once(
            CandidateChanged, lambda: learning.rename(call.caller, params.candidate_id, name)
        )
    if text is None or name is not None:
        raise InvalidParams("give either a text or, for a procedure, a name", field="text")
    return await call.once(
        CandidateChanged, lambda: learning.edit(call.caller, params.candidate_id, text)
    )


async def undo(call: MethodCall, params: LearningChange) -> CandidateChanged:
    learning = call.backend.learning
    return await call.once(
        CandidateChanged, lambda: learning.undo(call.caller, params.candidate_id)
    )


async def reflect(call: MethodCall, params: LearningReflect) -> Reflected:
    return await call.backend.learning.reflect_for(call.caller, params.run_id)


METHODS = (
    Method("learning.list", LearningList, CandidatePage, "memory:read", list_, is_bulk=True),
    Method("learning.get", LearningGet, LearningCandidate, "memory:read", get, is_bulk=True),
    Method("learning.accept", LearningChange, CandidateChanged, "memory:write", accept),
    Method("learning.reject", LearningChange, CandidateChanged, "memory:write", reject),
    Method("learning.edit", LearningEdit, CandidateChanged, "memory:write", edit),
    Method("learning.undo", LearningChange, CandidateChanged, "memory:write", undo),
    Method("learning.reflect", LearningReflect, Reflected, "memory:write", reflect),
)
