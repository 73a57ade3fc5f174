"""The probe: a text that kills the parser kills a process of its own."""

import sys
from pathlib import Path

import pytest

from palyra.tools.policy import probe as policy_probe
from palyra.tools.policy import rules
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.policy.probe import probe
from palyra.tools.policy.rules import SHIPPED
from tests.tools.policy.test_cedar import EVERYTHING, ask_for

pytestmark = pytest.mark.real
SCHEMA = (SHIPPED / "schema.cedarschema").read_text("utf-8")
DEEP = f"permit (principal, action, resource) when {{ {'(' * 700}true{')' * 700} }};"


def test_a_good_text_passes() -> None:
    """A valid text has no problem."""
    assert probe(SCHEMA, (EVERYTHING, EVERYTHING)) is None


def test_a_syntax_error_is_distinguished_from_a_crashed_parser() -> None:
    """The problem has the engine's message."""
    found = probe(SCHEMA, ("permit (principal",))
    assert found is not None
    assert "unexpected end of input" in found


@pytest.mark.parametrize("size", [700, 70_000])
def test_nested_parentheses_kill_only_the_child(size: int) -> None:
    """A text that would end the daemon ends a child process."""
    text = f"permit (principal, action, resource) when {{ {'(' * size}true{')' * size} }};"
    assert (probe(SCHEMA, (text,)) or "").startswith("the parser's process died of signal")


def test_the_limits_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without time, and one that cannot start, is a refusal."""
    monkeypatch.setattr(policy_probe, "WALL_S", 0.001)
    assert "longer than" in (probe(SCHEMA, (EVERYTHING, "//slow")) or "")
    monkeypatch.setattr(policy_probe, "WALL_S", 30.0)
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    assert "could not be started" in (probe(SCHEMA, (EVERYTHING, "//gone")) or "")


def test_a_process_with_too_little_memory_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is the one in the file: a smaller one stops even a good text."""
    source = Path(policy_probe.__file__).read_text("utf-8")
    small = tmp_path / "probe.py"
    small.write_text(source.replace("MEMORY_BYTES = 1 << 30", "MEMORY_BYTES = 1 << 24"))
    monkeypatch.setattr(policy_probe, "__file__", str(small))
    assert probe(SCHEMA, (EVERYTHING, "//small")) is not None


def test_the_daemons_rules_go_through_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With our own limits off the probe alone keeps the parser away; the last good set stays."""
    (tmp_path / "a.cedar").write_text(EVERYTHING)
    policy = CedarPolicy(tmp_path)
    monkeypatch.setattr(rules, "check_policy_text", lambda _name, _text: None)
    (tmp_path / "b.cedar").write_text(DEEP)
    policy.refresh()
    assert policy.decide(ask_for()).answer == "allow"
    where = tmp_path / "b.cedar"
    assert policy.problems == (f"{where}:1: the parser's process died of signal 11",)
