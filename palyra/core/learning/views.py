"""Results of learning, as the service returns them."""

import msgspec

from palyra.core.journal.records import CandidateState


class Reflected(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of reading a run."""

    run_id: str
    is_new: bool  # False: the run had been read before
    is_tainted: bool = False  # a text from outside: nothing of it is applied by itself
    candidate_ids: tuple[str, ...] = ()  # new ones, and those that got more evidence
    applied: tuple[str, ...] = ()  # by itself, in this reading
    refused: dict[str, int] = {}  # number of statements by reason


class CandidateChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of a change of one candidate."""

    candidate_id: str
    state: CandidateState
    revision: int
    memory_id: str | None = None  # the item that shows it
