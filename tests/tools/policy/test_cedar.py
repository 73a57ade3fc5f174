"""The rules: layers, reasons, and no in every doubt."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palyra.core.policy.gate import policy_request
from palyra.core.policy.grants import server_tool_key
from palyra.core.policy.recorded import PolicyEvidence
from palyra.core.policy.request import PolicyRequest
from palyra.core.policy.suggestion import exact_candidate
from palyra.tools.policy.cedar import MAX_PATHS, CedarPolicy
from palyra.tools.policy.rules import MAX_FILES, Layer, PolicyFile, read_policy_files
from tests.core.policy.tool_samples import FACTS, an_admitted
from tests.rows import every_row

FACETS = {"paths", "executable", "subcommand", "host", "secrets", "grant_key", "argv"}
EVERYTHING = "permit (principal, action, resource);"


pytestmark = pytest.mark.usefixtures("parse_here")


@pytest.fixture
def parse_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of these tests are known: no process of their own."""
    monkeypatch.setattr("palyra.tools.policy.rules.probe", lambda *_: None)


def ask_for(tool: str = "shell", **changes: Any) -> PolicyRequest:
    """A request for a tool with effects, but for the changes; those of facets go there."""
    request = policy_request(an_admitted(), FACTS)
    plain: dict[str, Any] = {
        "tool": tool, "tool_class": "effect", "capabilities": ("process",), "risk": "high",
    }  # fmt: skip
    return changed(request, **(plain | changes))


def changed(request: PolicyRequest, **changes: Any) -> PolicyRequest:
    """The request with other facts or facets."""
    found = {name: changes.pop(name) for name in list(changes) if name in FACETS}
    facets = msgspec.structs.replace(request.facets, **found)
    return msgspec.structs.replace(request, facets=facets, **changes)


def with_rules(folder: Path, **files: str) -> CedarPolicy:
    """A policy with those user files."""
    for name, text in files.items():
        (folder / f"{name}.cedar").write_text(text)
    return CedarPolicy(folder)


def answers(policy: CedarPolicy, request: PolicyRequest) -> tuple[str, str, tuple[str, ...]]:
    """Answer, reason code and rules."""
    decision = policy.decide(request)
    assert decision.version == policy.version
    return decision.answer, decision.reason_code, decision.policies


# --- what is shipped -----------------------------------------------------------------------------


READS = (
    "echo", "sleep", "read_file", "list_dir", "glob", "search_text", "artifact_read",
    "process_status", "process_output", "process_stop", "update_todos",
)  # fmt: skip
EFFECTS = (
    "write_file", "apply_patch", "shell", "process_start", "http_fetch",
    "http_send", "wasm:a.b", "mcp:a.b",
)  # fmt: skip


def test_reads_may_run_and_effects_ask() -> None:
    """Reads, and stopping the run's own programs, are allowed; every other call asks."""
    policy = CedarPolicy()
    assert dict.fromkeys(READS, "allow") == {
        name: policy.decide(ask_for(name)).answer for name in READS
    }
    assert dict.fromkeys(EFFECTS, "ask") == {
        name: policy.decide(ask_for(name)).answer for name in EFFECTS
    }


@every_row("tool", ["shell", "read_files", "Read_File", "read_file ", "ech", "*", ""])
def test_everything_else_asks(tool: str) -> None:
    """A name that only resembles an allowed one is not allowed."""
    assert answers(CedarPolicy(), ask_for(tool)) == ("ask", "asks", ("default/ask",))


def test_a_trusted_read_of_a_jailed_server_may_run() -> None:
    """Of a server with a network it asks and says why; without the server's key nothing is trusted."""
    policy = CedarPolicy()
    key = server_tool_key("mcp:a.b", "s" * 64, "v" * 16)
    inside = ask_for("mcp:a.b", tool_class="read_only_safe", grant_key=key)
    assert "allow" == policy.decide(inside).answer
    for changes in ({"tool_class": "effect"}, {"grant_key": "mcp:8080"}, {"grant_key": ""}):
        assert "ask" == policy.decide(changed(inside, **changes)).answer
    outside = policy.decide(changed(inside, tool_class="idempotent_network"))
    assert ("ask", True) == (outside.answer, "also a message to it" in outside.reason)
    fetch = changed(
        inside, tool="http_fetch", tool_class="idempotent_network", grant_key="mcp:8080"
    )
    assert "message" not in policy.decide(fetch).reason


def test_the_rule_for_a_tool_of_a_server_allows_that_tool_alone(tmp_path: Path) -> None:
    """Another tool, another server and a changed server command still ask."""
    key = server_tool_key("mcp:a.b", "s" * 64, "v" * 16)
    request = ask_for("mcp:a.b", grant_key=key, paths=(), argv=())
    call = PolicyEvidence(
        request=request, decided="allowed", run_id="run_1", call_id="c", summary="s"
    )
    policy = with_rules(tmp_path, rule=exact_candidate(call).cedar)
    assert () == policy.problems
    assert "allow" == policy.decide(request).answer
    assert "allow" == policy.decide(changed(request, digest="other arguments")).answer
    changes: list[dict[str, Any]] = [
        {"tool": "mcp:a.c", "grant_key": server_tool_key("mcp:a.c", "s" * 64, "v" * 16)},
        {"tool": "mcp:d.b", "grant_key": server_tool_key("mcp:d.b", "t" * 64, "v" * 16)},
        {"grant_key": server_tool_key("mcp:a.b", "t" * 64, "v" * 16)},
        {"is_tainted": True},
    ]
    for each in changes:
        assert "ask" == policy.decide(changed(request, **each)).answer, each


def test_reasons_name_rule_and_remedy() -> None:
    """A person can see which rule spoke and what would change it."""
    policy = CedarPolicy()
    assert policy.decide(ask_for("echo")).reason == "permitted by default/harmless"
    assert policy.decide(ask_for()).reason == (
        "default/ask requires an approval; a permit for shell among the user policies would "
        "change that"
    )


@every_row("change", [{"tool": "ask_user"}, {"tool": "propose_plan"}, {"is_tainted": True}])
def test_no_rule_is_named_as_a_remedy_that_would_be_none(change: dict[str, Any]) -> None:
    """Where a person is asked whatever the rules say, the reason does not promise that a permit helps."""
    found = CedarPolicy().decide(msgspec.structs.replace(ask_for(), **change))
    assert ("ask", "default/ask requires an approval") == (found.answer, found.reason)


READ = {"tool": "read_file", "capabilities": ("fs.read",)}
SHUT: list[tuple[dict[str, Any], str]] = [
    (READ | {"paths": ("../x",)}, "outside"),
    (READ | {"paths": ("/etc/passwd",)}, "outside"),
    (READ | {"paths": (".ssh/id_rsa",)}, "private"),
    (READ | {"paths": ("src/.ENV",)}, "private"),
    (READ | {"paths": ("a", "src/.netrc")}, "private"),
    ({"paths": ("/home/alice/.ssh/id_rsa",)}, "private"),
    ({"paths": ("a/../.aws",)}, "private"),
    ({"paths": ("/srv/palyra/journal.sqlite3",)}, "state"),
    ({"paths": ("/srv/x/../palyra",)}, "state"),
    ({"host": "169.254.169.254"}, "metadata"),
    ({"host": "[fd00:ec2::254]"}, "metadata"),
    ({"host": "Metadata.Google.Internal."}, "metadata"),
    ({"in_scope": False}, "delegation"),
    ({"owner": "bob"}, "foreign"),
    ({"action": "approval.decide"}, "authority"),
    ({"action": "approval.decide", "role": "observer"}, "authority"),
    ({"action": "approval.decide", "role": "person", "owner": "bob"}, "authority"),
]


@pytest.mark.parametrize(("facts", "rule"), SHUT)
def test_built_in_forbids_hold_against_a_permit_for_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], rule: str
) -> None:
    """No user rule opens what is shut for good; without the built-in rules it would be open."""
    (tmp_path / "all.cedar").write_text(EVERYTHING)
    policy = CedarPolicy(tmp_path, state=[Path("/srv/palyra")])
    request = ask_for(**facts)
    assert answers(policy, request) == ("deny", "denied", (f"builtin/{rule}",))
    assert policy.decide(request).reason.startswith(f"forbidden by builtin/{rule}: ")
    monkeypatch.setattr("palyra.tools.policy.cedar.shipped_files", list)
    bare = CedarPolicy(tmp_path, state=[Path("/srv/palyra")])
    assert answers(bare, request) == ("allow", "allowed", ("user/all/0",))


OPEN: list[dict[str, Any]] = [
    {"paths": ("/usr/bin/env",)},  # a process sees what its sandbox shows it
    {"paths": ("/srv/palyra2/x",)},
    {"paths": ("/home/alice/.sshd",)},
    {"host": "10.0.0.1"},  # whether it may be contacted the fetching decides
    {"host": "metadata.example.org"},
    {"host": "93.184.216.34"},
    {"action": "approval.decide", "role": "approver", "owner": "bob"},
    {"action": "approval.decide", "role": "person"},
]


@pytest.mark.parametrize("facts", OPEN)
def test_names_that_resemble_protected_ones_are_not_forbidden(
    tmp_path: Path, facts: dict[str, Any]
) -> None:
    """A built-in forbid applies to its names and to nothing else."""
    (tmp_path / "all.cedar").write_text(EVERYTHING)
    policy = CedarPolicy(tmp_path, state=[Path("/srv/palyra")])
    assert answers(policy, ask_for(**facts))[0] == "allow"


def test_a_policy_may_forbid_an_answer(tmp_path: Path) -> None:
    """A principal cannot approve a critical call of its own run; the approval itself is allowed."""
    rule = """forbid (principal, action == Action::"approval.decide", resource) when {
        resource.risk == "critical" && context.run.owner == principal
        && context has decision && context.decision == "allow" };
        @approval("required") permit (principal, action, resource);"""
    policy = with_rules(tmp_path, eyes=rule)
    own = ask_for(action="approval.decide", role="operator", risk="critical", decision="allow")
    assert answers(policy, own)[0] == "deny"
    assert answers(policy, changed(own, owner="bob"))[0] == "allow"
    assert answers(policy, changed(own, decision="deny"))[0] == "allow"
    assert answers(policy, changed(own, risk="high"))[0] == "allow"


def test_a_skill_is_an_action_of_its_own(tmp_path: Path) -> None:
    """A permit for tools does not reach skills; what is harmless by name is not, as a skill."""
    policy = with_rules(
        tmp_path, a='permit (principal, action == Action::"tool.execute", resource);'
    )
    assert answers(policy, ask_for("wasm:a.b", action="skill.execute"))[0] == "ask"
    assert answers(policy, ask_for("echo", action="skill.execute"))[0] == "ask"


def test_configuration_is_forbidden_to_write_only(tmp_path: Path) -> None:
    """Reading what git obeys stays allowed."""
    policy = with_rules(tmp_path, all=EVERYTHING)
    writing = ask_for(capabilities=("fs.write",), paths=(".git/hooks/x",))
    reading = ask_for(capabilities=("fs.read",), paths=(".git/hooks/x",))
    assert answers(policy, writing) == ("deny", "denied", ("builtin/configuration",))
    assert answers(policy, reading) == ("allow", "allowed", ("user/all/0",))


# --- user rules ----------------------------------------------------------------------------------


def test_a_user_permit_wins_over_the_default_question(tmp_path: Path) -> None:
    """A narrow permit allows exactly what it says."""
    rule = '@id("ls") permit (principal, action, resource == Tool::"shell");'
    policy = with_rules(tmp_path, team=rule)
    assert answers(policy, ask_for()) == ("allow", "allowed", ("user/team/ls",))
    assert answers(policy, ask_for("shell2"))[0] == "ask"


def test_a_user_question_wins_over_the_default_permit(tmp_path: Path) -> None:
    """A user policy may ask where the default allows."""
    rule = '@approval("required") permit (principal, action, resource == Tool::"echo");'
    policy = with_rules(tmp_path, team=rule)
    assert answers(policy, ask_for("echo")) == ("ask", "asks", ("user/team/0",))


def test_within_a_layer_one_question_is_enough(tmp_path: Path) -> None:
    """A plain permit does not override one of the same layer that asks."""
    asking = '@id("asking") @approval("required") permit (principal, action, resource);'
    policy = with_rules(tmp_path, a=EVERYTHING, b=asking)
    assert answers(policy, ask_for()) == ("ask", "asks", ("user/a/0", "user/b/asking"))


def test_a_user_forbid_wins_over_everything(tmp_path: Path) -> None:
    """A forbid denies, with its own reason."""
    rule = '@reason("not on Fridays") forbid (principal, action, resource == Tool::"echo");'
    policy = with_rules(tmp_path, a=EVERYTHING, b=rule)
    decision = policy.decide(ask_for("echo"))
    assert (decision.answer, decision.policies) == ("deny", ("user/b/0",))
    assert decision.reason == "forbidden by user/b/0: not on Fridays"


CONDITIONS = [
    ('principal == Principal::"alice"', {"principal": "bob"}),
    ('principal.role == "client"', {"role": "clients"}),
    ('context.agent == Agent::"default"', {"agent": "default2"}),
    ('context.agent.name == "default"', {"agent": "default2"}),
    ('!context.agent.labels.contains("outside")', {"agent_labels": ("a", "outside")}),
    ('context.session == "ses_1"', {"session_id": "ses_2"}),
    ('context.run.id == "run_1"', {"run_id": "run_2"}),
    ('context.run.origin == "interactive"', {"origin": "background"}),
    ("!context.run.taint", {"is_tainted": True}),
    ("context.run.depth == 0", {"depth": 1}),
    ('resource.name == "shell"', {"tool": "shel"}),
    ('resource.class == "effect"', {"tool_class": "path_scoped"}),
    ('resource.risk == "high"', {"risk": "critical"}),
    ('resource.capabilities == ["process"]', {"capabilities": ("process", "network")}),
    ("context.size_bytes <= 2", {"size_bytes": 3}),
    ('action == Action::"tool.execute"', {"action": "skill.execute"}),
    ('context.approval == "none"', {"approval": "granted"}),
    ('context.now < datetime("2026-01-02")', {"now_ms": 1_767_312_000_000}),
    ('context.now.toTime() < duration("9h")', {"now_ms": 9 * 3_600_000}),
    ('context has executable && context.executable == "git"', {"executable": "gitk"}),
    ('context has executable && context.executable == "git"', {"executable": ""}),
    ('context has subcommand && context.subcommand == "log"', {"subcommand": "push"}),
    ('context has host && context.host == "example.org"', {"host": "example.org.evil.test"}),
    ('context has host && !context.host_marks.contains("internal")', {"host": "10.0.0.1"}),
    ('context.secrets == ["deploy"]', {"secrets": ("deploy", "root")}),
    ('context.paths == ["src/a"]', {"paths": ("src/a", "src/b")}),
    ('context has path && context.path like "src/*"', {"paths": ("srcs/a",)}),
    ('context has path && context.path like "src/*"', {"paths": ("src/../etc",)}),
    ('context has path && context.path like "src/*"', {"paths": ("src/a", "src/b")}),
    ('context has path && context.path like "src/*"', {"paths": ()}),
]


@pytest.mark.parametrize(
    ("most", "more"),
    [
        ([f"a{number}" for number in range(MAX_PATHS)], ["one more"]),
        (["x" * 100] * 3 + [f"{number:0128}" for number in range(511)], ["y" * 200]),
    ],
)
def test_the_number_of_evaluated_paths_is_limited(
    tmp_path: Path, most: list[str], more: list[str]
) -> None:
    """The engine blocks the loop; a call with more paths is denied with a remedy."""
    policy = with_rules(
        tmp_path,
        team='permit (principal, action, resource) when { !context.paths.contains("b") };',
    )
    assert "allow" == policy.decide(ask_for(paths=tuple(most))).answer
    denied = policy.decide(ask_for(paths=(*most, *more)))
    assert ("deny", "too_many_paths") == (denied.answer, denied.reason_code)
    assert "it may have 512, of 65536 characters together" in denied.reason
    assert "script file" in denied.reason


def test_without_a_rule_about_paths_their_number_is_free(tmp_path: Path) -> None:
    """Nothing of the list is handed on; what its paths are is known all the same."""
    policy = with_rules(tmp_path, team=EVERYTHING)
    many = tuple(f"a{number}" for number in range(5_000))
    assert "allow" == policy.decide(ask_for(paths=many)).answer
    assert "denied" == policy.decide(ask_for(paths=(*many, ".ssh/x"))).reason_code
    assert (
        "denied"
        == policy.decide(
            ask_for("write_file", paths=(*many, ".git/x"), capabilities=("fs.write",))
        ).reason_code
    )


@pytest.mark.parametrize(("condition", "miss"), CONDITIONS)
def test_every_fact_can_be_decided_by(tmp_path: Path, condition: str, miss: dict[str, Any]) -> None:
    """A permit on a fact holds where the fact holds and nowhere else."""
    policy = with_rules(
        tmp_path, team=f"permit (principal, action, resource) when {{{condition}}};"
    )
    match = ask_for(
        paths=("./src//a",), executable="git", subcommand="log", host="example.org",
        secrets=("deploy",),
    )  # fmt: skip
    assert policy.problems == ()
    assert policy.decide(match).answer == "allow"
    assert policy.decide(changed(match, **miss)).answer != "allow"


def test_rules_and_names_belong_together(tmp_path: Path) -> None:
    """Over many files and numbers each answer names the very rule that gave it."""
    files = {
        f"f{n:02}": "".join(
            f'@id("r{m}") permit (principal, action, resource == Tool::"t{n}_{m}");'
            for m in range(11)
        )
        for n in range(12)
    }
    policy = with_rules(tmp_path, **files)
    for n, m in [(0, 0), (0, 10), (5, 3), (11, 0), (11, 10)]:
        assert answers(policy, ask_for(f"t{n}_{m}")) == (
            "allow",
            "allowed",
            (f"user/f{n:02}/r{m}",),
        )


def test_odd_ids_are_just_ids(tmp_path: Path) -> None:
    """An id is a value: quotes, newlines and operators in it change nothing."""
    policy = with_rules(tmp_path, all='permit (principal == Principal::"alice", action, resource);')
    odd = 'alice" || true || "\n\\'
    assert (
        policy.decide(ask_for(principal=odd, owner=odd, agent=odd, session_id=odd)).answer == "ask"
    )


# --- no in every doubt ---------------------------------------------------------------------------


def test_an_erroring_forbid_denies(tmp_path: Path) -> None:
    """A forbid that cannot be evaluated counts, though the engine would skip it."""
    rule = "forbid (principal, action, resource) when { 9223372036854775807 + context.size_bytes > 0 };"
    policy = with_rules(tmp_path, a=EVERYTHING, b=rule)
    assert policy.problems == ()
    assert answers(policy, ask_for(size_bytes=1)) == ("deny", "policy_error", ())
    assert answers(policy, ask_for(size_bytes=0))[1] == "denied"


@pytest.mark.parametrize("action", ["tool.executes", "tool", "", "Tool.execute", "memory.add"])
def test_an_unknown_action_is_denied(tmp_path: Path, action: str) -> None:
    """An action the schema does not know is denied, whatever is permitted."""
    policy = with_rules(tmp_path, all=EVERYTHING)
    assert answers(policy, ask_for(action=action)) == ("deny", "policy_error", ())


@pytest.mark.parametrize("name", ["principal", "role", "agent", "session_id", "run_id", "tool"])
def test_a_value_the_engine_cannot_take_denies(tmp_path: Path, name: str) -> None:
    """Broken Unicode is denied, not an exception."""
    policy = with_rules(tmp_path, all=EVERYTHING)
    assert answers(policy, ask_for(**{name: "\ud800"})) == ("deny", "policy_error", ())


def test_a_number_the_engine_cannot_take_denies(tmp_path: Path) -> None:
    """A number beyond 64 bits is denied, not an exception."""
    policy = with_rules(tmp_path, all=EVERYTHING)
    assert answers(policy, ask_for(size_bytes=2**63)) == ("deny", "policy_error", ())


def test_rules_taken_for_one_another_deny(tmp_path: Path) -> None:
    """Should the engine ever number rules otherwise, nothing is allowed under a wrong name."""
    policy = with_rules(tmp_path)
    rules = policy._active.rules
    turned = dict(zip(rules.rules, reversed(list(rules.rules.values())), strict=True))
    policy._active = replace(policy._active, rules=replace(rules, rules=turned))
    assert answers(policy, ask_for("echo")) == ("deny", "policy_error", ())


def test_a_call_without_a_policy_is_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that no policy covers is denied."""
    (tmp_path / "builtin.cedar").write_text("")
    (tmp_path / "default.cedar").write_text('permit (principal, action, resource == Tool::"x");')
    shipped = Path(__file__).parents[3] / "palyra/policies/schema.cedarschema"
    (tmp_path / "schema.cedarschema").write_text(shipped.read_text("utf-8"))
    monkeypatch.setattr("palyra.tools.policy.rules.SHIPPED", tmp_path)
    policy = CedarPolicy()
    assert answers(policy, ask_for()) == ("deny", "no_rule", ())
    assert answers(policy, ask_for("x"))[0] == "allow"


# --- broken files --------------------------------------------------------------------------------

BROKEN = {
    "syntax": ("permit (principal, action", "unexpected end of input"),
    "nesting": (f"permit (principal, action, resource) when {{ {'(' * 700}true{')' * 700} }};",
                "nested deeper than 32"),
    "action": ('permit (principal, action == Action::"tool.excute", resource);', "tool.excute"),
    "attribute": ('permit (principal, action, resource) when { resource.nmae == "x" };', "nmae"),
    "entity": ('permit (principal == Principle::"a", action, resource);', "Principle"),
    "optional": ('permit (principal, action, resource) when { context.path == "x" };', "path"),
    "template": ("permit (principal == ?principal, action, resource);", "templates"),
    "annotation": ('@aproval("required") permit (principal, action, resource);', "aproval"),
    "approval": ('@approval("requird") permit (principal, action, resource);', "@approval"),
    "approval on a forbid": ('@approval("required") forbid (principal, action, resource);',
                             "@approval"),
    "same name": ('@id("a") permit (principal, action, resource);' * 2, "two rules"),
    "size": ("//" + "x" * 65_536, "65538 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_a_broken_file_at_start_denies_what_matters(tmp_path: Path, kind: str) -> None:
    """Without a good set only calls without any capability go through."""
    text, complaint = BROKEN[kind]
    policy = with_rules(tmp_path, all=EVERYTHING, broken=text)
    assert [True] == [complaint in problem for problem in policy.problems]
    assert answers(policy, ask_for()) == ("deny", "policy_broken", ())
    reading = ask_for("read_file", tool_class="read_only_safe", capabilities=("fs.read",))
    assert answers(policy, reading) == ("deny", "policy_broken", ())
    assert answers(policy, ask_for("bare", capabilities=())) == ("deny", "policy_broken", ())
    harmless = ask_for("echo", tool_class="read_only_safe", capabilities=())
    assert answers(policy, harmless) == ("allow", "allowed", ("default/harmless",))


@pytest.mark.parametrize("kind", sorted(BROKEN))
def test_a_broken_file_later_keeps_the_last_good_set(tmp_path: Path, kind: str) -> None:
    """A reload that fails changes nothing but `problems`; the next good one clears them."""
    policy = with_rules(tmp_path, all=EVERYTHING)
    version = policy.version
    (tmp_path / "broken.cedar").write_text(BROKEN[kind][0])
    assert (policy.reload(), policy.version) == (False, version)
    assert BROKEN[kind][1] in policy.problems[0]
    assert answers(policy, ask_for()) == ("allow", "allowed", ("user/all/0",))
    (tmp_path / "broken.cedar").unlink()
    assert (policy.reload(), policy.problems, policy.version) == (True, (), version)


def test_repairing_an_invalid_file_enables_the_user_policies(tmp_path: Path) -> None:
    """A reload puts the repaired policies in force."""
    policy = with_rules(tmp_path, team="permit")
    degraded = policy.version
    assert (policy.reload(), policy.version) == (False, degraded)
    assert policy.decide(ask_for()).answer == "deny"
    (tmp_path / "team.cedar").write_text(EVERYTHING)
    assert (policy.reload(), policy.problems) == (True, ())
    assert policy.decide(ask_for()).answer == "allow"


def test_a_file_that_cannot_be_read_is_broken(tmp_path: Path) -> None:
    """An unreadable file is a problem, not a missing file."""
    (tmp_path / "a.cedar").mkdir()
    (tmp_path / "b.cedar").write_bytes(b"\xff")
    assert "a.cedar: cannot be read" in CedarPolicy(tmp_path).problems[0]
    (tmp_path / "a.cedar").rmdir()
    assert "b.cedar: cannot be read" in CedarPolicy(tmp_path).problems[0]


def test_a_refresh_reads_what_changed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New, other and removed files take effect; without a change nothing is read."""
    policy = with_rules(tmp_path)
    reads: list[Path] = []

    def read(folder: Path, layer: Layer) -> list[PolicyFile]:
        reads.append(folder)
        return read_policy_files(folder, layer)

    monkeypatch.setattr("palyra.tools.policy.cedar.read_policy_files", read)
    policy.refresh()
    assert reads == []
    (tmp_path / "a.cedar").write_text(EVERYTHING)
    policy.refresh()
    policy.refresh()
    assert (len(reads), policy.decide(ask_for()).answer) == (1, "allow")
    (tmp_path / "a.cedar").write_text(EVERYTHING.replace("permit", "forbid"))  # as long as before
    policy.refresh()
    assert policy.decide(ask_for()).answer == "deny"
    (tmp_path / "a.cedar").unlink()
    policy.refresh()
    assert (len(reads), policy.decide(ask_for()).answer) == (3, "ask")


def test_a_folder_that_goes_away_takes_no_rule_with_it(tmp_path: Path) -> None:
    """Its forbids stay in force, and it is a problem; one that never was is none."""
    folder = tmp_path / "rules"
    policy = CedarPolicy(folder)
    policy.refresh()
    assert not policy.problems
    folder.mkdir()
    (folder / "a.cedar").write_text("forbid (principal, action, resource);")
    policy.refresh()
    (folder / "a.cedar").unlink()
    folder.rmdir()
    policy.refresh()
    assert (policy.decide(ask_for("echo")).answer, len(policy.problems)) == ("deny", 1)
    assert "is gone" in "".join(policy.problems)


def test_too_many_files_are_a_problem(tmp_path: Path) -> None:
    """The limit is named."""
    files = {f"f{n}": "" for n in range(MAX_FILES + 1)}
    assert f"at most {MAX_FILES}" in with_rules(tmp_path, **files).problems[0]


def test_too_much_text_is_a_problem(tmp_path: Path) -> None:
    """Files that are each small enough may together be too much."""
    files = {f"f{n}": f"//{'x' * 60_000}" for n in range(5)}
    assert "at most 262144" in with_rules(tmp_path, **files).problems[0]


def test_no_folder_is_no_problem(tmp_path: Path) -> None:
    """Without user policies the shipped rules hold, as with an empty folder."""
    missing = CedarPolicy(tmp_path / "none")
    assert ((), CedarPolicy().version) == (missing.problems, missing.version)
    assert CedarPolicy(tmp_path).version == missing.version


# --- versions ------------------------------------------------------------------------------------


def test_the_version_follows_the_rules(tmp_path: Path) -> None:
    """Any change of any file is a new version; the same files are the same version."""
    versions = [
        CedarPolicy().version,
        with_rules(tmp_path, a=EVERYTHING).version,
        with_rules(tmp_path, a=EVERYTHING + "\n").version,
        with_rules(tmp_path, a=EVERYTHING, b="").version,
        with_rules(tmp_path, a="", b=EVERYTHING).version,
        with_rules(tmp_path, c="permit").version,
    ]
    assert len(set(versions)) == len(versions)
    (tmp_path / "c.cedar").unlink()
    assert versions[4] == CedarPolicy(tmp_path).version


def test_a_reload_changes_the_version(tmp_path: Path) -> None:
    """A decision names the rules it was made under."""
    policy = with_rules(tmp_path, a=EVERYTHING)
    before = policy.decide(ask_for()).version
    (tmp_path / "a.cedar").write_text("")
    assert policy.reload()
    assert before != policy.decide(ask_for()).version


def test_same_question_same_answer(tmp_path: Path) -> None:
    """Decisions do not depend on earlier requests."""
    policy = with_rules(
        tmp_path, a='permit (principal, action, resource) when { principal.role == "operator" };'
    )
    client, operator = ask_for(), ask_for(role="operator")
    found = [policy.decide(request).answer for request in [client, operator, client, operator]]
    assert found == ["ask", "allow", "ask", "allow"]
