"""The gather task: texts for a prompt from outside the run, each within a deadline of its own.

Talks to: the context sources, its run (one message).
Never: fails.  A source that is late or broken is reported as absent, and the others count.
Restart: none; it is a child of its run.  A resumed run gathers again what its tape lacks.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import trio

from palyra.actors.kernel.child import ChildTask
from palyra.actors.run.environment import RunServices, look_for_secrets
from palyra.actors.run.handle import RunHandle
from palyra.core.context.assembly import Prefix
from palyra.core.context.references import cut_all, find_folders, list_references
from palyra.core.model.sources import ContextSource
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
from palyra.services.references import Asker, ContextSources

SOURCE_S = 2.0  # deadline of each source
NO_PROJECT_FILES = "the workspace has none"
LATE = f"not there within {SOURCE_S:g} s"


@dataclass(slots=True, kw_only=True)
class GatherTask(ChildTask):
    """Gathering for one turn."""

    run: RunHandle
    services: RunServices
    prefix: Prefix
    effect: Gather


async def gather_sources(task: GatherTask) -> None:
    """Gather everything at once and report `Gathered`.

    Cancellation: the sources are abandoned and nothing is reported.
    """
    task.waits_for = "context"
    services, run = task.services, task.run.run
    asker = services.sources.for_run(run, task.prefix)
    texts = [message.text for message in own_messages(run)]
    found: dict[int, list[ContextGathered]] = {}

    async def add(order: int, collect: Callable[[], Awaitable[list[ContextGathered]]]) -> None:
        found[order] = await collect()

    async with trio.open_nursery() as nursery:
        if task.effect.is_first:
            nursery.start_soon(add, -2, partial(_project_files, services.sources, asker, texts))
            question = "\n".join(remove_references(text).strip() for text in texts)
            nursery.start_soon(add, -1, partial(_memories, services.sources, asker, question))
        for number, text in task.effect.messages:
            nursery.start_soon(
                add, number, partial(_references, services.sources, asker, number, text)
            )
    events = [event for order in sorted(found) for event in found[order]]
    last = len(events) - 1
    events = [
        msgspec.structs.replace(event, following=last - at) for at, event in enumerate(events)
    ]
    for event in events:
        await look_for_secrets(services, encode_event(event))
    await task.run.report(Gathered(events=tuple(events)))


async def _project_files(
    sources: ContextSources, asker: Asker, texts: Sequence[str]
) -> list[ContextGathered]:
    """Find the project files, unless there can be none."""
    if not sources.has_project_files() and not any(map(has_references, texts)):
        return []
    return [await find_files(sources, asker, texts)]


async def find_files(
    sources: ContextSources, asker: Asker, texts: Sequence[str]
) -> ContextGathered:
    """Find the project files for these messages.  Cancellation: nothing happened."""
    folders = find_folders([each for text in texts for each in parse_references(text)])
    with trio.move_on_after(SOURCE_S):
        found = await sources.find_project_files(asker, folders)
        return ContextGathered(
            layer="project_files", sources=found, absent="" if found else NO_PROJECT_FILES
        )
    return ContextGathered(layer="project_files", absent=LATE)


async def _memories(sources: ContextSources, asker: Asker, question: str) -> list[ContextGathered]:
    """Recall memories; preferences are a layer of their own."""
    if not sources.may_recall(asker.scope.principal):
        return []
    absent = LATE
    with trio.move_on_after(SOURCE_S):
        try:
            found = await sources.recall(asker, question)
        except PalyraError as error:
            absent = error.message
        else:
            preferences = tuple(each for each in found if each.kind == "preference")
            others = tuple(each for each in found if each.kind != "preference")
            return [
                ContextGathered(layer="preferences", sources=preferences),
                ContextGathered(layer="recalled", sources=others),
            ]
    return [ContextGathered(layer="recalled", absent=absent)]


async def _references(
    sources: ContextSources, asker: Asker, number: int, text: str
) -> list[ContextGathered]:
    resolved = await resolve_all(sources, asker, text)
    return [ContextGathered(layer="references", message=number, sources=tuple(resolved))]


async def resolve_all(sources: ContextSources, asker: Asker, text: str) -> list[ContextSource]:
    """Resolve the references of a message concurrently; return them in their order, bounded.

    Cancellation: the sources are abandoned.
    """
    wanted, refused = list_references(text)
    found: dict[int, ContextSource] = {}

    async def resolve(at: int, reference: Reference) -> None:
        found[at] = ContextSource(name=reference.name, kind=reference.kind, error=LATE)
        with trio.move_on_after(SOURCE_S):
            found[at] = await sources.resolve(asker, reference)

    async with trio.open_nursery() as nursery:
        for at, reference in enumerate(wanted):
            nursery.start_soon(resolve, at, reference)
    return [*cut_all([found[at] for at in sorted(found)]), *refused]
