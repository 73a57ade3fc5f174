"""run.*: start, fork, steer, cancel, read, wait, replay; changes of files and their undo."""

from typing import Annotated, Any, Literal

import msgspec

from palyra.actors.kernel.threads import run_sync
from palyra.core.journal.changes import RunFilter
from palyra.core.journal.records import QueueMode, RunPhase, RunState, SessionMode
from palyra.core.model.request_options import RequestOptions
from palyra.core.ports import JournalStore
from palyra.core.preview.call import DEFAULT_LINES, MAX_LINES
from palyra.core.preview.run_changes import RunDiff, RunUndo
from palyra.core.replay.report import ReplayReport
from palyra.core.session.commands import (
    AgentName,
    Amount,
    Cancelled,
    Forked,
    RunView,
    SessionKey,
    Started,
    StartRun,
    Steered,
    WallMs,
)
from palyra.core.tape.events import ApprovalMode, Budget
from palyra.core.text.json_schema import UnusableSchema, check_schema
from palyra.errors import InvalidParams, PalyraError
from palyra.net.api.method import (
    ChannelName,
    Id,
    Limit,
    Method,
    MethodCall,
    Mutation,
    OutsideId,
    Seq,
    WorkspaceName,
    at_once,
    cursor_of,
)
from palyra.net.delivery.run_watch import RunWatch
from palyra.net.delivery.subscription import NOTHING_YET, LiveSubscription, SubscriptionFilter
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import RunList, RunsWatched, RunWaited, StartedRun, Unsubscribed
from palyra.services.session.run_changes import require_digest
from palyra.services.tape.run_loader import find_answer

MAX_WAIT_MS = 120_000
EXAMINED_ROWS, EXAMINED_PAGES = 200, 10  # of a filter that the store has no index for
TitleText = Annotated[str, msgspec.Meta(max_length=256)]  # in either case
MAX_SCHEMA_BYTES = 16_384  # as the compatible APIs take


class Amounts(Params, frozen=True, kw_only=True):
    """Limits of one run."""

    tokens: Amount | None = None
    usd_micros: Amount | None = None
    wall_ms: WallMs | None = None


class RunStart(Mutation, frozen=True, kw_only=True):
    """A message to the daemon."""

    text: Annotated[str, msgspec.Meta(min_length=1)]
    session_id: Id | None = None
    session_key: SessionKey | None = None
    workspace: WorkspaceName | None = None  # of a new session; the default one
    attachments: tuple[dict[str, Any], ...] = ()
    agent: AgentName | None = None
    queue_mode: QueueMode | None = None  # the session's
    model: str | None = None
    budget: Amounts = Amounts()
    approval_mode: ApprovalMode | None = None  # by default ask, and deny in the background
    json_mode: bool = False
    answer_schema: dict[str, Any] | None = None  # JSON Schema of the answer; implies json_mode
    origin: Literal["interactive", "background"] = (
        "interactive"  # the other origins are set by the daemon
    )
    channel: ChannelName | None = None
    conversation_id: OutsideId | None = None
    sender: OutsideId | None = None
    mode: SessionMode | None = None  # of the session from now on; needs approvals:write
    subscribe: bool = False


class RunFork(Mutation, frozen=True, kw_only=True):
    """Continue a run from its state at `at_seq`; without a text the model continues its turn."""

    run_id: Id
    at_seq: Seq
    text: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class RunReplay(Params, frozen=True, kw_only=True):
    """Decide a run again from its tape; a strict replay also re-evaluates what depends on settings."""

    run_id: Id
    strict: bool = False


class RunSteer(Mutation, frozen=True, kw_only=True):
    """A steering message to an open run."""

    run_id: Id
    text: Annotated[str, msgspec.Meta(min_length=1)]


class RunCancel(Mutation, frozen=True, kw_only=True):
    """End a run."""

    run_id: Id
    reason: Annotated[str, msgspec.Meta(max_length=1024)] = ""


class RunGet(Params, frozen=True, kw_only=True):
    """One run."""

    run_id: Id


class RunListParams(Params, frozen=True, kw_only=True):
    """Filter of runs, newest first; `cursor` is the `next_cursor` of the page before."""

    session_id: Id | None = None
    principal: str | None = None
    states: tuple[RunState, ...] = ()
    parent_run_id: Id | None = None  # only runs that this one delegated, and its forks
    phases: tuple[RunPhase, ...] = ()
    agent: AgentName | None = None
    tainted: bool | None = None
    text: TitleText = ""
    limit: Limit = 100
    cursor: Annotated[str, cursor_of("run")] | None = None


class RunWatchParams(Params, frozen=True, kw_only=True):
    """Filter of the runs to watch."""

    session_id: Id | None = None
    principal: str | None = None
    phases: tuple[RunPhase, ...] = ()
    agent: AgentName | None = None
    parent_run_id: Id | None = None  # only runs that this one delegated, and its forks
    tainted: bool | None = None
    text: TitleText = ""


class RunUnwatch(Params, frozen=True, kw_only=True):
    """End a watch."""

    subscription: Id


class RunWait(Params, frozen=True, kw_only=True):
    """Wait for the end of a run, or also for an approval it needs."""

    run_id: Id
    until: Literal["terminal", "attention", "person"] = "terminal"
    timeout_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)] = 30_000


async def start(call: MethodCall, params: RunStart) -> StartedRun:
    if params.answer_schema is not None:
        await run_sync(_check_answer_schema, params.answer_schema)  # compiling may take long
    command = _command(params)
    if not params.subscribe:
        return _started(await _start(call, command))
    # Subscribed before the run begins, so that none of its progress is missed.
    run_id = call.backend.new_id("run")
    call.backend.hub.get_feed(run_id).note_head(NOTHING_YET)
    subscription = _watch(call, run_id)
    try:
        started = await _start(call, msgspec.structs.replace(command, run_id=run_id))
    except PalyraError:
        call.subscriptions.close(subscription.subscription_id)
        raise
    if started.run_id != run_id:  # the key was used before, or another run took the message
        call.subscriptions.close(subscription.subscription_id)
        subscription = _watch(call, started.run_id)
    call.then(subscription.start)
    return _started(started, subscription.subscription_id)


async def _start(call: MethodCall, command: StartRun) -> Started:
    return await call.once(
        Started,
        lambda: call.backend.gateway.start_run(call.caller, command, call.key),
        is_kept_by_effect=True,
    )


def _started(started: Started, subscription: str | None = None) -> StartedRun:
    return StartedRun(**msgspec.structs.asdict(started), subscription=subscription)


def _watch(call: MethodCall, run_id: str) -> LiveSubscription:
    """Open a subscription to the caller's own run from its first event, not yet started."""
    subscription, _ = call.subscriptions.open_run(run_id, 0, SubscriptionFilter())
    return subscription


# Whether a run may ask a person if the client does not say: work in the background is not waited for.
_MODES: dict[str, ApprovalMode] = {"interactive": "ask", "background": "deny"}


def _command(params: RunStart) -> StartRun:
    """Convert the params: the command has the same fields but for three that end at the wire."""
    given = msgspec.structs.asdict(params)
    del given["idempotency_key"], given["subscribe"], given["answer_schema"]
    given["budget"] = Budget(**msgspec.structs.asdict(params.budget))
    given["approval_mode"] = params.approval_mode or _MODES[params.origin]
    if params.answer_schema is not None:
        given["json_mode"] = True
        given["brief"] = RequestOptions(answer_schema=params.answer_schema)
    return StartRun(**given)


def _check_answer_schema(schema: dict[str, Any]) -> None:
    """Raise InvalidParams for a schema that answers cannot be checked against."""
    size_bytes = len(msgspec.json.encode(schema))
    if size_bytes > MAX_SCHEMA_BYTES:
        raise InvalidParams(
            f"answer_schema: {size_bytes} bytes, at most {MAX_SCHEMA_BYTES}", field="answer_schema"
        )
    try:
        check_schema(schema)
    except UnusableSchema as error:
        raise InvalidParams(f"answer_schema: {error.message}", field="answer_schema") from None


async def fork(call: MethodCall, params: RunFork) -> Forked:
    gateway = call.backend.gateway
    return await call.once(
        Forked,
        lambda: gateway.fork_run(call.caller, params.run_id, params.at_seq, params.text, call.key),
        is_kept_by_effect=True,
    )


class RunDiffParams(Params, frozen=True, kw_only=True):
    """A run, whose changes are shown with at most `max_lines` lines."""

    run_id: Id
    max_lines: Annotated[int, msgspec.Meta(ge=1, le=MAX_LINES)] = DEFAULT_LINES


class RunUndoParams(Mutation, frozen=True, kw_only=True):
    """Undo of a run's changes of files; `digest` is that of the preview, which `dry_run` returns."""

    run_id: Id
    dry_run: bool = False
    digest: Annotated[str, msgspec.Meta(max_length=128)] | None = None
    force: bool = False
    max_lines: Annotated[int, msgspec.Meta(ge=1, le=MAX_LINES)] = DEFAULT_LINES


async def diff(call: MethodCall, params: RunDiffParams) -> RunDiff:
    return await call.backend.changes.diff(call.caller, params.run_id, params.max_lines)


async def undo(call: MethodCall, params: RunUndoParams) -> RunUndo:
    changes = call.backend.changes
    if params.dry_run:
        return await changes.preview_undo(call.caller, params.run_id, params.max_lines)
    digest = require_digest(params.digest)
    return await call.once(
        RunUndo,
        lambda: changes.undo(call.caller, params.run_id, digest, is_forced=params.force),
    )


async def replay(call: MethodCall, params: RunReplay) -> ReplayReport:
    gateway = call.backend.gateway
    return await gateway.replay_run(call.caller, params.run_id, strict=params.strict)


async def steer(call: MethodCall, params: RunSteer) -> Steered:
    async def effect() -> Steered:
        gateway = call.backend.gateway
        return Steered(
            seq=await gateway.steer_run(call.caller, params.run_id, params.text, call.key)
        )

    return await call.once(Steered, effect, is_kept_by_effect=True)


async def cancel(call: MethodCall, params: RunCancel) -> Cancelled:
    gateway = call.backend.gateway
    return await call.once(
        Cancelled, lambda: gateway.cancel_run(call.caller, params.run_id, params.reason)
    )


async def get(call: MethodCall, params: RunGet) -> RunView:
    view = await call.backend.gateway.get_run(call.caller, params.run_id)
    if not view.is_terminal or view.purged_ms is not None:
        return view
    answer = await call.backend.journal.read(lambda store: find_answer(store, view.run_id))
    return msgspec.structs.replace(view, answer=answer)


async def list_(call: MethodCall, params: RunListParams) -> RunList:
    """Read pages until enough runs fit; what the store cannot select is looked for in a bounded part."""
    given = msgspec.structs.asdict(params)
    before = given.pop("cursor")
    wanted = RunFilter(**given)
    is_selected = not (params.phases or params.agent or params.tainted is not None or params.text)
    page_rows = params.limit if is_selected else EXAMINED_ROWS
    page = msgspec.structs.replace(
        wanted, states=params.states or _states_of(params.phases), limit=page_rows
    )
    runs: list[RunView] = []
    for _ in range(EXAMINED_PAGES):
        views = await _read_runs(call, msgspec.structs.replace(page, before=before))
        runs += [view for view in views if view.fits(wanted)]
        is_last = len(views) < page_rows
        if len(runs) > params.limit or (len(runs) == params.limit and not is_last):
            return RunList(runs=runs[: params.limit], next_cursor=runs[params.limit - 1].run_id)
        if is_last:
            return RunList(runs=runs)
        before = views[-1].run_id
    return RunList(runs=runs, next_cursor=before)


# States whose runs can be in a phase.
_STATES: dict[RunPhase, tuple[RunState, ...]] = {
    "queued": ("accepted",),
    "in_progress": ("in_progress",),
    "awaiting_approval": ("in_progress",),
    "recovering": ("accepted", "in_progress"),
    "stranded": ("accepted", "in_progress"),
    "done": ("done",),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
}


def _states_of(phases: tuple[RunPhase, ...]) -> tuple[RunState, ...]:
    return tuple(sorted({state for phase in phases for state in _STATES[phase]}))


async def _read_runs(call: MethodCall, wanted: RunFilter) -> list[RunView]:
    """Return runs as a list shows them: with their last event and the title of their session."""
    views = await call.backend.gateway.list_runs(call.caller, wanted)
    if not views:
        return []
    latest, titles = await call.backend.journal.read(lambda store: _read_details(store, views))
    shown = []
    for view in views:
        kind, at_ms = latest.get(view.run_id, (None, None))
        shown.append(
            msgspec.structs.replace(
                view, latest_kind=kind, latest_ms=at_ms, title=titles[view.session_id]
            )
        )
    return shown


def _read_details(
    store: JournalStore, views: list[RunView]
) -> tuple[dict[str, tuple[str, int]], dict[str, str]]:
    titles: dict[str, str] = {}
    for session_id in {view.session_id for view in views}:
        session = store.find_session(session_id)
        titles[session_id] = "" if session is None else session.title
    return store.find_latest([view.run_id for view in views]), titles


async def watch(call: MethodCall, params: RunWatchParams) -> RunsWatched:
    if params.session_id is not None:
        await call.backend.sessions.get(call.caller, params.session_id)
    wanted = RunFilter(**msgspec.structs.asdict(params))
    opened = call.subscriptions.open(
        lambda client: RunWatch(client, wanted, lambda page: _read_runs(call, page))
    )
    call.then(opened.start)
    return RunsWatched(subscription=opened.subscription_id)


def unwatch(call: MethodCall, params: RunUnwatch) -> Unsubscribed:
    call.subscriptions.close(params.subscription)
    return Unsubscribed()


async def wait(call: MethodCall, params: RunWait) -> RunWaited:
    view, timed_out = await call.backend.gateway.wait_run(
        call.caller, params.run_id, until=params.until, timeout_s=params.timeout_ms / 1000
    )
    return RunWaited(timed_out=timed_out, **msgspec.structs.asdict(view))


METHODS = (
    Method("run.start", RunStart, StartedRun, "runs:write", start),
    Method("run.fork", RunFork, Forked, "runs:write", fork),
    Method("run.steer", RunSteer, Steered, "runs:write", steer),
    Method("run.cancel", RunCancel, Cancelled, "runs:write", cancel),
    Method("run.get", RunGet, RunView, "runs:read", get),
    Method("run.list", RunListParams, RunList, "runs:read", list_),
    Method("run.wait", RunWait, RunWaited, "runs:read", wait),
    Method("run.watch", RunWatchParams, RunsWatched, "runs:read", watch, is_read=False),
    Method("run.unwatch", RunUnwatch, Unsubscribed, "runs:read", at_once(unwatch), is_read=False),
    Method("run.replay", RunReplay, ReplayReport, "runs:read", replay, is_bulk=True),
    Method("run.diff", RunDiffParams, RunDiff, "runs:read", diff, is_bulk=True),
    Method("run.undo", RunUndoParams, RunUndo, "runs:write", undo, is_bulk=True),
)
