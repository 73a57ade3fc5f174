"""The client for programs without an event loop: the methods of `Client`, blocking.

    with blocking.connect(timeout_s=30) as client:
        started = client.start_run("hello")
        with client.events(started.run_id) as items:
            for item in items:
                ...

An asyncio client runs in a thread of its own, so connections are kept alive and re-established
between calls.  Every call waits for that thread; any number of threads may call.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack

from palyra.client import aio
from palyra.client.client import PATIENCE_S, Client
from palyra.client.feed import Item
from palyra.client.runs import RunOptions, WatchedRuns
from palyra.client.subscription import Notice, RunWatching, Subscription
from palyra.core.session.commands import RunView, Started
from palyra.errors import TooSlow, Unreachable
from palyra.net.protocol.notifications import Hello, RunsUpdated
from palyra.net.protocol.results import Welcome

P = ParamSpec("P")
T = TypeVar("T")
C_co = TypeVar("C_co", covariant=True)


class _LoopThread:
    """An event loop in a thread, and calls into it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="palyra-client", daemon=True
        )
        self._lock = threading.Lock()  # a call is either before the end or refused
        self._is_over = False
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
        """Run `work` in the loop and return its result.

        Raises TooSlow after `timeout_s`, and Unreachable after `close`; both, like an interrupt by
        the keyboard, cancel the work.
        """
        with self._lock:
            if self._is_over:
                work.close()
                raise Unreachable("this client was closed")
            future = asyncio.run_coroutine_threadsafe(_bound(work, timeout_s), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise Unreachable("this client was closed") from None
        finally:
            future.cancel()

    def close(self) -> None:
        """Cancel what still runs and end the thread."""
        with self._lock:
            self._is_over = True
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Callbacks that hand results to waiting threads are queued now and run before the stop.
        self._loop.call_soon(self._loop.stop)


async def _bound(work: Coroutine[Any, Any, T], timeout_s: float | None) -> T:
    deadline = asyncio.timeout(timeout_s)
    try:
        async with deadline:
            return await work
    except TimeoutError:
        if not deadline.expired():
            raise
        raise TooSlow(
            f"nothing came within {timeout_s} s: a request may or may not have been executed"
        ) from None


class _Source(Protocol[C_co]):
    """A buffer of the asyncio client."""

    def __aiter__(self) -> "_Source[C_co]": ...
    def __anext__(self) -> Awaitable[C_co]: ...


class Items(Generic[T]):
    """Iterator over the items of a run or over notifications; see `Client.events`, `Client.notices`."""

    def __init__(self, source: _Source[T], thread: _LoopThread, timeout_s: float | None) -> None:
        self._source = source
        self._thread = thread
        self._timeout_s = timeout_s

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Return the next item.  Raises TooSlow if none comes in time; then no item is lost."""
        try:
            return self._thread.run(self._take(), self._timeout_s)
        except StopAsyncIteration:
            raise StopIteration from None

    async def _take(self) -> T:
        return await anext(self._source)


class RunItems(Items[Item]):
    """Items of one run."""

    def __init__(self, source: Subscription, thread: _LoopThread, timeout_s: float | None) -> None:
        super().__init__(source, thread, timeout_s)
        self._subscription = source

    @property
    def cursor(self) -> int:
        """The `after_seq` from which another client can continue."""
        return self._subscription.cursor


class WatchItems(Items[RunsUpdated]):
    """Changes of the runs of a watch; see `Client.watch_runs`."""

    def __init__(self, source: RunWatching, thread: _LoopThread, timeout_s: float | None) -> None:
        super().__init__(source, thread, timeout_s)
        self._watching = source

    @property
    def runs(self) -> dict[str, RunView]:
        """The open runs now, by id."""
        return dict(self._watching.runs)


class Base:
    """An asyncio client, the thread that runs it, and the deadline of a call."""

    def __init__(self, client: Client, thread: _LoopThread, timeout_s: float | None) -> None:
        self._client = client
        self._thread = thread
        self._timeout_s = timeout_s

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the asyncio client under the deadline.  Raises TooSlow."""
        return self._thread.run(work, self._timeout_s)


def blocking(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Base, P], T]:
    """Make the blocking form of a method of the client, with its parameters and docstring."""

    @wraps(method)
    def call(self: Base, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(method(self._client, *args, **kwargs))

    return call


class BlockingClient(Base):
    """Client of one daemon; see `Client` for the methods and their errors.

    A call raises TooSlow after the client's `timeout_s`, if that is given.
    """

    def within(self, timeout_s: float | None) -> "BlockingClient":
        """Return this client with another deadline of each call, over the same connection."""
        return BlockingClient(self._client, self._thread, timeout_s)

    @property
    def hello(self) -> Hello:
        """The `hello` of the current connection.  Raises Unreachable without one."""
        return self._client.hello

    @property
    def welcome(self) -> Welcome:
        """Reply to `connect`: principal, role, scopes, features.  Raises Unreachable while offline."""
        return self._client.welcome

    @property
    def is_connected(self) -> bool:
        """True if a connection is open."""
        return self._client.is_connected

    @contextmanager
    def events(
        self, run_id: str, after_seq: int = -1, *, progress: bool = True
    ) -> Generator[RunItems]:
        """Iterate over the items of a run; see `Client.events`."""
        opening = self._client.events(run_id, after_seq, progress=progress)
        with _entered(opening, self._thread, self._timeout_s) as subscription:
            yield RunItems(subscription, self._thread, self._timeout_s)

    @contextmanager
    def run_events(
        self, text: str, *, progress: bool = True, **options: Unpack[RunOptions]
    ) -> Generator[tuple[Started, RunItems]]:
        """Send a message and iterate over the events of its run; see `Client.run_events`."""
        opening = self._client.run_events(text, progress=progress, **options)
        with _entered(opening, self._thread, self._timeout_s) as (started, subscription):
            yield started, RunItems(subscription, self._thread, self._timeout_s)

    @contextmanager
    def watch_runs(self, **wanted: Unpack[WatchedRuns]) -> Generator[WatchItems]:
        """Iterate over the changes of open runs; see `Client.watch_runs`."""
        opening = self._client.watch_runs(**wanted)
        with _entered(opening, self._thread, self._timeout_s) as watching:
            yield WatchItems(watching, self._thread, self._timeout_s)

    @contextmanager
    def notices(self) -> Generator[Items[Notice]]:
        """Iterate over notifications outside subscriptions; see `Client.notices`."""
        with _entered(self._client.notices(), self._thread, self._timeout_s) as inbox:
            yield Items[Notice](inbox, self._thread, self._timeout_s)

    def artifact_pages(self, session_id: str, artifact: str) -> Iterator[str]:
        """Iterate over the pages of an artifact."""
        return Items(
            self._client.artifact_pages(session_id, artifact), self._thread, self._timeout_s
        )

    # --- RunMethods
    start_run = blocking(Client.start_run)
    fork_run = blocking(Client.fork_run)
    steer = blocking(Client.steer)
    cancel = blocking(Client.cancel)
    get_run = blocking(Client.get_run)
    read_answer = blocking(Client.read_answer)
    list_runs = blocking(Client.list_runs)
    wait_run = blocking(Client.wait_run)
    replay_run = blocking(Client.replay_run)
    # --- TapeMethods
    read_tape = blocking(Client.read_tape)
    find_in_tape = blocking(Client.find_in_tape)
    outline_tape = blocking(Client.outline_tape)
    verify_tape = blocking(Client.verify_tape)
    export_tape = blocking(Client.export_tape)
    # --- ContextMethods
    explain_context = blocking(Client.explain_context)
    preview_references = blocking(Client.preview_references)
    # --- ApprovalMethods
    list_approvals = blocking(Client.list_approvals)
    get_approval = blocking(Client.get_approval)
    preview_approval = blocking(Client.preview_approval)
    get_reach = blocking(Client.get_reach)
    resolve_approval = blocking(Client.resolve_approval)
    list_grants = blocking(Client.list_grants)
    revoke_grant = blocking(Client.revoke_grant)
    get_push_key = blocking(Client.get_push_key)
    subscribe_push = blocking(Client.subscribe_push)
    unsubscribe_push = blocking(Client.unsubscribe_push)
    # --- SessionMethods
    resolve_session = blocking(Client.resolve_session)
    get_session = blocking(Client.get_session)
    list_sessions = blocking(Client.list_sessions)
    list_workspaces = blocking(Client.list_workspaces)
    archive_session = blocking(Client.archive_session)
    rename_session = blocking(Client.rename_session)
    reset_session = blocking(Client.reset_session)
    set_session_mode = blocking(Client.set_session_mode)
    compact_session = blocking(Client.compact_session)
    pin_message = blocking(Client.pin_message)
    checkpoint_session = blocking(Client.checkpoint_session)
    session_checkpoints = blocking(Client.session_checkpoints)
    restore_session = blocking(Client.restore_session)
    purge_session = blocking(Client.purge_session)
    queue = blocking(Client.queue)
    # --- FileMethods
    read_artifact = blocking(Client.read_artifact)
    list_checkpoints = blocking(Client.list_checkpoints)
    diff_run = blocking(Client.diff_run)
    undo_run = blocking(Client.undo_run)
    restore_checkpoint = blocking(Client.restore_checkpoint)
    # --- DocumentMethods
    list_documents = blocking(Client.list_documents)
    get_document = blocking(Client.get_document)
    document_history = blocking(Client.document_history)
    sync_document = blocking(Client.sync_document)
    fill_document = blocking(Client.fill_document)
    restore_document = blocking(Client.restore_document)
    # --- RegistryMethods
    list_agents = blocking(Client.list_agents)
    get_agent = blocking(Client.get_agent)
    create_agent = blocking(Client.create_agent)
    update_agent = blocking(Client.update_agent)
    delete_agent = blocking(Client.delete_agent)
    list_channels = blocking(Client.list_channels)
    set_channel = blocking(Client.set_channel)
    delete_channel = blocking(Client.delete_channel)
    list_pairings = blocking(Client.list_pairings)
    approve_pairing = blocking(Client.approve_pairing)
    revoke_pairing = blocking(Client.revoke_pairing)
    # --- SkillMethods
    list_skills = blocking(Client.list_skills)
    get_skill = blocking(Client.get_skill)
    upload_skill = blocking(Client.upload_skill)
    install_skill = blocking(Client.install_skill)
    audit_skill = blocking(Client.audit_skill)
    quarantine_skill = blocking(Client.quarantine_skill)
    enable_skill = blocking(Client.enable_skill)
    remove_skill = blocking(Client.remove_skill)
    # --- McpMethods
    list_mcp_servers = blocking(Client.list_mcp_servers)
    retry_mcp_server = blocking(Client.retry_mcp_server)
    list_mcp_resources = blocking(Client.list_mcp_resources)
    list_mcp_prompts = blocking(Client.list_mcp_prompts)
    # --- UsageMethods
    list_models = blocking(Client.list_models)
    sum_usage = blocking(Client.sum_usage)
    list_budgets = blocking(Client.list_budgets)
    budget_status = blocking(Client.budget_status)
    set_budget = blocking(Client.set_budget)
    delete_budget = blocking(Client.delete_budget)
    # --- ConfigurationMethods
    get_config = blocking(Client.get_config)
    set_config = blocking(Client.set_config)
    list_secrets = blocking(Client.list_secrets)
    try_notices = blocking(Client.try_notices)
    set_secret = blocking(Client.set_secret)
    remove_secret = blocking(Client.remove_secret)
    # --- HealingMethods
    healing_mode = blocking(Client.healing_mode)
    # --- IncidentMethods
    list_incidents = blocking(Client.list_incidents)
    get_incident = blocking(Client.get_incident)
    resolve_incident = blocking(Client.resolve_incident)
    # --- MemoryMethods
    add_memory = blocking(Client.add_memory)
    import_memories = blocking(Client.import_memories)
    search_memories = blocking(Client.search_memories)
    get_memory = blocking(Client.get_memory)
    list_memories = blocking(Client.list_memories)
    edit_memory = blocking(Client.edit_memory)
    forget_memories = blocking(Client.forget_memories)
    undo_memory = blocking(Client.undo_memory)
    pin_memory = blocking(Client.pin_memory)
    never_recall_memory = blocking(Client.never_recall_memory)
    get_memory_history = blocking(Client.get_memory_history)
    get_memory_status = blocking(Client.get_memory_status)
    rebuild_memory = blocking(Client.rebuild_memory)
    audit_memory = blocking(Client.audit_memory)
    export_memories = blocking(Client.export_memories)
    get_memory_used = blocking(Client.get_memory_used)
    purge_memory = blocking(Client.purge_memory)
    # --- LearningMethods
    list_candidates = blocking(Client.list_candidates)
    get_candidate = blocking(Client.get_candidate)
    accept_candidate = blocking(Client.accept_candidate)
    reject_candidate = blocking(Client.reject_candidate)
    edit_candidate = blocking(Client.edit_candidate)
    undo_candidate = blocking(Client.undo_candidate)
    reflect = blocking(Client.reflect)
    # --- BackupMethods
    create_backup = blocking(Client.create_backup)
    verify_backup = blocking(Client.verify_backup)
    # --- RetentionMethods
    preview_retention = blocking(Client.preview_retention)
    apply_retention = blocking(Client.apply_retention)
    compact_journal = blocking(Client.compact_journal)
    # --- TaskMethods
    submit_task = blocking(Client.submit_task)
    get_task = blocking(Client.get_task)
    list_tasks = blocking(Client.list_tasks)
    count_tasks = blocking(Client.count_tasks)
    cancel_task = blocking(Client.cancel_task)
    pause_task = blocking(Client.pause_task)
    resume_task = blocking(Client.resume_task)
    retry_task = blocking(Client.retry_task)
    add_schedule = blocking(Client.add_schedule)
    get_schedule = blocking(Client.get_schedule)
    list_schedules = blocking(Client.list_schedules)
    next_instants = blocking(Client.next_instants)
    preview_schedule = blocking(Client.preview_schedule)
    pause_schedule = blocking(Client.pause_schedule)
    resume_schedule = blocking(Client.resume_schedule)
    remove_schedule = blocking(Client.remove_schedule)
    # --- OperationMethods
    list_tools = blocking(Client.list_tools)
    explain_policy = blocking(Client.explain_policy)
    suggest_policies = blocking(Client.suggest_policies)
    apply_suggestion = blocking(Client.apply_suggestion)
    find_rule_for = blocking(Client.find_rule_for)
    allow_from = blocking(Client.allow_from)
    undo_suggestion = blocking(Client.undo_suggestion)
    create_token = blocking(Client.create_token)
    list_tokens = blocking(Client.list_tokens)
    revoke_token = blocking(Client.revoke_token)
    make_console_link = blocking(Client.make_console_link)
    tail_log = blocking(Client.tail_log)
    suspend = blocking(Client.suspend)
    resume = blocking(Client.resume)
    drain = blocking(Client.drain)
    ping = blocking(Client.ping)
    status = blocking(Client.status)
    tree = blocking(Client.tree)
    describe = blocking(Client.describe)
    # --- any method
    wait_connected = blocking(Client.wait_connected)
    call = blocking(Client.call)


@contextmanager
def _entered(
    manager: AbstractAsyncContextManager[T], thread: _LoopThread, timeout_s: float | None
) -> Generator[T]:
    """Enter and leave an asynchronous context manager in the loop's thread."""
    stack = AsyncExitStack()
    entered = thread.run(stack.enter_async_context(manager), timeout_s)
    try:
        yield entered
    finally:
        thread.run(stack.aclose(), None)


@contextmanager
def connect(  # noqa: PLR0913 - all by name
    url: str | None = None,
    *,
    token: str | None = None,
    home: Path | str | None = None,
    name: str = "palyra-python",
    want: Sequence[str] = ("batch",),
    patience_s: float = PATIENCE_S,
    timeout_s: float | None = None,
) -> Generator[BlockingClient]:
    """Open a client of the daemon at `url`, or of the one announced in `home`; see `aio.connect`.

    Each call raises TooSlow after `timeout_s`; without it calls wait as long as the daemon does.
    """
    manager = aio.connect(url, token=token, home=home, name=name, want=want, patience_s=patience_s)
    thread = _LoopThread()
    try:
        with _entered(manager, thread, None) as client:
            yield BlockingClient(client, thread, timeout_s)
    finally:
        thread.close()
