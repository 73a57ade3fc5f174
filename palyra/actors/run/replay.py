"""Replays on demand: decide a committed tape again, in a worker thread, a few steps at a time.

Owns: a lock, so that one replay runs at a time in the daemon.  Talks to: the journal (reads).
Never: calls a model or a tool, writes, or blocks the event loop.
"""

from functools import partial

import trio

from palyra.actors.run.environment import CallArguments, LiveEnvironment, RunServices
from palyra.core.agent import placeholder_agent
from palyra.core.context.assembly import brief_prefix, narrow_prefix
from palyra.core.journal.tape_row import TapeRow
from palyra.core.replay.replay import Replay
from palyra.core.replay.report import ReplayReport
from palyra.core.tape.events import RunAccepted, RunStarted, decode_row
from palyra.errors import Damaged, TooLarge

PAGE_ROWS = 1_000
STEPS = 100  # per call into the thread: about 10 ms, the latency of a cancel
MAX_BYTES = 67_108_864  # of payloads; a replay holds the whole tape


class Replayer:
    """Replays tapes for clients."""

    def __init__(self, services: RunServices) -> None:
        self._services = services
        self._turn = trio.Lock()

    async def replay(self, run_id: str, *, strict: bool) -> ReplayReport:
        """Replay the committed tape of the run and report the first divergence.

        Raises TooLarge, Damaged without a readable first event; a strict replay also raises the errors that refuse a run of that agent.
        Cancellation: no effect.
        """
        async with self._turn:
            rows = await self._read(run_id)
            if not rows:
                raise Damaged(f"{run_id} has no tape: its events are gone")
            accepted = decode_row(rows[0], RunAccepted)
            services = self._services
            now = await self._environment(accepted, rows) if strict else None
            start = partial(Replay, rows, services.redact, limits=services.limits, now=now)
            run_blocking = services.run_blocking
            under_way = await run_blocking(start)
            while await run_blocking(under_way.advance, STEPS):
                pass
            return under_way.report()

    async def _read(self, run_id: str) -> list[TapeRow]:
        rows: list[TapeRow] = []
        size_bytes = 0
        after_seq: int | None = -1
        while after_seq is not None:
            cursor = after_seq
            page = await self._services.journal.read(
                lambda store: store.read_tape(run_id, after_seq=cursor, limit=PAGE_ROWS)  # noqa: B023 - called before the next round
            )
            rows.extend(page.rows)
            size_bytes += page.size_bytes
            after_seq = page.next_after_seq
            if size_bytes > MAX_BYTES:
                raise TooLarge(
                    f"the tape of {run_id} is larger than {MAX_BYTES} bytes: export it and replay "
                    "the file with `palyra tape replay`"
                )
        return rows

    async def _environment(self, accepted: RunAccepted, rows: list[TapeRow]) -> LiveEnvironment:
        """Return the environment that such a run would have today, with the agent of that version."""
        services = self._services
        name, version = accepted.agent, accepted.agent_version
        agent = await services.agents.find_version(name, version) or placeholder_agent(
            name, version
        )
        started = (decode_row(row, RunStarted) for row in rows if row.kind == RunStarted.KIND)
        began = next(started, None)
        mode = began.mode if began is not None else "ask"
        prefix = brief_prefix(
            narrow_prefix(
                services.agents.prefix(agent, accepted.owner_of_tools, accepted.workspace, mode),
                accepted.tools,
            ),
            accepted.brief,
        )
        history = await services.histories.repeat(began.history if began is not None else ())
        arguments = CallArguments(services.gate.alone(), prefix, str)
        return LiveEnvironment(services, prefix, history, arguments)
