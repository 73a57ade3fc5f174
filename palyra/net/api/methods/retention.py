"""retention.*: bounds in age and size of what the daemon keeps, for operators."""

from typing import Annotated

import msgspec

from palyra.core.journal.retention import CompactionReport, RetentionReport
from palyra.net.api.method import Method, MethodCall, Mutation
from palyra.net.protocol.params import NoParams

Most = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class RetentionApply(Mutation, frozen=True, kw_only=True):
    """Remove what is over the bounds of [retention], without what is in use."""

    max_runs: Most | None = None  # tapes to prune; None: all


class RetentionCompact(Mutation, frozen=True, kw_only=True):
    """Return free pages of the database file to the file system."""

    max_steps: Most | None = None  # of 1 MiB; None: all


async def preview(call: MethodCall, _params: NoParams) -> RetentionReport:
    return await call.backend.retention.preview(call.caller)


async def apply(call: MethodCall, params: RetentionApply) -> RetentionReport:
    retention = call.backend.retention
    return await call.once(
        RetentionReport, lambda: retention.apply(call.caller, max_runs=params.max_runs)
    )


async def compact(call: MethodCall, params: RetentionCompact) -> CompactionReport:
    retention = call.backend.retention
    return await call.once(
        CompactionReport, lambda: retention.compact(call.caller, max_steps=params.max_steps)
    )


METHODS = (
    Method(
        "retention.preview", NoParams, RetentionReport, "retention:write", preview, is_read=True
    ),
    Method("retention.apply", RetentionApply, RetentionReport, "retention:write", apply),
    Method("retention.compact", RetentionCompact, CompactionReport, "retention:write", compact),
)
