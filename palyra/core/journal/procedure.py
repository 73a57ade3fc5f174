"""Record of a procedure: its steps, its parameters, the runs that prove it, and how its uses ended."""

from typing import Any

import msgspec

MAX_USES = 20  # that are kept


class ProcedureStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call; `filled` names the parameter that gives each of its other arguments."""

    tool: str
    fixed: dict[str, Any] = {}
    filled: dict[str, str] = {}


class ProvedCall(msgspec.Struct, frozen=True, gc=False):
    """A call on a tape, by the number of its proposal."""

    run_id: str
    seq: int


class ProcedureProof(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A run that made the calls, and the values of the parameters in it.

    Calls of other runs are steps of a procedure that failed in this run.
    """

    run_id: str
    calls: tuple[ProvedCall, ...]
    values: dict[str, Any] = {}


class ProcedureUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One call of it; `use_id` names no run, so that a purge of the caller leaves the procedure."""

    use_id: str
    is_success: bool
    at_ms: int


class Procedure(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Calls that runs made alike.  `parameters` is the JSON schema of the arguments."""

    name: str
    steps: tuple[ProcedureStep, ...]
    parameters: dict[str, Any]
    proofs: tuple[ProcedureProof, ...]
    succeeded: int = 0  # uses
    failed: int = 0
    uses: tuple[ProcedureUse, ...] = ()  # the newest, in order
