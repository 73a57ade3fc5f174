"""The execution object: whatever the effect of a call depends on is in its digest."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.text.canonical_json import canonical_json, sha256_hex
from palyra.core.tool.attestation import execution_digest, execution_object
from palyra.core.tool.spec import Preflight, ToolCall
from tests.rows import every_row

SEEN = Preflight(
    binary="/usr/bin/python3",
    cwd="src",
    environment={"LANG": "C.UTF-8"},
    operands={"a.py": "0" * 64},
    profile="strict",
)
CALL = ToolCall(
    call_id="call_1",
    run_id="run_1",
    session_id="ses_1",
    principal="alice",
    tool="shell",
    tool_version="1",
    arguments={"argv": ["python3", "a.py"], "n": 1, "deep": {"list": [1, {"x": None}]}},
    inspection=SEEN,
)
TEXTS = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXTS
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "call_id": TEXTS,
    "run_id": TEXTS,
    "session_id": TEXTS,
    "principal": TEXTS,
    "tool": TEXTS,
    "tool_version": TEXTS,
    "arguments": st.dictionaries(TEXTS, JSON, max_size=3),
    "inspection.binary": TEXTS,
    "inspection.cwd": TEXTS,
    "inspection.environment": st.dictionaries(TEXTS, TEXTS, max_size=3),
    "inspection.operands": st.dictionaries(TEXTS, TEXTS, max_size=3),
    "inspection.profile": TEXTS,
    "inspection": st.none() | st.just(Preflight()),
    "workspace": TEXTS,
}


# Facts of the run: the object has them by its run_id.
OF_RUN = {"audience", "trust"}


def with_field(call: ToolCall, field: str, value: object) -> ToolCall:
    """The call with one thing changed."""
    outer, _, inner = field.partition(".")
    if inner:
        value = msgspec.structs.replace(call.inspection or Preflight(), **{inner: value})
    return msgspec.structs.replace(call, **{outer: value})


def test_every_field_of_a_call_is_in_the_object() -> None:
    """A field that is added to calls or inspections must be added here, and so to the tests."""
    fields = {field.name for field in msgspec.structs.fields(ToolCall)} - OF_RUN
    seen = {f"inspection.{field.name}" for field in msgspec.structs.fields(Preflight)}
    assert fields | seen == FIELDS.keys()


def test_the_object_is_complete() -> None:
    """It holds everything that is known of the call, the rules, and who it acts for."""
    assert execution_object(CALL, "v1") == {
        "arguments": {"argv": ["python3", "a.py"], "n": 1, "deep": {"list": [1, {"x": None}]}},
        "call_ids": ["call_1"],
        "inspection": {
            "binary": "/usr/bin/python3", "cwd": "src", "environment": {"LANG": "C.UTF-8"},
            "operands": {"a.py": "0" * 64}, "profile": "strict",
        },
        "policy_version": "v1", "principal": "alice", "run_id": "run_1", "session_id": "ses_1",
        "tool": "shell", "tool_version": "1",
    }  # fmt: skip


def test_the_digest_is_over_canonical_json() -> None:
    """Anybody can recompute it from the object."""
    assert execution_digest(CALL, "v1") == sha256_hex(canonical_json(execution_object(CALL, "v1")))


@given(st.sampled_from(sorted(FIELDS)), st.data())
def test_any_change_of_any_field_changes_the_digest(field: str, data: st.DataObject) -> None:
    """An approval holds for one execution object only; equal objects have equal digests."""
    changed = with_field(CALL, field, data.draw(FIELDS[field]))
    is_same = canonical_json(execution_object(changed, "v1")) == canonical_json(
        execution_object(CALL, "v1")
    )
    assert is_same == (execution_digest(changed, "v1") == execution_digest(CALL, "v1"))
    assert is_same == (changed == CALL)


LEAVES = [("argv", 0), ("argv", 1), ("n",), ("deep", "list", 0), ("deep", "list", 1, "x")]


@given(st.sampled_from(LEAVES), JSON)
def test_any_change_deep_in_the_arguments_changes_the_digest(
    path: tuple[Any, ...], value: Any
) -> None:
    """Every value of every type, wherever it stands."""
    arguments = msgspec.json.decode(msgspec.json.encode(CALL.arguments))
    inner = arguments
    for step in path[:-1]:
        inner = inner[step]
    before, inner[path[-1]] = inner[path[-1]], value
    is_same = canonical_json(before) == canonical_json(value)
    changed = msgspec.structs.replace(CALL, arguments=arguments)
    assert is_same == (execution_digest(changed, "v1") == execution_digest(CALL, "v1"))


def test_a_reload_of_the_rules_changes_the_digest() -> None:
    """An approval given under other rules does not count."""
    assert execution_digest(CALL, "v1") != execution_digest(CALL, "v2")


def test_what_cannot_be_canonical_has_a_digest_all_the_same() -> None:
    """A surrogate in a variable of the environment is no way out."""
    odd = with_field(CALL, "inspection.environment", {"A": "\ud800"})
    assert execution_digest(odd, "v1") != execution_digest(CALL, "v1")


@every_row(("call_id", "is_same"), [("a", True), ("b", True), ("c", False)])
def test_calls_that_were_asked_about_at_once_have_one_digest(call_id: str, is_same: bool) -> None:  # noqa: FBT001 - a case
    """A call that was not among them has another one."""
    first = with_field(CALL, "call_id", "a")
    other = with_field(CALL, "call_id", call_id)
    digests = {execution_digest(call, "v1", ("a", "b")) for call in (first, other)}
    assert is_same == (len(digests) == 1)
