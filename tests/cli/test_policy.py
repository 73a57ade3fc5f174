"""`palyra policy check` and `test`: rules tried without a daemon, with an exit code."""

import json
from pathlib import Path

import pytest

from palyra.tools.policy.cases import read_cases, run_cases
from tests.cli.command import palyra

pytestmark = pytest.mark.real

RULES = """
@id("status")
permit (principal, action == Action::"tool.execute", resource == Tool::"shell")
when {
  context has executable && context.executable == "git" &&
  context has subcommand && context.subcommand == "status"
};
@id("office")
@reason("outside office hours nothing is sent")
forbid (principal, action == Action::"tool.execute", resource == Tool::"http_send")
unless { context.now.toTime() >= duration("8h") && context.now.toTime() < duration("18h") };
"""
CASES = """
[[case]]
name = "git status may run"
tool = "shell"
arguments = { argv = ["git", "status"] }
expect = "allow"
rule = "user/team/status"

[[case]]
name = "git push asks"
tool = "shell"
arguments = { argv = ["git", "push"] }
expect = "ask"

[[case]]
name = "nothing is sent at night"
tool = "http_send"
arguments = { url = "https://example.org/", method = "POST", body = "x" }
expect = "deny"
rule = "user/team/office"

[[case]]
name = "a command is no number"
tool = "shell"
arguments = { argv = 5 }
expect = "refused"

[[case]]
name = "keys stay closed to servers, too"
tool = "mcp:files.read"
capabilities = ["fs.read"]
paths = [".ssh/id_rsa"]
expect = "deny"
rule = "builtin/private"

[[case]]
name = "a client answers nothing"
tool = "shell"
action = "approval.decide"
role = "client"
expect = "deny"
rule = "builtin/authority"

[[case]]
name = "what was not handed down is denied"
tool = "echo"
in_scope = false
expect = "deny"
rule = "builtin/delegation"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of policies, with a file of cases next to it."""
    rules = tmp_path / "policies"
    rules.mkdir()
    (rules / "team.cedar").write_text(RULES)
    (tmp_path / "cases.toml").write_text(CASES)
    return rules


async def test_cases_that_come_out_as_expected(folder: Path) -> None:
    """Every row passes, and the command ends well."""
    cases = folder.parent / "cases.toml"
    found = await palyra("policy", "test", str(cases), "--policies", str(folder))
    assert found.code == 0, found.out + found.err
    assert found.out.count("ok  ") == 7


async def test_a_case_that_comes_out_otherwise(folder: Path) -> None:
    """It is named with what was expected and found, and the command fails."""
    cases = folder.parent / "cases.toml"
    cases.write_text(CASES.replace('expect = "ask"', 'expect = "allow"'))
    found = await palyra("policy", "test", str(cases), "--policies", str(folder))
    assert (found.code, found.out.count("ok  "), found.out.count("FAIL")) == (1, 6, 1)
    assert "expected allow, found ask: asks: default/ask requires" in " ".join(found.out.split())
    shown = await palyra("policy", "test", str(cases), "--policies", str(folder), "--json")
    outcomes = json.loads(shown.out)["outcomes"]
    assert (shown.code, [row["passed"] for row in outcomes].count(False)) == (1, 1)


def test_the_rule_counts_as_well(folder: Path) -> None:
    """The right answer by the wrong rule is a failure."""
    cases = folder.parent / "cases.toml"
    cases.write_text(CASES.replace("user/team/office", "user/team/other"))
    failed = [o.name for o in run_cases(folder, read_cases(cases)) if not o.passed]
    assert failed == ["nothing is sent at night"]


async def test_an_invalid_file_of_cases_is_an_error(folder: Path) -> None:
    """The error names a misspelt field, or a tool that needs facts."""
    cases = folder.parent / "cases.json"
    row = {"name": "x", "tool": "echo", "expect": "allow"}
    cases.write_text(json.dumps({"case": [row | {"expected": "allow"}]}))
    found = await palyra("policy", "test", str(cases), "--policies", str(folder))
    assert (found.code, "expected" in found.err) == (2, True)
    cases.write_text(json.dumps({"case": [row | {"tool": "mcp:a.b", "arguments": {}}]}))
    found = await palyra("policy", "test", str(cases), "--policies", str(folder))
    assert (found.code, "no built-in tool" in found.err) == (2, True)


async def test_check_distinguishes_valid_and_invalid_policies(folder: Path) -> None:
    """By its output and its exit code."""
    good = await palyra("policy", "check", str(folder))
    assert (good.code, "valid: 2 rules in 1 file\n" in good.out) == (0, True)
    data = await palyra("policy", "check", str(folder), "--json")
    assert json.loads(data.out)["rules"] == ["user/team/office", "user/team/status"]
    (folder / "broken.cedar").write_text("permit (principal")
    bad = await palyra("policy", "check", str(folder))
    assert (bad.code, f"{folder}/broken.cedar:1: " in bad.err) == (1, True)
    (folder / "broken.cedar").write_text(
        "permit (principal, action, resource);\n\n"
        "permit (principal, action, resource)\nwhen { context.nosuch == 1 };\n"
    )
    wrong = await palyra("policy", "check", str(folder))
    assert f"{folder}/broken.cedar:3: attribute `nosuch`" in wrong.err
    assert 1 == wrong.err.count("nosuch")


async def test_a_preset_is_written_shown_and_removed(tmp_path: Path) -> None:
    """`init` says what the preset does, never changes a file, and `--undo` removes its own."""
    folder = tmp_path / "rules"
    written = await palyra("policy", "init", "coding", "--policies", str(folder))
    assert 0 == written.code
    assert "Test runners" not in written.out  # the head of the file, not its rules
    assert "ordinary work on a program asks less" in written.out
    checked = await palyra("policy", "check", str(folder), "--json")
    assert "user/preset-coding/tests" in checked.json["rules"]
    again = await palyra("policy", "init", "coding", "--policies", str(folder))
    assert (1, True) == (again.code, "exists" in again.err)
    removed = await palyra("policy", "init", "coding", "--policies", str(folder), "--undo")
    assert (0, []) == (removed.code, list(folder.iterdir()))
