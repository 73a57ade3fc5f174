"""Policy tests without a daemon: a table of calls with their expected decisions.

A case gives the arguments of a built-in tool, or for any other tool the facts themselves.
"""

import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import CheckedCall, GateContext, policy_request, validate
from palyra.core.policy.request import Action, Answer, PolicyRequest, decide_parts
from palyra.core.tool.arguments import Refused
from palyra.core.tool.spec import CallFacts, Catalogue, Risk, ToolClass, ToolSpec, path_facets
from palyra.errors import InvalidParams
from palyra.tools import artifacts, demo_tools
from palyra.tools.files import read, search
from palyra.tools.files import write as writes
from palyra.tools.policy.cedar import CedarPolicy
from palyra.tools.policy.rules import build_rules, read_policy_files, shipped_files
from palyra.tools.programs import command_line, process_tools, shell
from palyra.tools.web import fetch
from palyra.tools.web import request as web

MAX_FILE_BYTES = 1_048_576
_FindFacets = Callable[[Mapping[str, Any]], CallFacts]


class PolicyCase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One test case; the defaults describe an ordinary call of an operator's run."""

    name: str
    tool: str
    expect: Answer | Literal["refused"]  # refused: by the tool's schema, before any rule
    rule: str | None = None  # id of a rule that must be among the deciding ones
    arguments: dict[str, Any] | None = None  # of a built-in tool; None: use the facts below
    action: Action = "tool.execute"
    tool_class: ToolClass = "effect"
    capabilities: tuple[str, ...] = ()
    risk: Risk = "low"
    paths: tuple[str, ...] = ()
    executable: str = ""
    subcommand: str = ""
    host: str = ""
    secrets: tuple[str, ...] = ()
    principal: str = "operator"
    owner: str | None = None  # owner of the run; None: same as `principal`
    role: str = "operator"
    agent: str = "default"
    labels: tuple[str, ...] = ()
    origin: str = "interactive"
    tainted: bool = False
    depth: int = 0
    in_scope: bool = True
    granted: bool = False
    workspace: str = DEFAULT_WORKSPACE
    now_ms: int = 0


class CaseTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of cases."""

    case: tuple[PolicyCase, ...]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one case."""

    name: str
    passed: bool
    expected: str
    found: str
    reason: str
    policies: tuple[str, ...] = ()


class PolicyFolder(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of a valid folder of policies."""

    folder: str
    files: tuple[str, ...]
    rules: tuple[str, ...]
    version: str


def check_policies(folder: Path) -> PolicyFolder:
    """Parse and validate the folder's policies with the shipped ones.  Raises BrokenPolicy."""
    user_files = read_policy_files(folder, "user")
    rules = build_rules([*shipped_files(), *user_files])
    names = sorted(rule.id for rule in rules.rules.values() if rule.id.startswith("user/"))
    return PolicyFolder(
        folder=str(folder),
        files=tuple(file.name for file in user_files),
        rules=tuple(names),
        version=rules.version,
    )


def read_cases(path: Path) -> CaseTable:
    """Read the cases of a TOML or JSON file.  Raises InvalidParams with the error."""
    try:
        data = path.read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise InvalidParams(f"{path}: {len(data)} bytes; at most {MAX_FILE_BYTES}")
        if path.suffix == ".json":
            return msgspec.json.decode(data, type=CaseTable)
        return msgspec.convert(tomllib.loads(data.decode()), CaseTable)
    except (OSError, ValueError) as error:  # includes errors of msgspec and tomllib
        raise InvalidParams(f"{path}: {error}") from None


def run_cases(folder: Path, cases: CaseTable) -> list[Outcome]:
    """Evaluate the cases in order against the shipped rules and those of the folder.

    Raises InvalidParams for invalid policies, and for a case that gives arguments for a tool that
    is not built in.
    """
    policy = CedarPolicy(folder)
    if policy.problems:
        raise InvalidParams(policy.problems[0])
    return [_run(policy, case) for case in cases.case]


def _run(policy: CedarPolicy, case: PolicyCase) -> Outcome:
    request = _request(case)
    if isinstance(request, Refused):
        return _outcome(case, "refused", f"{request.reason}; {request.repair_hint}", ())
    decision = decide_parts(request, policy.decide)
    return _outcome(
        case, decision.answer, f"{decision.reason_code}: {decision.reason}", decision.policies
    )


def _outcome(case: PolicyCase, found: str, reason: str, policies: tuple[str, ...]) -> Outcome:
    is_by_rule = case.rule is None or case.rule in policies
    return Outcome(
        name=case.name,
        passed=found == case.expect and is_by_rule,
        expected=case.expect if case.rule is None else f"{case.expect} by {case.rule}",
        found=found,
        reason=reason,
        policies=policies,
    )


def _request(case: PolicyCase) -> PolicyRequest | Refused:
    admitted = _admit(case)
    if isinstance(admitted, Refused):
        return admitted
    request = policy_request(
        admitted,
        GateContext(
            run_id="run_case",
            session_id="ses_case",
            principal=case.principal,
            role=case.role,
            agent=case.agent,
            agent_labels=case.labels,
            origin=case.origin,
            is_tainted=case.tainted,
            depth=case.depth,
            handed_down=None if case.in_scope else frozenset(),
            now_ms=case.now_ms,
            workspace=case.workspace,
        ),
    )
    action = request.action if case.action == "tool.execute" else case.action
    owner = case.principal if case.owner is None else case.owner
    approval: Literal["none", "granted"] = "granted" if case.granted else "none"
    return msgspec.structs.replace(request, action=action, owner=owner, approval=approval)


def _admit(case: PolicyCase) -> CheckedCall | Refused:
    """Build the call with the facts of the tool or of the case.  Raises InvalidParams."""
    if case.arguments is None:
        spec = _unknown_spec(case)
        facets = CallFacts(
            paths=case.paths,
            executable=case.executable,
            subcommand=case.subcommand,
            host=case.host,
            secrets=case.secrets,
        )
        return CheckedCall(
            call_id="", spec=spec, arguments={}, digest="", size_bytes=2, facets=facets
        )
    known = known_tools().get(case.tool)
    if known is None:
        listed = ", ".join(sorted(known_tools()))
        raise InvalidParams(
            f"case {case.name!r}: {case.tool!r} is no built-in tool ({listed}): "
            "give facts (capabilities, paths, host, …) instead of arguments",
            field="tool",
        )
    spec, find_facets = known
    catalogue = Catalogue(tools={spec.name: spec}, hash="")
    proposed = ProposedCall(call_id="", tool=case.tool, arguments=case.arguments)
    return validate(proposed, catalogue, lambda spec, given: find_facets(given))  # noqa: ARG005 - the signature of FindFacets


def _unknown_spec(case: PolicyCase) -> ToolSpec:
    return ToolSpec(
        name=case.tool,
        version="",
        description="",
        parameters={"type": "object"},
        tool_class=case.tool_class,
        risk=case.risk,
        capabilities=case.capabilities,
    )


def known_tools() -> dict[str, tuple[ToolSpec, _FindFacets]]:
    """Return the built-in tools with their fact extractors; independent of any sandbox."""
    plain = [
        demo_tools.ECHO, demo_tools.SLEEP, read.read_file_spec(""), read.list_dir_spec(""),
        search.glob_spec(""), search.search_text_spec(""), artifacts.SPEC,
    ]  # fmt: skip
    found: dict[str, tuple[ToolSpec, _FindFacets]] = {
        spec.name: (spec, partial(path_facets, spec)) for spec in plain
    }
    write, patch = writes.write_file_spec(""), writes.apply_patch_spec("")
    run = shell.shell_spec("", 1.0)
    found[write.name] = (write, writes.write_facets)
    found[patch.name] = (patch, writes.patch_facets)
    found[run.name] = (run, command_line.find_facets)
    found[process_tools.START.name] = (process_tools.START, command_line.find_facets)
    found[fetch.FETCH.name] = (fetch.FETCH, web.find_facets)
    found[fetch.SEND.name] = (fetch.SEND, web.find_facets)
    return found
