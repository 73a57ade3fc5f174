"""The tools `write_file` and `apply_patch`: changes of the workspace, each with a checkpoint.

Both inspect the files before a person is asked.  An impossible change is refused then, and an
approval holds for exactly the file contents that were inspected.
"""

import hashlib
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from palyra.core.policy.grants import join_parts
from palyra.core.text.visible import pluralize, visible
from palyra.core.tool.checkpoints import Content
from palyra.core.tool.spec import (
    CallFacts,
    Preflight,
    ToolCall,
    ToolFailure,
    ToolOutput,
    ToolSpec,
    file_key,
)
from palyra.core.tool.targets import CallTargets, FileTarget
from palyra.tools.files.changes import Changes, Keep
from palyra.tools.files.patch.apply import MAX_FILE_BYTES as MAX_PATCHED_BYTES
from palyra.tools.files.patch.apply import PatchPlan, parse_patch, plan_patch
from palyra.tools.files.patch.model import MAX_FILES, PatchError
from palyra.tools.files.read import PATH
from palyra.tools.files.workspace import Workspace
from palyra.tools.toolbox import Arguments, ThreadTool, Tool

MAX_WRITE_BYTES = 2_097_152
_INPUT_BYTES = 196_608  # a proposal must fit one event of the tape
_PROBE_BYTES = 8_192  # read to tell a text from a binary file
_MISSING = "missing"  # in place of a digest
KeepFor = Callable[[ToolCall], Keep]  # writes the checkpoint of that call


def write_file_spec(enforcement: str) -> ToolSpec:
    """Return the specification of `write_file`."""
    return ToolSpec(
        name="write_file",
        version="1",
        description="Create a file of the workspace or replace it whole; folders are made.",
        parameters={
            "type": "object",
            "properties": {
                "path": {**PATH, "minLength": 1},
                "content": {"type": "string", "description": "The complete new content."},
            },
            "required": ["path", "content"],
        },
        tool_class="path_scoped",
        risk="medium",
        capabilities=("fs.write",),
        deadline_s=10.0,
        path_argument="path",
        never_coerced=("path", "content"),
        input_cap_bytes=_INPUT_BYTES,
        executor="thread",
        enforcement=enforcement,
    )


def apply_patch_spec(enforcement: str) -> ToolSpec:
    """Return the specification of `apply_patch`."""
    return ToolSpec(
        name="apply_patch",
        version="1",
        description=(
            "Change, create, delete and rename text files of the workspace, all of them or none. "
            "Either a unified diff, or sections: `*** Begin Patch`, then `*** Update File: PATH` "
            "(with an optional `*** Move to: PATH`) and hunks of lines that begin with ` `, `-` or "
            "`+`, each hunk after `@@` or `@@ LINE ABOVE`; `*** Add File: PATH` and lines with "
            "`+`; `*** Delete File: PATH`; then `*** End Patch`. Lines must be as in the file; "
            "give enough of them that they stand in one place only."
        ),
        parameters={
            "type": "object",
            "properties": {
                "patch": {"type": "string", "minLength": 1, "description": "The whole patch."},
                "dry_run": {"type": "boolean", "description": "Only say what it would do."},
            },
            "required": ["patch"],
        },
        tool_class="path_scoped",
        risk="medium",
        capabilities=("fs.write",),
        deadline_s=10.0,
        never_coerced=("patch",),
        input_cap_bytes=_INPUT_BYTES,
        executor="thread",
        enforcement=enforcement,
    )


def write_tools(workspace: Workspace, keep_for: KeepFor) -> list[Tool]:
    """Return both tools for one workspace."""
    writer = _Writer(workspace, keep_for)
    enforcement = workspace.enforcement
    return [
        ThreadTool(
            write_file_spec(enforcement),
            writer.write_file,
            write_facets,
            writer.inspect_file,
            writer.file_target,
        ),
        ThreadTool(
            apply_patch_spec(enforcement),
            writer.apply_patch,
            patch_facets,
            writer.inspect_patch,
            writer.patch_targets,
        ),
    ]


# --- facts for the rules --------------------------------------------------------------------------


def write_facets(arguments: Arguments) -> CallFacts:
    """Return the path as a fact; a grant covers this file."""
    return _facets((arguments["path"],))


def patch_facets(arguments: Arguments) -> CallFacts:
    """Return every path of the patch; a grant covers patches of these files.

    An invalid patch has no facts: its inspection refuses it.
    """
    try:
        files = parse_patch(arguments["patch"])
    except PatchError:
        return CallFacts()
    facets = _facets(tuple(dict.fromkeys(path for file in files for path in file.paths)))
    if not arguments.get("dry_run", False):
        return facets
    return msgspec.structs.replace(facets, only_reads=True, grant_key="")


def _facets(paths: tuple[str, ...]) -> CallFacts:
    return CallFacts(paths=paths, grant_key=join_parts(map(file_key, paths)))


# --- the changes --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Writer:
    """The workspace, and the writer of a call's checkpoint."""

    workspace: Workspace
    keep_for: KeepFor

    def inspect_file(self, call: ToolCall) -> Preflight:
        """Inspect the file to replace.  Blocks.  Raises ToolFailure."""
        changes = Changes(self.workspace)
        changes.look(self._key(call.arguments["path"]))
        return _inspection(changes.before)

    def file_target(self, call: ToolCall) -> CallTargets:
        """Return the file before and after.  Blocks.  Raises ToolFailure."""
        key, data = self._key(call.arguments["path"]), call.arguments["content"].encode()
        found = Changes(self.workspace).look(key)
        return CallTargets((FileTarget(key, found, _replaced(found, data)),))

    def write_file(self, call: ToolCall) -> ToolOutput:
        """Write the file; return a summary.  Blocks; durable on return.  Raises ToolFailure."""
        path, data = call.arguments["path"], call.arguments["content"].encode()
        if len(data) > MAX_WRITE_BYTES:
            raise ToolFailure(
                f"the content has {len(data)} bytes; a file written at once has at most "
                f"{MAX_WRITE_BYTES}"
            )
        changes, key = Changes(self.workspace), self._key(path)
        found = changes.look(key)
        to = _replaced(found, data)
        changes.make({key: to}, self.keep_for(call))
        before = (
            "a new file" if found is None else f"replacing {pluralize(len(found.data), 'byte')}"
        )
        before += "; its byte order mark is kept" if len(to.data) > len(data) else ""
        return ToolOutput(text=f"wrote {pluralize(len(data), 'byte')} to {visible(path)}, {before}")

    def _key(self, path: str) -> str:
        """Return the normal path of the file that a write to `path` changes or makes.  Blocks."""
        return self.workspace.resolve(path, for_write=True)

    def inspect_patch(self, call: ToolCall) -> Preflight:
        """Inspect the files of the patch.  Blocks.  Raises ToolFailure if it does not apply."""
        _, plan = self._plan(call.arguments)
        return _inspection(plan.before)

    def patch_targets(self, call: ToolCall) -> CallTargets:
        """Return the files of the patch before and after.  Blocks.  Raises ToolFailure."""
        _, plan = self._plan(call.arguments)
        files = (FileTarget(path, plan.before[path], to) for path, to in plan.after.items())
        return CallTargets(tuple(files), notes=tuple(plan.notes))

    def apply_patch(self, call: ToolCall) -> ToolOutput:
        """Apply the patch; return a line per file.  Blocks; durable on return.  Raises ToolFailure."""
        changes, plan = self._plan(call.arguments)
        is_dry = call.arguments.get("dry_run", False)
        if not is_dry:
            changes.make(plan.after, self.keep_for(call))
        lines = [_outcome(path, plan.before[path], to) for path, to in plan.after.items()]
        head = "this would be done:" if is_dry else "done:"
        return ToolOutput(text="\n".join([head, *lines, *(f"note: {note}" for note in plan.notes)]))

    def _plan(self, arguments: Arguments) -> tuple[Changes, PatchPlan]:
        changes = Changes(self.workspace, MAX_PATCHED_BYTES)

        def read(path: str) -> Content | None:
            found = changes.look(path)
            if found is not None and b"\0" in found.data[:_PROBE_BYTES]:
                raise ToolFailure(f"{visible(path)} is a binary file; only text is patched")
            return found

        try:
            plan = plan_patch(parse_patch(arguments["patch"]), read, self._key)
        except PatchError as error:
            raise ToolFailure(f"the patch, {error}") from None
        if len(plan.after) > MAX_FILES:
            raise ToolFailure(f"the patch touches {len(plan.after)} files, at most {MAX_FILES}")
        return changes, plan


def _replaced(found: Content | None, data: bytes) -> Content:
    """Return the content that a write leaves: the mode and the byte order mark of a file stay.

    A model does not see the mark, so its text has none.
    """
    if found is None:
        return Content(data)
    loses_none = data.startswith(BOM_UTF8) or not found.data.startswith(BOM_UTF8)
    return replace(found, data=data if loses_none else BOM_UTF8 + data)


def _inspection(before: Mapping[str, Content | None]) -> Preflight:
    operands: dict[str, str] = {}
    for path, found in before.items():
        operands[path] = _MISSING if found is None else hashlib.sha256(found.data).hexdigest()
    return Preflight(operands=operands)


def _outcome(path: str, before: Content | None, after: Content | None) -> str:
    name = visible(path)
    if after is None:
        return f"deleted {name}"
    if before is None:
        return f"created {name}, {pluralize(len(after.data), 'byte')}"
    if after == before:
        return f"unchanged {name}"
    return f"updated {name}, {len(before.data)} to {pluralize(len(after.data), 'byte')}"
