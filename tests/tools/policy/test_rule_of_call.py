"""The rule of one call: the narrowest shape, or a reason that says what would work."""

from typing import Any

from palyra.core.policy.suggestion import exact_candidate, why_not_offered
from tests.rows import every_row
from tests.tools.policy.suggestion_kit import shell, write


def test_an_exact_command_and_an_exact_path_are_offered() -> None:
    """Both get a rule of their exact words, whatever was answered."""
    for call in (shell("pytest", "-q", run="r1", decided="unanswered"), write("a/b.txt", run="r1")):
        assert not why_not_offered(call)
    assert "shell: pytest -q" == exact_candidate(shell("pytest", "-q", run="r1")).title
    assert "write_file: a/b.txt" == exact_candidate(write("a/b.txt", run="r1")).title


@every_row(
    ("facts", "reason"),
    [
        ({"is_tainted": True}, "injected text"),
        ({"origin": "background"}, "not interactive"),
        ({"depth": 1}, "not interactive"),
    ],
)
def test_runs_that_no_rule_is_for_are_refused(facts: dict[str, Any], reason: str) -> None:
    """The reason names the run's fact and a remedy."""
    found = why_not_offered(shell("pytest", run="r1", **facts))
    assert reason in found
    assert "answer each such call once" in found


@every_row("argv", [["rm", "x"], ["python3", "-c", "x"], ["git", "push"]])
def test_commands_that_could_do_more_are_refused(argv: list[str]) -> None:
    """Programs that remove, send or run their arguments get no rule."""
    assert "could do more" in why_not_offered(shell(*argv, run="r1"))


def test_a_protected_path_is_refused() -> None:
    """A path outside of the workspace gets no rule."""
    assert "protected or outside" in why_not_offered(write("../x", run="r1"))
