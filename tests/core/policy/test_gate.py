"""The gate: intake, rules and the run's own facts make one verdict."""

from typing import Any

import msgspec
import pytest

from palyra.core.policy.gate import (
    INSPECTION_CAP_BYTES,
    MAX_PENDING_PER_PRINCIPAL,
    Allow,
    CheckedCall,
    Deny,
    GateContext,
    NeedsApproval,
    find_subject,
    judge,
    policy_request,
    reconstruct,
    validate,
)
from palyra.core.tape.events import ApprovalRequested
from palyra.core.text.canonical_json import canonical_json, sha256_hex
from palyra.core.tool.arguments import Refused
from palyra.core.tool.paths import NO_PATHS, read_paths
from palyra.core.tool.spec import CallFacts, Preflight, path_facets
from palyra.errors import InvariantBroken
from tests.core.policy.tool_samples import (
    FACTS,
    a_call,
    a_catalogue,
    a_decision,
    a_spec,
    an_admitted,
)
from tests.rows import every_row


def facts(**changes: object) -> GateContext:
    """Facts of an ordinary run, but for the changes."""
    return msgspec.structs.replace(FACTS, **changes)


# --- validate ------------------------------------------------------------------------------------


def test_a_sound_proposal_is_admitted() -> None:
    """Checked arguments come with their digest, size and coercions."""
    admitted = validate(a_call("probe", {"count": "25"}), a_catalogue(a_spec("probe")))
    canonical = canonical_json({"count": 25})
    assert admitted == CheckedCall(
        call_id="call_1", spec=a_spec("probe"), arguments={"count": 25},
        digest=sha256_hex(canonical), size_bytes=len(canonical),
        coercions=('count: "25" -> 25',), paths=NO_PATHS,
    )  # fmt: skip


@pytest.mark.parametrize("own", [("network",), ("network", "secret")])
def test_a_call_that_takes_a_secret_has_that_capability(own: tuple[str, ...]) -> None:
    """For rules and risk; the same tool without one has not."""
    spec = a_spec("probe", capabilities=own)
    taking = CallFacts(secrets=("key",))
    call = a_call("probe", {"count": 1})
    admitted = validate(call, a_catalogue(spec), lambda *_: taking)
    assert isinstance(admitted, CheckedCall)
    assert ("network", "secret") == admitted.spec.capabilities
    assert "high" == policy_request(admitted, FACTS).risk
    plain = validate(call, a_catalogue(spec), lambda *_: CallFacts())
    assert isinstance(plain, CheckedCall)
    assert own == plain.spec.capabilities


def test_a_dry_run_is_evaluated_as_a_read() -> None:
    """Though its tool writes: this call changes nothing."""
    spec = a_spec(tool_class="path_scoped", risk="high", capabilities=("fs.write",))
    looking = CallFacts(only_reads=True)
    checked = validate(a_call(), a_catalogue(spec), lambda _spec, _arguments: looking)
    assert isinstance(checked, CheckedCall)
    found = checked.spec
    expected = ("read_only_safe", "low", ("fs.read",))
    assert expected == (found.tool_class, found.risk, found.capabilities)


def test_a_malformed_proposal_is_refused() -> None:
    """A proposal with invalid arguments is rejected with a hint."""
    refused = validate(a_call("probe", {"count": 101}), a_catalogue(a_spec("probe")))
    assert isinstance(refused, Refused)
    assert refused.repair_hint == "expected an integer of 0 to 100"


@every_row(
    ("name", "expected"),
    [
        ("prob", "'probe'"), ("Probe", "'probe'"), ("probe ", "'probe'"), ("probes", "'probe'"),
        ("", "one of probe"), ("something_else", "one of probe"),
    ],
)  # fmt: skip
def test_a_tool_outside_the_catalogue_is_refused(name: str, expected: str) -> None:
    """Only the exact name matches; a near miss gets the nearest names."""
    refused = validate(a_call(name), a_catalogue(a_spec("probe")))
    assert isinstance(refused, Refused)
    assert refused.repair_hint == f"expected {expected}"
    assert "catalogue" in refused.reason


@every_row(
    ("name", "where"),
    [
        ("shell", "`palyra doctor`"),
        ("process_start", "`palyra doctor`"),
        ("wasm:a.b", "`palyra skills list`"),
        ("mcp:a.b", "`palyra status`"),
    ],
)
def test_a_disabled_tool_names_its_setting(name: str, where: str) -> None:
    """The hint names what provides such a tool: sandbox, skill or server."""
    refused = validate(a_call(name), a_catalogue(a_spec("probe")))
    assert isinstance(refused, Refused)
    assert where in refused.reason
    other = validate(a_call("wasmtime"), a_catalogue(a_spec("probe")))
    assert isinstance(other, Refused)
    assert "`" not in other.reason


def test_redacted_arguments_are_not_run() -> None:
    """A call whose arguments contain a redaction marker is refused if it has an effect."""
    marked = {"text": "curl -H 'Authorization: [redacted:bearer]'"}
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    for capabilities, refused in (
        (("process",), True),
        (("fs.write",), True),
        (("fs.read",), False),
    ):
        spec = a_spec("probe", parameters=schema, capabilities=capabilities,
                      tool_class="effect" if refused else "read_only_safe")  # fmt: skip
        found = validate(a_call("probe", marked), a_catalogue(spec))
        assert refused == isinstance(found, Refused)
        if isinstance(found, Refused):
            assert "[redacted:bearer]" in found.reason
        harmless = {"text": "see [redacted:<class>]"}
        assert isinstance(validate(a_call("probe", harmless), a_catalogue(spec)), CheckedCall)


def test_a_recorded_call_is_seen_as_its_tool_is_now() -> None:
    """A secret redacted from its arguments is reported; the call is not refused for it."""
    tools = a_catalogue(a_spec("probe"))
    checked = an_admitted({"count": 25})
    whole = reconstruct(a_call("probe", {"count": 25}), tools, path_facets)
    assert (checked, True) == whole
    found = reconstruct(a_call("probe", {"text": "[redacted:bearer]"}), tools, path_facets)
    assert found is not None
    assert not found[1]


def test_a_recorded_call_without_its_tool_is_none() -> None:
    """The tool is gone, takes other arguments, or has no facts about them any more."""
    tools = a_catalogue(a_spec("probe"))
    assert None is reconstruct(a_call("gone"), tools, path_facets)
    assert None is reconstruct(a_call("probe", {"count": -1}), tools, path_facets)
    assert None is reconstruct(a_call("probe"), tools, lambda _spec, _arguments: None)


def test_an_unknown_name_is_shown_safely() -> None:
    """A name with hidden characters is escaped and cut in the refusal."""
    refused = validate(a_call("\u202e" + "x" * 99), a_catalogue(a_spec("probe")))
    assert isinstance(refused, Refused)
    assert refused.reason.startswith(f"'\\\\u202e{'x' * 7}' is not")


@every_row(
    ("arguments", "expected"),
    [({"path": "./a//b"}, "a/b"), ({"path": "../x"}, ""), ({}, ""), ({"path": "a"}, "a")],
)
def test_path_key(arguments: dict[str, Any], expected: str) -> None:
    """The conflict key is the normal path; an unknown path is the whole root."""
    assert expected == an_admitted(arguments, path_argument="path").path_key


def test_a_call_on_several_paths_conflicts_with_the_whole_root() -> None:
    """A call on two files conflicts with every call on a file or folder above or below."""
    facets = CallFacts(paths=("a", "b"))
    assert {""} == {msgspec.structs.replace(an_admitted(), facets=facets).path_key}


def test_a_tool_without_path_has_no_key() -> None:
    """Without a path argument there is nothing to conflict over."""
    admitted = an_admitted({"path": "a"})
    assert (None, ()) == (admitted.path_key, admitted.facets.paths)


# --- the question to the rules -------------------------------------------------------------------


def test_the_policy_request_has_run_tool_and_paths() -> None:
    """The request has every fact that policies decide by."""
    admitted = an_admitted(
        {"path": "a"}, path_argument="path", capabilities=("fs.write",), tool_class="path_scoped"
    )
    request = policy_request(admitted, facts(is_tainted=True, depth=2, origin="delegated"))
    assert msgspec.structs.asdict(request) == {
        "action": "tool.execute", "principal": "alice", "role": "client", "agent": "default",
        "agent_labels": (), "session_id": "ses_1", "run_id": "run_1", "origin": "delegated", "tool": "probe",
        "tool_class": "path_scoped", "risk": "high", "capabilities": ("fs.write",),
        "owner": "alice", "is_tainted": True, "depth": 2,
        "facets": CallFacts(paths=("a",), grant_key="a"), "known_paths": read_paths(("a",)),
        "size_bytes": 12, "digest": admitted.digest, "in_scope": True, "approval": "none", "now_ms": 0, "decision": None,
        "scope": None, "workspace": "default",
    }  # fmt: skip


# --- judge ---------------------------------------------------------------------------------------


def test_an_allowed_call_has_the_reason_of_the_policy() -> None:
    """A call that the policies allow is allowed, with the policies' own reason."""
    assert judge(an_admitted(), FACTS, a_decision("allow")) == Allow(
        reason_code="allow_code", reason="rules say allow", policies=("default/x",), version="v1"
    )


@every_row(
    "run",
    [facts(), facts(is_tainted=True), facts(approval_mode="deny"), facts(origin="background")],
)
def test_no_is_no(run: GateContext) -> None:
    """A denial of the rules always denies, without a question."""
    assert judge(an_admitted(), run, a_decision("deny")) == Deny(
        reason_code="deny_code", reason="rules say deny", policies=("default/x",), version="v1"
    )


def test_ask_asks() -> None:
    """A person sees risk, one line and the complete arguments."""
    admitted = an_admitted({"text": "a\u202eb", "count": 1}, capabilities=("process",))
    assert judge(admitted, FACTS, a_decision("ask")) == NeedsApproval(
        reason_code="ask_code", reason="rules say ask", policies=("default/x",), version="v1",
        risk="high", summary=r'probe(text="a\u202eb", count=1)',
        once_because="this call of probe has no program with listed options, file or address that a wider "
            "answer could hold for (docs/approvals.md); a call that has one, or a rule in user policies, would do",
        )  # fmt: skip


@every_row(
    ("changes", "code"),
    [
        ({"approval_mode": "deny"}, "no_approver"),
        ({"end": "the budget 'b' is spent"}, "budget_spent"),
        ({"denied": frozenset({an_admitted().proposal})}, "denied_before"),
        ({"pending_approvals": MAX_PENDING_PER_PRINCIPAL}, "too_many_prompts"),
    ],
)
def test_obstacles_deny_without_a_question(changes: dict[str, object], code: str) -> None:
    """Where no answer can come, or one came already, the question is a denial."""
    verdict = judge(an_admitted(), facts(**changes), a_decision("ask"))
    assert isinstance(verdict, Deny)
    assert (code, ("default/x",), "v1") == (verdict.reason_code, verdict.policies, verdict.version)


@every_row(
    "changes",
    [
        {"origin": "delegated"},
        {"denied": frozenset({("probe", "other"), ("other", an_admitted().digest)})},
        {"pending_approvals": MAX_PENDING_PER_PRINCIPAL - 1},
    ],
)
def test_a_question_is_asked_below_the_limits(changes: dict[str, object]) -> None:
    """One below each bound, the question is put."""
    assert isinstance(judge(an_admitted(), facts(**changes), a_decision("ask")), NeedsApproval)


@every_row("chars", [16_300, 16_400, 65_000])
def test_everything_that_a_tool_takes_can_be_asked_about(chars: int) -> None:
    """A long write is a question like any other: only the tool limits its arguments."""
    verdict = judge(an_admitted({"text": "x" * chars}), FACTS, a_decision("ask"))
    assert isinstance(verdict, NeedsApproval)


def test_an_oversized_inspection_is_denied() -> None:
    """What a call depends on has a limit of its own."""
    seen = Preflight(operands={f"{number}/{'é' * 1_000}": "0" * 64 for number in range(20)})
    verdict = judge(an_admitted(), FACTS, a_decision("ask"), seen)
    assert isinstance(verdict, Deny)
    assert (verdict.reason_code, str(INSPECTION_CAP_BYTES) in verdict.reason) == (
        "unshowable",
        True,
    )


@every_row(
    ("changes", "expected"),
    [
        ({"capabilities": ("fs.read",)}, Allow),
        ({}, Allow),
        ({"capabilities": ("fs.write",)}, NeedsApproval),
        ({"capabilities": ("fs.read", "network")}, NeedsApproval),
        ({"tool_class": "effect"}, NeedsApproval),
    ],
)
def test_taint_turns_yes_into_a_question(changes: dict[str, object], expected: type) -> None:
    """After untrusted text with findings a person decides on anything beyond reading."""
    verdict = judge(an_admitted(None, **changes), facts(is_tainted=True), a_decision("allow"))
    assert expected is type(verdict)
    assert (expected is NeedsApproval) == (verdict.reason_code == "tainted")


@every_row(
    ("key", "is_tainted", "capabilities", "reason"),
    [
        ("git status", False, ("fs.write",), ""),
        ("", False, ("fs.write",), "has no program with listed options"),
        ("git status", True, ("fs.write",), "untrusted text with findings"),
        ("", True, ("fs.write",), "untrusted text with findings"),
        ("git status", False, ("process", "shared_host"), "sandbox level B"),
    ],
)
def test_an_answer_for_once_says_why(
    key: str, capabilities: tuple[str, ...], reason: str, *, is_tainted: bool
) -> None:
    """A wider scope is offered, or the question holds the reason why not; never neither."""
    admitted = an_admitted(capabilities=capabilities)
    admitted = msgspec.structs.replace(admitted, facets=CallFacts(grant_key=key))
    verdict = judge(admitted, facts(is_tainted=is_tainted), a_decision("ask"))
    assert isinstance(verdict, NeedsApproval)
    assert (("once",) if reason else ("once", "session", "timeboxed")) == verdict.scopes
    assert bool(reason) == bool(verdict.once_because)
    assert reason in verdict.once_because


def test_taint_without_anybody_to_ask_is_a_denial() -> None:
    """A tainted, unattended run may only read."""
    run = facts(is_tainted=True, approval_mode="deny")
    verdict = judge(an_admitted(capabilities=("network",)), run, a_decision("allow"))
    assert isinstance(verdict, Deny)
    assert verdict.reason_code == "no_approver"


def test_a_stored_request_about_something_unknown_is_refused() -> None:
    """A request without a call is about a budget; any other subject is an error that names it."""
    asked = ApprovalRequested(
        approval_id="appr_1", call_id="", tool="budget", risk="low", summary="", arguments={},
        digest="", scopes=("once",), expires_ms=1, policy_reason="",
    )  # fmt: skip
    assert "budget" == find_subject(asked)
    assert "tool_call" == find_subject(msgspec.structs.replace(asked, call_id="c1"))
    with pytest.raises(InvariantBroken, match="appr_1 is about 'moon'"):
        find_subject(msgspec.structs.replace(asked, tool="moon"))


def test_what_is_remembered_after_external_text_needs_a_person() -> None:
    """A write to memory that the rules allow is asked for once the model has read external text."""
    admitted = an_admitted(capabilities=("memory.write",))
    for trust in ("trusted_local", "workspace"):
        assert isinstance(judge(admitted, facts(input_trust=trust), a_decision("allow")), Allow)
    verdict = judge(admitted, facts(input_trust="external_untrusted"), a_decision("allow"))
    assert isinstance(verdict, NeedsApproval)
    assert "untrusted_input" == verdict.reason_code
    reading = an_admitted(capabilities=("fs.read",))
    verdict = judge(reading, facts(input_trust="external_untrusted"), a_decision("allow"))
    assert isinstance(verdict, Allow)
