"""Policy text: what could kill the native parser never reaches it."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from palyra.tools.policy.text import (
    MAX_LINKS,
    MAX_NESTING,
    MAX_TEXT_BYTES,
    BrokenPolicy,
    check_policy_text,
    statements,
)
from tests.rows import every_row

RULE = "permit (principal, action, resource) when {{ {} }};"
# Expressions that grow deeper with n, each token of them counted.
DEEP: dict[str, Callable[[int], str]] = {
    "or": lambda n: " || ".join(["true"] * n),
    "and": lambda n: " && ".join(["true"] * n),
    "plus": lambda n: " + ".join(["1"] * n) + " == 3",
    "times": lambda n: " * ".join(["1"] * n) + " == 1",
    "if": lambda n: "if true then false else " * n + "true",
    "member": lambda n: "context" + ".a" * n,
    "has": lambda n: "context has a" + ".a" * n,
    "index": lambda n: "context" + '["a"]' * n,
    "method": lambda n: "context.a" + ".contains(1)" * n,
}
NESTED: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: "(" * n + "true" + ")" * n,
    "sets": lambda n: "[" * n + "]" * n + " == []",
    "records": lambda n: "{a:" * n + "1" + "}" * n + " == 1",
    "calls": lambda n: "ip(" * n + '"::1"' + ")" * n + ".isIpv4()",
}
# Everything the engine does with a text, in a process that may die of it.
SURVIVE = """
import cedarpy, sys, threading
text = sys.stdin.read()
def use():
    policies = cedarpy.PolicySet.from_str("").with_added_str(text)
    schema = cedarpy.Schema.from_str(
        'entity P; action "x" appliesTo { principal: [P], resource: [P], context: {} };')
    cedarpy.validate_policies(text, schema)
    cedarpy.policies_to_json_str(text)
    one = {"type": "P", "id": "p"}
    request = {"principal": one, "action": {"type": "Action", "id": "x"}, "resource": one}
    cedarpy.is_authorized(request, policies, [])
use()
thread = threading.Thread(target=use)
thread.start()
thread.join()
print("alive")
"""


def largest(kind: str) -> str:
    """The deepest rule of that kind that passes the check."""
    grow = (DEEP | NESTED)[kind]
    size = MAX_LINKS
    while True:
        text = RULE.format(grow(size))
        try:
            check_policy_text("file", text)
        except BrokenPolicy:
            size -= 1
        else:
            return text


@pytest.mark.real
def test_the_engine_survives_what_passes() -> None:
    """The deepest texts that pass, all together, are parsed, validated and evaluated."""
    texts = "\n".join(largest(kind) for kind in DEEP | NESTED)
    done = subprocess.run(
        [sys.executable, "-c", SURVIVE], input=texts, capture_output=True, text=True, check=False
    )
    assert ("alive\n", 0) == (done.stdout, done.returncode), done.stderr[-500:]


@pytest.mark.real
@pytest.mark.parametrize("text", [RULE.format(NESTED["parentheses"](3000))])
def test_the_engine_dies_of_what_does_not(text: str) -> None:
    """Control: without the check the process ends, so the check is needed."""
    done = subprocess.run(
        [sys.executable, "-c", SURVIVE], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode < 0


@every_row("kind", sorted(NESTED))
def test_nesting_is_bounded(kind: str) -> None:
    """Brackets of any kind nest as deep as allowed and no deeper; 700 are refused."""
    inside = MAX_NESTING - 1  # the braces of `when` are one level
    check_policy_text("file", RULE.format(NESTED[kind](inside)))
    for size in (inside + 1, 700):
        with pytest.raises(BrokenPolicy, match=r"file:[0-9]+: brackets are nested deeper than"):
            check_policy_text("file", RULE.format(NESTED[kind](size)))


@every_row("kind", sorted(DEEP))
def test_chains_are_bounded(kind: str) -> None:
    """A long chain of one rule is refused, with advice."""
    with pytest.raises(BrokenPolicy, match="use a set or several rules"):
        check_policy_text("file", RULE.format(DEEP[kind](MAX_LINKS + 1)))


def test_the_bound_is_one_of_each_rule() -> None:
    """Many rules may together have more links than one may."""
    check_policy_text("file", RULE.format(DEEP["or"](100)) * 20)


def test_size_is_bounded() -> None:
    """Limit and size are named, in bytes."""
    check_policy_text("file", "/" * 2 + "é" * (MAX_TEXT_BYTES // 2 - 1))
    with pytest.raises(BrokenPolicy, match=f"file: {MAX_TEXT_BYTES + 2} bytes"):
        check_policy_text("file", "//" + "é" * (MAX_TEXT_BYTES // 2))


@every_row("text", [")", "(]", "(;)}", "[}", "({)"])
def test_brackets_must_match(text: str) -> None:
    """A bracket without its opening one is refused, so that none can hide another."""
    with pytest.raises(BrokenPolicy, match=r"file:1: .* has no opening bracket"):
        check_policy_text("file", text)


def test_quoted_brackets_do_not_count() -> None:
    """Brackets in strings and comments are text."""
    check_policy_text("file", '@a("((((((\\"(((((") // ((((((((((\n' + '"' + "(" * 99 + '"')


@every_row("text", ['"' + "(" * 99, "// \r" + "(" * 99, "//\n" + "(" * 99, '"\\"' + "(" * 99])
def test_unquoted_brackets_count(text: str) -> None:
    """An unclosed string quotes nothing; a comment ends with its line, at any line end."""
    with pytest.raises(BrokenPolicy, match="nested deeper"):
        check_policy_text("file", text)


def test_rules_and_the_lines_they_begin_in() -> None:
    """Comments before a rule are not part of it, semicolons in brackets and texts end none."""
    text = '// a;\n\npermit (principal,\n  action, resource);\n@id("b;")\nforbid (a, b, c);\nrest'
    found = list(statements(text))
    assert [3, 5, 7] == [line for line, _ in found]
    assert ["permit", "@id", "rest"] == [rule.split("(")[0].strip() for _, rule in found]
