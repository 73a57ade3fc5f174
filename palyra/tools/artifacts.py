"""The tool `artifact_read`: pages of an output that was truncated, within its session."""

from palyra.core.model.picture_files import media_type_of
from palyra.core.ports import Artifacts
from palyra.core.text.visible import pluralize
from palyra.core.tool.artifacts import NAME_CHARS, ArtifactPage, line_offset, read_page
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.errors import Unavailable
from palyra.tools.files.read import EXCERPT_BYTES, PAGE_BYTES
from palyra.tools.toolbox import ThreadTool

SPEC = ToolSpec(
    name="artifact_read",
    version="1",
    description=(
        "Read the whole of an earlier output of this conversation that was cut, a page at a time, "
        "or see one of its pictures again."
    ),
    parameters={
        "type": "object",
        "properties": {
            "artifact": {"type": "string", "minLength": NAME_CHARS, "maxLength": 64,
                         "description": "Its name, as the cut output names it."},
            "offset": {"type": "integer", "minimum": 0,
                       "description": "First byte; 0 if left out."},
            "line": {"type": "integer", "minimum": 1,
                     "description": "First line, from 1, instead of an offset."},
        },
        "required": ["artifact"],
    },
    tool_class="read_only_safe",
    risk="low",
    capabilities=("fs.read",),
    deadline_s=10.0,
    never_coerced=("artifact",),
    excerpt_bytes=EXCERPT_BYTES,
    executor="thread",
    enforcement="session",
)  # fmt: skip


def artifact_tool(artifacts: Artifacts) -> ThreadTool:
    """Return the tool for one store."""
    return ThreadTool(SPEC, lambda call: artifact_read(artifacts, call))


def artifact_read(artifacts: Artifacts, call: ToolCall) -> ToolOutput:
    """Return a page and the next offset, with the output's trust.  Blocks.  Raises ToolFailure."""
    name = call.arguments["artifact"]
    try:
        found = artifacts.find(call.session_id, name)
        why = "" if found is not None else artifacts.explain_absence(call.session_id, name)
    except Unavailable as error:
        raise ToolFailure(error.message) from None
    if found is None:
        raise ToolFailure(why)
    artifact, data = found
    if b"\0" in data and media_type_of(data) is not None:
        return ToolOutput(text="", pictures=(data,), trust=artifact.trust)
    page = _page(data, call)
    end = artifact.size_bytes if page.next_offset is None else page.next_offset
    note = f"bytes {page.offset} to {end} of {artifact.size_bytes}, from line {page.line} on"
    if page.next_offset is not None:
        note += f"; go on with offset {page.next_offset}"
    gap = "" if page.text.endswith("\n") else "\n"
    return ToolOutput(
        text=f"{page.text}{gap}[{note}]",
        is_truncated=page.next_offset is not None,
        trust=artifact.trust,
    )


def _page(data: bytes, call: ToolCall) -> ArtifactPage:
    offset: int | None = call.arguments.get("offset", 0)
    if "line" in call.arguments:
        offset = line_offset(data, call.arguments["line"])
    page = None if offset is None else read_page(data, offset, PAGE_BYTES)
    if page is None:
        ends = data.count(b"\n")
        size = f"{pluralize(len(data), 'byte')} and {pluralize(ends, 'line end')}"
        raise ToolFailure(f"that is past the end: it has {size}")
    return page
