"""Effect of procedures on scripted work: turns, failed calls and tokens, with learning off and on.

Run: `python bench/procedures.py [--families N] [--instances N]`

A family of jobs is a service whose steps succeed only in a hidden order and with a hidden setting.  The
agent is a script that knows neither: it tries the steps that are left, those that failed least
first, until one succeeds, and calls a procedure if the catalogue has one that ends with the step
the job asks for.  After each job the run is reflected upon and a person accepts every procedure
that is proposed.  Then the hidden order or setting changes, and the jobs go on.  Services of odd
number forget a job when the run that worked on it is another one, so an agent has to begin again
after a procedure failed; those of even number do not.

The control is work without regularity: calls of the same tools in drawn order with drawn values.

Prints one JSON line: medians of turns, failed calls and input tokens (four bytes each) of a job
from the third instance on, in both modes and as ratios; the runs after a change until the new
procedure succeeds at its first call; and for the control the ratio of tokens and the number of
proposals.
"""

import argparse
import json
import logging
import random
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import structlog
import trio
from runs import CALLER, daemon

from palyra.actors.kernel.threads import run_sync
from palyra.core.journal.changes import RunFilter
from palyra.core.journal.records import Usage
from palyra.core.learning.procedures import PREFIX
from palyra.core.model.messages import (
    AssistantMessage,
    Delta,
    ModelRequest,
    ModelTurn,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.session.commands import StartRun
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput, ToolSpec
from palyra.daemon import Daemon
from palyra.models.lexical_embeddings import EmbeddedEmbeddings
from palyra.tools.toolbox import InlineTool, Tool
from palyra.wiring.host import new_id
from palyra.wiring.models import Modelset

SEED = 20261123
STEPS = ("apply", "bind", "check", "draw", "enter", "finish")
SETTINGS = ("amber", "blue", "coral", "denim")
TAUGHT = 2  # instances that teach
AFTER_CHANGE = 4
SHARED = ("look", "move", "note", "open", "pack", "quote")  # tools of the control
Mode = Literal["off", "review"]


@dataclass(slots=True)
class Service:
    """A service with a hidden order and a hidden setting of one of its steps."""

    name: str
    order: tuple[str, ...]  # the last one is what a job asks for
    setting: str
    is_forgetful: bool  # a job belongs to the run that began it
    done: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))

    @property
    def goal(self) -> str:
        """Tool that ends a job."""
        return f"{self.name}_{self.order[-1]}"

    def call(self, call: ToolCall) -> ToolOutput:
        """Do a step of a job.  Raises ToolFailure out of order or with another setting."""
        step, job = call.tool.rpartition("_")[2], call.arguments["job"]
        done = self.done[call.run_id if self.is_forgetful else "", job]
        due = self.order[len(done)] if len(done) < len(self.order) else None
        if step != due:
            raise ToolFailure(f"{step} of {job}: another step is due")
        if step == self.order[1] and call.arguments["setting"] != self.setting:
            raise ToolFailure(f"{step} of {job}: this setting is refused")
        done.append(step)
        return ToolOutput(text=f"{step} of {job} is done")

    def change(self, rng: random.Random) -> None:
        """Take another setting, or another place for one step."""
        self.done.clear()
        if rng.random() < 1 / 2:
            self.setting = rng.choice([each for each in SETTINGS if each != self.setting])
            return
        first, second, *others, last = self.order
        self.order = (*others, first, second, last) if others else (second, first, last)

    def tools(self) -> Iterator[Tool]:
        """Yield a tool for each step."""
        for step in self.order:
            properties: dict[str, Any] = {"job": {"type": "string"}}
            if step in self.order[:-1]:
                properties["setting"] = {"type": "string", "enum": list(SETTINGS)}
            yield InlineTool(tool_spec(f"{self.name}_{step}", properties), self.call)


def tool_spec(name: str, properties: dict[str, Any]) -> ToolSpec:
    """Return the description of a tool that needs no approval."""
    return ToolSpec(
        name=name,
        version="1",
        description=f"{name.replace('_', ' ')}.",
        parameters={
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        },
        tool_class="read_only_safe",
        risk="low",
    )


class Agent:
    """`core.ports.LanguageModel` of an agent that finds its way by trying; counts what it costs."""

    name = provider = "scripted"

    def __init__(self) -> None:
        self.turns = self.tokens = 0

    def most_output(self, request: ModelRequest) -> int:  # noqa: ARG002, PLR6301 - the port
        """Return 0: there is no limit."""
        return 0

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:  # noqa: ARG002 - the port
        """Propose the next call, or end the run."""
        await trio.lowlevel.checkpoint()
        self.turns += 1
        shown = [request.instructions, request.messages, request.tools]
        self.tokens += len(msgspec.json.encode(shown)) // 4
        text = next(m.text for m in reversed(request.messages) if isinstance(m, UserMessage))
        words = text.split()
        due = (
            find_listed(words[1:], request) if words[0] == "list" else find_next(words[1:], request)
        )
        if due is None:
            return ModelTurn(text="Done.", calls=(), finish_reason="stop", usage=Usage())
        call = ProposedCall(call_id=new_id("call"), tool=due[0], arguments=due[1])
        return ModelTurn(text="", calls=(call,), finish_reason="tool_calls", usage=Usage())


Due = tuple[str, dict[str, Any]]


def find_listed(words: list[str], request: ModelRequest) -> Due | None:
    """Return the next call of a message that lists them as TOOL=VALUE."""
    made = len(results_of(request))
    if made == len(words):
        return None
    tool, value = words[made].split("=")
    return tool, {"value": value}


def find_next(words: list[str], request: ModelRequest) -> Due | None:
    """Return what to try next for the message `do GOAL JOB`; None once the goal is reached."""
    goal, job = words
    family = goal.partition("_")[0] + "_"
    results = results_of(request)
    for tool in request.tools:
        is_tried = any(each.tool == tool["name"] for each in results)
        if tool["name"].startswith(PREFIX) and not is_tried and goal in last_step(tool):
            return tool["name"], dict.fromkeys(tool["parameters"]["properties"], job)
    if any(
        each.status == "succeeded" and (each.tool == goal or each.tool.startswith(PREFIX))
        for each in results
    ):
        return None
    made = {
        call.call_id: msgspec.json.encode([call.tool, call.arguments])
        for message in request.messages
        if isinstance(message, AssistantMessage)
        for call in message.calls
    }
    failures: Counter[bytes] = Counter()
    fruitless: set[bytes] = set()  # since the last success
    for each in results:
        is_over = each.status == "succeeded" or each.tool.startswith(PREFIX)
        fruitless = set() if is_over else fruitless | {made[each.call_id]}
        failures[made[each.call_id]] += not is_over
    done = {each.tool for each in results if each.status == "succeeded"}
    left = choices(request, family, job, done)
    untried = [due for due in left if msgspec.json.encode(due) not in fruitless]
    return min(untried, key=lambda due: failures[msgspec.json.encode(due)])  # the first of equals


def choices(request: ModelRequest, family: str, job: str, done: set[str]) -> list[Due]:
    """Return the calls that are left to try, in the order of the catalogue."""
    tools = {
        tool["name"]: "setting" in tool["parameters"]["properties"]
        for tool in sorted(request.tools, key=lambda each: str(each["name"]))
        if tool["name"].startswith(family)
    }
    left = {name: tools[name] for name in tools if name not in done} | tools  # the done ones last
    return [
        (name, {"job": job} | ({"setting": setting} if has_setting else {}))
        for setting in SETTINGS
        for name, has_setting in left.items()
        if has_setting or setting == SETTINGS[0]
    ]


def last_step(tool: dict[str, Any]) -> str:
    """Return the last line of a procedure's description."""
    return str(tool["description"]).strip().splitlines()[-1]


def results_of(request: ModelRequest) -> list[ToolMessage]:
    """Return the results of the run."""
    return [each for each in request.messages if isinstance(each, ToolMessage)]


@dataclass(frozen=True, slots=True)
class Job:
    """Cost of a job."""

    turns: int
    tokens: int
    failed: int  # calls, those of a procedure included
    used: int  # procedures that succeeded


class Shop:
    """A daemon with services, and the person who accepts."""

    def __init__(self, served: Daemon, agent: Agent, mode: Mode) -> None:
        self._served, self._agent, self._mode = served, agent, mode
        self.accepted = 0

    async def perform(self, text: str) -> Job:
        """Do a job to its end, reflect upon it, and accept the procedures that it proved."""
        turns, tokens = self._agent.turns, self._agent.tokens
        gateway = self._served.gateway
        run_id = (await gateway.start_run(CALLER, StartRun(text=text))).run_id
        view, _ = await gateway.wait_run(CALLER, run_id, until="terminal", timeout_s=60)
        if view.state != "done":
            raise RuntimeError(f"{run_id} ended {view.state}: {view.reason}")
        failed = used = 0
        for row in self._served.journal.store.read_tape(run_id, after_seq=-1, limit=5_000).rows:
            if row.kind != "tool.completed":
                continue
            event = msgspec.json.decode(row.data)
            failed += event["status"] != "succeeded"
        for each in self._children(run_id):
            used += each == "done"
        if self._mode != "off":
            await self._review(run_id)
        return Job(self._agent.turns - turns, self._agent.tokens - tokens, failed, used)

    def _children(self, run_id: str) -> list[str]:
        found = self._served.journal.store.list_runs(RunFilter(parent_run_id=run_id, limit=100))
        return [each.state for each in found]

    async def _review(self, run_id: str) -> None:
        learning = self._served.backend.learning
        done = await learning.reflect(run_id)
        for candidate_id in done.candidate_ids:
            found = await learning.get(CALLER, candidate_id)
            if found.kind == "procedure" and found.state == "proposed":
                await learning.accept(CALLER, candidate_id)
                self.accepted += 1


def settings_of(home: Path, mode: Mode) -> dict[str, Any]:
    """Return settings with a rule that allows every tool, so that nothing waits for a person."""
    rules = home / "policies"
    rules.mkdir()
    rule = '@id("all")\npermit(principal, action == Action::"tool.execute", resource);'
    (rules / "all.cedar").write_text(rule, encoding="utf-8")
    return {"learning.mode": mode, "policy.dir": str(rules)}


async def work(mode: Mode, families: int, instances: int) -> dict[str, Any]:
    """Return the costs of each family's jobs in one mode, before and after the change."""
    rng = random.Random(SEED)
    services = []
    for number in range(families):
        order = tuple(rng.sample(STEPS[:-1], rng.randint(2, 4))) + STEPS[-1:]
        services.append(Service(f"f{number}", order, rng.choice(SETTINGS), bool(number % 2)))
    agent = Agent()
    with tempfile.TemporaryDirectory() as home:
        async with daemon(
            Path(home),
            modelset=Modelset({"scripted": agent}, EmbeddedEmbeddings(run_sync)),
            tools=[tool for each in services for tool in each.tools()],
            settings=settings_of(Path(home), mode),
        ) as served:
            shop = Shop(served, agent, mode)
            jobs = {
                each.name: [
                    await shop.perform(f"do {each.goal} {each.name}-{number}")
                    for number in range(instances)
                ]
                for each in services
            }
            later = {}
            for each in services:
                each.change(rng)
                later[each.name] = [
                    await shop.perform(f"do {each.goal} {each.name}-later-{number}")
                    for number in range(AFTER_CHANGE)
                ]
    return {"jobs": jobs, "later": later, "accepted": shop.accepted}


async def control(mode: Mode, families: int, instances: int) -> tuple[int, int]:
    """Return the tokens of jobs without regularity, and the procedures that were proposed."""
    rng = random.Random(SEED)
    tools = [
        InlineTool(tool_spec(name, {"value": {"type": "string"}}), lambda _: ToolOutput(text="ok"))
        for name in SHARED
    ]
    agent = Agent()
    with tempfile.TemporaryDirectory() as home:
        async with daemon(
            Path(home),
            modelset=Modelset({"scripted": agent}, EmbeddedEmbeddings(run_sync)),
            tools=tools,
            settings=settings_of(Path(home), mode),
        ) as served:
            shop = Shop(served, agent, mode)
            for _ in range(families * instances):
                names = rng.choices(SHARED, k=rng.randint(2, 6))
                values = [f"{name}={rng.getrandbits(64):x}" for name in names]
                await shop.perform(" ".join(["list", *values]))
    return agent.tokens, shop.accepted


def find_recovery(jobs: list[Job]) -> int | None:
    """Return after how many jobs a procedure succeeds without a failed call; None if none did."""
    return next((n for n, job in enumerate(jobs) if job.used and not job.failed), None)


def summarise(off: dict[str, Any], on: dict[str, Any]) -> dict[str, Any]:
    """Return the medians from the third instance on, their ratios, and the recoveries."""
    found: dict[str, Any] = {}
    for name in ("turns", "failed", "tokens"):
        medians = [
            statistics.median(
                getattr(job, name) for jobs in each["jobs"].values() for job in jobs[TAUGHT:]
            )
            for each in (off, on)
        ]
        found[name] = {"off": medians[0], "on": medians[1]}
        found[name]["ratio"] = round(medians[1] / medians[0], 3)
    recoveries = [find_recovery(jobs) for jobs in on["later"].values()]
    found["runs until the changed procedure is replaced"] = recoveries
    found["accepted"] = on["accepted"]
    return found


async def main() -> None:
    """Measure both modes and the control."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", type=int, default=10)
    parser.add_argument("--instances", type=int, default=6)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    size = given.families, given.instances
    result = summarise(await work("off", *size), await work("review", *size))
    plain, _ = await control("off", *size)
    learning, proposals = await control("review", *size)
    result["control"] = {"tokens ratio": round(learning / plain, 4), "proposals": proposals}
    print(json.dumps({"bench": "procedures"} | result))


if __name__ == "__main__":
    trio.run(main)
