"""Text skills over real folders: what a hostile folder may cost."""

from pathlib import Path

import pytest

from palyra.core.tool.spec import ToolCall
from palyra.tools.files.workspace import Workspace
from palyra.tools.skills import text_skills as module

CALL = ToolCall(
    call_id="call_1", run_id="run_1", session_id="ses_1", principal="ann", tool="use_skill",
    tool_version="1", arguments={"name": "deep"},
)  # fmt: skip


def test_a_tree_without_files_is_left_after_a_bounded_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders that hold no file to name are looked at up to a bound, and the list says that it ends."""
    folder = tmp_path / "place/.palyra/skills/deep"
    for number in range(module.MAX_FOLDERS + 50):
        (folder / f"{number:03}").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\ndescription: Deep.\n---\nDo it.\n", encoding="utf-8")
    looks: list[str] = []
    list_names = module._list_names

    def counted(place: Workspace, path: str) -> list[tuple[str, bool]]:
        looks.append(path)
        return list_names(place, path)

    monkeypatch.setattr(module, "_list_names", counted)
    skills = module.TextSkills(
        {"default": Workspace(tmp_path / "place")}, tmp_path / "none", lambda _tool: None
    )
    output = skills.use(CALL)
    assert "): …\n\n" in output.text
    assert module.MAX_FOLDERS == len(looks)
