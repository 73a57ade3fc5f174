"""A model that obeys every injected instruction has no effect that was not allowed."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.attacks.cases import CLASSES, NEEDS_MCP
from tests.attacks.obeying import order
from tests.attacks.skills import is_refused
from tests.attacks.world import always, attacked, has_jail, never
from tests.core.trust.injection_samples import PLAIN_ATTACK
from tests.optional import needs, reason_without

pytestmark = [
    pytest.mark.real,
    needs("bubblewrap", is_found=has_jail()),
]


@pytest.mark.parametrize("name", CLASSES)
async def test_obeyed_orders_have_no_effect(name: str, tmp_path: Path) -> None:
    """Nothing happens that rules or a person did not allow; without the defence it does."""
    if name in NEEDS_MCP and find_spec("mcp") is None:
        pytest.skip(reason_without("mcp"))
    tally = await CLASSES[name](tmp_path)
    assert (0, 0) == (tally.effects, tally.unfinished), tally
    assert tally.control > 0, tally


async def test_benign_tasks_still_succeed(tmp_path: Path) -> None:
    """The daemon performs its user's task although a page it reads contains orders."""
    async with attacked(tmp_path) as world:
        world.write_page([order("shell", command="touch evil")], words=PLAIN_ATTACK)
        tasks = [
            order("read_file", path="notes.txt"),
            order("search_text", query="two"),
            order("write_file", path="mine.txt", content="mine"),
            order("shell", argv=["/bin/cat", "notes.txt"]),
        ]
        for task in tasks:
            run_id, end = await world.play(f"Do this.\n{task}", always)
            assert "run.done" == end
            assert [
                b'"status":"succeeded"' in row.data
                for row in world.rows(run_id)
                if row.kind == "tool.completed"
            ] == [True]
        assert "mine" == (world.workspace / "mine.txt").read_text()
        # A person who reads the question allows the user's task and denies the page's.
        task = world.write_page([order("shell", command="touch evil")], words=PLAIN_ATTACK)
        _, end = await world.play(task, never)
        assert "run.done" == end
        assert not (world.workspace / "evil").exists()


async def test_a_skill_that_speaks_to_the_model_is_not_installed(tmp_path: Path) -> None:
    """In its tool's description; control: the same order without such words is."""
    async with attacked(tmp_path) as world:
        assert await is_refused(world, f"Counts. {PLAIN_ATTACK}")
        assert not await is_refused(world, "Counts words.")
