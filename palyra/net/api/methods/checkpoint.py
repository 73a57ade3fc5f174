"""checkpoint.*: files before and after a change.  Only their owner restores them."""

from typing import Annotated

import msgspec

from palyra.core.tool.checkpoints import Checkpoint, CheckpointFilter, Restored, Side
from palyra.net.api.method import Id, Limit, Method, MethodCall, Mutation, cursor_of
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import CheckpointFile, CheckpointList, CheckpointView


class CheckpointListParams(Params, frozen=True, kw_only=True):
    """Newest first; `cursor` is the `next_cursor` of the page before."""

    session_id: Id | None = None
    run_id: Id | None = None
    limit: Limit = 100
    cursor: Annotated[str, cursor_of("ckp")] | None = None


class CheckpointRestore(Mutation, frozen=True, kw_only=True):
    """Restore the files of a change to their state before or after it."""

    checkpoint_id: Id
    to: Side = "before"
    force: bool = False


async def list_(call: MethodCall, params: CheckpointListParams) -> CheckpointList:
    wanted = CheckpointFilter(
        session_id=params.session_id,
        run_id=params.run_id,
        before=params.cursor,
        limit=params.limit,
    )
    found = await call.backend.files.list_checkpoints(call.caller, wanted)
    next_cursor = found[-1].checkpoint_id if len(found) == params.limit else None
    return CheckpointList(checkpoints=[_show(each) for each in found], next_cursor=next_cursor)


async def restore(call: MethodCall, params: CheckpointRestore) -> Restored:
    files = call.backend.files
    return await call.once(
        Restored,
        lambda: files.restore_checkpoint(
            call.caller, params.checkpoint_id, params.to, is_forced=params.force
        ),
    )


def _show(checkpoint: Checkpoint) -> CheckpointView:
    fields = msgspec.structs.asdict(checkpoint)
    fields["files"] = [
        CheckpointFile(
            path=file.path,
            before_sha256=None if file.before is None else file.before.sha256,
            after_sha256=None if file.after is None else file.after.sha256,
        )
        for file in checkpoint.files
    ]
    return CheckpointView(**fields)


METHODS = (
    Method(
        "checkpoint.list", CheckpointListParams, CheckpointList, "runs:read", list_, is_bulk=True
    ),
    Method("checkpoint.restore", CheckpointRestore, Restored, "runs:write", restore),
)
