"""Several workspaces: a call is executed in the workspace of its session.

Owns: the open workspaces, which an operator may add and remove while the daemon runs.
Talks to: nothing; it chooses among the tools and checkpoints that were built for each workspace.
A call that names a workspace which is not configured fails, so no run continues in another folder.

All functions but `tools_by_workspace` block; they are called from a thread.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    ItemsView,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar, assert_never

from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.tool.checkpoints import (
    Checkpoint,
    CheckpointFilter,
    FollowedFile,
    Restored,
    Rewound,
    Side,
)
from palyra.core.tool.spec import Preflight, ToolCall, ToolFailure, ToolOutput
from palyra.core.tool.targets import CallTargets
from palyra.errors import IllegalState, InvalidParams
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.workspace import Workspace
from palyra.tools.toolbox import AsyncTool, InlineTool, OnOutput, ThreadTool, Tool

_Place = TypeVar("_Place")
_Made = TypeVar("_Made")


class _LiveItems(ItemsView[str, _Made]):
    """Items of a mapping that may change while they are iterated: a removed one is left out."""

    def __init__(self, mapping: Mapping[str, _Made]) -> None:
        super().__init__(mapping)
        self._source = mapping

    def __iter__(self) -> Iterator[tuple[str, _Made]]:
        for name in self._source:
            found = self._source.get(name)
            if found is not None:
                yield name, found


class _LiveValues(ValuesView[_Made]):
    """Values of those items."""

    def __init__(self, mapping: Mapping[str, _Made]) -> None:
        super().__init__(mapping)
        self._items = _LiveItems(mapping)

    def __iter__(self) -> Iterator[_Made]:
        return (found for _, found in self._items)


class Workspaces(Mapping[str, Workspace]):
    """The workspaces by name, the default one first.  All readers hold this object.

    A change replaces the dictionary, so that an iteration in any thread sees one state of it.
    """

    def __init__(self, roots: Mapping[str, Path], keep_out: Sequence[Path]) -> None:
        """Open each root; raises as `open_workspaces` does.  Blocks."""
        self._keep_out = keep_out
        self._roots: Mapping[str, Path] = {}
        self._opened: dict[str, Workspace] = {}
        self.replace(roots)

    def replace(self, roots: Mapping[str, Path]) -> None:
        """Add and remove workspaces until there are these; those of the same path stay open.

        Blocks.  Raises as `open_workspaces` does, and changes nothing then.
        """
        kept = {
            name: self._opened[name]
            for name, root in roots.items()
            if name in self._opened and self._roots[name] == root
        }
        self._opened = open_workspaces(roots, self._keep_out, kept)
        self._roots = dict(roots)

    def __getitem__(self, name: str) -> Workspace:
        return self._opened[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._opened)

    def __len__(self) -> int:
        return len(self._opened)

    def values(self) -> ValuesView[Workspace]:
        """Return a view of the present workspaces."""
        return self._opened.values()

    def items(self) -> ItemsView[str, Workspace]:
        """Return a view of the present workspaces with their names."""
        return self._opened.items()


class PerWorkspace(Mapping[str, _Made], Generic[_Place, _Made]):
    """One object per place, built at its first use and kept as long as the place is the same.

    Of two threads that build one at the same time both get the first object (`dict.setdefault` is atomic).
    """

    def __init__(self, places: Mapping[str, _Place], build: Callable[[_Place], _Made]) -> None:
        self._places = places
        self._build = build
        self._made: dict[tuple[str, int], tuple[_Place, _Made]] = {}  # by name and id of the place

    def __getitem__(self, name: str) -> _Made:
        place = self._places[name]
        made = self._made.get((name, id(place)))
        if made is None:
            for key, (old, _) in [*self._made.items()]:
                if old is not self._places.get(key[0]):
                    self._made.pop(key, None)
            made = self._made.setdefault((name, id(place)), (place, self._build(place)))
        return made[1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def values(self) -> ValuesView[_Made]:
        """Return a view of the objects of the places of the moment of each iteration."""
        return _LiveValues(self)

    def items(self) -> ItemsView[str, _Made]:
        """Return a view of those objects with the names of their places."""
        return _LiveItems(self)


def open_workspaces(
    roots: Mapping[str, Path],
    keep_out: Sequence[Path],
    kept: Mapping[str, Workspace] = MappingProxyType({}),
) -> dict[str, Workspace]:
    """Open each root, by name.  `keep_out`: the daemon's own folders, which must lie elsewhere.

    Workspaces in `kept` are open already.

    Raises InvalidParams for a root that cannot be opened or contains too much, and for two roots of
    which one contains the other: a run of the outer one would reach the files of the inner one.
    """
    opened: dict[str, Workspace] = {}
    for name, root in roots.items():
        setting = "--workspace" if name == DEFAULT_WORKSPACE else f"path of {name!r}"
        try:
            workspace = kept.get(name) or Workspace(root, keep_out=keep_out, setting=setting)
        except InvalidParams as error:
            if name == DEFAULT_WORKSPACE:
                raise
            raise InvalidParams(
                f"tools.workspaces: {name!r}: {error.message}", field="tools.workspaces"
            ) from None
        for other, known in opened.items():
            if _overlap(workspace.root, known.root):
                raise InvalidParams(
                    f"tools.workspaces: {name!r} ({workspace.root}) and {other!r} ({known.root}) "
                    "overlap: choose folders of which none contains another",
                    field="tools.workspaces",
                )
        opened[name] = workspace
    return opened


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


# --- tools ---------------------------------------------------------------------------------------


def tools_by_workspace(
    places: Mapping[str, _Place], build: Callable[[_Place], Sequence[Tool]]
) -> list[Tool]:
    """Return the tools that `build` makes, each of which executes a call in the call's workspace.

    `build` must make the same tools for every place.  A call of an unknown workspace raises
    ToolFailure.
    """
    built = PerWorkspace(places, build)
    return [_combine(built, at) for at in range(len(built[DEFAULT_WORKSPACE]))]


def _combine(built: Mapping[str, Sequence[Tool]], at: int) -> Tool:
    def find(call: ToolCall) -> Tool:
        return find_place(built, call.workspace)[at]

    def inspect(call: ToolCall) -> Preflight:
        found = find(call).inspect
        return Preflight() if found is None else found(call)

    def find_targets(call: ToolCall) -> CallTargets:
        found = find(call).targets
        return CallTargets() if found is None else found(call)

    first = built[DEFAULT_WORKSPACE][at]
    inspects = None if first.inspect is None else inspect
    targets = None if first.targets is None else find_targets
    match first:
        case AsyncTool():

            def run_async(call: ToolCall, on_output: OnOutput) -> Awaitable[ToolOutput]:
                found = find(call)
                assert isinstance(found, AsyncTool)  # noqa: S101 - built by the same function
                return found.run(call, on_output)

            return replace(first, run=run_async, inspect=inspects, targets=targets)
        case InlineTool() | ThreadTool():

            def run(call: ToolCall) -> ToolOutput:
                found = find(call)
                assert not isinstance(found, AsyncTool)  # noqa: S101 - built by the same function
                return found.run(call)

            return replace(first, run=run, inspect=inspects, targets=targets)
        case _:
            assert_never(first)


def find_place(places: Mapping[str, _Place], workspace: str) -> _Place:
    """Return what belongs to that workspace.  Raises ToolFailure if it is not configured."""
    found = places.get(workspace)
    if found is None:
        raise ToolFailure(
            f"the workspace {workspace!r} of this session is not configured any more: an operator "
            "can add it to tools.workspaces again"
        )
    return found


# --- checkpoints ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkspaceCheckpoints:
    """`core.ports.FileHistory` of all workspaces, whose checkpoints lie in one store.

    A checkpoint has the path of its workspace, which decides where it is restored.
    """

    by_name: Mapping[str, Checkpoints]

    def find(self, checkpoint_id: str) -> Checkpoint | None:
        """Return the checkpoint without its contents."""
        return self._any.find(checkpoint_id)

    def list(self, wanted: CheckpointFilter) -> list[Checkpoint]:
        """List checkpoints, newest first."""
        return self._any.list(wanted)

    def drop_session(self, session_id: str) -> int:
        """See `Checkpoints.drop_session`."""
        return self._any.drop_session(session_id)

    def restore(self, kept: Checkpoint, side: Side, *, is_forced: bool) -> Restored:
        """See `core.ports.FileHistory`."""
        return self._of([kept]).restore(kept, side, is_forced=is_forced)

    def rewind(self, made: Sequence[Checkpoint], *, is_forced: bool, is_dry: bool) -> Rewound:
        """See `core.ports.FileHistory`."""
        return self._of(made).rewind(made, is_forced=is_forced, is_dry=is_dry)

    def follow(self, made: Sequence[Checkpoint]) -> Sequence[FollowedFile]:
        """See `core.ports.FileHistory`."""
        return self._of(made).follow(made)

    def undo(
        self, made: Sequence[Checkpoint], paths: Collection[str], expected: Mapping[str, str]
    ) -> str | None:
        """See `core.ports.FileHistory`."""
        return self._of(made).undo(made, paths, expected)

    @property
    def _any(self) -> Checkpoints:
        return self.by_name[DEFAULT_WORKSPACE]

    def _of(self, made: Sequence[Checkpoint]) -> Checkpoints:
        """Return the checkpoints of the workspace that the first one belongs to.

        They refuse the others if those belong elsewhere.  Raises IllegalState.
        """
        if not made:
            return self._any
        for each in self.by_name.values():
            if str(each.workspace.root) == made[0].workspace:
                return each
        raise IllegalState(
            f"the checkpoint is of the workspace {made[0].workspace}, in which this daemon does not "
            "work: add it to tools.workspaces, or start the daemon with that --workspace"
        )
