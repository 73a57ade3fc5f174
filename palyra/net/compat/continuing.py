"""Which session a request continues, and what of the request is new to it."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from palyra.core.access import Caller
from palyra.core.continuation import goes_on_from, open_calls
from palyra.core.journal import RunFilter
from palyra.core.prompt import Message
from palyra.core.records import RunRecord
from palyra.errors import IllegalState, InvalidParams, NotFound
from palyra.net.compat.asking import Ask, session_key
from palyra.net.services import Services


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a request follows by name."""

    record: RunRecord | None = None
    messages: tuple[Message, ...] = ()
    called: Mapping[str, str] = MappingProxyType({})


async def read_past(services: Services, caller: Caller, run_id: str | None) -> Past:
    """What the request follows.

    Raises NotFound, also for somebody else's run whoever asks, as a fork does; IllegalState for a
    run that has not ended.
    """
    if run_id is None:
        return Past()
    unknown = NotFound("no response of that id", field="previous_response_id")
    try:
        record = (await services.gateway.get_run(caller, run_id)).record
    except NotFound:
        raise unknown from None
    if record.principal != caller.principal:
        raise unknown
    if not record.is_terminal:
        raise IllegalState("that response is not complete yet", field="previous_response_id")
    messages = await services.gateway.read_conversation(caller, run_id)
    return Past(record=record, messages=messages, called=open_calls(messages))


def check_one_session(ask: Ask, past: Past) -> None:
    """Raises InvalidParams when two sessions are named; `user` gives way to whatever names one."""
    said = ask.extension
    if said.session_id is not None and said.session_key is not None:
        raise InvalidParams(
            "palyra: session_id and session_key both name a session; say one of them",
            field="palyra.session_key",
        )
    if past.record is None:
        return
    if said.session_key is not None or said.session_id not in {None, past.record.session_id}:
        name = "session_id" if said.session_key is None else "session_key"
        raise InvalidParams(
            f"previous_response_id names the session already; leave out palyra.{name}",
            field=f"palyra.{name}",
        )


async def settle(services: Services, caller: Caller, ask: Ask, past: Past) -> Ask:
    """The request with only what its session does not hold yet.

    What follows a run that is not its session's last begins a session of its own, with all that
    was said up to there.  Raises InvalidParams when two sessions are named.
    """
    check_one_session(ask, past)
    told = ask.told
    if past.record is not None:
        last = await _last_run(services, caller, past.record.session_id)
        is_last = last is not None and last.run_id == past.record.run_id
        is_whole = goes_on_from(past.messages, told.before, told.results)
        if is_last and (is_whole or not told.before):
            return _in_session(ask, past.record.session_id, is_new=True)
        before = past.messages if is_whole else (*past.messages, *told.before)
        given = msgspec.structs.replace(ask, told=msgspec.structs.replace(told, before=before))
        return _in_session(given, past.record.session_id if is_last else None)
    if not told.before and not told.results:
        return ask
    session_id = await _find_session(services, caller, ask)
    last = await _last_run(services, caller, session_id) if session_id is not None else None
    if last is None or not last.is_terminal:
        return ask
    held = await services.gateway.read_conversation(caller, last.run_id)
    if goes_on_from(held, told.before, told.results):
        return _in_session(ask, session_id, is_new=True)
    return ask


def _in_session(ask: Ask, session_id: str | None, *, is_new: bool = False) -> Ask:
    """The request for that session; `is_new`: the session holds what came before."""
    if is_new:
        told = msgspec.structs.replace(ask.told, before=(), is_continued=True)
        ask = msgspec.structs.replace(ask, told=told)
    extension = msgspec.structs.replace(ask.extension, session_id=session_id, session_key=None)
    return msgspec.structs.replace(ask, extension=extension, user=None)


async def _find_session(services: Services, caller: Caller, ask: Ask) -> str | None:
    """The session that the request names, which is made if it has a name of its own."""
    if ask.extension.session_id is not None:
        return ask.extension.session_id
    key = session_key(ask)
    if key is None:
        return None
    found = await services.gateway.resolve_session(caller, key=key, session_id=None)
    return found.session_id


async def _last_run(services: Services, caller: Caller, session_id: str) -> RunRecord | None:
    wanted = RunFilter(session_id=session_id, limit=1)
    views = await services.gateway.list_runs(caller, wanted)
    return views[0].record if views else None
