"""Edits of palyra.toml keep what they do not change, or refuse."""

import tomllib

import pytest

from palyra.config.edit import set_entry, set_value
from palyra.config.load import first_file
from palyra.errors import InvalidParams, Unavailable
from tests.rows import every_row

ENTRY = {"name": "openai", "key": "env:K", "models": ["m"]}
INLINE = '# top\n[models]\n# mine\ndefault = "x" # c\nproviders = [\n  { name = "ollama" }, # local\n]\n[usage]\n'
TABLES = "[[models.providers]]\nname = 'ollama' # hi\n\n[server]\nport = 1 # one\n"
SHAPES = {
    "empty": "",
    "first": first_file(),
    "inline": INLINE,
    "tables": TABLES,
    "dotted": "models.default = 'x' # d\n",
    "same": "[server]\nport = 1\n[[models.providers]]\nname = 'openai'\nstall_s = 3 # slow\n",
    "crlf": INLINE.replace("\n", "\r\n"),
    "no end of line": "[models]\ndefault = 'x'",
}


@every_row("shape", SHAPES)
def test_only_the_entry_is_added(shape: str) -> None:
    """Everything else has the value that it had, and every comment is still there."""
    before = SHAPES[shape]
    after = set_value(set_entry(before, "models", "providers", ENTRY), "models", "default", "a/m")
    wanted, found = tomllib.loads(before), tomllib.loads(after)
    providers = found["models"].pop("providers")
    assert "a/m" == found["models"].pop("default")
    assert ENTRY.items() <= next(each for each in providers if "openai" == each["name"]).items()
    wanted.setdefault("models", {}).pop("default", None)
    others = [each for each in wanted["models"].pop("providers", []) if "openai" != each["name"]]
    assert others == [each for each in providers if "openai" != each["name"]]
    assert wanted == found
    for line in before.splitlines():
        comment = line.partition("#")[2]
        if not comment.startswith((" default = ", " providers = ")):
            assert comment in after, line


def test_an_entry_of_the_same_name_keeps_its_other_keys() -> None:
    """Given keys are replaced; the rest and its comment stay."""
    after = set_entry(SHAPES["same"], "models", "providers", ENTRY)
    assert [{**ENTRY, "stall_s": 3}] == tomllib.loads(after)["models"]["providers"]
    assert "# slow" in after


def test_the_first_file_takes_the_entry_at_its_own_line() -> None:
    """The line that shows the default is replaced, so no section's comment comes apart from it."""
    after = set_entry(first_file(), "models", "providers", ENTRY).splitlines()
    at = after.index("providers = [")
    assert after[at - 1].startswith("# Providers: ")
    assert "# providers = []" not in after


def test_the_same_edit_twice_changes_nothing() -> None:
    """A text that has the entry already is returned as it is."""
    once = set_entry(INLINE, "models", "providers", ENTRY)
    assert once == set_entry(once, "models", "providers", ENTRY)
    assert INLINE == set_value(INLINE, "models", "default", "x")


@pytest.mark.parametrize("text", ["models = { default = 'x' }\n", "[models]\nproviders = 'x'\n"])
def test_a_form_that_cannot_be_edited_is_refused(text: str) -> None:
    """Instead of a file that means something else."""
    with pytest.raises((Unavailable, InvalidParams), match="configuration"):
        set_entry(text, "models", "providers", ENTRY)


def test_a_text_that_is_no_toml_is_refused() -> None:
    """With the place of the mistake."""
    with pytest.raises(InvalidParams, match="line 1"):
        set_entry("[models\n", "models", "providers", ENTRY)


def test_changed_tables_keep_their_comments() -> None:
    """A list of tables is changed in place: one table changes, one goes, one comes."""
    for text in (
        "[usage]\nprices = [\n  { model = 'a', input = 1 }, # one\n  { model = 'b', input = 2 }, # two\n]\n",
        "[[usage.prices]] # one\nmodel = 'a'\ninput = 1 # first\n[[usage.prices]] # two\nmodel = 'b'\n",
    ):
        wanted = [{"model": "a", "input": 5}, {"model": "c", "input": 7}]
        after = set_value(text, "usage", "prices", wanted)
        assert wanted == tomllib.loads(after)["usage"]["prices"]
        assert "# one" in after
        swapped = set_value(after, "usage", "prices", wanted[::-1])
        assert wanted[::-1] == tomllib.loads(swapped)["usage"]["prices"]


def test_a_null_is_left_out() -> None:
    """TOML has no null: the key that would have it is not written."""
    after = set_value("", "usage", "prices", [{"model": "a", "cached_input": None}])
    assert {"usage": {"prices": [{"model": "a"}]}} == tomllib.loads(after)
    entry = {"name": "x", "memory_mib": None, "command": ["a"]}
    after = set_entry(first_file(), "mcp", "servers", entry)
    assert [{"name": "x", "command": ["a"]}] == tomllib.loads(after)["mcp"]["servers"]


def test_a_key_outside_of_a_section_is_named() -> None:
    """It is no form that the command cannot edit."""
    with pytest.raises(InvalidParams, match="mcp is outside of a section"):
        set_value("mcp = 3\n", "mcp", "servers", [])
