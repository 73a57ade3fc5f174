"""One seed, played from its beginning to its end."""

import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from unittest.mock import patch

import msgspec
import structlog
import trio

from palyra import daemon
from palyra.client import dial
from tests.simulate.chance import scheduled_by
from tests.simulate.rules import Rules
from tests.simulate.standing import redactor
from tests.simulate.world import Cast, World


class Report(msgspec.Struct, kw_only=True):
    """The result of one seed."""

    seed: int
    digest: str = ""
    virtual_s: float = 0.0
    real_s: float = 0.0
    steps: int = 0  # of the scheduler
    effects: int = 0  # what the daemon did to disk, network, models and tools
    lives: int = 0
    runs: int = 0
    rows: int = 0
    counts: dict[str, int] = {}
    failed: str | None = None  # the invariant
    detail: str = ""
    tail: list[str] = []


@contextmanager
def _listening_to(world: World) -> Generator[None]:
    """The daemon's log goes to the world, from warnings up."""
    before = structlog.get_config()

    def note(_logger: object, level: str, event: dict[str, object]) -> dict[str, object]:
        world.logged(level, event)
        raise structlog.DropEvent

    structlog.configure(
        processors=[note],  # type: ignore[list-item]
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


def simulate(
    seed: int, cast: Cast = "workers", *, is_thorough: bool = False, keep: bool = False
) -> Report:
    """Play the story of one seed; `is_thorough` traces every step of the scheduler too."""
    begun_s = time.perf_counter()
    world = World(seed, cast, is_thorough=is_thorough)
    if keep:
        world.trace.whole = []
    with (
        scheduled_by(seed),
        _listening_to(world),
        patch.object(dial, "open_stream", world.network.open_stream),
        patch.object(dial, "upgrade", world.network.upgrade),
        patch.object(daemon, "cedar_policy", lambda _config: Rules(world.weather.files)),
        patch.object(daemon, "Redactor", redactor),
        patch.object(daemon, "build_memory_indexes", world.build_memory_indexes),
        closing(world),
    ):
        trio.run(world.tell, clock=world.clock, instruments=[world.pulse])
    failure = world.failure
    return Report(
        seed=seed,
        digest=world.trace.digest,
        virtual_s=world.clock.current_time(),
        real_s=time.perf_counter() - begun_s,
        steps=world.pulse.steps,
        effects=world.effects,
        lives=world.lives,
        runs=len(world.oracle.runs),
        rows=sum(map(len, world.oracle.tapes.values())),
        counts={
            **world.trace.counts,
            "calls under a grant": world.oracle.consent.spoke,
            "calls over a budget": world.oracle.purse.refusals,
            "another model took over": world.oracle.failovers,
            "compactions": world.oracle.transcripts.compactions,
            "branches": world.oracle.transcripts.branches,
            "remedies": world.oracle.vigil.remedies,
            "items of memory": world.oracle.memory.stored,
        },
        failed=None if failure is None else failure.name,
        detail="" if failure is None else failure.detail,
        tail=world.trace.whole or list(world.trace.tail),
    )
