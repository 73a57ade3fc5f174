"""Results and plans, for the tests of what keeps and counts them."""

from pathlib import Path
from typing import Any

import msgspec

from palyra.harness.outcome import CaseResult
from palyra.harness.results import BenchPlan

PLAN = BenchPlan(
    file_sha256="f" * 64, model=None, approval="deny", seed=0, daemon="own", scripts_sha256=None
)
FILE = Path("cases.jsonl")


def result(case_id: str = "a", **given: Any) -> CaseResult:
    """A result; one with a run id has a tape of five bytes."""
    plain = CaseResult(id=case_id, repeat=0, seed=0, run_id=f"run_{case_id}", state="done")
    return msgspec.structs.replace(plain, **{"tape_bytes": 5, **given})
