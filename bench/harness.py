"""Throughput of `palyra bench run`: cases per second, 50 concurrent, one tool call each.

Prints one JSON line.  The harness and its daemon run in separate processes.  Each case is three
requests (start, wait, export), two model turns, one tool call, a result and a tape on disk.
`of_daemon` covers the time with open runs, first acceptance to last end; `whole` also includes the
start of both processes and the drain.  Medians of several rounds.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _machine import calibrate

CASES = 400
AT_ONCE = (1, 50, 200)
ROUNDS = 3
TEXT = '/call echo {"text": "hello"}'


def write_cases(directory: Path) -> Path:
    path = directory / "cases.jsonl"
    lines = [json.dumps({"id": f"c{number}", "text": TEXT}) for number in range(CASES)]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def measure(cases: Path, out: Path, at_once: int) -> tuple[float, float]:
    """Return cases per second while the daemon had open runs, and from start to exit."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith("PALYRA_")}
    command = [sys.executable, "-m", "palyra", "--json", "--home", str(out.parent / "nobody")]
    arguments = ["bench", "run", str(cases), "--out", str(out), "--concurrency", str(at_once)]
    began = time.perf_counter()
    ran = subprocess.run(
        [*command, *arguments], env=kept, check=True, capture_output=True, cwd=out.parent
    )
    took_s = time.perf_counter() - began
    summary = json.loads(ran.stdout)
    assert summary["is_complete"]
    return summary["results"] / (summary["span_ms"] / 1e3), summary["results"] / took_s


def main() -> None:
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="palyra-bench-") as name:
        directory = Path(name)
        cases = write_cases(directory)
        for at_once in AT_ONCE:
            rounds = [
                measure(cases, directory / f"out-{at_once}-{number}", at_once)
                for number in range(ROUNDS)
            ]
            of_daemon, whole = zip(*rounds, strict=True)
            figures[str(at_once)] = {
                "of_daemon_per_s": round(statistics.median(of_daemon), 1),
                "whole_per_s": round(statistics.median(whole), 1),
            }
    result = {
        "bench": "harness",
        "cases": CASES,
        "at_once": figures,
        "calibration_ms": calibrate(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
