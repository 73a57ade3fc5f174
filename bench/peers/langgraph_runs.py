"""The same run on LangGraph with its SQLite saver: two model turns and one tool, instant model.

A peer for `bench/runs.py`, to be run right before or after it on the same machine.  Needs packages
that the project does not: python3 -m venv /tmp/peer && /tmp/peer/bin/pip install langgraph
langgraph-checkpoint-sqlite, then /tmp/peer/bin/python bench/peers/langgraph_runs.py.  No gate, no
approval, no attestation, no hash chain; SQLite with its saver's own settings, durability "sync".
"""

import asyncio
import json
import operator
import platform
import statistics
import tempfile
import time
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

RUNS = {1: 60, 100: 300}
ROUNDS = 3


class State(TypedDict):
    messages: Annotated[list[dict[str, Any]], operator.add]


async def model(state: State) -> dict[str, Any]:
    """Calls the tool first, then answers."""
    if any(message["role"] == "tool" for message in state["messages"]):
        return {"messages": [{"role": "assistant", "text": "done"}]}
    return {"messages": [{"role": "assistant", "text": "", "call": {"text": "hello"}}]}


async def tool(state: State) -> dict[str, Any]:
    return {"messages": [{"role": "tool", "text": state["messages"][-1]["call"]["text"]}]}


def after_model(state: State) -> str:
    return "tool" if "call" in state["messages"][-1] else END


def build() -> StateGraph:
    graph = StateGraph(State)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", after_model, {"tool": "tool", END: END})
    graph.add_edge("tool", "model")
    return graph


async def one_round(concurrency: int, total: int) -> dict[str, float]:
    took_ms: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncSqliteSaver.from_conn_string(str(Path(folder, "peer.db"))) as saver:
            app = build().compile(checkpointer=saver)

            async def one_run() -> None:
                began = time.perf_counter()
                config = {"configurable": {"thread_id": str(uuid.uuid4())}}
                first = {"messages": [{"role": "user", "text": "hello"}]}
                result = await app.ainvoke(first, config, durability="sync")
                assert result["messages"][-1]["text"] == "done"
                took_ms.append((time.perf_counter() - began) * 1e3)

            async def worker() -> None:
                for _ in range(total // concurrency):
                    await one_run()

            await one_run()
            took_ms.clear()
            began = time.perf_counter()
            await asyncio.gather(*(worker() for _ in range(concurrency)))
            elapsed = time.perf_counter() - began
    return {"runs_per_s": len(took_ms) / elapsed, "p50_ms": statistics.median(took_ms)}


async def main() -> None:
    results: dict[str, Any] = {}
    for concurrency, total in RUNS.items():
        rounds = [await one_round(concurrency, total) for _ in range(ROUNDS)]
        results[str(concurrency)] = {
            key: round(statistics.median(r[key] for r in rounds), 2) for key in rounds[0]
        }
    packages = {name: version(name) for name in ("langgraph", "langgraph-checkpoint-sqlite")}
    print(
        json.dumps(
            {
                "bench": "peer_langgraph",
                "in_process": results,
                "python": platform.python_version(),
                **packages,
            }
        )
    )


asyncio.run(main())
