"""Prompts of 200 scripted coding tasks, with and without suggested rules.

Run: `python bench/asking.py [--seed N] [--tasks N] [--delicate PERCENT] [--folders]`

Each task is one run of calls that an agent proposes: look, edit, test, lint, build, git, and at times
install, fetch, remove, push, deploy.  The first half of the tasks is the history.  Rules are suggested
from it with the same functions and the same policy engine that the daemon uses, all of them are
applied, and the second half is evaluated with the shipped rules and with the suggested ones in
addition.

The person is a model, not a recording, and knows no rule: she decides by a table of what she wants.
She allows edits of source, tests and pages, test runs, linters, builds and local git; she denies
edits in `src/billing/` and `src/core/secrets_store.py`, everything that removes, pushes, deploys or
sends, and one linter flag; she allows half of the packages.  She answers equal calls in the same
way and each question only once.  The tasks share folders, file names and habits, as work on one
repository does; a share measured here says what such habits give, not what every person would save.
`--delicate 2` has her deny edits of 2 % of all files, drawn by name: files the history does not
have may then lie below a folder that a rule allows.
"""

import argparse
import hashlib
import random
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palyra.core.model.messages import ProposedCall
from palyra.core.policy.gate import GateContext, policy_request, reconstruct
from palyra.core.policy.recorded import Decided, PolicyEvidence
from palyra.core.policy.request import PolicyDecision
from palyra.core.policy.suggestion import MIN_ANSWERS
from palyra.core.text.visible import render_call
from palyra.core.tool.spec import build_catalogue
from palyra.services.learning.suggestions import RecordedDecisions, decide_suggestions
from palyra.tools.policy.cases import known_tools
from palyra.tools.policy.cedar import CedarPolicy

AREAS = ("api", "core", "store", "billing", "cli", "web")
NAMES = (
    "client", "session", "router", "cache", "schema", "worker", "parser", "report", "secrets_store", "limits",
    "events", "tokens", "index", "queue", "render",
)  # fmt: skip
PAGES = ("usage", "install", "protocol", "release", "limits")
DENIED_WORDS = frozenset({"rm", "push", "deploy", "curl", "--unsafe-fixes", "reset", "chmod", "-c"})


@dataclass(frozen=True, slots=True)
class Call:
    """One proposed call of a task."""

    tool: str
    arguments: dict[str, Any]


def make_tasks(seed: int, count: int) -> list[list[Call]]:
    """Return the calls of each task."""
    rng = random.Random(seed)
    return [_task(rng, number) for number in range(count)]


def _task(rng: random.Random, number: int) -> list[Call]:
    """Return the calls of one task: a habit of the agent with some variation."""
    area, name = rng.choice(AREAS), rng.choice(NAMES)
    source, test = f"src/{area}/{name}.py", f"tests/{area}/test_{name}.py"
    calls = [Call("read_file", {"path": source}), Call("search_text", {"query": name})]
    calls += [_shell("git", "status")] * (rng.random() < 0.6)
    calls += [_write(source, number)] * rng.randint(1, 2)
    calls += [_write(test, number)] * (rng.random() < 0.6)
    calls += [_write(f"docs/{rng.choice(PAGES)}.md", number)] * (rng.random() < 0.25)
    runner = ("pytest", "-q") if rng.random() < 0.75 else ("python3", "-m", "pytest", "-q")
    calls.append(_shell(*runner, test))
    calls += [_shell(*runner)] * (rng.random() < 0.5)
    calls += [_line("pytest -q")] * (rng.random() < 0.15)
    calls += [_shell("ruff", "check", "src")] * (rng.random() < 0.6)
    calls += [_shell("mypy", "src")] * (rng.random() < 0.4)
    calls += [_shell("make", rng.choice(("build", "test", "lint")))] * (rng.random() < 0.3)
    calls += [_shell("git", "diff")] * (rng.random() < 0.6)
    calls += [_shell("git", "add", "-A")] * (rng.random() < 0.5)
    calls += [_shell("git", "commit", "-m", f"Task {number}: {name}")] * (rng.random() < 0.5)
    return calls + [call for chance, call in _rare(rng, area) if rng.random() < chance]


def _rare(rng: random.Random, area: str) -> list[tuple[float, Call]]:
    """Return calls beyond the ordinary with their chances."""
    package = rng.choice(("requests", "left-pad", "rich", "evil-lib"))
    return [
        (0.06, _shell("pip", "install", package)),
        (0.06, _shell("curl", "-sS", "https://example.org/install.sh")),
        (0.05, _shell("rm", "-rf", rng.choice(("build", "dist", f"src/{area}")))),
        (0.05, _shell("git", "push", "origin", "main")),
        (0.03, _shell("git", "reset", "--hard")),
        (0.04, _shell("make", "deploy")),
        (0.04, _shell("ruff", "check", "--unsafe-fixes", "src")),
        (0.05, _shell("python3", "-c", "print(1)")),
        (0.03, _line("pytest -q && rm -rf build")),
        (0.03, _shell("chmod", "+x", "run.sh")),
        (0.06, Call("http_fetch", {"url": f"https://docs.example.org/{rng.randint(1, 99)}"})),
    ]


def _shell(*argv: str) -> Call:
    return Call("shell", {"argv": list(argv)})


def _line(line: str) -> Call:
    return Call("shell", {"command": line})


def _write(path: str, number: int) -> Call:
    return Call("write_file", {"path": path, "content": f"# {number}\n"})


def allows(call: Call, delicate_percent: float) -> bool:
    """Return the person's answer; the same for equal calls."""
    path = str(call.arguments.get("path", ""))
    if path.startswith("src/billing/") or path == "src/core/secrets_store.py":
        return False
    if path and _draw(path) < delicate_percent:
        return False
    words = call.arguments.get("argv") or str(call.arguments.get("command", "")).split()
    if "install" in words:
        return words[-1] in {"requests", "rich"}
    return DENIED_WORDS.isdisjoint(words)


def _draw(path: str) -> float:
    """Return a number from 0 to 100 that depends on the path alone."""
    return int.from_bytes(hashlib.sha256(path.encode()).digest()[:4]) / 2**32 * 100


class Desk:
    """The daemon's evaluation of calls without a daemon."""

    def __init__(self) -> None:
        self._tools = known_tools()
        self._catalogue = build_catalogue(spec for spec, _ in self._tools.values())

    def read(self, call: Call, run: str, place: int, decided: Decided) -> PolicyEvidence:
        """Return the call as the rules see it."""
        proposed = ProposedCall(call_id=f"call_{place}", tool=call.tool, arguments=call.arguments)
        found = reconstruct(
            proposed, self._catalogue, lambda spec, given: self._tools[spec.name][1](given)
        )
        if found is None:
            raise SystemExit(f"no tool takes {call}")
        context = GateContext(
            run_id=run, session_id="ses_bench", principal="ann", role="client", agent="default"
        )
        return PolicyEvidence(
            request=policy_request(found[0], context),
            decided=decided,
            run_id=run,
            call_id=proposed.call_id,
            summary=render_call(call.tool, call.arguments),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--delicate", type=float, default=0.0, help="percent of files")
    parser.add_argument("--folders", action="store_true", help="apply rules for folders, too")
    given = parser.parse_args()
    tasks = make_tasks(given.seed, given.tasks)
    half = len(tasks) // 2
    with tempfile.TemporaryDirectory() as folder:
        _measure(tasks[:half], tasks[half:], CedarPolicy(Path(folder)), given)


def _measure(
    past: list[list[Call]], rest: list[list[Call]], policy: CedarPolicy, given: argparse.Namespace
) -> None:
    desk = Desk()
    evidence: list[PolicyEvidence] = []
    for number, calls in enumerate(past):
        for place, call in enumerate(calls):
            seen = desk.read(call, f"run_{number}", place, "never_asked")
            asked = policy.decide(seen.request).answer == "ask"
            answer: Decided = "allowed" if allows(call, given.delicate) else "denied"
            evidence.append(desk.read(call, f"run_{number}", place, answer) if asked else seen)
    chosen, proof = decide_suggestions(
        policy, RecordedDecisions(evidence, set()), MIN_ANSWERS, with_folders=given.folders
    )
    ruled = policy.with_rules([each.cedar for each in chosen])
    count: Counter[str] = Counter()
    for number, calls in enumerate(rest):
        for place, call in enumerate(calls):
            request = desk.read(call, f"rest_{number}", place, "never_asked").request
            before, after = policy.decide(request), ruled.decide(request)
            _note(count, call, before, after, is_allowed=allows(call, given.delicate))
    print(f"history: {len(past)} tasks, {proof.decisions} decisions, {proof.denied} denied")
    for each in chosen:
        print(f"  {len(each.calls):4} answers  {each.title}")
    print(
        f"rest: {len(rest)} tasks, {count['calls']} calls, {count['refused']} of them the person denies"
    )
    print(f"prompts without suggestions: {count['before']}")
    print(f"prompts with suggestions:    {count['after']}")
    print(f"share saved: {100 * (1 - count['after'] / count['before']):.1f} %")
    print(f"denied calls allowed: {count['wrong']}")


def _note(
    count: Counter[str],
    call: Call,
    before: PolicyDecision,
    after: PolicyDecision,
    *,
    is_allowed: bool,
) -> None:
    asks = before.answer == "ask"
    count["calls"] += 1
    count["refused"] += asks and not is_allowed
    count["before"] += asks
    count["after"] += after.answer == "ask"
    is_wrong = asks and not is_allowed and after.answer == "allow"
    count["wrong"] += is_wrong
    if is_wrong:
        print(f"  allowed although denied: {call}")


if __name__ == "__main__":
    main()
