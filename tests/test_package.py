"""What `make package` and `make container` find, without building anything."""

import re
from pathlib import Path

import pytest

from palyra.cli.host.serve import serve
from palyra.config.sections import Server
from tests.container import Image, StepFailed, build, read_instructions
from tests.package import find_wheel_faults, shipped_files
from tests.rows import every_row

ROOT = Path(__file__).parents[1]
META = "palyra-1.0.dist-info"
DESCRIBED = [
    f"{META}/METADATA",
    f"{META}/RECORD",
    f"{META}/licenses/LICENSE",
    f"{META}/entry_points.txt",
]
WANTED = {"palyra/__init__.py", "palyra/policies/default.cedar"}


def test_a_whole_wheel_has_no_fault() -> None:
    """The package, its data and its licence."""
    assert [] == find_wheel_faults([*WANTED, *DESCRIBED], WANTED)


@every_row(
    ("names", "fault"),
    [
        (["palyra/__init__.py", *DESCRIBED], "palyra/policies/default.cedar is missing"),
        ([*WANTED, "palyra/left.py", *DESCRIBED], "palyra/left.py is not of the package"),
        ([*WANTED, "tests/bare.py", *DESCRIBED], "tests/bare.py does not belong into a wheel"),
        ([*WANTED, *DESCRIBED[:2], DESCRIBED[3]], "licenses/LICENSE is missing"),
    ],
)
def test_each_fault_of_a_wheel_is_named(names: list[str], fault: str) -> None:
    """What is lacking, and what has no place in it."""
    assert [fault] == find_wheel_faults(names, WANTED)


def test_data_files_of_the_checkout_ship() -> None:
    """Modules are not all: policies, units, templates, the console's files and types."""
    found = shipped_files()
    assert {"palyra/py.typed", "palyra/policies/default.cedar", "palyra/models/table.toml"} <= found
    assert "palyra/templates/systemd/system.service" in found
    assert not [name for name in found if "__pycache__" in name]


def test_instructions_of_several_lines_are_one() -> None:
    """Comments are skipped, also between the lines of an instruction."""
    text = '# a\nFROM debian:x\n\nRUN one \\\n# b\n && two\nCMD ["a"]\n'
    assert [("FROM", "debian:x"), ("RUN", "one   && two"), ("CMD", '["a"]')] == list(
        read_instructions(text)
    )


def test_an_instruction_that_is_not_imitated_is_an_error(tmp_path: Path) -> None:
    """It is not passed over: what was tried would be another image."""
    with pytest.raises(StepFailed, match="HEALTHCHECK is not imitated"):
        build(tmp_path, [("HEALTHCHECK", "none")])


def test_the_image_runs_the_daemon_as_a_user_of_its_own(tmp_path: Path) -> None:
    """The Containerfile ends as a user, and its command has only options that exist."""
    text = (ROOT / "Containerfile").read_text("utf-8")
    steps = [each for each in read_instructions(text) if each[0] not in {"RUN", "COPY"}]
    image: Image = build(tmp_path, steps)
    assert ("palyra", ("/opt/palyra/bin/palyra",)) == (image.user, image.entrypoint)
    name, *options = image.command
    known = {option for parameter in serve.params for option in parameter.opts}
    assert "serve" == name
    assert {each for each in options if each.startswith("--")} <= known
    port = Server().port
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert [f"{port}"] == re.findall(r"^EXPOSE (\d+)$", text, re.MULTILINE)
    for each in (text, page):
        assert [f"127.0.0.1:{port}:{port}"] == re.findall(r"-p (\S+:\d+:\d+)\b", each)
