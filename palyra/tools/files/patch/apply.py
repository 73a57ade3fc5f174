"""Application of a patch to contents: text in, each file's new content out; no I/O.

Tolerance is small and always reported.  Lines must match exactly, at the position the patch names or
else at their only occurrence; if there is none, blanks at line ends are ignored.  A patch without CR
fits lines that end with CR LF, and every line keeps its end; a byte order mark is no part of the first
line, and a file without a last line feed stays without, unless the patch says otherwise.
"""

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.visible import visible
from palyra.core.tool.checkpoints import Content
from palyra.core.tool.paths import composed, normal_path
from palyra.tools.files.patch.lines import TextLines, split_lines
from palyra.tools.files.patch.model import (
    MAX_FILES,
    MAX_HUNKS,
    MAX_LINES,
    MAX_PATCH_BYTES,
    FilePatch,
    Hunk,
    Lines,
    PatchError,
)
from palyra.tools.files.patch.sections import BEGIN, parse_sections
from palyra.tools.files.patch.unified import is_header, parse_unified

MAX_FILE_BYTES = 2_097_152  # of one file, before and after
_CHARS_SHOWN = 200  # of a line, in an error


Read = Callable[[str], Content | None]  # of a normal path; None: there is no such file
FindName = Callable[[str], str]  # normal path to the one of the file that it means


@dataclass(slots=True)
class PatchPlan:
    """New contents by normal path, None for a deleted file; in the patch's order."""

    before: dict[str, Content | None] = field(default_factory=dict)
    after: dict[str, Content | None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # where tolerance was needed


def parse_patch(text: str) -> list[FilePatch]:
    """Parse a patch in either format.  Raises PatchError."""
    lines = _lines(text)
    first = lines.peek() or ""
    if first.rstrip() == BEGIN:
        files = parse_sections(lines)
    elif is_header(first):
        files = parse_unified(lines)
    else:
        number = min(lines.number, len(lines.texts))
        raise PatchError(number, f"expected `{BEGIN}`, `diff --git …` or `--- …`")
    if not files:
        raise PatchError(lines.number, "the patch names no file")
    if len(files) > MAX_FILES:
        raise PatchError(files[MAX_FILES].line, f"a patch has at most {MAX_FILES} files")
    hunks = [hunk for file in files for hunk in file.hunks]
    if len(hunks) > MAX_HUNKS:
        raise PatchError(hunks[MAX_HUNKS].line, f"a patch has at most {MAX_HUNKS} hunks")
    return files


def _lines(text: str) -> Lines:
    """Return the lines of a patch within the bound, positioned at the first that is not blank."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_PATCH_BYTES:
        raise PatchError(1, f"a patch has at most {MAX_PATCH_BYTES} bytes: use several")
    texts = text.removeprefix("\ufeff").removesuffix("\n").split("\n")
    if len(texts) > MAX_LINES:
        raise PatchError(MAX_LINES + 1, f"a patch has at most {MAX_LINES} lines: use several")
    if all(line.endswith("\r") for line in texts):  # sent with CR LF as a whole
        texts = [line.removesuffix("\r") for line in texts]
    lines = Lines(texts)
    lines.skip_blank()
    return lines


def plan_patch(files: Sequence[FilePatch], read: Read, find_name: FindName = str) -> PatchPlan:
    """Return the new content of every file; later sections see the result of earlier ones.

    Names that are equal in NFC are one file, also where the patch creates it.

    Raises PatchError for what does not fit the files, at the line of the patch that does not.
    """
    plan, names = PatchPlan(), dict[str, str]()

    def name(path: str, file: FilePatch) -> str:
        key = _key(path, file)
        return names.setdefault(composed(key), names.get(composed(key)) or find_name(key))

    for file in files:
        target = None if file.new_path is None else name(file.new_path, file)
        _plan_file(plan, replace(file, path=name(file.path, file), new_path=target), read)
    return plan


# --- files ---------------------------------------------------------------------------------------


def _plan_file(plan: PatchPlan, file: FilePatch, read: Read) -> None:
    found = _look(plan, file.path, file, read)
    if file.kind == "create":
        if found is not None:
            raise PatchError(file.line, f"{visible(file.path)} exists already: update it instead")
        data = b"".join(line.text for hunk in file.hunks for line in hunk.lines)
        _put(plan, file.path, Content(data, is_executable=bool(file.is_executable)), file)
        return
    if found is None:
        raise PatchError(file.line, f"{visible(file.path)}: there is no such file")
    data = _apply(found.data, file, plan.notes)
    if file.kind == "delete":
        if file.hunks and data:
            raise PatchError(file.line, f"{visible(file.path)} has more than the patch takes away")
        _put(plan, file.path, None, file)
        return
    target = file.path if file.new_path is None else file.new_path
    if _key(target, file) != _key(file.path, file):
        if _look(plan, target, file, read) is not None:
            raise PatchError(
                file.line, f"{visible(target)} exists already: nothing is renamed to it"
            )
        _put(plan, file.path, None, file)
    _put(plan, target, _amended(found, data, file), file)


def _amended(found: Content, data: bytes, file: FilePatch) -> Content:
    """Return the content with the executable bits set as its read bits, or cleared."""
    if file.is_executable is None:
        return replace(found, data=data)
    if found.mode is None:
        return replace(found, data=data, is_executable=file.is_executable)
    plain = found.mode & ~0o111
    return Content(data, plain | (found.mode & 0o444) >> 2 if file.is_executable else plain)


def _key(path: str, file: FilePatch) -> str:
    normal = normal_path(path)
    if not normal:
        raise PatchError(
            file.line,
            f"{visible(truncate_safely(path, 200))!r} is no path in the workspace: relative, without `..`",
        )
    return normal


def _look(plan: PatchPlan, path: str, file: FilePatch, read: Read) -> Content | None:
    key = _key(path, file)
    if key not in plan.after:
        plan.before[key] = plan.after[key] = read(key)
    return plan.after[key]


def _put(plan: PatchPlan, path: str, content: Content | None, file: FilePatch) -> None:
    if content is not None and len(content.data) > MAX_FILE_BYTES:
        raise PatchError(
            file.line,
            f"{visible(path)} would have {len(content.data)} bytes, at most {MAX_FILE_BYTES}",
        )
    plan.after[_key(path, file)] = content


# --- hunks ---------------------------------------------------------------------------------------


def _apply(data: bytes, file: FilePatch, notes: list[str]) -> bytes:
    """Return the content after all hunks, with its byte order mark and its line ends."""
    patched = [line.text for hunk in file.hunks for line in hunk.lines]
    has_mark = data.startswith(BOM_UTF8) and not any(BOM_UTF8 in text for text in patched)
    kept = split_lines(data.removeprefix(BOM_UTF8) if has_mark else data)
    folds_ends = not any(b"\r" in text for text in patched)
    last = kept[-1] if kept and not kept[-1].endswith(b"\n") and not file.has_eof_marks else None
    if last is not None:
        kept[-1] = _with_end(last + b"\n", kept[-2:-1]) if folds_ends else last + b"\n"
    folded = split_lines(b"".join(kept).replace(b"\r\n", b"\n")) if folds_ends else kept
    lines = TextLines(folded)
    result = _patched_lines(lines, kept, file, notes)
    if last is not None and result:
        is_kept = result[-1] is kept[-1]
        result[-1] = last if is_kept else result[-1].removesuffix(b"\n").removesuffix(b"\r")
    return b"".join([BOM_UTF8, *result] if has_mark and result else result)


def _with_end(line: bytes, others: Iterable[bytes]) -> bytes:
    """Return the line with the end of the first other that has one, else LF; no end stays none."""
    if not line.endswith(b"\n"):
        return line
    like = next((other for other in others if other.endswith(b"\n")), b"\n")
    end = b"\r\n" if like.endswith(b"\r\n") else b"\n"
    return line.removesuffix(b"\n").removesuffix(b"\r") + end


def _patched_lines(
    lines: TextLines, kept: list[bytes], file: FilePatch, notes: list[str]
) -> list[bytes]:
    """Return the lines after all hunks; `kept` are the file's, `lines` the same as they are compared.

    If these differ in their ends, an added line ends like the line that it replaces, else like the
    line above it.
    """
    result: list[bytes] = []
    done, drift = 0, 0  # old lines that are passed; how far off the named places are
    for hunk in file.hunks:
        at = _place(lines, hunk, done, drift, file)
        if hunk.start is not None and at != hunk.start + drift:
            notes.append(f"{visible(file.path)}: line {hunk.start + 1} is at {at + 1}")
            drift = at - hunk.start
        old = [line.text for line in hunk.old]
        if lines.texts[at : at + len(old)] != old:
            notes.append(f"{visible(file.path)}: blanks at line ends differ from line {at + 1} on")
        result += kept[done:at]
        done = at
        removed: list[bytes] = []  # and not yet replaced
        for line in hunk.lines:
            if line.op == "add":
                near = [*removed[:1], *result[-1:], *kept[done : done + 1]]
                result.append(line.text if lines.texts is kept else _with_end(line.text, near))
                del removed[:1]
                continue
            if line.op == "remove":
                removed.append(kept[done])
            else:
                result.append(kept[done])
                removed.clear()
            done += 1
    return result + kept[done:]


def _place(lines: TextLines, hunk: Hunk, done: int, drift: int, file: FilePatch) -> int:
    """Return the index of the hunk's first old line.  Raises PatchError."""
    old = [line.text for line in hunk.old]
    first = _below_anchors(lines, hunk, done, file)
    wanted = None if hunk.start is None else hunk.start + drift
    if not old:
        return _insertion(lines, hunk, first, wanted, file)
    for blanks_count in (True, False):
        places = lines.find(old, first, at_end=hunk.is_at_end, blanks_count=blanks_count, at=wanted)
        if len(places) == 1 or (places and hunk.anchors):
            return places[0]
        if places:
            raise PatchError(hunk.line, _ambiguous(places, file))
    raise _not_found(lines, hunk, file)


def _insertion(
    lines: TextLines, hunk: Hunk, first: int, wanted: int | None, file: FilePatch
) -> int:
    """Place a hunk that only adds: at its line, below its anchors, else at the end."""
    if wanted is None:
        return first if hunk.anchors and not hunk.is_at_end else len(lines.texts)
    if not first <= wanted <= len(lines.texts):
        raise PatchError(
            hunk.line, f"{visible(file.path)}: nothing can be inserted after line {wanted}"
        )
    return wanted


def _below_anchors(lines: TextLines, hunk: Hunk, done: int, file: FilePatch) -> int:
    at = done
    for anchor in hunk.anchors:
        found = lines.find_stripped(anchor, at)
        if found is None:
            shown = visible(truncate_safely(anchor.decode("utf-8", "replace"), _CHARS_SHOWN))
            raise PatchError(hunk.line, f"{visible(file.path)}: no line `{shown}` to begin below")
        at = found + 1
    return at


def _ambiguous(places: list[int], file: FilePatch) -> str:
    shown = ", ".join(str(at + 1) for at in places)
    return (
        f"{visible(file.path)}: the lines of the hunk stand in several places (lines {shown}…): "
        "add lines round them, or a line `@@ …` above them"
    )


def _not_found(lines: TextLines, hunk: Hunk, file: FilePatch) -> PatchError:
    """Find a line of the hunk that is missing in the file."""
    for line in hunk.old:
        if lines.find_stripped(line.text.strip(), 0) is None:
            shown = visible(
                truncate_safely(line.text.decode("utf-8", "replace").rstrip(), _CHARS_SHOWN)
            )
            return PatchError(
                line.line, f"{visible(file.path)} has no line `{shown}`: read the file again"
            )
    return PatchError(
        hunk.line,
        f"{visible(file.path)} has the lines of the hunk, but not like this below what is done: "
        "read the file again",
    )
