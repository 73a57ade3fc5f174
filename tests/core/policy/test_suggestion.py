"""Shapes of calls: the rules that an answer about one call, or about several, may become."""

from typing import Any, get_args

import msgspec

from palyra.core.policy.grants import server_tool_key
from palyra.core.policy.recorded import Decided, PolicyEvidence
from palyra.core.policy.request import PolicyRequest
from palyra.core.policy.suggestion import (
    choose,
    exact_candidate,
    find_candidates,
    is_offered,
    shapes_of,
    trials,
    why_not_offered,
)
from palyra.core.tool.spec import CallFacts
from palyra.core.tool.words import MAX_WORDS
from tests.rows import every_row

REQUEST = PolicyRequest(
    action="tool.execute", principal="ann", role="client", agent="default", session_id="ses_1",
    run_id="run_1", origin="interactive", tool="apply_patch", tool_class="effect", risk="high",
    capabilities=("fs.write",), owner="ann", digest="d1",
    facets=CallFacts(paths=("src/a.py", "src/b.py")),
)  # fmt: skip
LISTS = CallFacts(argv=("ls",), command="ls")
LIST: dict[str, Any] = {"tool": "shell", "capabilities": ("process",), "facets": LISTS}
FETCH: dict[str, Any] = {
    "tool": "http_fetch", "tool_class": "idempotent_network", "capabilities": ("network",),
    "facets": CallFacts(host="example.com", grant_key="example.com:443"),
}  # fmt: skip


SERVED: dict[str, Any] = {
    "tool": "mcp:files.list", "capabilities": ("process",),
    "facets": CallFacts(grant_key=server_tool_key("mcp:files.list", "a" * 64, "v" * 16)),
}  # fmt: skip


def call(*, run: str = "run_1", **changes: Any) -> PolicyEvidence:
    """An allowed call with these fields of its request."""
    request = msgspec.structs.replace(REQUEST, run_id=run, **changes)
    return PolicyEvidence(
        request=request, decided="allowed", run_id=run, call_id=f"call_of_{run}", summary="s"
    )


def test_evidence_of_a_person_is_a_question() -> None:
    """A question counts without an answer; a call that a rule or a grant answered was none."""
    all_classes: tuple[Decided, ...] = get_args(Decided)
    asked = {
        each for each in all_classes if msgspec.structs.replace(call(), decided=each).was_asked
    }
    assert {"allowed", "denied", "unanswered"} == asked


def test_a_rule_of_a_call_with_several_paths_names_them() -> None:
    """Their common folder would allow others; the paths are in the title and in the condition."""
    found = exact_candidate(call())
    assert ("src/a.py", "src/b.py") == found.shape.paths
    assert "apply_patch: src/a.py, src/b.py" == found.title
    assert '!context.paths.isEmpty() &&\n  ["src/a.py", "src/b.py"].containsAll(' in found.cedar


def test_a_request_to_a_host_becomes_a_rule_of_its_grant_key() -> None:
    """Without a key, as for a call with a body, there is no rule."""
    found = exact_candidate(call(**FETCH))
    assert "http_fetch: example.com:443" == found.title
    assert 'context.grant_key == "example.com:443"' in found.cedar
    bare = msgspec.structs.replace(REQUEST, **{**FETCH, "facets": CallFacts(host="example.com")})
    assert [] == shapes_of(bare)


def test_a_call_without_words_paths_or_host_becomes_a_rule_of_its_arguments() -> None:
    """The digest of the arguments; without one there is no rule."""
    plain: dict[str, Any] = {
        "tool": "look", "capabilities": (), "tool_class": "read_only_safe", "facets": CallFacts()
    }  # fmt: skip
    found = exact_candidate(call(**plain))
    assert "look: exactly these arguments" == found.title
    assert 'context.arguments == "d1"' in found.cedar
    assert "resource.capabilities.isEmpty()" in found.cedar
    assert [] == shapes_of(msgspec.structs.replace(REQUEST, **plain | {"digest": ""}))


@every_row("argv", [(), ("x",) * (MAX_WORDS + 1), ("x" * 100_000,)])
def test_a_command_over_the_bounds_has_no_shape(argv: tuple[str, ...]) -> None:
    """No word, too many words or characters: a rule of them could not be read."""
    facets = CallFacts(argv=argv, command="x")
    assert [] == shapes_of(
        msgspec.structs.replace(REQUEST, capabilities=("process",), facets=facets)
    )


@every_row(
    ("changes", "reason"),
    [
        ({"facets": CallFacts(secrets=("token",))}, "the call has a secret"),
        ({"capabilities": ("memory.write",)}, "could do more"),
        ({"capabilities": ("process", "shared_host"), "facets": LISTS}, "could do more"),
        ({**FETCH, "tool_class": "effect"}, "could do more"),
        ({"capabilities": ("process",), "facets": CallFacts()}, "a rule matches plain words"),
    ],
)
def test_a_call_without_a_rule_says_what_would_work(changes: dict[str, Any], reason: str) -> None:
    """Secrets, writes to the memory, requests with an effect and shell lines get no rule."""
    found = call(**changes)
    assert not is_offered(found)
    assert reason in why_not_offered(found)
    assert "answer each such call once" in why_not_offered(found)


def test_a_tool_of_a_server_has_a_rule_on_request_only() -> None:
    """It is for any arguments, so answers alone never suggest it; a destructive tool has none."""
    calls = [call(run=f"run_{number}", **SERVED) for number in range(6)]
    assert not why_not_offered(calls[0])
    found = exact_candidate(calls[0])
    assert 'resource == Tool::"mcp:files.list"' in found.cedar
    assert "context.grant_key == " in found.cedar
    assert "mcp:files.list: [any arguments, unchanged server aaaaaaaa" in found.title
    assert not is_offered(calls[0])
    assert [] == find_candidates(calls, min_answers=3)
    assert "the risk critical" in why_not_offered(call(risk="critical", **SERVED))
    odd = SERVED | {"capabilities": ("process", "memory.write")}
    assert "memory.write: answer it for the session" in why_not_offered(call(**odd))


def test_a_harmless_command_has_a_rule() -> None:
    """The same command without the shared host is offered."""
    assert is_offered(call(capabilities=("process",), facets=LISTS))


def test_a_redacted_call_has_a_secret() -> None:
    """The recorded arguments are not those that were executed."""
    assert "has a secret" in why_not_offered(msgspec.structs.replace(call(), is_whole=False))


def test_a_rule_is_chosen_if_it_is_safe_and_saves_answers_of_its_own() -> None:
    """An unsafe rule, and one whose answers a chosen rule already gives, are left out."""
    calls = [call(run=f"run_{number}", **FETCH) for number in range(3)]
    (host,) = find_candidates(calls, min_answers=3)
    again = msgspec.structs.replace(host, suggestion_id="sug_again")
    assert [host] == choose([host, again], lambda _name: True, min_answers=3)
    assert [again] == choose([host, again], lambda name: name == "sug_again", min_answers=3)


def test_a_rule_is_for_the_workspace_of_its_answers() -> None:
    """Calls of two workspaces have shapes of their own, and a rule names its workspace."""
    here = [call(run=f"run_{at}", **LIST) for at in range(4)]
    there = [call(run=f"run_{at}", workspace="site", **LIST) for at in range(4, 8)]
    found = find_candidates([*here[:2], *there], min_answers=3)
    (candidate,) = found
    assert 'context.workspace == "site"' in candidate.cedar
    assert candidate.title.endswith(", in the workspace site")
    (other,) = find_candidates([*here, *there[:2]], min_answers=3)
    assert 'context.workspace == "default"' in other.cedar
    assert candidate.suggestion_id != other.suggestion_id


def test_a_denial_in_one_workspace_counts_in_all() -> None:
    """No rule of another workspace allows what a person denied; without the denial there is one."""
    there = [call(run=f"run_{at}", workspace="site", **LIST) for at in range(4)]
    denied = msgspec.structs.replace(call(run="run_9", **LIST), decided="denied")
    candidates = find_candidates(there, min_answers=3)
    assert candidates
    asked = trials([*there, denied], candidates)
    wrong = [request for request, is_wrong in asked.items() if is_wrong]
    assert "site" in {request.workspace for request in wrong}
    assert not find_candidates([*there, denied], min_answers=3)
