"""`palyra memory`, against a fake daemon."""

import pytest

from tests.cli.command import palyra
from tests.cli.test_command import answering

pytestmark = pytest.mark.real


async def test_the_text_of_an_edit_is_an_argument_or_an_option() -> None:
    """Both ways send the same; both at once are refused before anything is sent."""
    changed = {"memory_id": "mem_1", "action": "edited", "revision": 2}
    async with answering("memory.edit", changed) as daemon:
        for given in (["a new text"], ["--text", "a new text"]):
            assert 0 == (await palyra("memory", "edit", "mem_1", *given, url=daemon.url)).code
        twice = await palyra("memory", "edit", "mem_1", "one", "--text", "two", url=daemon.url)
    assert (2, True) == (twice.code, "given twice" in twice.err)
    asked = [params["text"] for method, params in daemon.requests if method == "memory.edit"]
    assert ["a new text"] * 2 == asked
