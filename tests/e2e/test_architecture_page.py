"""The supervision trees that the documents draw are the one of a daemon with default settings.

A line of a drawing has an id, a restart type and a text.  An id with `<…>` stands for any number of
children, a text that begins with "only with" for a child that needs a setting or an option.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.docs_blocks import ROOT
from tests.e2e.daemon_process import DaemonProcess
from tests.rows import every_row

pytestmark = pytest.mark.real

DRAWING = re.compile(r"(?s)```(?:text)?\n(daemon +rest_for_one.*?)```")
LINE = re.compile(r"([│ ]*)[├└]─ (\S+) +(permanent|transient|temporary|task)(?: +(.*))?")


@dataclass(frozen=True, slots=True)
class Drawn:
    """One line of a drawing, with the lines below it."""

    id: str
    restart: str
    is_optional: bool
    children: list["Drawn"] = field(default_factory=list)

    def stands_for(self, child_id: str) -> bool:
        pattern = "".join(
            ".+" if part.startswith("<") else re.escape(part)
            for part in re.split(r"(<\w+>)", self.id)
        )
        return re.fullmatch(pattern, child_id) is not None


def parse_drawing(text: str) -> Drawn:
    """Return the tree of a drawing.  Raises ValueError for a line that is no child."""
    root = Drawn("daemon", "permanent", is_optional=False)
    parents = [root]
    for line in text.rstrip("\n").splitlines()[1:]:
        found = LINE.fullmatch(line)
        if found is None:
            raise ValueError(f"not a child of a supervision tree: {line!r}")
        bars, child_id, restart, meaning = found.groups()
        is_optional = "<" in child_id or (meaning or "").startswith("only with")
        child = Drawn(child_id, restart, is_optional)
        del parents[len(bars) // 3 + 1 :]
        parents[-1].children.append(child)
        parents.append(child)
    return root


def find_differences(
    drawn: Drawn, live: dict[str, Any], *, levels: int, path: str = ""
) -> Iterator[str]:
    """Compare a drawing with a snapshot of `system.tree`; one sentence for each difference.

    Below its complete `levels` a drawing may leave children out, but draws no others.
    """
    matched: list[int] = []
    for child in live["children"]:
        where = f"{path}/{child['id']}"
        places = [at for at, each in enumerate(drawn.children) if each.stands_for(child["id"])]
        if not places:
            if levels > 0:
                yield f"{where} is not drawn"
            continue
        shown = drawn.children[places[0]]
        matched += places[:1]
        if child["state"] == "ended" and shown.restart == "permanent":
            yield f"{where} has ended and is drawn as permanent"
        yield from find_differences(shown, child, levels=levels - 1, path=where)
    yield from (
        f"{path}/{each.id} is drawn and does not exist"
        for at, each in enumerate(drawn.children)
        if at not in matched and not each.is_optional
    )
    fixed = [at for at in matched if "<" not in drawn.children[at].id]
    if fixed != sorted(fixed):
        yield f"the children of {path or '/'} are drawn in another order"


def read_drawing(page: str) -> Drawn:
    (found,) = DRAWING.findall((ROOT / page).read_text(encoding="utf-8"))
    return parse_drawing(found)


@pytest.mark.parametrize(("page", "levels"), [("docs/architecture.md", 9), ("README.md", 1)])
async def test_the_drawn_tree_is_the_daemon_s(
    daemon: DaemonProcess, page: str, levels: int
) -> None:
    """While a run waits for an approval, `system.tree` has the children that the page draws."""
    async with daemon.connect() as client:
        run = await client.start_run('/call write_file {"path": "a.txt", "content": "a"}')
        await client.wait_run(run.run_id, until="attention")
        live = await client.tree()
        await client.cancel(run.run_id)
    assert [] == list(find_differences(read_drawing(page), live, levels=levels))


def tree(child_id: str, *children: dict[str, Any], state: str = "running") -> dict[str, Any]:
    return {"id": child_id, "state": state, "children": list(children)}


DRAWN = """daemon  rest_for_one
├─ journal     permanent   the writer
├─ work        permanent
│  └─ run:<id> temporary
├─ stdio       temporary   only with `serve --stdio`
└─ recovery    transient
"""
WORK = tree("work", tree("run:1"), tree("run:2"))
RECOVERY = tree("recovery", state="ended")


@every_row(
    ("children", "differences"),
    [
        ([tree("journal"), WORK, RECOVERY], []),
        ([tree("journal"), WORK], ["/recovery is drawn and does not exist"]),
        (
            [tree("journal"), WORK, RECOVERY, tree("new")],
            ["/new is not drawn"],
        ),
        (
            [tree("journal"), tree("work", tree("task")), RECOVERY],
            ["/work/task is not drawn"],
        ),
        (
            [tree("journal", state="ended"), WORK, RECOVERY],
            ["/journal has ended and is drawn as permanent"],
        ),
        (
            [WORK, tree("journal"), RECOVERY],
            ["the children of / are drawn in another order"],
        ),
    ],
)
def test_differences_from_a_drawing_are_found(
    children: Sequence[dict[str, Any]], differences: list[str]
) -> None:
    """A missing, undrawn, misplaced or wrongly restarted child is a difference."""
    live = tree("daemon", *children)
    assert differences == list(find_differences(parse_drawing(DRAWN), live, levels=9))


def test_a_line_that_is_no_child_is_refused() -> None:
    """A drawing whose line lacks the restart type cannot be compared."""
    with pytest.raises(ValueError, match="not a child"):
        parse_drawing("daemon  rest_for_one\n├─ journal\n")
