"""Effect of learned facts and preferences on jobs: turns, failed calls, corrections by the person.

Run: `python bench/effect.py [--instances N] [--minilm DIR]`

A family of jobs has a tool with one parameter, whose right value is what its person prefers or knows and no
tool tells (`_job_families.py`).  The agent is a script that takes values which its prompt names, in their
order, and otherwise the usual one.  When a job goes wrong, the person says what is right in words of
their own, and the agent does it again.  Every job is a session of its own, so only the memory carries
what was said.  Each run is reflected upon after its end.  The jobs of all families take turns and share one
principal: what was said about one is in the way of another.

With `--minilm` (a data directory that has it) the memory searches by meaning too; each job waits for
the vectors of what was stored.  Three modes: learning off; `auto` without a person; `review` with a person who accepts every proposal.
The controls are wishes for one job, after which the usual value is right again.

Prints one JSON line: means of a job from the third instance on, by kind and mode, and how many of the
families were right at once in all of these jobs.  A call that a person or a rule denied is no failed
call; no call of these jobs is.
"""

import argparse
import json
import logging
import os
import re
import shutil
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import structlog
import trio
from _job_families import CONTROLS, FAMILIES, Family
from runs import CALLER, daemon

from palyra.actors.kernel.threads import run_sync
from palyra.core.journal.records import Usage
from palyra.core.model.messages import (
    Delta,
    GuidanceMessage,
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
from palyra.models.minilm import files
from palyra.tools.toolbox import InlineTool
from palyra.wiring.host import new_id
from palyra.wiring.models import Modelset

TAUGHT = 2  # instances that teach
LOOK_S = 0.01
MOST_ROUNDS = 3  # messages of the person in one job
Mode = Literal["off", "auto", "review"]


class Agent:
    """`core.ports.LanguageModel` of an agent that knows what its prompt says."""

    name = provider = "scripted"

    def __init__(self) -> None:
        self.turns = 0
        self.family = FAMILIES[0]  # whose job it does

    def most_output(self, request: ModelRequest) -> int:  # noqa: ARG002, PLR6301 - the port
        """Return 0: there is no limit."""
        return 0

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:  # noqa: ARG002 - the port
        """Call the tool with the next value that the prompt names, or end the run."""
        await trio.lowlevel.checkpoint()
        self.turns += 1
        values = name_values(self.family, request)
        results = find_results(request)
        if len(results) == len(values) or any(each.status == "succeeded" for each in results):
            return ModelTurn(text="Done.", calls=(), finish_reason="stop", usage=Usage())
        call = ProposedCall(
            call_id=new_id("call"),
            tool=self.family.name,
            arguments={"value": values[len(results)]},
        )
        return ModelTurn(text="", calls=(call,), finish_reason="tool_calls", usage=Usage())


def name_values(family: Family, request: ModelRequest) -> list[str]:
    """Return the values to try: those that the prompt names, the last mention first, or the usual one."""
    messages = (
        each.text for each in request.messages if isinstance(each, UserMessage | GuidanceMessage)
    )
    text = "\n".join([request.instructions, *messages])
    places = {
        value: max(
            (each.end() for word in words for each in find_word(word, text)),
            default=-1,
        )
        for value, words in family.values.items()
    }
    named = sorted((value for value in places if places[value] >= 0), key=lambda v: -places[v])
    return named or [next(iter(family.values))]


def find_word(word: str, text: str) -> Sequence[re.Match[str]]:
    """Return the places of a whole word."""
    return list(re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE))


def find_results(request: ModelRequest) -> list[ToolMessage]:
    """Return the results since the last message of the person."""
    found: list[ToolMessage] = []
    for message in request.messages:
        if isinstance(message, UserMessage):
            found.clear()
        elif isinstance(message, ToolMessage):
            found.append(message)
    return found


@dataclass(slots=True)
class Job:
    """Cost of a job."""

    turns: int = 0
    failed: int = 0  # calls
    corrections: int = 0  # messages of the person beyond the first


class Desk:
    """A daemon, the tools, and the person."""

    def __init__(self, served: Daemon, agent: Agent, mode: Mode) -> None:
        self._served, self._agent, self._mode = served, agent, mode
        self.stored = 0

    async def perform_all(self, families: Sequence[Family], instances: int) -> dict[str, list[Job]]:
        """Do the jobs of all families in turns."""
        jobs: dict[str, list[Job]] = defaultdict(list)
        for instance in range(instances):
            for each in families:
                jobs[each.name].append(await self.perform(each, instance))
        return jobs

    async def perform(self, family: Family, instance: int) -> Job:
        """Do a job until its value is right."""
        is_wanted = family.kind != "once" or not instance
        right = family.wanted if is_wanted else next(iter(family.values))
        job, before = Job(), self._agent.turns
        self._agent.family = family
        text, session = family.requests[instance], f"{family.name}-{instance}"
        for round_ in range(MOST_ROUNDS):
            job.corrections += bool(round_)
            used, failed = await self._run(text, session)
            job.failed += failed
            if used == right:
                break
            text = family.said if is_wanted else f"No, {right} as usual."
        job.turns = self._agent.turns - before
        return job

    async def _run(self, text: str, session_key: str) -> tuple[str, int]:
        """Do one run and learn from it; return the last value and the number of failed calls."""
        gateway = self._served.gateway
        command = StartRun(text=text, session_key=session_key)
        run_id = (await gateway.start_run(CALLER, command)).run_id
        view, _ = await gateway.wait_run(CALLER, run_id, until="terminal", timeout_s=60)
        assert view.state == "done", f"{run_id} ended {view.state}: {view.reason}"
        used, failed = "", 0
        for row in self._served.journal.store.read_tape(run_id, after_seq=-1, limit=5_000).rows:
            if row.kind == "tool.proposed":
                used = msgspec.json.decode(row.data)["arguments"]["value"]
            elif row.kind == "tool.completed":
                failed += msgspec.json.decode(row.data)["status"] != "succeeded"
        if self._mode != "off":
            await self._learn(run_id)
        return used, failed

    async def _learn(self, run_id: str) -> None:
        learning = self._served.backend.learning
        done = await learning.reflect(run_id)
        self.stored += len(done.applied)
        for candidate_id in done.candidate_ids if self._mode == "review" else ():
            found = await learning.get(CALLER, candidate_id)
            if found.state == "proposed" and found.kind != "procedure":
                await learning.accept(CALLER, candidate_id)
                self.stored += 1
        memories = self._served.backend.memories
        while (await memories.count(CALLER, None)).without_vector:  # noqa: ASYNC110 - an actor's work
            await trio.sleep(LOOK_S)


def make_tool(family: Family) -> InlineTool:
    """Return the tool of a family; one that needs a fact refuses a wrong value."""

    def call(call: ToolCall) -> ToolOutput:
        value = call.arguments["value"]
        if family.kind == "fact" and value != family.wanted:
            raise ToolFailure(f"{value}: there is no such thing")
        return ToolOutput(text="ok")

    spec = ToolSpec(
        name=family.name,
        version="1",
        description=f"{family.name.replace('_', ' ')}.",
        parameters={
            "type": "object",
            "properties": {"value": {"type": "string"}},
            "required": ["value"],
            "additionalProperties": False,
        },
        tool_class="read_only_safe",
        risk="low",
    )
    return InlineTool(spec, call)


async def work(mode: Mode, instances: int, minilm: Path | None) -> tuple[dict[str, list[Job]], int]:
    """Return the jobs of each family in one mode, and the number of stored items."""
    families = (*FAMILIES, *CONTROLS)
    agent = Agent()
    with tempfile.TemporaryDirectory() as home:
        rules = Path(home) / "policies"
        rules.mkdir()
        if minilm is not None:
            shutil.copytree(files.folder(minilm), files.folder(Path(home) / "home"))
        rule = '@id("all")\npermit(principal, action == Action::"tool.execute", resource);'
        (rules / "all.cedar").write_text(rule, encoding="utf-8")
        async with daemon(
            Path(home),
            modelset=Modelset({"scripted": agent}, EmbeddedEmbeddings(run_sync)),
            tools=[make_tool(each) for each in families],
            settings={"learning.mode": mode, "policy.dir": str(rules)},
        ) as served:
            desk = Desk(served, agent, mode)
            jobs = await desk.perform_all(families, instances)
    return jobs, desk.stored


def summarise(jobs: dict[str, list[Job]], families: Sequence[Family]) -> dict[str, Any]:
    """Return the means of the jobs from the third instance on."""
    later = [job for each in families for job in jobs[each.name][TAUGHT:]]
    right = [each for each in families if not any(j.corrections for j in jobs[each.name][TAUGHT:])]
    return {
        "turns": round(statistics.fmean(job.turns for job in later), 2),
        "failed": round(statistics.fmean(job.failed for job in later), 2),
        "corrections": round(statistics.fmean(job.corrections for job in later), 2),
        "right at once": f"{len(right)} of {len(families)}",
    }


async def main() -> None:
    """Measure the modes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--instances", type=int, default=6, choices=range(TAUGHT + 1, 7))
    parser.add_argument("--minilm", type=Path, default=os.environ.get("PALYRA_MINILM"))
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    result: dict[str, Any] = {"bench": "effect"}
    modes: tuple[Mode, ...] = ("off", "auto", "review")
    for mode in modes:
        jobs, stored = await work(mode, given.instances, given.minilm)
        result[mode] = {
            "facts": summarise(jobs, [each for each in FAMILIES if each.kind == "fact"]),
            "preferences": summarise(jobs, [each for each in FAMILIES if each.kind != "fact"]),
            "controls": summarise(jobs, CONTROLS),
            "stored": stored,
        }
    print(json.dumps(result))


if __name__ == "__main__":
    trio.run(main)
