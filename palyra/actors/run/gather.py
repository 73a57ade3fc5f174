"""The gather task: texts for a prompt from outside the run, each within a deadline of its own.

Talks to: the context sources, its run (one message).
Never: fails.  A source that is late or broken is reported as absent, and the others count.
Restart: none; it is a child of its run.  A resumed run gathers again what its tape lacks.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import msgspec
import outcome
import trio

from palyra.actors.kernel.child import ChildTask
from palyra.actors.run.environment import RunServices, look_for_secrets
from palyra.actors.run.handle import RunHandle
from palyra.core.context.assembly import Prefix
from palyra.core.context.references import cut_all, find_folders, list_references
from palyra.core.memory.standing import STANDING_TOKENS
from palyra.core.model.sources import ContextSource, MemorySources, SourceLayer
from palyra.core.run.inputs import Gather, Gathered
from palyra.core.run.state import own_messages
from palyra.core.tape.events import ContextGathered, encode_event
from palyra.core.text.references import (
    Reference,
    has_references,
    parse_references,
    remove_references,
)
from palyra.errors import PalyraError
from palyra.services.context.references import Asker, ContextSources

T = TypeVar("T")
SOURCE_S = 2.0  # deadline of each source
NO_PROJECT_FILES = "the workspace has none that is read"
LATE = f"not there within {SOURCE_S:g} s"
OVER_STANDING = f"{{}} more over the budget of {STANDING_TOKENS} tokens"


@dataclass(slots=True, kw_only=True)
class GatherTask(ChildTask):
    """Gathering for one turn."""

    run: RunHandle
    services: RunServices
    prefix: Prefix
    effect: Gather


async def gather_sources(task: GatherTask) -> None:
    """Gather everything at once and report `Gathered`.

    A source whose thread is blocked is late like any other.  This task waits for that thread after
    the report, and the end of the run with it.

    Cancellation: the sources are abandoned and nothing is reported.
    """
    task.waits_for = "context"
    services, run = task.services, task.run.run
    asker = services.sources.for_run(run, task.prefix)
    texts = [message.text for message in own_messages(run)]
    found: dict[int, list[ContextGathered]] = {}

    async def add(order: int, collect: Callable[[], Awaitable[list[ContextGathered]]]) -> None:
        found[order] = await collect()

    async with trio.open_nursery() as late:
        async with trio.open_nursery() as nursery:
            if task.effect.is_first:
                nursery.start_soon(
                    add, -3, partial(_project_files, late, services.sources, asker, texts)
                )
            if task.effect.is_first and services.sources.may_recall(asker.scope.audience.principal):
                question = "\n".join(remove_references(text).strip() for text in texts)
                find = partial(services.sources.find_standing, asker)
                nursery.start_soon(add, -2, partial(_memories, late, "preferences", find))
                recall = partial(services.sources.recall, asker, question)
                nursery.start_soon(add, -1, partial(_memories, late, "recalled", recall))
            for number, text in task.effect.messages:
                nursery.start_soon(
                    add, number, partial(_references, late, services.sources, asker, number, text)
                )
        events = [event for order in sorted(found) for event in found[order]]
        last = len(events) - 1
        events = [
            msgspec.structs.replace(event, following=last - at) for at, event in enumerate(events)
        ]
        for event in events:
            await look_for_secrets(services, encode_event(event))
        await task.run.report(Gathered(events=tuple(events)))
        task.waits_for = "late source"


async def _within(late: trio.Nursery, work: Callable[[], Awaitable[T]], otherwise: T) -> T:
    """Return the result of the work, or the other one at the deadline of a source.

    The work is a task in `late` and is cancelled then.  A call in a thread ignores that, so the
    nursery may end later than this function.
    """
    results: list[outcome.Outcome[T]] = []
    scope, done = trio.CancelScope(), trio.Event()

    async def run() -> None:
        with scope:
            results.append(await outcome.acapture(work))
            done.set()

    late.start_soon(run)
    with trio.move_on_after(SOURCE_S):
        await done.wait()
    if not done.is_set():
        scope.cancel("the source is late")
    return results[0].unwrap() if done.is_set() else otherwise


async def _project_files(
    late: trio.Nursery, sources: ContextSources, asker: Asker, texts: Sequence[str]
) -> list[ContextGathered]:
    """Find the project files, unless there can be none."""
    if not sources.has_project_files(asker.workspace) and not any(map(has_references, texts)):
        return []
    return [await find_files(late, sources, asker, texts)]


async def find_files(
    late: trio.Nursery, sources: ContextSources, asker: Asker, texts: Sequence[str]
) -> ContextGathered:
    """Find the project files for these messages; `late` may end later than the search.

    Cancellation: nothing happened.
    """
    folders = find_folders([each for text in texts for each in parse_references(text)])
    search = partial(sources.find_project_files, asker, folders)
    found = await _within(late, search, None)
    if found is None:
        return ContextGathered(layer="project_files", absent=LATE)
    absent = "" if found else NO_PROJECT_FILES
    return ContextGathered(layer="project_files", sources=found, absent=absent)


async def _memories(
    late: trio.Nursery, layer: SourceLayer, find: Callable[[], Awaitable[MemorySources]]
) -> list[ContextGathered]:
    """Find the memories of one layer."""
    try:
        found = await _within(late, find, None)
    except PalyraError as error:
        return [ContextGathered(layer=layer, absent=error.message)]
    if found is None:
        return [ContextGathered(layer=layer, absent=LATE)]
    absent = OVER_STANDING.format(found.left_out) if found.left_out else ""
    return [ContextGathered(layer=layer, sources=found.sources, absent=absent)]


async def _references(
    late: trio.Nursery, sources: ContextSources, asker: Asker, number: int, text: str
) -> list[ContextGathered]:
    resolved = await resolve_all(late, sources, asker, text)
    return [ContextGathered(layer="references", message=number, sources=tuple(resolved))]


async def resolve_all(
    late: trio.Nursery, sources: ContextSources, asker: Asker, text: str
) -> list[ContextSource]:
    """Resolve the references of a message concurrently; return them in their order, bounded.

    `late` may end later, with sources that do not end at their deadline.

    Cancellation: the sources are abandoned.
    """
    wanted, refused = list_references(text)
    found: dict[int, ContextSource] = {}

    async def resolve(at: int, reference: Reference) -> None:
        missing = ContextSource(name=reference.name, kind=reference.kind, error=LATE)
        found[at] = await _within(late, partial(sources.resolve, asker, reference), missing)

    async with trio.open_nursery() as nursery:
        for at, reference in enumerate(wanted):
            nursery.start_soon(resolve, at, reference)
    return [*cut_all([found[at] for at in sorted(found)]), *refused]
