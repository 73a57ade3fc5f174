"""Sessions, with an actor or without: find, create and change them.

A session has an actor only while it has something to do.  A lookup therefore asks the registry of
live actors and then the journal, and must not create a second session for a key that an ending
actor is still writing (`_look_up`).
"""

from collections.abc import Callable
from functools import partial

import msgspec
import trio

from palyra.actors.kernel.child import ChildSpec
from palyra.actors.kernel.dynamic import DynamicSupervisor
from palyra.actors.session.actor import session_actor
from palyra.actors.session.handle import AdoptRuns, RunFinished, SessionHandle
from palyra.actors.session.registry import SessionServices
from palyra.core.access import Caller
from palyra.core.channel import check_identity
from palyra.core.context.pins import MAX_PINS, changed_pins, check_pin
from palyra.core.incident.kinds import session_set_aside
from palyra.core.journal.records import (
    DEFAULT_WORKSPACE,
    ModeChange,
    Pin,
    SessionMode,
    SessionPurge,
    SessionRecord,
)
from palyra.core.policy.modes import changed_mode, reset_mode, without_plan
from palyra.core.ports import JournalStore
from palyra.core.session import queue as queue_rules
from palyra.core.session.commands import ChangeQueue, Queue, StartRun
from palyra.core.session.purge import mark_done, mark_purged, run_is_open
from palyra.errors import (
    ActorGone,
    Conflict,
    IllegalState,
    InvalidParams,
    InvariantBroken,
    NotFound,
    TooSlow,
)
from palyra.services.tape.pins import read_pin
from palyra.services.tape.run_loader import LoadedRun

ANSWER_S = 30.0
SESSION_GRACE_S = 2.0


class Sessions:
    """The sessions of the daemon."""

    def __init__(self, services: SessionServices, work: DynamicSupervisor) -> None:
        self._services = services
        self._work = work  # the parent of all sessions and runs
        services.registry.on_set_aside = self._report_set_aside

    async def reach(self, caller: Caller, command: StartRun) -> SessionHandle:
        """Return the message's session, with an actor; a new session when none is named.

        Raises NotFound for an unknown or foreign id, InvalidParams for one of another
        conversation or workspace and for an unknown workspace, IllegalState for a session whose
        workspace is not configured any more, Overloaded, Forbidden for a mode by a caller who may
        not answer approvals.
        """
        if command.mode is not None:
            caller.require("approvals:write")
        session = await self._reach(caller, command)
        if command.mode is not None and command.mode != session.record.mode:
            await self._update(session, self._to_mode(caller, command.mode))
            session = self._live(session.record)  # its actor may have ended meanwhile
        return session

    async def _reach(self, caller: Caller, command: StartRun) -> SessionHandle:
        session_id, key = command.session_id, command.session_key
        if session_id is not None and key is not None:
            raise InvalidParams("give session_id or session_key, not both", field="session_key")
        if session_id is not None:
            record = await self._get_own(caller, session_id)
            check_identity(record, command)
            self._check_workspace(record, command.workspace)
            return self._live(record)
        if command.channel is not None:
            return await self._reach_conversation(caller, command)
        if key is None:
            record = self._new_record(caller, None, command.workspace)
            if command.branch is not None:
                record = msgspec.structs.replace(record, pins=command.branch.pins)
            return self._live(record, has_past=False)
        self._check_key(key)
        return await self._reach_key(caller, key, command.workspace)

    def _check_key(self, key: str) -> None:
        """Refuse a key that holds a secret: keys are stored and shown in plain text."""
        _, is_secret = self._services.redactor.redact_text(key)
        if is_secret:
            raise InvalidParams("the key holds a secret: choose another name", field="session_key")

    async def _reach_key(self, caller: Caller, key: str, workspace: str | None) -> SessionHandle:
        live = self._services.registry.keys.get((caller.principal, key))
        if live is not None:
            return self._checked(live, workspace)
        found = await self._look_up(
            lambda store: store.find_session_by_key(caller.principal, key),
            lambda record: (record.principal, record.key) == (caller.principal, key),
        )
        # Another request may have created it during the lookup: the registry wins.
        live = self._services.registry.keys.get((caller.principal, key))
        if live is None:
            record = found or self._new_record(caller, key, workspace)
            self._check_workspace(record, workspace)
            return self._live(record, has_past=found is not None)
        return self._checked(live, workspace)

    async def _reach_conversation(self, caller: Caller, command: StartRun) -> SessionHandle:
        new = msgspec.structs.replace(
            self._new_record(caller, None, command.workspace),
            agent=command.agent,
            channel=command.channel,
            conversation_id=command.conversation_id,
        )
        place = new.place
        if place is None:
            raise InvariantBroken("the message was not routed")
        registry = self._services.registry
        live = registry.find_conversation(place)
        if live is None:
            found = await self._look_up(
                lambda store: store.find_conversation(*place),
                lambda record: record.place == place,
            )
            live = registry.find_conversation(place)
            if live is None:
                self._check_workspace(found or new, command.workspace)
                return self._live(found or new, has_past=found is not None)
        return self._checked(live, command.workspace)

    def _checked(self, session: SessionHandle, workspace: str | None) -> SessionHandle:
        self._check_workspace(session.record, workspace)
        return session

    def _check_workspace(self, record: SessionRecord, workspace: str | None) -> None:
        """Raise unless the session works in the named workspace, if any, and that is configured."""
        if workspace not in {None, record.workspace}:
            raise InvalidParams(
                f"the session works in {record.workspace!r}, and a session keeps its workspace: leave "
                "`workspace` out, or start another session",
                field="workspace",
            )
        if record.workspace not in self._services.workspaces:
            raise IllegalState(
                f"the workspace {record.workspace!r} of the session is not configured any more: add it "
                "to tools.workspaces again, or start another session"
            )

    async def _look_up(
        self,
        query: Callable[[JournalStore], SessionRecord | None],
        is_wanted: Callable[[SessionRecord], bool],
    ) -> SessionRecord | None:
        """Return the record that the session's last actor committed.

        Repeat the query if an actor of that session ended meanwhile: it may have written later.
        """
        while True:
            with self._services.registry.noting_ended() as ended:
                found = await self._services.journal.find(query)
            if not any(is_wanted(handle.record) for handle in ended):
                return found

    def _new_record(self, caller: Caller, key: str | None, workspace: str | None) -> SessionRecord:
        if workspace is not None and workspace not in self._services.workspaces:
            known = ", ".join(sorted(self._services.workspaces))
            raise InvalidParams(f"no workspace {workspace!r}; known: {known}", field="workspace")
        now_ms = self._services.now_ms()
        return SessionRecord(
            session_id=self._services.new_id("ses"),
            principal=caller.principal,
            key=key,
            created_ms=now_ms,
            updated_ms=now_ms,
            workspace=workspace or DEFAULT_WORKSPACE,
        )

    def _live(self, record: SessionRecord, *, has_past: bool = True) -> SessionHandle:
        """The session's actor; starts one when there is none.

        Raises IllegalState for a session that is set aside.
        """
        registry = self._services.registry
        handle = registry.sessions.get(record.session_id)
        if handle is not None:
            return handle
        if record.session_id in registry.set_aside:
            raise IllegalState(
                f"{record.session_id} is set aside, because its actor crashed again and again: "
                "`palyra incidents list --open` has the cause and the remedy"
            )
        return self._start(SessionHandle(record, has_past=has_past))

    def _start(self, handle: SessionHandle) -> SessionHandle:
        start = partial(session_actor, handle, self._services, self._work)
        child_id = f"session:{handle.session_id}"
        self._work.spawn_child(
            ChildSpec(child_id, start, "transient", SESSION_GRACE_S, handle.inbox)
        )
        self._services.registry.add_session(handle)
        return handle

    # --- sessions that are set aside

    def _report_set_aside(self, handle: SessionHandle, error: str) -> None:
        self._services.incidents.report(
            session_set_aside(handle.session_id, handle.record.principal, error)
        )

    def revive(self, session_id: str) -> str:
        """Start an actor of a session that was set aside, with the state it had; return the outcome.

        Raises Overloaded, and the session stays as it is.
        """
        registry = self._services.registry
        kept = registry.set_aside.get(session_id)
        if kept is None:
            return "the session is not set aside (any more)"
        handle = self._start(kept.renewed())
        del registry.set_aside[session_id]
        for run in handle.under_way:  # some may have ended meanwhile
            if f"run:{run.run_id}" not in self._work:
                handle.inbox.offer(RunFinished(run.run_id))
        handle.inbox.offer(AdoptRuns(()))  # an actor ends when it has handled something
        return "the session has an actor again"

    def adopt(self, record: SessionRecord, runs: tuple[LoadedRun, ...]) -> None:
        """Give a session's open runs back to it after a restart."""
        if runs:
            self._live(record).inbox.offer(AdoptRuns(runs))

    # --- records

    async def _get_own(self, caller: Caller, session_id: str) -> SessionRecord:
        """The record of one of the caller's own sessions."""
        record = await self._get_seen(caller, session_id)
        if record.principal != caller.principal:
            raise NotFound(f"no session {session_id!r}", field="session_id")
        return record

    async def _get_seen(self, caller: Caller, session_id: str) -> SessionRecord:
        live = self._services.registry.sessions.get(session_id)
        record = (
            live.record
            if live is not None
            else await self._look_up(
                lambda store: store.find_session(session_id),
                lambda record: record.session_id == session_id,
            )
        )
        if record is None or not caller.sees(record.principal):
            raise NotFound(f"no session {session_id!r}", field="session_id")
        return record

    async def resolve(
        self,
        caller: Caller,
        *,
        key: str | None,
        session_id: str | None,
        workspace: str | None = None,
    ) -> SessionRecord:
        """Return the caller's session of that id or key; create one for a new key, committed.

        A new session works in that workspace, by default in the default one.  Raises NotFound, and
        InvalidParams for an unknown workspace or a session of another one.
        """
        caller.require("sessions:write")
        if (key is None) == (session_id is None):
            raise InvalidParams("give exactly one of key and session_id", field="key")
        if session_id is not None:
            found = await self._get_own(caller, session_id)
            if workspace is not None:
                self._check_workspace(found, workspace)
            return found
        self._check_key(key or "")
        session = await self._reach_key(caller, key or "", workspace)
        return await self._update(session, lambda record: record)

    async def get(self, caller: Caller, session_id: str) -> SessionRecord:
        """Return one session.  Raises NotFound, also for a session of another principal."""
        caller.require("sessions:read")
        return await self._get_seen(caller, session_id)

    async def find_workspace(
        self, caller: Caller, session_id: str | None, workspace: str | None
    ) -> tuple[SessionRecord | None, str]:
        """Return the session, if one is named, and the workspace of a message to it.

        Raises NotFound, and the errors of `reach` about workspaces.
        """
        if session_id is None:
            return None, self._new_record(caller, None, workspace).workspace
        session = await self.get(caller, session_id)
        self._check_workspace(session, workspace)
        return session, session.workspace

    async def list_seen(
        self, caller: Caller, *, before: str | None, limit: int
    ) -> list[SessionRecord]:
        """Return the sessions that the caller sees, newest first."""
        caller.require("sessions:read")
        return await self._services.journal.read(
            lambda store: store.list_sessions(caller.principal_filter, before=before, limit=limit)
        )

    async def archive(self, caller: Caller, session_id: str) -> SessionRecord:
        """Archive the session: it takes no more messages; its open runs continue."""
        now_ms = self._services.now_ms()
        return await self._change(
            caller,
            session_id,
            lambda record: msgspec.structs.replace(
                record, archived_ms=record.archived_ms or now_ms, updated_ms=now_ms
            ),
        )

    async def rename(self, caller: Caller, session_id: str, title: str) -> SessionRecord:
        """Give the session a title, of one line; with "" its next message gives it one.

        Raises IllegalState for a purged session, which keeps no words.
        Cancellation: the change may have been made.
        """
        now_ms = self._services.now_ms()
        return await self._change(
            caller, session_id, lambda record: queue_rules.rename(record, title, now_ms)
        )

    async def reset(self, caller: Caller, session_id: str) -> SessionRecord:
        """Start a new epoch, which drops the session's history and grants."""
        now_ms = self._services.now_ms()
        return await self._change(
            caller,
            session_id,
            lambda record: msgspec.structs.replace(
                reset_mode(record), epoch=record.epoch + 1, updated_ms=now_ms, pins=()
            ),
        )

    async def set_mode(self, caller: Caller, session_id: str, mode: SessionMode) -> SessionRecord:
        """Change the mode of a session that the caller sees, committed on return.

        Calls that have started go on; every other call of the session is judged in the new mode.
        Raises Forbidden for a caller who may not answer approvals, NotFound.
        Cancellation: the change may have been made.
        """
        caller.require("approvals:write")
        record = await self._get_seen(caller, session_id)
        return await self._update(self._live(record), self._to_mode(caller, mode))

    async def accept_plan(self, session_id: str) -> SessionRecord:
        """Return a session to the mode before its plan, committed; in another mode nothing changes.

        Raises NotFound.  Cancellation: the change may have been made.
        """
        handle = self._services.registry.sessions.get(session_id)
        if handle is None:
            raise NotFound(f"no session {session_id!r}", field="session_id")
        now_ms = self._services.now_ms()
        return await self._update(handle, lambda record: without_plan(record, now_ms))

    def _to_mode(
        self, caller: Caller, mode: SessionMode
    ) -> Callable[[SessionRecord], SessionRecord]:
        change = ModeChange(by=caller.principal, role=caller.role, at_ms=self._services.now_ms())
        return lambda record: changed_mode(record, mode, change)

    async def mark_purged(self, record: SessionRecord, purge: SessionPurge) -> SessionRecord:
        """Put the request of a purge on record, committed; no run starts in the session any more.

        Raises IllegalState, with nothing changed, while a run of the session has not ended.
        Cancellation: the request may be on record.
        """
        handle = self._live(record)

        def mark(before: SessionRecord) -> SessionRecord:
            for run in (*handle.under_way, *handle.waiting):
                if not run.is_over:
                    raise run_is_open(run.run_id)
            return mark_purged(before, purge)

        return await self._update(handle, mark)

    async def mark_purge_done(self, record: SessionRecord) -> SessionRecord:
        """Record that the purge of a session is complete."""
        now_ms = self._services.now_ms()
        return await self._update(self._live(record), lambda before: mark_done(before, now_ms))

    async def pin(self, caller: Caller, session_id: str, pin: Pin, *, is_on: bool) -> SessionRecord:
        """Pin the message that an event of the session's tapes brought, or unpin it.

        Raises NotFound for a run of another session, InvalidParams for an event without a text that
        fits, Conflict over the limit.  Cancellation: the change may have been made.
        """
        caller.require("sessions:write")
        session = await self._get_own(caller, session_id)
        if is_on and pin not in session.pins:
            await self._check_pin(session, pin)
        now_ms = self._services.now_ms()
        changed = await self._change(
            caller,
            session_id,
            lambda record: msgspec.structs.replace(
                record, pins=changed_pins(record.pins, pin, is_on=is_on), updated_ms=now_ms
            ),
        )
        if is_on and pin not in changed.pins:
            raise Conflict(f"the session has {MAX_PINS} pins, the most: unpin one first")
        return changed

    async def _check_pin(self, session: SessionRecord, pin: Pin) -> None:
        run = await self._services.journal.find(lambda store: store.find_run(pin.run_id))
        if run is None or run.session_id != session.session_id:
            raise NotFound(f"the session has no run {pin.run_id!r}", field="run_id")
        placed = await self._services.journal.read(lambda store: read_pin(store, pin))
        check_pin(placed, pin)

    async def _change(
        self,
        caller: Caller,
        session_id: str,
        change: Callable[[SessionRecord], SessionRecord],
    ) -> SessionRecord:
        caller.require("sessions:write")
        return await self._update(self._live(await self._get_own(caller, session_id)), change)

    async def _update(
        self, handle: SessionHandle, change: Callable[[SessionRecord], SessionRecord]
    ) -> SessionRecord:
        try:
            record, ticket = await handle.update_record(change, timeout_s=ANSWER_S)
        except ActorGone:  # it ended after the lookup: the next incarnation takes the message
            record, ticket = await self._live(handle.record).update_record(
                change, timeout_s=ANSWER_S
            )
        await ticket.wait()
        return record

    # --- queues

    async def arrange_queue(self, caller: Caller, session_id: str, change: ChangeQueue) -> Queue:
        """Change the queue; return it once that is committed and dropped runs have ended.

        Raises NotFound, Conflict (a run that does not wait; then nothing changed), TooSlow, and
        Forbidden for a change by a caller with read access only.
        """
        caller.require("sessions:read" if change.is_look else "sessions:write")
        if change.is_look:
            record = await self._get_seen(caller, session_id)
            handle = self._services.registry.sessions.get(session_id) or SessionHandle(record)
            return handle.show_queue(self._services.queue_cap)
        handle = self._live(await self._get_own(caller, session_id))
        try:
            ticket = await handle.update_queue(change, caller.principal, timeout_s=ANSWER_S)
        except ActorGone:  # it ended after the lookup: the next incarnation takes the message
            handle = self._live(handle.record)
            ticket = await handle.update_queue(change, caller.principal, timeout_s=ANSWER_S)
        await ticket.wait()
        await self._wait_ends(change.drop)
        return handle.show_queue(self._services.queue_cap)

    async def _wait_ends(self, run_ids: tuple[str, ...]) -> None:
        """Wait until these runs have ended.  Raises TooSlow."""
        runs = self._services.registry.runs
        with trio.move_on_after(ANSWER_S) as scope:
            for run_id in run_ids:
                while (run := runs.get(run_id)) is not None and not run.is_ended:
                    await run.wait_change()
        if scope.cancelled_caught:
            raise TooSlow(f"dropped runs did not end within {ANSWER_S:g} s")
