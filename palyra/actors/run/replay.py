"""Replays on demand: a committed tape decided again, in a thread, a few steps at a time.

Owns: the right to replay, one at a time in the whole daemon.  Talks to: the journal (reads).
Never: calls a model or a tool, writes, or holds up the loop.
"""

from functools import partial

import msgspec
import trio

from palyra.actors.run.arguments import CallArguments
from palyra.actors.run.environment import LiveEnvironment
from palyra.actors.run.services import RunServices
from palyra.core.agent import placeholder_agent
from palyra.core.context.assembly import brief_prefix
from palyra.core.journal.tape_row import TapeRow
from palyra.core.replay.replay import Replay
from palyra.core.replay.report import ReplayReport
from palyra.core.tape.events import RunAccepted, RunStarted
from palyra.errors import TooLarge

PAGE_ROWS = 1_000
STEPS = 100  # of one visit to the thread: some ten milliseconds, what a cancel waits for
MAX_BYTES = 67_108_864  # of payloads; a replay holds the whole tape


class Replayer:
    """The daemon's replays."""

    def __init__(self, services: RunServices) -> None:
        self._services = services
        self._turn = trio.Lock()

    async def replay(self, run_id: str, *, strict: bool) -> ReplayReport:
        """What a replay of the run's committed tape comes to.

        Raises TooLarge, and strictly also what a run of that agent would be refused with.
        Cancellation: nothing happened.
        """
        async with self._turn:
            rows = await self._read(run_id)
            accepted = msgspec.json.decode(rows[0].data, type=RunAccepted)
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
        """What a run of that agent, as it was then, and that model would be given now."""
        services = self._services
        name, version = accepted.agent, accepted.agent_version
        agent = await services.agents.find_version(name, version) or placeholder_agent(
            name, version
        )
        prefix = brief_prefix(services.agents.prefix(agent), accepted.brief)
        started = (row.data for row in rows if row.kind == RunStarted.KIND)
        began = msgspec.json.decode(next(started, b"null"), type=RunStarted | None)
        history = await services.histories.repeat(began.history if began is not None else ())
        arguments = CallArguments(services.gate.alone(), prefix, str)
        return LiveEnvironment(services, prefix, history, arguments)
