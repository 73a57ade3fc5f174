"""Files of applied suggestions: one `suggested-ID.cedar` for each, among the user policies."""

import re
from collections.abc import Sequence
from pathlib import Path

from palyra.core.policy.views import AppliedSuggestion
from palyra.core.text.visible import visible
from palyra.errors import NotFound
from palyra.tools.policy.generated_files import read_generated, remove_generated, write_generated

_ORIGIN = re.compile(r"suggestion, applied at (\d{1,16}) ms")
_ID = re.compile(r"sug_[0-9a-f]{16}")


class SuggestedPolicyFiles:
    """`core.ports.SuggestedFiles` over the folder of user policies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def list_applied(self) -> list[AppliedSuggestion]:
        """Return the applied suggestions, the newest first (blocks).  Raises Unavailable."""
        found = [_read(path) for path in self._folder.glob("suggested-sug_*.cedar")]
        return sorted(found, key=lambda each: (each.applied_ms, each.suggestion_id), reverse=True)

    def apply(
        self, suggestion_id: str, cedar: str, notes: Sequence[str], at_ms: int
    ) -> AppliedSuggestion:
        """Write the rule durably, or nothing (blocks).  Raises Conflict, Unavailable."""
        path = self._path(suggestion_id)
        body = "".join(f"// {visible(note)}\n" for note in notes) + cedar
        origin = f"suggestion, applied at {at_ms} ms"
        write_generated(path, origin, body, exists=f"{suggestion_id} is applied already: {path}")
        return _read(path)

    def undo(self, suggestion_id: str | None) -> AppliedSuggestion:
        """Remove the file of a suggestion, by default of the newest (blocks).

        Raises NotFound, Unavailable, Conflict for a file that was edited since.
        """
        applied = self.list_applied()
        wanted = [each for each in applied if suggestion_id in {None, each.suggestion_id}]
        if not wanted:
            none = (
                f"{suggestion_id} is not applied" if suggestion_id else "no suggestion is applied"
            )
            raise NotFound(
                f"{none}; `palyra policy suggest` lists those that are", field="suggestion_id"
            )
        remove_generated(self._path(wanted[0].suggestion_id), _ORIGIN)
        return wanted[0]

    def _path(self, suggestion_id: str) -> Path:
        if _ID.fullmatch(suggestion_id) is None:
            raise NotFound(f"{suggestion_id!r} is no id of a suggestion", field="suggestion_id")
        return self._folder / f"suggested-{suggestion_id}.cedar"


def _read(path: Path) -> AppliedSuggestion:
    found = read_generated(path, _ORIGIN)
    return AppliedSuggestion(
        suggestion_id=path.stem.removeprefix("suggested-"),
        file=str(path),
        cedar=found.body,
        applied_ms=int(found.origin[1]) if found.origin else 0,
        is_edited=found.is_edited,
    )
