"""Files of the workspace documents: read, replaced atomically, each change with a checkpoint.

The files are configuration to every tool, so no model writes them: an entry that is found in one
was written by the daemon or by a person.  All functions block.
"""

import errno
from dataclasses import dataclass

from palyra.core.memory.documents import DOCUMENTS, MAX_DOCUMENT_BYTES
from palyra.core.text.visible import visible
from palyra.core.tool.checkpoints import CheckpointFilter, Content
from palyra.core.tool.spec import ToolFailure
from palyra.errors import Conflict, IllegalState, PalyraError, Unavailable
from palyra.tools.files.changes import ChangedMeanwhile, Changes
from palyra.tools.files.checkpoints import Checkpoints
from palyra.tools.files.workspace import Workspace

_NO_ROOM = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM}
)
_ALL = 1_000_000  # checkpoints


@dataclass(frozen=True, slots=True)
class WorkspaceDocuments:
    """`core.ports.DocumentFiles` in a workspace."""

    files: Workspace
    checkpoints: Checkpoints

    @property
    def workspace(self) -> str:
        """Absolute path of the workspace."""
        return str(self.files.root)

    def read(self, document: str) -> bytes | None:
        """Return the content, None for no file.  Raises IllegalState, Unavailable."""
        try:
            found = self._changes().look(document)
        except ToolFailure as failure:
            raise _refused(failure) from None
        return None if found is None else found.data

    def write(self, document: str, before: bytes | None, after: bytes, by: str) -> str:
        """Replace the content; see `core.ports.DocumentFiles`."""
        changes = self._changes()
        kept: list[str] = []
        try:
            found = changes.look(document)
            if (None if found is None else found.data) != before:
                raise Conflict(f"{visible(document)} was changed by another program")
            content = Content(after, None if found is None else found.mode)
            changes.make({document: content}, self.checkpoints.keep_for_document(by, kept))
        except ChangedMeanwhile as failure:
            raise Conflict(failure.message) from None
        except ToolFailure as failure:
            raise _refused(failure) from None
        return kept[0]

    def forget(self, document: str, texts: tuple[str, ...]) -> int:
        """Delete the document's checkpoints that have one of these texts; return their number.

        A checkpoint whose contents are damaged may have a text and restores nothing: it is deleted
        as well.  Raises Unavailable.
        """
        wanted = [text.encode() for text in texts]
        store = self.checkpoints.store
        deleted = 0
        store.drop_damaged()
        for each in store.list(CheckpointFilter(limit=_ALL)):
            is_own = each.workspace == self.workspace
            if not is_own or all(file.path != document for file in each.files):
                continue
            try:
                contents = store.contents(each.checkpoint_id).values()
            except Unavailable:
                contents = None
            if contents is None or any(text in data for data in contents for text in wanted):
                store.drop(each.checkpoint_id)
                deleted += 1
        return deleted

    def _changes(self) -> Changes:
        return Changes(
            self.files, MAX_DOCUMENT_BYTES, documents=frozenset(DOCUMENTS), compares_content=True
        )


def _refused(failure: ToolFailure) -> PalyraError:
    """Return the error for clients: for a disk that takes nothing, or for a file that is in the way."""
    cause = failure.__cause__ or failure.__context__
    is_passing = isinstance(cause, Unavailable) or (
        isinstance(cause, OSError) and cause.errno in _NO_ROOM
    )
    return (Unavailable if is_passing else IllegalState)(failure.message)
