"""The gate of one call: median time of each part and of the whole, as one JSON line.

Run: `python bench/gate.py [--calls N]`.  One thread, no journal; the rules are the shipped ones,
the call is a `read_file` with one coercion.  The asking path adds rendering and the execution
digest.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

from palyra.core.attest import FIRST, Attestation, attestation_bytes, attestation_digest
from palyra.core.execution import execution_digest
from palyra.core.gate import (
    Admitted,
    Allow,
    NeedsApproval,
    RunFacts,
    admit,
    judge,
    policy_request,
    tool_call,
)
from palyra.core.policy import PolicyDecision
from palyra.core.prompt import ProposedCall
from palyra.core.tools import build_catalogue
from palyra.tools.files import list_dir_spec, read_file_spec, write_file_spec
from palyra.tools.policy import CedarPolicy

CATALOGUE = build_catalogue(
    spec("openat2") for spec in (read_file_spec, list_dir_spec, write_file_spec)
)
FACTS = RunFacts(
    run_id="run_01890a5d-ac96-774b-bcce-b302099a8057",
    session_id="ses_01890a5d-ac96-774b-bcce-b302099a8058",
    principal="operator",
    role="operator",
    agent="default",
)
READ = ProposedCall(
    call_id="call_01890a5d-ac96-774b-bcce-b302099a8059",
    tool="read_file",
    arguments={"path": "palyra/core/gate.py", "offset": "25", "limit": 200},
)
WRITE = ProposedCall(
    call_id="call_01890a5d-ac96-774b-bcce-b302099a805a",
    tool="write_file",
    arguments={"path": "notes.md", "content": "A line of some length.\n" * 40},
)
ATTESTATION = Attestation(
    call_id=READ.call_id,
    tool="read_file",
    arguments_sha256="a" * 64,
    output_sha256="b" * 64,
    raw_output_sha256="c" * 64,
    status="succeeded",
    executor="thread",
    enforcement="openat2",
    policy_hash="d" * 64,
    started_ms=1_700_000_000_000,
    finished_ms=1_700_000_000_007,
    prev=FIRST,
)
POLICY = CedarPolicy()


def admitted(call: ProposedCall) -> Admitted:
    """The call after intake."""
    found = admit(call, CATALOGUE)
    assert isinstance(found, Admitted)
    return found


def decide(call: Admitted) -> PolicyDecision:
    """The rules' answer."""
    return POLICY.decide(policy_request(call, FACTS))


def allowed() -> None:
    """The whole gate of a call that may run."""
    call = admitted(READ)
    assert isinstance(judge(call, FACTS, decide(call)), Allow)
    execution_digest(tool_call(call, FACTS), POLICY.version)


def asked() -> None:
    """The whole gate of a call that a person is asked about."""
    call = admitted(WRITE)
    assert isinstance(judge(call, FACTS, decide(call)), NeedsApproval)
    execution_digest(tool_call(call, FACTS), POLICY.version)


def p50_us(action: Callable[[], object], calls: int) -> float:
    """Median time of one call, in microseconds."""
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        action()
        times.append(time.perf_counter_ns() - start)
    return round(statistics.median(times) / 1000, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    calls = parser.parse_args().calls
    read = admitted(READ)
    call = tool_call(read, FACTS)
    parts: dict[str, Callable[[], object]] = {
        "intake": lambda: admit(READ, CATALOGUE),
        "decide": lambda: decide(read),
        "digest": lambda: execution_digest(call, POLICY.version),
        "attestation": lambda: attestation_digest(attestation_bytes(ATTESTATION)),
        "gate_allow": allowed,
        "gate_ask": asked,
    }
    for action in parts.values():
        p50_us(action, calls // 10)  # warm caches
    result = {f"{name}_p50_us": p50_us(action, calls) for name, action in parts.items()}
    print(json.dumps({"bench": "gate", "calls": calls, **result}))


if __name__ == "__main__":
    main()
