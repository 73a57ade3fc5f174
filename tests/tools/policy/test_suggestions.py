"""Suggested rules: support, what is never offered, the proof by the engine, the text of a rule."""

import json
from pathlib import Path
from typing import Any

import cedarpy
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.policy.recorded import PolicyEvidence
from palyra.core.policy.suggestion import (
    Shape,
    find_candidates,
    quote,
    render_rule,
    title_of,
)
from palyra.services.learning.suggestions import RecordedDecisions, decide_suggestions, find_wrong
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.policy.rules import SHIPPED
from palyra.tools.policy.text import check_policy_text
from tests.tools.policy.suggestion_kit import in_runs, recorded, shell, write

PYTEST = ("pytest", "-q")


@pytest.fixture(scope="module")
def policy() -> CedarPolicy:
    return CedarPolicy()


def titles(policy: CedarPolicy, evidence: list[PolicyEvidence], **more: bool) -> list[str]:
    """What is left of the candidates after the proof, without the choice among them."""
    found = find_candidates(evidence, min_answers=3, **more)
    wrong = find_wrong(policy, evidence, found)
    return [each.title for each in found if each.suggestion_id not in wrong]


# --- support -------------------------------------------------------------------------------------


def test_three_answers_in_two_runs_make_a_rule(policy: CedarPolicy) -> None:
    """The daemon's engine allows the answered calls with the suggested rules, and asked before."""
    evidence = [*in_runs(*PYTEST), *in_runs("git", "status")]
    chosen, proof = decide_suggestions(policy, RecordedDecisions(evidence, set()), 3)
    ruled = policy.with_rules([each.cedar for each in chosen])
    assert ["shell: git status", "shell: pytest -q"] == [each.title for each in chosen]
    assert (6, 6, 0) == (proof.decisions, proof.allowed, proof.denied)
    assert {"ask"} == {policy.decide(call.request).answer for call in evidence}
    assert {"allow"} == {ruled.decide(call.request).answer for call in evidence}


def test_equal_calls_of_one_run_count_once(policy: CedarPolicy) -> None:
    """A run that asks the same ten times gives one answer as evidence."""
    evidence = [shell(*PYTEST, run="run_1") for _ in range(10)]
    assert titles(policy, [*evidence, shell(*PYTEST, run="run_2")]) == []
    assert titles(policy, [*evidence, *in_runs(*PYTEST)]) == ["shell: pytest -q"]


def test_one_run_cannot_fill_a_choice(policy: CedarPolicy) -> None:
    """A list of paths needs as many runs as answers, and no run that brought most of the list."""
    many = [write(f"src/{number}.py", run="run_0") for number in range(20)]
    few = [write(f"src/x{number}.py", run=f"run_{number}") for number in range(1, 4)]
    assert titles(policy, [*many, *few]) == []
    assert titles(policy, few) == ["write_file: one of 3 paths"]


def test_a_choice_has_only_paths_that_a_person_allowed(policy: CedarPolicy) -> None:
    """A path beside those of the list is asked about, and one that was denied is left out."""
    evidence = [write(f"src/{name}.py", run=f"run_{name}") for name in "abcd"]
    evidence.append(write("src/d.py", run="run_x", decided="denied"))
    (found,) = find_candidates(evidence, min_answers=3)
    asked = [write(f"src/{name}.py", run="run_n").request for name in ("a", "d", "e", "ab")]
    permits = policy.find_permits([found.cedar], asked)
    assert [True, False, False, False] == [bool(each) for each in permits]


def test_a_folder_is_suggested_on_request_only(policy: CedarPolicy) -> None:
    """A rule for a folder allows new paths below it and no other folder with the same start."""
    evidence = [shell(*PYTEST, f"tests/{name}.py", run=f"run_{name}") for name in "abc"]
    assert titles(policy, evidence) == ["shell: pytest -q one of 3 paths"]
    (found,) = find_candidates(evidence, min_answers=3, with_folders=True)
    below = ("tests/new.py", "tests/deep/x.py", "tests-evil/a.py", "tests/../a.py", "tests", "-p")
    asked = [shell(*PYTEST, word, run="run_n").request for word in below]
    permits = policy.find_permits([found.cedar], asked)
    assert [True, True, False, False, False, False] == [bool(each) for each in permits]


# --- what is never offered -----------------------------------------------------------------------

OTHERS = (
    ("pytest", "-q", "x"), ("pytest", "-qq"), ("pytest",), ("pytest-evil", "-q"), ("./pytest", "-q"),
    ("pytest", "-q;rm"), ("-q", "pytest"), ("env", "A=b", "pytest", "-q"),
)  # fmt: skip


@pytest.mark.parametrize("argv", OTHERS, ids=" ".join)
def test_a_rule_matches_whole_words_in_their_places(
    policy: CedarPolicy, argv: tuple[str, ...]
) -> None:
    """No other command is allowed by the rule for `pytest -q`, which allows that one."""
    (found,) = find_candidates(in_runs(*PYTEST), min_answers=3)
    asked = [shell(*words, run="run_n").request for words in (PYTEST, argv)]
    assert [1, 0] == [len(each) for each in policy.find_permits([found.cedar], asked)]


def test_a_plain_line_is_its_words_and_another_line_is_none(policy: CedarPolicy) -> None:
    """A line for the shell counts as words only if a shell finds nothing else in it."""
    (found,) = find_candidates(in_runs(*PYTEST), min_answers=3)
    lines = ("pytest -q", "pytest -q; rm x", "pytest -q $X", "A=b pytest -q", "pytest -q\nrm x")
    asked = [recorded("shell", {"command": line}, "run_n").request for line in lines]
    permits = policy.find_permits([found.cedar], asked)
    assert [True, False, False, False, False] == [bool(each) for each in permits]


NEVER = (
    ("rm", "-r", "build"), ("curl", "x"), ("python3", "-c", "1"), ("sh", "-c", "ls"), ("git", "push"),
    ("git", "-c", "core.pager=x", "log"), ("make", "deploy"), ("npm", "run", "publish"), ("npm", "install"),
    ("./run.sh",), ("env", "ls"), ("find", ".", "-delete"), ("python3", "-m", "pip", "install", "x"),
    ("cat", "/etc/hosts"), ("pytest", "a\u200bb"), ("pytest", "\u0430.py"), ("kubectl", "get"),
    ("twine", "check"), ("tox", "run", "release-docs"), ("hg", "push"), ("pytest", "install"),
    ("mkfs.ext4", "a"), ("unlink", "a"), ("rclone", "sync", "a"), ("dpkg", "-i", "a.deb"), ("shutdown", "now"),
    ("docker-compose", "up"), ("tmux", "new", "ls"), ("Rscript", "-e", "1"), ("sqlite3", "a.db"),
    ("npm", "run", "deployProd"), ("npm", "run", "ci:Deploy"), ("make", "Install"), ("npm", "run", "pre.deploy"),
    ("git", "grep", "-Oless", "x"), ("git", "grep", "--open-files-in-pager=less", "x"),
    ("git", "show", "--ext-diff"), ("git", "log", "--textconv"), ("git", "log", "--output=a"),
    ("tar", "-cf", "a.tar", "--checkpoint-action=exec=ls", "b"), ("tar", "-xf", "a", "--to-command", "ls"),
    ("tar", "-I", "ls", "-xf", "a"), ("sort", "--compress-program=ls", "a"), ("rg", "--pre", "ls", "x"),
    ("go", "test", "-exec", "ls", "."), ("go", "build", "-toolexec=ls", "."), ("make", "SHELL=ls", "test"),
    ("cargo", "test", "--config", "a"), ("npm", "test", "--script-shell=ls"), ("make", "test", "SHELL=ls"), ("make", "test", "-f", "a.mk"), ("make", "test", "--eval=x"),
    ("zip", "a", "-TT", "ls"), ("pytest", "-p", "evil"), ("fd", "x", "-x", "ls"), ("fd", "x", "--exec-batch", "ls"),
)  # fmt: skip


@pytest.mark.parametrize("argv", NEVER, ids=repr)
def test_some_calls_become_no_rule(policy: CedarPolicy, argv: tuple[str, ...]) -> None:
    """Removal, sending, code in arguments, paths outside and odd characters are never offered."""
    assert titles(policy, [*in_runs(*argv, count=9), *in_runs(*PYTEST)]) == ["shell: pytest -q"]


STILL = (
    ("make", "test"), ("npm", "run", "test:unit"), ("go", "test", "./..."), ("cargo", "fmt", "--check"),
    ("pytest", "tests/test_install.py"), ("ruff", "check", "docs/release.md"), ("git", "diff", "--stat"),
    ("pytest", "-x", "--pre-run"),
)  # fmt: skip


@pytest.mark.parametrize("argv", STILL, ids=repr)
def test_ordinary_calls_become_rules(policy: CedarPolicy, argv: tuple[str, ...]) -> None:
    """The control: tests, checks and files whose names only hold such words are offered."""
    assert titles(policy, in_runs(*argv)) == [f"shell: {' '.join(argv)}"]


AGAINST: tuple[dict[str, Any], ...] = (
    {"decided": "denied"}, {"decided": "unanswered"}, {"decided": "never_asked"},
    {"decided": "denied", "principal": "bob"}, {"decided": "denied", "agent": "other"},
    {"decided": "denied", "origin": "background"}, {"is_tainted": True},
)  # fmt: skip


@pytest.mark.parametrize("against", AGAINST, ids=str)
def test_one_call_against_it_stops_a_rule(policy: CedarPolicy, against: dict[str, Any]) -> None:
    """A call that was denied to anyone, not answered, never asked or tainted is never allowed."""
    evidence = [*in_runs(*PYTEST), *in_runs("git", "status")]
    against_it = shell(*PYTEST, run="run_x", **against)
    assert titles(policy, [*evidence, against_it]) == ["shell: git status"]


def test_a_denied_command_stops_those_with_more_words(policy: CedarPolicy) -> None:
    """A rule for `make all test` is no way past a denied `make all`; the reverse is another matter."""
    longer, shorter = in_runs("make", "all", "test"), in_runs("make", "all")
    denied = shell("make", "all", run="run_x", decided="denied")
    assert titles(policy, [*longer, denied]) == []
    denied = shell("make", "all", "test", run="run_x", decided="denied")
    assert titles(policy, [*shorter, denied]) == ["shell: make all"]


def test_a_denied_path_is_written_by_no_other_tool(policy: CedarPolicy) -> None:
    """A denied patch of a file keeps the file out of every rule about writing."""
    patch = "*** Begin Patch\n*** Update File: src/a.py\n@@\n-x\n+y\n*** End Patch\n"
    denied = recorded("apply_patch", {"patch": patch}, "run_x", "denied")
    same = [write("src/a.py", run=f"run_{number}") for number in range(3)]
    several = [write(f"src/{name}.py", run=f"run_{name}") for name in "abcd"]
    assert titles(policy, [*same, denied]) == []
    assert titles(policy, [*several, denied]) == ["write_file: one of 3 paths"]
    assert titles(policy, [*several, denied], with_folders=True) == []


def test_a_choice_adds_no_words_to_a_denied_command(policy: CedarPolicy) -> None:
    """A path that was denied with fewer words is in no list and below no folder."""
    several = [shell(*PYTEST, f"tests/{name}.py", run=f"run_{name}") for name in "abcd"]
    denied = shell("pytest", "tests/a.py", run="run_x", decided="denied")
    assert titles(policy, [*several, denied]) == ["shell: pytest -q one of 3 paths"]
    assert titles(policy, [*several, denied], with_folders=True) == []


@pytest.mark.parametrize("facts", [{"depth": 1}, {"origin": "background"}], ids=str)
def test_answers_of_other_runs_are_no_evidence(policy: CedarPolicy, facts: dict[str, Any]) -> None:
    """Delegated and unattended runs support no rule."""
    evidence = [shell(*PYTEST, run=f"run_{number}", **facts) for number in range(5)]
    assert titles(policy, evidence) == []


def test_a_redacted_call_is_no_evidence(policy: CedarPolicy) -> None:
    """The mark of a secret is not what the person saw."""
    assert titles(policy, in_runs("pytest", "[redacted:api_key]")) == []


def test_a_rule_that_another_rule_overrides_is_not_suggested(tmp_path: Path) -> None:
    """Nothing is suggested where a user rule asks, because it would go on asking."""
    asks = '@approval("required")\npermit (principal, action, resource == Tool::"shell");'
    (tmp_path / "asks.cedar").write_text(asks)
    chosen, proof = decide_suggestions(
        CedarPolicy(tmp_path), RecordedDecisions(in_runs(*PYTEST), set()), 3
    )
    assert ([], 3) == (chosen, proof.allowed)


# --- the text ------------------------------------------------------------------------------------

TEXT = st.text(max_size=12) | st.sampled_from(['"', '" || true', "\\", "*", "\n//", "};", "\u2028"])


def in_json(text: str) -> list[Any]:
    """Every string value of a rule in Cedar's JSON."""
    found: list[Any] = []
    pending: list[Any] = [msgspec.json.decode(cedarpy.policies_to_json_str(text))]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            found += [node["Value"]] if isinstance(node.get("Value"), str) else []
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return found


def skeleton(text: str) -> str:
    """The structure of a rule without its texts."""
    parsed = cedarpy.policies_to_json_str(text)

    def bare(node: Any, key: str = "") -> Any:
        if isinstance(node, dict):
            return {name: bare(each, name) for name, each in node.items()}
        if isinstance(node, list):
            return [bare(each) for each in node]
        return "" if key in {"Value", "id"} and isinstance(node, str) else node

    return json.dumps(bare(msgspec.json.decode(parsed)), sort_keys=True)


def a_shape(*words: str) -> Shape:
    principal, agent, tool, first, second, cwd = words
    return Shape(
        principal=principal, agent=agent, action="tool.execute", tool=tool, tool_class="effect",
        capabilities=("process",), argv=(first, second, None), cwd=cwd, is_choice=True,
        choice=(second, cwd),
    )  # fmt: skip


PLAIN = render_rule(a_shape("a", "b", "c", "d", "e", "f"), "sug_1")


@given(st.lists(TEXT, min_size=6, max_size=6))
def test_no_text_breaks_out_of_a_rule(words: list[str]) -> None:
    """Parsed back, a rule has the structure of a plain one and each text as it was."""
    rule = render_rule(a_shape(*words), "sug_1")
    assert skeleton(PLAIN) == skeleton(rule)
    values = in_json(rule)
    assert {f"0:{words[3]}", f"1:{words[4]}", words[5]} <= set(values)
    check_policy_text("suggested", rule)


def test_a_rule_fits_the_schema() -> None:
    """Each kind of shape renders to a rule that the daemon accepts."""
    schema = cedarpy.Schema.from_str((SHIPPED / "schema.cedarschema").read_text())
    base = a_shape("a", "b", "c", "d", "e", "f")
    plain: dict[str, Any] = {"argv": (), "is_choice": False, "choice": (), "cwd": ""}
    kinds: list[dict[str, Any]] = [
        {}, {"is_choice": False, "choice": (), "folder": "x"}, {**plain, "path": "p"},
        {**plain, "is_choice": True, "choice": ("p", "q")}, {**plain, "folder": "x"},
        {**plain, "key": "h:8080"}, {**plain, "digest": "00", "capabilities": ()},
    ]  # fmt: skip
    for kind in kinds:
        shape = msgspec.structs.replace(base, **kind)
        found = cedarpy.validate_policies(render_rule(shape, "sug_1"), schema)
        assert found.validation_passed, (kind, found.errors)
        assert "\n" not in title_of(shape)


def test_a_quote_is_ascii() -> None:
    """A literal shows what it holds: every other character is a number."""
    assert r'"a\u{22}\u{5c}\u{2a}\u{200b}\u{a}"' == quote('a"\\*\u200b\n')
