"""Typed methods about learning."""

from collections.abc import Sequence

from palyra.client.requests import RequestMethods
from palyra.core.journal.records import CandidateKind, CandidateState
from palyra.core.learning.views import CandidateChanged, Reflected
from palyra.net.protocol.results import CandidatePage, LearningCandidate


class LearningMethods(RequestMethods):
    """Review what runs taught."""

    async def list_candidates(
        self,
        *,
        states: Sequence[CandidateState] = ("proposed",),
        kinds: Sequence[CandidateKind] = (),
        limit: int = 100,
        cursor: str | None = None,
        principal: str | None = None,
    ) -> CandidatePage:
        """Return a page, newest first; `cursor` is the `next_cursor` of the page before."""
        params = {
            "states": list(states), "kinds": list(kinds), "limit": limit, "cursor": cursor,
            "principal": principal,
        }  # fmt: skip
        return await self._ask("learning.list", params, CandidatePage)

    async def get_candidate(self, candidate_id: str) -> LearningCandidate:
        """Return a candidate of learning with its history.  Raises NotFound."""
        return await self._ask("learning.get", {"candidate_id": candidate_id}, LearningCandidate)

    async def accept_candidate(self, candidate_id: str) -> CandidateChanged:
        """Make a candidate an item of memory."""
        return await self._mutate(
            "learning.accept", {"candidate_id": candidate_id}, CandidateChanged
        )

    async def reject_candidate(self, candidate_id: str) -> CandidateChanged:
        """Refuse a candidate; it is not proposed again."""
        return await self._mutate(
            "learning.reject", {"candidate_id": candidate_id}, CandidateChanged
        )

    async def edit_candidate(
        self, candidate_id: str, text: str | None = None, *, name: str | None = None
    ) -> CandidateChanged:
        """Change the text that a candidate would store, or the name of a procedure."""
        params = {"candidate_id": candidate_id, "text": text, "name": name}
        return await self._mutate("learning.edit", params, CandidateChanged)

    async def undo_candidate(self, candidate_id: str) -> CandidateChanged:
        """Take back an application or a rejection."""
        return await self._mutate("learning.undo", {"candidate_id": candidate_id}, CandidateChanged)

    async def reflect(self, run_id: str) -> Reflected:
        """Read a run that ended.  A run is read once; repeat the request after a lost reply."""
        return await self._ask("learning.reflect", {"run_id": run_id}, Reflected)
