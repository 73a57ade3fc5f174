"""From a request to a run and its parts: what all of the APIs have in common.

Which session a request continues, and what of the request is new to it.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.journal.changes import RunFilter
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.model.messages import Message, Sampling
from palyra.core.model.request_options import ANY_TOOL, ClientTool, RequestOptions
from palyra.core.session.commands import RunView, Started, StartRun
from palyra.core.session.continuation import continues_conversation, open_calls
from palyra.core.tape import events as ev
from palyra.core.tape.events import ApprovalMode, Budget
from palyra.errors import IllegalState, InvalidParams, NotFound, PalyraError, TooLarge
from palyra.net.api.backend import Backend
from palyra.net.api.method import Id
from palyra.net.api.methods.run import Amounts
from palyra.net.http.compat.answer import AnswerEnded, AnswerReader, Part
from palyra.net.http.compat.conversation import ChatInput
from palyra.net.http.compat.errors import RunEnded
from palyra.net.http.compat.model_names import ModelTarget
from palyra.net.http.compat.run_follower import RunFollower, open_following
from palyra.net.http.compat.sources import CompatSources
from palyra.net.protocol.params import Params

ORIGIN = "compat"
HEARTBEAT_S = 15.0  # proxies cut a connection that is silent for 30 to 60 s
CANCEL_S = 5.0  # for a run whose client has left
# What of a request becomes which event of the tape.
_MEMBERS = {
    ev.MessageReceived.KIND: "the last message of the user",
    ev.RunAccepted.KIND: "the instructions, tools and schema of the answer together",
    ev.ConversationInherited.KIND: "the conversation before the last message",
}
MAX_TOOLS = 128
MAX_TOOL_BYTES = 16_384  # of a tool's description and schema


class Extension(Params, frozen=True, kw_only=True):
    """What a request may say beyond its API, in the member `palyra`."""

    session_id: Id | None = None
    session_key: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    agent: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    approval_mode: ApprovalMode | None = None
    cancel_on_disconnect: bool | None = None
    budget: Amounts = Amounts()


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, of whom, and how."""

    told: ChatInput
    target: ModelTarget
    tools: tuple[ClientTool, ...] = ()
    must_call: str = ""  # see Brief
    one_call: bool = False
    sampling: Sampling = Sampling()
    json_mode: bool = False
    answer_schema: dict[str, Any] | None = None
    user: str | None = None  # whose conversation it is, when the caller says no more
    extension: Extension = Extension()

    @property
    def agent(self) -> str | None:
        """Who answers; None is the default agent."""
        return self.extension.agent or self.target.agent


@asynccontextmanager
async def answering(
    sources: CompatSources,
    caller: Caller,
    ask: RunRequest,
    key: IdempotencyKey | None,
    is_gone: Callable[[], bool] = lambda: False,
) -> AsyncGenerator["CompatAnswer"]:
    """Start the run, or find the one that this key has started, and follow it.

    Raises what `Gateway.start_run` does.  Cancellation: the run goes on, unless the client has
    left and asked for its end.
    """
    backend = sources.backend
    async with open_following(backend, caller) as following:
        run_id, reading = backend.new_id("run"), AnswerReader()
        command = msgspec.structs.replace(make_command(ask), run_id=run_id)
        try:  # from before the start, which may have been promised when its client leaves
            started = await _start(backend, caller, command, key, following)
            run_id = started.run_id
            yield CompatAnswer(started, following, reading)
        finally:
            if ask.extension.cancel_on_disconnect and is_gone() and reading.ended is None:
                await _cancel(backend, caller, run_id)  # noqa: ASYNC102 - it shields itself, briefly


@asynccontextmanager
async def find_answer(
    backend: Backend, caller: Caller, record: RunView
) -> AsyncGenerator["CompatAnswer"]:
    """A run that has ended, as its request saw it."""
    async with open_following(backend, caller) as following:
        following.follow(record.run_id)
        started = Started(
            run_id=record.run_id, session_id=record.session_id, seq=0, disposition="started"
        )
        yield CompatAnswer(started, following, AnswerReader())


async def _start(
    backend: Backend,
    caller: Caller,
    command: StartRun,
    key: IdempotencyKey | None,
    following: RunFollower,
) -> Started:
    """The run, followed before it began, or the one that was begun with the same key."""
    assert command.run_id is not None  # noqa: S101 - its id is chosen with the request
    following.await_run(command.run_id)

    async def start() -> Started:
        try:
            return await backend.gateway.start_run(caller, command, key)
        except TooLarge as refused:
            raise _in_words(refused) from None

    if key is None:
        return await start()
    started = await backend.receipts.once(key, Started, start, is_kept_by_effect=True)
    if started.run_id != command.run_id:
        following.follow(started.run_id)
    return started


def _in_words(refused: TooLarge) -> TooLarge:
    """What of the request is too large; the tape's own names say nothing to its sender."""
    kind, has, rest = refused.message.partition(" has ")
    member = _MEMBERS.get(kind)
    return TooLarge(f"{member}: {rest}", field=refused.field) if member and has else refused


async def _cancel(backend: Backend, caller: Caller, run_id: str) -> None:
    """End the run of a client that has left, although its request is being cancelled."""
    with trio.move_on_after(CANCEL_S, shield=True), suppress(PalyraError):
        await backend.gateway.cancel_run(caller, run_id, "the client has left")


class CompatAnswer:
    """A run as its request sees it."""

    def __init__(self, started: Started, following: RunFollower, reading: AnswerReader) -> None:
        self.run_id = started.run_id
        self.session_id = started.session_id
        self.reading = reading
        self._following = following

    @property
    def is_over(self) -> bool:
        """Whether there is no more, and no failure to be told."""
        ended = self.reading.ended
        return ended is not None and not ended.failure_class

    def check(self) -> None:
        """Raises RunEnded for a run that has ended without an answer."""
        ended = self.reading.ended
        if ended is not None and ended.failure_class:
            raise RunEnded(ended.failure_class, ended.reason, self.run_id)

    async def next_parts(self) -> list[Part]:
        """What follows; nothing after a while of silence.  Raises RunEnded, after all else."""
        self.check()
        parts: list[Part] = []
        until_s = trio.current_time() + HEARTBEAT_S
        while not parts and (left_s := until_s - trio.current_time()) > 0:
            for frame in await self._following.next_frames(left_s):
                parts.extend(self.reading.take(frame))
        told = [
            part for part in parts if not (isinstance(part, AnswerEnded) and part.failure_class)
        ]
        if not told:
            self.check()
        return told

    async def read_end(self) -> AnswerEnded:
        """The end of a run that has ended, whatever it was."""
        with suppress(RunEnded):
            return await self.wait()
        assert self.reading.ended is not None  # noqa: S101 - that is what was raised about
        return self.reading.ended

    async def wait(self) -> AnswerEnded:
        """The end of the run.  Raises RunEnded for one without an answer."""
        while self.reading.ended is None:
            await self.next_parts()
        self.check()
        return self.reading.ended


def make_command(ask: RunRequest) -> StartRun:
    """The request as the gateway takes it: queued behind what the session does already."""
    told, extension = ask.told, ask.extension
    brief = RequestOptions(
        instructions=told.instructions,
        tools=ask.tools,
        sampling=ask.sampling,
        answer_schema=ask.answer_schema,
        must_call=ask.must_call,
        one_call=ask.one_call and bool(ask.tools),
    )
    session_id = extension.session_id
    return StartRun(
        text=told.text,
        session_id=session_id,
        session_key=None if session_id else session_key(ask),
        agent=ask.agent,
        model=ask.target.model,
        queue_mode="followup",
        approval_mode=extension.approval_mode or "ask",
        json_mode=ask.json_mode,
        budget=Budget(**msgspec.structs.asdict(extension.budget)),
        attachments=told.pictures,
        origin=ORIGIN,
        branch=told.branch,
        results=told.results if told.is_continued else (),
        brief=None if brief.is_blank else brief,
    )


def session_key(ask: RunRequest) -> str | None:
    """One session for each user of each agent; without a user every request has its own."""
    if ask.extension.session_key is not None:
        return ask.extension.session_key
    return f"{ORIGIN}:{ask.agent or ''}:{ask.user}" if ask.user else None


def check_tools(tools: tuple[ClientTool, ...], must_call: str = "") -> None:
    """Raises InvalidParams for more, larger or equally named tools than a run takes.

    And where a call is asked for of a tool that is not among them.
    """
    if len(tools) > MAX_TOOLS:
        raise InvalidParams(f"tools: {len(tools)}, the limit is {MAX_TOOLS}", field="tools")
    names = [tool.name for tool in tools]
    for index, tool in enumerate(tools):
        if tool.name in names[:index]:
            raise InvalidParams(f"tools: {tool.name!r} is there twice", field=f"tools[{index}]")
        if len(msgspec.json.encode(tool)) > MAX_TOOL_BYTES:
            raise InvalidParams(
                f"tools: {tool.name!r} takes more than {MAX_TOOL_BYTES} bytes",
                field=f"tools[{index}]",
            )
    if must_call and not (names if must_call == ANY_TOOL else must_call in names):
        wanted = "a call" if must_call == ANY_TOOL else f"a call of {must_call[:64]!r}"
        raise InvalidParams(
            f"tool_choice: {wanted} is asked for, and `tools` has none such", field="tool_choice"
        )


class PreviousResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The run that a request follows by name."""

    record: RunView | None = None
    messages: tuple[Message, ...] = ()
    called: Mapping[str, str] = MappingProxyType({})


async def read_past(backend: Backend, caller: Caller, run_id: str | None) -> PreviousResponse:
    """What the request follows.

    Raises NotFound, also for somebody else's run whoever asks, as a fork does; IllegalState for a
    run that has not ended.
    """
    if run_id is None:
        return PreviousResponse()
    unknown = NotFound("no response of that id", field="previous_response_id")
    try:
        record = await backend.gateway.get_run(caller, run_id)
    except NotFound:
        raise unknown from None
    if record.principal != caller.principal:
        raise unknown
    if not record.is_terminal:
        raise IllegalState("that response is not complete yet", field="previous_response_id")
    messages = await backend.gateway.read_conversation(caller, run_id)
    return PreviousResponse(record=record, messages=messages, called=open_calls(messages))


def check_one_session(ask: RunRequest, past: PreviousResponse) -> None:
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


async def settle(
    backend: Backend, caller: Caller, ask: RunRequest, past: PreviousResponse
) -> RunRequest:
    """The request with only what its session does not hold yet.

    What follows a run that is not its session's last begins a session of its own, with all that
    was said up to there.  Raises InvalidParams when two sessions are named.
    """
    check_one_session(ask, past)
    told = ask.told
    if past.record is not None:
        last = await _last_run(backend, caller, past.record.session_id)
        is_last = last is not None and last.run_id == past.record.run_id
        is_whole = continues_conversation(past.messages, told.before, told.results)
        if is_last and (is_whole or not told.before):
            return _in_session(ask, past.record.session_id, is_new=True)
        before = past.messages if is_whole else (*past.messages, *told.before)
        given = msgspec.structs.replace(ask, told=msgspec.structs.replace(told, before=before))
        return _in_session(given, past.record.session_id if is_last else None)
    if not told.before and not told.results:
        return ask
    session_id = await _find_session(backend, caller, ask)
    last = await _last_run(backend, caller, session_id) if session_id is not None else None
    if last is None or not last.is_terminal:
        return ask
    held = await backend.gateway.read_conversation(caller, last.run_id)
    if continues_conversation(held, told.before, told.results):
        return _in_session(ask, session_id, is_new=True)
    return ask


def _in_session(ask: RunRequest, session_id: str | None, *, is_new: bool = False) -> RunRequest:
    """The request for that session; `is_new`: the session holds what came before."""
    if is_new:
        told = msgspec.structs.replace(ask.told, before=(), is_continued=True)
        ask = msgspec.structs.replace(ask, told=told)
    extension = msgspec.structs.replace(ask.extension, session_id=session_id, session_key=None)
    return msgspec.structs.replace(ask, extension=extension, user=None)


async def _find_session(backend: Backend, caller: Caller, ask: RunRequest) -> str | None:
    """The session that the request names, which is made if it has a name of its own."""
    if ask.extension.session_id is not None:
        return ask.extension.session_id
    key = session_key(ask)
    if key is None:
        return None
    found = await backend.sessions.resolve(caller, key=key, session_id=None)
    return found.session_id


async def _last_run(backend: Backend, caller: Caller, session_id: str) -> RunView | None:
    wanted = RunFilter(session_id=session_id, limit=1)
    views = await backend.gateway.list_runs(caller, wanted)
    return views[0] if views else None
