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
from palyra.core.ids import is_id, time_ms_of
from palyra.core.journal.changes import RunFilter
from palyra.core.journal.idempotency import IdempotencyKey
from palyra.core.model.messages import Message, Sampling, ToolMessage
from palyra.core.model.request_options import ANY_TOOL, ClientTool, RequestOptions
from palyra.core.session.commands import RunView, Started, StartRun
from palyra.core.session.continuation import continues_conversation, open_calls, with_thoughts
from palyra.core.session.fork import InheritedView
from palyra.core.tape import events as ev
from palyra.core.tape.events import ApprovalMode, Budget
from palyra.errors import IllegalState, InvalidParams, NotFound, PalyraError, TooLarge, Unreadable
from palyra.net.api.method import Backend, Id
from palyra.net.api.methods.run import Amounts
from palyra.net.http.compat.answer import AnswerEnded, AnswerReader, Part, RunNote
from palyra.net.http.compat.conversation import ChatInput
from palyra.net.http.compat.errors import RunEnded
from palyra.net.http.compat.model_names import ModelTarget
from palyra.net.http.compat.run_follower import RunFollower, open_following
from palyra.net.http.compat.sources import CompatSources
from palyra.net.protocol.params import Params

ORIGIN = "compat"
HEARTBEAT_S = 15.0  # proxies cut a connection that is silent for 30 to 60 s
CANCEL_S = 5.0  # for a run whose client has disconnected
# Part of the request that each event of the tape contains.
_MEMBERS = {
    ev.MessageReceived.KIND: "the last user message",
    ev.RunAccepted.KIND: "the instructions, tools and answer schema together",
    ev.ConversationInherited.KIND: "the conversation before the last message",
}
MAX_SIDE_BY_SIDE = 64  # runs of one principal among which that of a call is looked for
MAX_TOOLS = 1_024
MAX_TOOL_BYTES = 131_072  # of a tool's description and schema


class Extension(Params, frozen=True, kw_only=True):
    """Run options that the APIs lack, in the member `palyra` of a request."""

    session_id: Id | None = None
    session_key: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    agent: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    approval_mode: ApprovalMode | None = None
    cancel_on_disconnect: bool | None = None
    budget: Amounts = Amounts()


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an answer, in the same form for all APIs."""

    chat: ChatInput
    target: ModelTarget
    tools: tuple[ClientTool, ...] = ()
    must_call: str = ""  # see RequestOptions
    one_call: bool = False
    sampling: Sampling = Sampling()
    json_mode: bool = False
    answer_schema: dict[str, Any] | None = None
    extension: Extension = Extension()

    @property
    def agent(self) -> str | None:
        """The agent; None is the default one."""
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

    Raises what `Gateway.start_run` does.  Cancellation: the run continues, unless the client has
    disconnected and asked for its end.
    """
    backend = sources.backend
    async with open_following(backend, caller) as following:
        run_id, reading = backend.new_id("run"), AnswerReader()
        command = msgspec.structs.replace(make_command(ask), run_id=run_id)
        try:  # the run may have been accepted if the start is cancelled
            started = await _start(backend, caller, command, key, following)
            run_id = started.run_id
            yield CompatAnswer(started, following, reading, ask.chat.ignored)
        finally:
            if ask.extension.cancel_on_disconnect and is_gone() and reading.ended is None:
                await _cancel(backend, caller, run_id)  # noqa: ASYNC102 - it shields itself, briefly


@asynccontextmanager
async def find_answer(
    backend: Backend, caller: Caller, record: RunView
) -> AsyncGenerator["CompatAnswer"]:
    """Open a run that has ended, to read its answer again."""
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
    """Start the run, followed from before its start, or find the one of the same key."""
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
    """Name the part of the request that is too large, instead of the kind of the event."""
    kind, has, rest = refused.message.partition(" has ")
    member = _MEMBERS.get(kind)
    return TooLarge(f"{member}: {rest}", field=refused.field) if member and has else refused


async def _cancel(backend: Backend, caller: Caller, run_id: str) -> None:
    """Cancel the run of a client that has disconnected, while its request is being cancelled."""
    with trio.move_on_after(CANCEL_S, shield=True), suppress(PalyraError):
        await backend.gateway.cancel_run(caller, run_id, "the client has left")


class CompatAnswer:
    """The answer of a run, read part by part."""

    def __init__(
        self,
        started: Started,
        following: RunFollower,
        reading: AnswerReader,
        ignored: tuple[str, ...] = (),
    ) -> None:
        """`ignored`: the places of the request without effect."""
        self.run_id = started.run_id
        self.session_id = started.session_id
        self.reading = reading
        self._following = following
        self._ignored = ignored

    def note(self, ended: AnswerEnded) -> RunNote:
        """Return the member `palyra` of the whole answer."""
        return RunNote(
            run_id=self.run_id,
            session_id=self.session_id,
            model=self.reading.model,
            tool_calls=list(self.reading.server_calls.values()),
            ignored=list(self._ignored),
            partial=ended.partial,
            reason=ended.reason,
        )

    @property
    def is_over(self) -> bool:
        """True if the run has ended with an answer, and all parts were returned."""
        ended = self.reading.ended
        return ended is not None and not ended.failure_class

    def check(self) -> None:
        """Raise RunEnded if the run has ended without an answer."""
        ended = self.reading.ended
        if ended is not None and ended.failure_class:
            raise RunEnded(ended.failure_class, ended.reason, self.run_id)

    async def next_parts(self) -> list[Part]:
        """Return the next parts; none if nothing came for HEARTBEAT_S.

        Raises RunEnded, after all other parts.
        """
        self.check()
        parts: list[Part] = []
        until_s = trio.current_time() + HEARTBEAT_S
        while not parts and (left_s := until_s - trio.current_time()) > 0:
            for item in await self._following.next_items(left_s):
                parts.extend(self.reading.take(item))
        passed_on = [
            part for part in parts if not (isinstance(part, AnswerEnded) and part.failure_class)
        ]
        if not passed_on:
            self.check()
        return passed_on

    async def read_end(self) -> AnswerEnded:
        """Return the end of a run that has ended, with an answer or without."""
        with suppress(RunEnded):
            return await self.wait()
        assert self.reading.ended is not None  # noqa: S101 - that is what was raised about
        return self.reading.ended

    async def wait(self) -> AnswerEnded:
        """Wait for the end of the run.  Raises RunEnded if it has no answer."""
        while self.reading.ended is None:
            await self.next_parts()
        self.check()
        return self.reading.ended


def make_command(ask: RunRequest) -> StartRun:
    """Return the command to start the run, queued behind other runs of its session."""
    chat, extension = ask.chat, ask.extension
    brief = RequestOptions(
        instructions=chat.instructions,
        tools=ask.tools,
        sampling=ask.sampling,
        answer_schema=ask.answer_schema,
        must_call=ask.must_call,
        one_call=ask.one_call and bool(ask.tools),
    )
    session_id = extension.session_id
    return StartRun(
        text=chat.text,
        session_id=session_id,
        session_key=None if session_id else extension.session_key,
        agent=ask.agent,
        model=ask.target.model,
        queue_mode="followup",
        approval_mode=extension.approval_mode or "ask",
        json_mode=ask.json_mode,
        budget=Budget(**msgspec.structs.asdict(extension.budget)),
        attachments=chat.pictures,
        origin=ORIGIN,
        branch=chat.branch,
        results=chat.results if chat.is_continued else (),
        brief=None if brief.is_blank else brief,
    )


def check_tools(tools: tuple[ClientTool, ...], must_call: str = "") -> None:
    """Raise InvalidParams for too many, too large or equally named tools.

    Also if a call is required of a tool that is not among them.
    """
    if len(tools) > MAX_TOOLS:
        raise InvalidParams(f"tools: {len(tools)}, the limit is {MAX_TOOLS}", field="tools")
    names = [tool.name for tool in tools]
    for index, tool in enumerate(tools):
        if tool.name in names[:index]:
            raise InvalidParams(f"tools: {tool.name!r} is listed twice", field=f"tools[{index}]")
        if len(msgspec.json.encode(tool)) > MAX_TOOL_BYTES:
            raise InvalidParams(
                f"tools: {tool.name!r} takes more than {MAX_TOOL_BYTES} bytes",
                field=f"tools[{index}]",
            )
    if must_call and not (names if must_call == ANY_TOOL else must_call in names):
        wanted = "a call" if must_call == ANY_TOOL else f"a call of {must_call[:64]!r}"
        raise InvalidParams(
            f"tool_choice: {wanted} is requested, but `tools` has no such tool", field="tool_choice"
        )


class PreviousResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response that a request continues by id."""

    record: RunView | None = None
    held: InheritedView = InheritedView(messages=())
    called: Mapping[str, str] = MappingProxyType({})


async def read_previous(backend: Backend, caller: Caller, run_id: str | None) -> PreviousResponse:
    """Read the response that the request continues.

    Raises NotFound, also for a run of another principal, even if the caller may see it (as a fork
    does) and for a purged run; IllegalState for a run that has not ended.
    """
    if run_id is None:
        return PreviousResponse()
    unknown = NotFound("no response has that id", field="previous_response_id")
    try:
        record = await backend.gateway.get_run(caller, run_id)
    except NotFound:
        raise unknown from None
    if record.principal != caller.principal:
        raise unknown
    if not record.is_terminal:
        raise IllegalState("that response is not complete yet", field="previous_response_id")
    try:
        held = await backend.gateway.read_conversation(caller, run_id)
    except Unreadable as error:
        raise NotFound(error.message, field="previous_response_id") from None
    return PreviousResponse(record=record, held=held, called=open_calls(held.messages))


def check_one_session(ask: RunRequest, previous: PreviousResponse) -> None:
    """Raise InvalidParams if two sessions are named."""
    options = ask.extension
    if options.session_id is not None and options.session_key is not None:
        raise InvalidParams(
            "palyra: session_id and session_key both name a session; give one of them",
            field="palyra.session_key",
        )
    if previous.record is None:
        return
    if options.session_key is not None or options.session_id not in {
        None,
        previous.record.session_id,
    }:
        name = "session_id" if options.session_key is None else "session_key"
        raise InvalidParams(
            f"previous_response_id already names the session; omit palyra.{name}",
            field=f"palyra.{name}",
        )


async def settle(
    backend: Backend, caller: Caller, ask: RunRequest, previous: PreviousResponse
) -> RunRequest:
    """Return the request without the messages that its session holds already.

    A request that continues a run other than its session's last starts a new session, with the
    conversation up to that run.  Raises InvalidParams if two sessions are named.
    """
    check_one_session(ask, previous)
    chat = ask.chat
    if previous.record is not None:
        last = await _last_run(backend, caller, previous.record.session_id)
        is_last = last is not None and last.run_id == previous.record.run_id
        messages = previous.held.messages
        is_whole = continues_conversation(messages, chat.before, chat.results)
        if is_last and (is_whole or not chat.before):
            return _in_session(ask, previous.record.session_id, is_new=True)
        before = messages if is_whole else (*messages, *chat.before)
        chat = msgspec.structs.replace(chat, before=before, held=previous.held)
        given = msgspec.structs.replace(ask, chat=chat)
        return _in_session(given, previous.record.session_id if is_last else None)
    if not chat.before and not chat.results:
        return ask
    session_id = await _find_session(backend, caller, ask)
    last = await _last_run(backend, caller, session_id) if session_id is not None else None
    if last is not None and last.is_terminal:
        held = await backend.gateway.read_conversation(caller, last.run_id)
        if continues_conversation(held.messages, chat.before, chat.results):
            return _in_session(ask, session_id, is_new=True)
    before = await _with_thoughts(backend, caller, chat)
    return msgspec.structs.replace(ask, chat=msgspec.structs.replace(chat, before=before))


async def _with_thoughts(backend: Backend, caller: Caller, chat: ChatInput) -> tuple[Message, ...]:
    """Return the messages before the results, with the reasoning behind their calls.

    Clients do not send it back, and some providers refuse results without it.  The run that made
    the newest call has it, with all that it inherited itself.  Each id is later than those before
    it, so that run is among the principal's last ones that began before the call.
    """
    results = [each for each in (*chat.before, *chat.results) if isinstance(each, ToolMessage)]
    answered = (each.call_id for each in reversed(results) if is_id(each.call_id, "call"))
    call_id = next(answered, None)
    if call_id is None:  # none, or all are of conversations elsewhere
        return chat.before
    began_before = f"run{call_id.removeprefix('call')}"
    wanted = RunFilter(principal=caller.principal, before=began_before, limit=MAX_SIDE_BY_SIDE)
    for view in await backend.gateway.list_runs(caller, wanted):
        if not view.tool_calls or not _may_have_made(view, call_id):
            continue
        with suppress(NotFound, Unreadable):
            held = await backend.gateway.read_conversation(caller, view.run_id)
            if call_id in open_calls(held.messages):
                return with_thoughts(chat.before, held.messages)
    return chat.before


def _may_have_made(view: RunView, call_id: str) -> bool:
    """False if the run ended before the call.  Ids may be ahead of the clock: see `NewId`."""
    ahead_ms = max(0, time_ms_of(view.run_id) - view.created_ms)
    return view.finished_ms is not None and view.finished_ms + ahead_ms >= time_ms_of(call_id)


def _in_session(ask: RunRequest, session_id: str | None, *, is_new: bool = False) -> RunRequest:
    """Return the request for that session; `is_new`: only its last message is new."""
    if is_new:
        chat = msgspec.structs.replace(ask.chat, before=(), is_continued=True)
        ask = msgspec.structs.replace(ask, chat=chat)
    extension = msgspec.structs.replace(ask.extension, session_id=session_id, session_key=None)
    return msgspec.structs.replace(ask, extension=extension)


async def _find_session(backend: Backend, caller: Caller, ask: RunRequest) -> str | None:
    """Return the session that the request names; one named by key is created if missing."""
    if ask.extension.session_id is not None:
        return ask.extension.session_id
    key = ask.extension.session_key
    if key is None:
        return None
    found = await backend.sessions.resolve(caller, key=key, session_id=None)
    return found.session_id


async def _last_run(backend: Backend, caller: Caller, session_id: str) -> RunView | None:
    wanted = RunFilter(session_id=session_id, limit=1)
    views = await backend.gateway.list_runs(caller, wanted)
    return views[0] if views else None
