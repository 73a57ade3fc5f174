"""Permission for a call to start: the rules, a person's answer, or a standing grant."""

from collections.abc import Callable
from typing import Any

from palyra.core.journal.records import GrantRecord
from palyra.core.journal.tape_row import TapeRow
from palyra.core.run.state import Run
from palyra.core.tape import events as ev
from tests.simulate.rules import unasked
from tests.simulate.tools import grant_key

Fail = Callable[[str, str], None]


class Consent:
    """Every grant there ever was, and whether it may speak for a call."""

    def __init__(self, fail: Fail) -> None:
        self._fail = fail
        self._grants: dict[str, GrantRecord] = {}
        self.spoke = 0  # calls that a grant let through
        self._count = 0  # of what was committed: clocks jump
        self._run_began: dict[str, int] = {}
        self._grant_ended: dict[str, int] = {}

    def run_begins(self, run_id: str) -> None:
        """Record that a run's first row is committed."""
        self._count += 1
        self._run_began[run_id] = self._count

    def take_grant(self, grant: GrantRecord) -> None:
        """A grant, or its end, is committed."""
        self._count += 1
        before = self._grants.get(grant.grant_id)
        if before is not None and before.ended_ms is not None and grant != before:
            self._fail("a grant ends once", grant.grant_id)
        self._grants[grant.grant_id] = grant
        if grant.ended_ms is not None:
            self._grant_ended[grant.grant_id] = self._count

    def check_start(
        self, run: Run, proposed: ev.ToolProposed, decided: ev.ToolDecided, before: TapeRow
    ) -> None:
        """Check a call that starts without an answer of its turn; `before` is the row before its verdict."""
        if decided.grant_id is not None:
            self._check_grant(run, proposed, decided.grant_id, before)
        elif proposed.tool not in unasked(decided.policy_version):
            self._fail("nothing starts that nobody allowed", f"{proposed.tool} {proposed.call_id}")

    def _check_grant(
        self, run: Run, proposed: ev.ToolProposed, grant_id: str, before: TapeRow
    ) -> None:
        grant, accepted = self._grants.get(grant_id), run.accepted
        if grant is None:
            self._fail("a grant is durable before it speaks", grant_id)
            return
        arguments: Any = proposed.arguments
        asked = (accepted.principal, accepted.agent, proposed.tool, grant_key(arguments))
        held = (grant.principal, grant.agent, grant.tool, grant.key)
        here = (accepted.session_id, accepted.epoch)
        is_elsewhere = grant.scope == "session" and here != (grant.session_id, grant.epoch)
        self.spoke += 1
        if asked != held or is_elsewhere or grant.decision != "allow":
            self._fail("a grant holds for its key", f"{grant_id}: {held} for {asked}, {here}")
        if grant.expires_ms is not None and before.at_ms >= grant.expires_ms:
            self._fail("a grant ends with its time", grant_id)
        ended = self._grant_ended.get(grant_id)
        if ended is not None and ended < self._run_began[run.run_id]:
            self._fail("a grant that was ended speaks no more", grant_id)
