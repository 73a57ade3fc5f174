"""Suggested rules: read the recorded decisions, try candidates on all of them, apply and undo.

Talks to: the journal (tapes), the gate, the rules, the files of applied suggestions (ports).
Never: puts a rule in force itself.  A file is written or removed; the watch of the policies reloads
it like any other, with its log line, its incident if it is broken, and a new look at open questions.
Everything long runs in threads, in pages, one request at a time.  Restart: nothing to restore.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec
import structlog

from palyra.core.access import Caller
from palyra.core.journal.changes import RunFilter
from palyra.core.policy.recorded import PolicyEvidence, find_asked, read_calls
from palyra.core.policy.suggestion import (
    MIN_ANSWERS,
    RuleCandidate,
    as_proof,
    as_suggestion,
    choose,
    exact_candidate,
    find_candidates,
    trials,
    why_not_offered,
)
from palyra.core.policy.views import AppliedSuggestion, Proof, RuleFor, SuggestionList
from palyra.core.ports import (
    Journal,
    JournalStore,
    NowMs,
    PolicyTrial,
    RunBlocking,
    SuggestedFiles,
)
from palyra.errors import IllegalState, NotFound, Overloaded, TooLarge
from palyra.services.policy.gate import Gate
from palyra.services.tape.pins import read_rows

log = structlog.get_logger("palyra.policy")

PAGE_RUNS = 50
MAX_RUNS = 20_000  # some 10 s of reading
MAX_CALLS = 50_000  # about 1 KB each while they are compared
_BATCH = 100  # candidates that the engine tries together


class RecordedDecisions(msgspec.Struct):
    """Recorded decisions of all tapes, and counts of those that are not usable."""

    evidence: list[PolicyEvidence]
    lost: set[str]  # tools with a call that cannot be evaluated any more
    unreadable: int = 0
    purged_runs: int = 0


class RuleSuggestions:
    """Suggested rules.  Every method takes the authenticated caller first."""

    def __init__(
        self,
        journal: Journal,
        gate: Gate,
        policy: PolicyTrial,
        files: SuggestedFiles,
        *,
        run_blocking: RunBlocking,
        now_ms: NowMs,
    ) -> None:
        self._journal = journal
        self._gate = gate
        self._policy = policy
        self._files = files
        self._run_blocking = run_blocking
        self._now_ms = now_ms
        self._is_busy = False

    async def suggest(
        self, caller: Caller, min_answers: int = MIN_ANSWERS, *, with_folders: bool = False
    ) -> SuggestionList:
        """Return the rules that the recorded answers speak for, with the proof.

        Raises Overloaded while another request reads the tapes, IllegalState while the user policies
        are broken, TooLarge for more decisions than can be compared.  Cancellation: nothing happened.
        """
        caller.require("policies:read")
        with self._exclusive():
            found, proof = await self._find(min_answers, with_folders=with_folders)
        return SuggestionList(
            suggestions=tuple(map(as_suggestion, found)),
            proof=proof,
            applied=tuple(await self._run_blocking(self._files.list_applied)),
        )

    async def apply(
        self,
        caller: Caller,
        suggestion_id: str,
        min_answers: int = MIN_ANSWERS,
        *,
        with_folders: bool = False,
    ) -> AppliedSuggestion:
        """Write a suggested rule to a file of its own, after a new proof; it is in force within seconds.

        Raises NotFound for a rule that is not suggested any more, Conflict, Unavailable, and the
        errors of `suggest`.  Cancellation: the file may have been written.
        """
        caller.require("policies:write")
        with self._exclusive():
            found, proof = await self._find(min_answers, with_folders=with_folders)
            candidate = next((each for each in found if each.suggestion_id == suggestion_id), None)
            if candidate is None:
                raise NotFound(
                    f"{suggestion_id!r} is not suggested now; policy.suggest lists what is",
                    field="suggestion_id",
                )
            shown = as_suggestion(candidate)
            notes = [
                shown.title,
                f"{shown.answers} answers in {shown.runs} runs; applied by {caller.principal}",
                f"compared with {proof.decisions} recorded decisions",
                *(f"{call.run_id} {call.call_id}" for call in shown.calls),
            ]
            applied = await self._run_blocking(
                partial(self._files.apply, suggestion_id, candidate.cedar, notes, self._now_ms())
            )
        log.info("suggestion applied", suggestion_id=suggestion_id, by=caller.principal)
        return applied

    async def rule_for(self, caller: Caller, approval_id: str, *, writes: bool = False) -> RuleFor:
        """Return the narrowest rule for the call of an approval with its reach; `writes` puts it in a file.

        A rule that would have allowed a call that a person denied is refused, with the reason.
        Raises NotFound, Conflict for a rule that is applied already, Unavailable, and the errors of
        `suggest`.  Cancellation: the file may have been written.
        """
        caller.require("policies:write")
        with self._exclusive():
            self._check_policies()
            call = await self._journal.read(partial(self._read_asked, caller, approval_id))
            if call is None:
                refused = "the tool of this call was removed or changed: propose the call again"
                return RuleFor(approval_id=approval_id, refused=refused)
            if refused := why_not_offered(call):
                return RuleFor(approval_id=approval_id, refused=refused)
            history = await self._read()
            found = await self._run_blocking(
                partial(decide_rule, self._policy, history.evidence, approval_id, call)
            )
            if found.refused or not writes:
                return found
            notes = [
                found.title,
                f"for {approval_id}; written by {caller.principal}",
                f"would have allowed {found.calls} recorded calls",
            ]
            applied = await self._run_blocking(
                partial(self._files.apply, found.suggestion_id, found.cedar, notes, self._now_ms())
            )
        log.info("rule of a call applied", approval_id=approval_id, by=caller.principal)
        return msgspec.structs.replace(found, file=applied.file)

    def _read_asked(
        self, caller: Caller, approval_id: str, store: JournalStore
    ) -> PolicyEvidence | None:
        """Return the call of an approval as the rules see it.  Blocks.  Raises NotFound."""
        record = store.find_approval(approval_id)
        run = None if record is None else store.find_run(record.run_id)
        if record is None or run is None or not caller.sees(record.principal):
            raise NotFound(f"no approval {approval_id!r}", field="approval_id")
        if not record.call_id:
            raise NotFound(f"{approval_id} is about no call", field="approval_id")
        rows = read_rows(store, record.run_id, run.head_seq)
        call = find_asked(record, rows)
        return None if call is None else self._gate.read_recorded(call)

    def _check_policies(self) -> None:
        if self._policy.problems:
            raise IllegalState(f"the user policies are broken: {self._policy.problems[0]}")

    async def undo(self, caller: Caller, suggestion_id: str | None = None) -> AppliedSuggestion:
        """Remove the file of an applied suggestion, by default of the newest.

        Raises NotFound, Conflict for a file that was edited since, Unavailable.
        Cancellation: the file may have been removed.
        """
        caller.require("policies:write")
        undone = await self._run_blocking(partial(self._files.undo, suggestion_id))
        log.info("suggestion undone", suggestion_id=undone.suggestion_id, by=caller.principal)
        return undone

    @contextmanager
    def _exclusive(self) -> Generator[None]:
        if self._is_busy:
            raise Overloaded("the recorded decisions are being read already", retry_after_ms=2_000)
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    async def _find(
        self, min_answers: int, *, with_folders: bool
    ) -> tuple[list[RuleCandidate], Proof]:
        self._check_policies()
        history = await self._read()
        return await self._run_blocking(
            partial(
                decide_suggestions, self._policy, history, min_answers, with_folders=with_folders
            )
        )

    async def _read(self) -> RecordedDecisions:
        history = RecordedDecisions([], set())
        before: str | None = None
        runs = 0
        while True:
            before, count = await self._journal.read(partial(self._read_page, history, before))
            runs += count
            if before is None:
                return history
            if runs > MAX_RUNS or len(history.evidence) > MAX_CALLS:
                raise TooLarge(
                    f"{runs} runs with {len(history.evidence)} decisions are recorded; at most "
                    f"{MAX_RUNS} and {MAX_CALLS} are compared, and less proves nothing"
                )

    def _read_page(
        self, history: RecordedDecisions, before: str | None, store: JournalStore
    ) -> tuple[str | None, int]:
        """Add the calls of one page of runs; return the last run, None if there are no more.  Blocks."""
        found = store.list_runs(RunFilter(before=before, limit=PAGE_RUNS))
        for record in found:
            calls, is_purged = read_calls(
                record.run_id, read_rows(store, record.run_id, record.head_seq)
            )
            history.purged_runs += is_purged
            for call in calls:
                evidence = self._gate.read_recorded(call)
                if evidence is not None:
                    history.evidence.append(evidence)
                elif not call.is_rejected:
                    history.unreadable += 1
                    history.lost.add(call.tool)
        return (found[-1].run_id if len(found) == PAGE_RUNS else None), len(found)


def decide_suggestions(
    policy: PolicyTrial, history: RecordedDecisions, min_answers: int, *, with_folders: bool = False
) -> tuple[list[RuleCandidate], Proof]:
    """Return the rules to suggest and the proof.  Blocks."""
    candidates = [
        each
        for each in find_candidates(
            history.evidence, min_answers=min_answers, with_folders=with_folders
        )
        if each.shape.tool not in history.lost
    ]
    current = policy.with_rules([])  # of its own: the gate's is used by one thread
    candidates = [each for each in candidates if _asks_now(current, each)]
    wrong = find_wrong(policy, history.evidence, candidates)
    chosen = choose(candidates, lambda name: name not in wrong, min_answers=min_answers)
    trial = policy.with_rules([each.cedar for each in chosen])
    if trial.problems:
        raise IllegalState(f"the suggested rules cannot be added: {trial.problems[0]}")
    chosen = [each for each in chosen if _is_allowed(trial, each)]
    proof = as_proof(
        history.evidence,
        unreadable=history.unreadable,
        purged_runs=history.purged_runs,
        refused=len(wrong),
    )
    return chosen, proof


def decide_rule(
    policy: PolicyTrial, evidence: Sequence[PolicyEvidence], approval_id: str, call: PolicyEvidence
) -> RuleFor:
    """Return the narrowest rule for a call with its reach, or why it is refused.  Blocks."""
    candidate = exact_candidate(call)
    others = [each for each in evidence if each.call_id != call.call_id]
    denied = [each for each in others if each.decided == "denied" and not each.request.is_tainted]
    trial = policy.with_rules([candidate.cedar])
    refused = ""
    if find_wrong(policy, denied, [candidate]):
        refused = "a person denied a call that this rule would allow: answer each such call once"
    elif policy.with_rules([]).decide(call.request).answer == "allow":
        refused = "the rules allow this call already: nothing to write"
    elif trial.problems or trial.decide(call.request).answer != "allow":
        refused = "another rule forbids this call or asks about it: palyra policy explain names it"
    if refused:
        return RuleFor(approval_id=approval_id, refused=refused)
    asked = [msgspec.structs.replace(each.request, approval="none") for each in others]
    permits = policy.find_permits([candidate.cedar], asked)
    reached = [each for each, found in zip(others, permits, strict=True) if found]
    shown = as_suggestion(msgspec.structs.replace(candidate, calls=tuple(reached)))
    return RuleFor(
        approval_id=approval_id,
        suggestion_id=candidate.suggestion_id,
        title=candidate.title,
        cedar=candidate.cedar,
        reach=shown.calls,
        calls=len(reached),
        asked=sum(each.was_asked for each in reached),
    )


def _asks_now(policy: PolicyTrial, candidate: RuleCandidate) -> bool:
    """True if the rules in force ask about the call that speaks for the candidate last."""
    return policy.decide(candidate.calls[-1].request).answer == "ask"


def _is_allowed(policy: PolicyTrial, candidate: RuleCandidate) -> bool:
    """True if no other rule keeps the candidate from giving the answers."""
    return all(policy.decide(call.request).answer == "allow" for call in candidate.calls)


def find_wrong(
    policy: PolicyTrial, evidence: Sequence[PolicyEvidence], candidates: Sequence[RuleCandidate]
) -> set[str]:
    """Return the ids of the candidates that would allow a call that no person allowed.

    A candidate that does not allow one of its own calls is not what its evidence says, and counts, too.
    """
    wrong: set[str] = set()
    asked = trials(evidence, candidates)
    for start in range(0, len(candidates), _BATCH):
        batch = candidates[start : start + _BATCH]
        rules = [each.cedar for each in batch]
        for permits, is_wrong in zip(
            policy.find_permits(rules, asked), asked.values(), strict=True
        ):
            if is_wrong:
                wrong |= permits
    return wrong
