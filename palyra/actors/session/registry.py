"""Registry of live actors (runs and sessions), and the supervisor that holds them.

The registry is plain dictionaries, read and written on the event loop.  Entries are added and
removed by the actors they stand for, so a lookup followed by an `offer` without a checkpoint in
between reaches the actor.

`work` is one dynamic supervisor with all sessions and runs as children.  The end of a run, whatever
its reason, is sent to the run's session, which decides what follows.
Restart: permanent.  Its children are then rebuilt from the tapes, so the registry is emptied.
"""

import random
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import msgspec
import trio

from palyra.actors.kernel.child import ChildSpec, Exit, ExitListener
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.run.environment import RunServices
from palyra.actors.run.handle import RunHandle
from palyra.actors.session.handle import RunFinished, SessionHandle
from palyra.core.journal.records import DEFAULT_WORKSPACE, Place, RunRecord, SessionRecord
from palyra.core.run.inputs import Cancel
from palyra.core.tape.events import RunAccepted
from palyra.errors import ActorGone, Overloaded


def _no_actor(_child_id: str, _reason: str) -> None:
    """There is no supervisor yet, so no actor either."""


ORPHANED = Cancel(reason="the run that delegated this task has ended", by="palyra")


class ActorRegistry:
    """Live runs and sessions by id, live sessions also by (principal, key) and by place."""

    def __init__(self) -> None:
        self.runs: dict[str, RunHandle] = {}
        self.sessions: dict[str, SessionHandle] = {}
        self.keys: dict[tuple[str, str], SessionHandle] = {}
        self.stranded: dict[
            str, str
        ] = {}  # open runs that this daemon cannot resume, with the reason
        # Sessions whose actor crashed too often, with their state: no actor is started for them.
        self.set_aside: dict[str, SessionHandle] = {}
        self.on_set_aside: Callable[[SessionHandle, str], object] = _unheard
        self.is_complete = False  # recovery is done: every open run is in `runs` or `stranded`
        self.conversations: dict[Place, SessionHandle] = {}
        # Open delegated runs by the run above, and those to be cancelled once they have an actor.
        self.children: dict[str, set[str]] = {}
        self.orphans: set[str] = set()
        self.modes: dict[str, SessionRecord] = {}  # of sessions in another mode than `ask`
        self.stop_actor: Callable[[str, str], object] = _no_actor  # set with the supervisor
        self._watches: list[list[SessionHandle]] = []

    def clear(self) -> None:
        """Forget everything, because the supervisor of sessions and runs restarts."""
        self.runs.clear()
        self.sessions.clear()
        self.keys.clear()
        self.stranded.clear()
        self.set_aside.clear()
        self.is_complete = False
        self.conversations.clear()
        self.children.clear()
        self.orphans.clear()
        self.modes.clear()

    def add_child(self, record: RunRecord) -> None:
        """Register a delegated run below its parent; another run is ignored."""
        if record.depth and record.parent_run_id is not None:
            self.children.setdefault(record.parent_run_id, set()).add(record.run_id)

    def end_children(self, run_id: str) -> None:
        """Cancel the children of a run that has ended; one that is not adopted yet begins with that.

        A plain call; each child ends on its own, and cancels those below it.
        """
        for child_id in self.children.pop(run_id, ()):
            self.orphans.add(child_id)
            child = self.runs.get(child_id)
            if child is not None:
                self.cancel_orphan(child)

    def cancel_orphan(self, child: RunHandle) -> None:
        """Send the Cancel to a child without a parent, for this actor of it or the next one."""
        if child.run_id not in self.orphans or child.ending is not None:
            return
        self.orphans.discard(child.run_id)
        child.ending = ORPHANED
        try:
            child.inbox.offer(ORPHANED)
        except ActorGone:
            pass  # it has no actor at the moment, and the next one begins with `ending`
        except Overloaded:
            self.stop_actor(f"run:{child.run_id}", ORPHANED.reason)

    def remove_run(self, run: RunHandle) -> None:
        """Unregister a run that has ended or is stranded."""
        del self.runs[run.run_id]
        accepted = run.run.accepted
        if accepted.depth and run.is_over:
            self.orphans.discard(run.run_id)
            below = self.children.get(accepted.parent_run_id or "")
            if below is not None:
                below.discard(run.run_id)
                if not below:
                    del self.children[accepted.parent_run_id or ""]
        if run.is_over and run.run_id in self.children:
            self.end_children(run.run_id)

    def add_session(self, handle: SessionHandle) -> None:
        """Register a session under its id, key and place."""
        self.sessions[handle.session_id] = handle
        if handle.record.mode != "ask":
            self.note_mode(handle.record)
        if handle.record.key is not None:
            self.keys[handle.record.principal, handle.record.key] = handle
        if handle.record.place is not None:
            self.conversations[handle.record.place] = handle

    def note_mode(self, record: SessionRecord) -> None:
        """Register the mode of a session that has an actor, or whose runs have one."""
        if record.mode == "ask":
            self.modes.pop(record.session_id, None)
        else:
            self.modes[record.session_id] = record

    def find_accepted(self, run_id: str) -> RunAccepted | None:
        """Return the first event of an open run."""
        run = self.runs.get(run_id)
        return None if run is None else run.run.accepted

    def find_conversation(self, place: Place) -> SessionHandle | None:
        """Return the live session of a place; an archived one no longer belongs to it."""
        handle = self.conversations.get(place)
        return handle if handle is not None and handle.record.place == place else None

    @contextmanager
    def noting_ended(self) -> Generator[list[SessionHandle]]:
        """Collect the sessions whose actor ends inside the block.

        A record read from the journal inside the block may be older than their last commit.
        """
        ended: list[SessionHandle] = []
        self._watches.append(ended)
        try:
            yield ended
        finally:
            self._watches = [watch for watch in self._watches if watch is not ended]

    def release_names(self, handle: SessionHandle) -> None:
        """Make key and place of a session free for another one."""
        if handle.record.key is not None:
            self.keys.pop((handle.record.principal, handle.record.key), None)
        if handle.record.place is not None:
            self.conversations.pop(handle.record.place, None)

    def remove_session(self, handle: SessionHandle) -> None:
        """Unregister a session whose actor has ended; its appends are committed or refused."""
        for ended in self._watches:
            ended.append(handle)
        self.sessions.pop(handle.session_id, None)
        if self.modes:
            self.modes.pop(handle.session_id, None)
        if handle.record.key is not None:
            self.keys.pop((handle.record.principal, handle.record.key), None)
        unarchived = msgspec.structs.replace(handle.record, archived_ms=None)
        if unarchived.place is not None and self.conversations.get(unarchived.place) is handle:
            del self.conversations[unarchived.place]

    def set_session_aside(self, handle: SessionHandle, error: str) -> None:
        """Unregister a session whose actor crashes each time; its runs that have an actor go on."""
        self.remove_session(handle)
        self.set_aside[handle.session_id] = handle
        self.note_mode(handle.record)  # its runs go on in it
        self.on_set_aside(handle, error)


def _unheard(_handle: SessionHandle, _error: str) -> None:
    """There are no sessions yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionServices(RunServices):
    """Services of sessions, which hand them to their runs as plain `RunServices`."""

    registry: ActorRegistry
    queue_cap: int  # messages that may wait in one session
    max_open: int  # runs without an end, in all sessions together
    workspaces: Collection[str] = (DEFAULT_WORKSPACE,)  # names of those that sessions can work in
    debounce_ms: int = 500  # how long a collected run waits for a further message


# --- the supervisor ---------------------------------------------------------------------------

GRACE_S = 30.0  # ten thousand runs need some seconds to stop, each within its own grace


def build_work(
    registry: ActorRegistry,
    max_children: int,
    notice: ExitListener | None = None,
    rng: Callable[[], float] = random.random,  # noqa: S311 - jitter
) -> DynamicSupervisor:
    """Build the supervisor of sessions and runs; `notice` gets their crashes."""

    def on_exit(end: Exit) -> None:
        report_ended(registry, end)
        if end.outcome == "crashed" and notice is not None:
            notice(end)

    work = DynamicSupervisor("work", max_children=max_children, on_exit=on_exit, rng=rng)
    registry.stop_actor = work.cancel_child
    return work


def report_ended(registry: ActorRegistry, end: Exit) -> None:
    """Send RunFinished to the session of a run whose actor has ended; set a session aside."""
    if end.is_set_aside:
        broken = registry.sessions.get(end.id.removeprefix("session:"))
        if broken is not None:
            registry.set_session_aside(broken, repr(end.error))
        return
    run = registry.runs.get(end.id.removeprefix("run:"))
    if run is None or end.outcome == "stuck":
        return
    session = registry.sessions.get(run.run.accepted.session_id)
    if session is not None:
        with suppress(ActorGone, Overloaded):  # the session is being stopped itself
            session.inbox.offer(RunFinished(run.run_id))


def child_spec(work: DynamicSupervisor, registry: ActorRegistry) -> ChildSpec:
    """Return the permanent child, ready when sessions and runs may start."""

    async def start(*, task_status: trio.TaskStatus[None]) -> None:
        registry.clear()
        await work.run(task_status=task_status)

    return ChildSpec("work", start, grace_s=GRACE_S, snapshot=work.snapshot)
