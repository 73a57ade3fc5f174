"""Text skills: folders with instructions for a model in a file `SKILL.md`.  Pure.

Other agents read the same form: front matter with `name` and `description`, then Markdown, and files
beside it.  A prompt has names and descriptions only; a model that uses a skill reads the rest.

Nothing in such a folder is a permission: `allowed-tools` is shown to the model as text like any other
line, and the gate does not know it.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from palyra.core.text.front_matter import read_front_matter
from palyra.core.text.visible import visible

FILE = "SKILL.md"
FOLDERS = (".palyra/skills", ".agents/skills", ".claude/skills")  # of a workspace, in this order
HOME_FOLDER = "text-skills"  # beside the configuration file
TOOL = "use_skill"
MAX_SKILLS = 100  # of one folder
HEAD_BYTES = 32_768  # of a file, in which its front matter ends
LISTED_CHARS = 8_000  # of all skills in a prompt
_REST_CHARS = 30  # of them, for the number of those that do not fit
DESCRIPTION_CHARS = 1_024
NOTE = f"call {TOOL} with a name before work that its description fits"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class TextSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A text skill, or the reason why a folder is none."""

    name: str
    folder: str  # below the workspace, or below the home
    description: str = ""
    is_home: bool = False
    body_line: int = 1  # of SKILL.md, after its front matter
    problem: str = ""

    @property
    def where(self) -> str:
        """The folder as a person knows it."""
        return f"home: {self.folder}" if self.is_home else self.folder


def read_text_skill(folder: str, head: bytes, *, is_home: bool) -> TextSkill:
    """Return the skill that a folder's SKILL.md begins; one with a problem if it cannot be read."""
    matter = read_front_matter(head.decode("utf-8", "replace"))
    own = folder.rpartition("/")[2]
    name = matter.fields.get("name") or own
    description = " ".join(visible(matter.fields.get("description", "")).split())
    problem = matter.problem
    if not problem and not description:
        problem = "its front matter has no description"
    if not problem and not _NAME.match(name):
        problem = (
            f"{visible(name)[:80]!r} is no name: letters, digits, `.`, `_` and `-`, at most 64"
        )
    return TextSkill(
        name=own if problem else name,
        folder=folder,
        description=description[:DESCRIPTION_CHARS],
        is_home=is_home,
        body_line=matter.body_line,
        problem=problem,
    )


def mark_duplicates(skills: Sequence[TextSkill]) -> tuple[TextSkill, ...]:
    """Return the skills, of which a later one with the name of an earlier one has a problem."""
    first: dict[str, TextSkill] = {}
    marked: list[TextSkill] = []
    for each in skills:
        before = None if each.problem else first.setdefault(each.name, each)
        if before is not None and before is not each:
            problem = f"{before.where} has the name {each.name} already"
            marked.append(msgspec.structs.replace(each, problem=problem))
        else:
            marked.append(each)
    return tuple(marked)


def render_list(skills: Sequence[TextSkill], limit: int = LISTED_CHARS) -> str:
    """Return the list for a prompt: with descriptions as far as there is room, then names alone.

    Skills whose names do not fit are counted.
    """
    usable = [each for each in skills if not each.problem]
    ends = [*accumulate(len(f"- {each.name}\n") for each in usable)]
    is_cut = bool(ends) and ends[-1] > limit
    shown = bisect_right(ends, limit - _REST_CHARS) if is_cut else len(usable)
    left = 0 if is_cut else limit - sum(ends[-1:])
    lines: list[str] = []
    for each in usable[:shown]:
        text = f": {each.description}"
        left -= len(text)
        lines.append(f"- {each.name}{text if left >= 0 else ''}")
    return "\n".join([*lines, *([f"and {len(usable) - shown} more"] if is_cut else [])])
