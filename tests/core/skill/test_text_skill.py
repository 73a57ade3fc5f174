"""Text skills: names, descriptions, duplicates, and the size of their list."""

import pytest

from palyra.core.skill.text_skill import (
    DESCRIPTION_CHARS,
    LISTED_CHARS,
    TextSkill,
    mark_duplicates,
    read_text_skill,
    render_list,
)


def read(text: str, folder: str = ".palyra/skills/report") -> TextSkill:
    """A skill of the workspace."""
    return read_text_skill(folder, text.encode(), is_home=False)


def test_the_folder_names_a_skill_without_a_name() -> None:
    """The front matter's name comes first."""
    assert ("report", "Write it", "") == (
        (found := read("---\ndescription: Write it\n---\nx")).name, found.description, found.problem,
    )  # fmt: skip
    assert "other.one" == read("---\nname: other.one\ndescription: x\n---\n").name


def test_what_a_model_could_mistake_is_no_skill() -> None:
    """No description, a name of several words or with a way out, and broken front matter."""
    for text in (
        "just text", "---\nname: x\n---\n", "---\nname: a b\ndescription: x\n---\n",
        "---\nname: ../up\ndescription: x\n---\n", "---\nname: -x\ndescription: x\n---\n", "---\ndescription: x\n",
        f"---\nname: {'n' * 65}\ndescription: x\n---\n",
    ):  # fmt: skip
        found = read(text)
        assert found.problem
        assert "report" == found.name


def test_a_description_is_one_bounded_line_without_hidden_characters() -> None:
    """Lines are joined, controls are shown as escapes, and the rest is cut."""
    found = read(f"---\ndescription: |\n  a\n  b\u202ec\n  {'x' * 3_000}\n---\n")
    assert found.description.startswith(r"a b\u202ec x")
    assert DESCRIPTION_CHARS == len(found.description)


def test_the_first_of_two_equal_names_counts() -> None:
    """A folder with a problem takes no name from another."""
    broken = TextSkill(name="a", folder="1/a", problem="broken")
    first, second = TextSkill(name="a", folder="2/a"), TextSkill(name="a", folder="3/a")
    marked = mark_duplicates([broken, first, second])
    assert ["broken", "", "2/a has the name a already"] == [each.problem for each in marked]


def test_the_list_is_bounded_and_keeps_every_name() -> None:
    """Descriptions that do not fit are left out, those of later skills first."""
    many = [
        TextSkill(name=f"s{at}", folder=f"f/s{at}", description="d" * 500, problem="x" * (at == 3))
        for at in range(60)
    ]
    lines = render_list(many).splitlines()
    assert 59 == len(lines)
    assert lines[0].endswith("d" * 500)
    assert "- s59" == lines[-1]
    assert sum(map(len, lines)) < LISTED_CHARS


@pytest.mark.parametrize("count", [0, 1, 119, 120, 121, 300])
def test_names_are_bounded_as_well(count: int) -> None:
    """Names that do not fit are counted, and all of those that fit are kept."""
    many = [TextSkill(name=f"{at:064}", folder=f"f/{at}") for at in range(count)]
    text = render_list(many)
    lines = text.splitlines()
    shown = sum(line.startswith("- ") for line in lines)
    assert len(text) <= LISTED_CHARS
    assert (shown == count) == (len(lines) == count)
    if count > 119:
        assert f"and {count - shown} more" == lines[-1]
        assert shown == 118
