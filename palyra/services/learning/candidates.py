"""Learning: read runs that ended, keep candidates, apply and take back what was learned.

Owns: nothing that a restart would lose; candidates are records of the journal.
Talks to: the journal; the memory, whose items show applied candidates; the workspace documents; a
model that reads as well, within budgets.
Never: stores a statement without its words on the tape, applies text of a tainted run or a model's
claim by itself, or learns what a recall gave to the same session.

A run is read once.  Its candidates and the proof of the reading are one change; applications follow,
each one change with its item of memory, so a crash leaves a candidate that waits for review.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal
from weakref import WeakValueDictionary

import msgspec
import structlog
import trio

from palyra.core.access import Caller
from palyra.core.context.corrections import find_taken_back, takes_back
from palyra.core.context.quoted import MAYBE_BPS
from palyra.core.context.statements import Statement, read_user
from palyra.core.ids import NewId
from palyra.core.incident.incident import IncidentReport
from palyra.core.incident.kinds import reflections_key, reflections_skipped
from palyra.core.journal.changes import CandidateFilter, Change, MemoryFilter, MemoryPlace
from palyra.core.journal.records import (
    CallOutcome,
    CandidateChange,
    CandidateRecord,
    Evidence,
    Lineage,
    MemoryKind,
    MemoryRecord,
    Record,
    ReflectionRecord,
    TaskRecord,
    Usage,
    UsageRecord,
)
from palyra.core.learning.candidates import (
    FULL_BPS,
    LearningRules,
    has_doubt,
    is_reviewable,
    is_sampled,
    key_of,
    may_apply,
    see_again,
    step,
)
from palyra.core.learning.extraction import Found, Reading, RunTexts, extract, only_kept, read_texts
from palyra.core.learning.junk import find_junk
from palyra.core.learning.reader import (
    MAX_ANSWER_TOKENS,
    READER_INSTRUCTIONS,
    Stored,
    join_claims,
    reader_prompt,
    refused_also,
)
from palyra.core.learning.views import CandidateChanged, Reflected
from palyra.core.memory.items import MemoryAdded, MemoryDraft, check_text, hash_text
from palyra.core.model.messages import Delta, ModelFailure, ModelRequest, Sampling, UserMessage
from palyra.core.ports import (
    IncidentReporter,
    Journal,
    JournalStore,
    LanguageModel,
    NowMs,
    RunBlocking,
)
from palyra.core.redaction.redactor import Redactor
from palyra.core.run.state import COMPACTION, Run
from palyra.core.tape.events import Event, decode_event
from palyra.core.task.life import MAX_OPEN_OWN, PRIORITIES, Submission, submit
from palyra.core.text.tokens import estimate_tokens
from palyra.core.trust.labels import is_from_outside
from palyra.core.usage.budgets import Payer
from palyra.errors import IllegalState, InvalidParams, NotFound, PalyraError
from palyra.services.learning.procedures import Procedures
from palyra.services.memory.documents import Documents
from palyra.services.memory.items import Memories
from palyra.services.memory.search import READ, WRITE, whose_memory
from palyra.services.usage.budgets import Budgets, Reservation

log = structlog.get_logger("palyra.learning")
PAGE_ROWS = 1_000
MAX_SESSIONS = 10_000  # whose cool-down is remembered; without it a session is read at once
MAX_SKIPPED = 20_000  # runs of a principal that wait for room; of more the oldest is left out
EXPIRES_MS = 7 * 24 * 3_600_000  # of a reflection; a run of last week teaches little
MAX_ROWS = 20_000  # of one run
MODEL_DEADLINE_S = 60.0
MAX_STORED = 12  # items that a model may call untrue
STORED_QUERY_CHARS = 2_000  # of the messages, by which they are found
LEARNED_DOCUMENT, LEARNED_BLOCK = "MEMORY.md", "learned"
MAX_KEPT_RUNS = 50  # whose kept statements one reflection reads
MAX_SHOWN = 200  # entries of the managed block
_WATCHED = 8


class Learning:
    """Candidates of all principals.  Methods of the API take the authenticated caller first."""

    def __init__(  # noqa: PLR0913 - all by name, and each a part of its own
        self,
        journal: Journal,
        memories: Memories,
        documents: Documents,
        redactor: Redactor,
        *,
        rules: LearningRules,
        model: Callable[[], str],
        models: Mapping[str, LanguageModel],
        budgets: Budgets,
        procedures: Procedures,
        run_blocking: RunBlocking,
        now_ms: NowMs,
        new_id: NewId,
    ) -> None:
        self.rules = rules
        self._journal = journal
        self._memories = memories
        self._documents = documents
        self._redactor = redactor
        self._model = model
        self._models = models
        self._budgets = budgets
        self._procedures = procedures
        self._run_blocking = run_blocking
        self._now_ms = now_ms
        self._new_id = new_id
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    # --- reading runs

    async def reflect_for(self, caller: Caller, run_id: str) -> Reflected:
        """Read a run that the caller sees.  Raises NotFound, and the errors of `reflect`."""
        caller.require(WRITE)
        run = await self._journal.find(lambda s: s.find_run(run_id))
        if run is None or not caller.sees(run.principal):
            raise NotFound(f"no run {run_id!r}", field="run_id")
        return await self.reflect(run_id)

    async def reflect(self, run_id: str) -> Reflected:
        """Read a run that ended and keep what it teaches; a run that was read is not read again.

        Raises IllegalState while learning is off or the run is open, NotFound, and Purged.
        Cancellation: the run was read completely or not at all; a candidate that should have been
        applied may wait for review instead.
        """
        run = await self._journal.find(lambda s: s.find_run(run_id))
        if run is None:
            raise NotFound(f"no run {run_id!r}", field="run_id")
        if not run.is_terminal:
            raise IllegalState(f"{run_id} is still open: learning reads runs that ended")
        async with self._lock(run.principal):
            known = await self._journal.find(lambda s: s.find_reflection(run_id))
            if known is not None:
                return _describe(known, is_new=False)
            texts = await self._journal.read(partial(_read_run, run_id=run_id))
            is_off = self.rules.mode == "off"
            if is_off and not texts.kept:
                raise IllegalState('learning is off: set mode = "review" or "auto" in [learning]')
            recalled = await self._memories.find_recalled(run.principal, run.session_id)
            reading = await self._run_blocking(extract, texts, recalled)
            model = None if is_off else self._models.get(self._model())
            if model is not None:
                reading = await self._with_claims(model, texts, recalled, reading, run_id)
            if is_off:
                reading = only_kept(reading, [each.text for each in texts.kept])
            records, refused = await self._plan(run_id, texts, reading)
            records += await self._plan_kept(
                run_id, texts, recalled, {each.key for each in records}
            )
            if not is_off and not run.parent_run_id and texts.channel is None:
                records += await self._procedures.propose(run, trust=texts.trust, rules=self.rules)
            reflection = ReflectionRecord(
                run_id=run_id,
                session_id=run.session_id,
                principal=run.principal,
                at_ms=self._now_ms(),
                is_tainted=texts.trust != "trusted_local",
                candidate_ids=tuple(each.candidate_id for each in records),
                refused=refused,
            )
            await self._journal.commit(Change(records=(*records, reflection)))
        sure = partial(may_apply, self.rules, is_read_twice=model is not None)
        applied = [each for each in records if sure(each)]
        done = [each.candidate_id for each in applied if await self._apply_by_itself(each)]
        return msgspec.structs.replace(_describe(reflection, is_new=True), applied=tuple(done))

    async def _plan_kept(
        self, run_id: str, texts: RunTexts, recalled: Sequence[str], planned: set[str]
    ) -> list[CandidateRecord]:
        """Return candidates for what a compaction kept of runs that learning has not read."""
        records: list[CandidateRecord] = []
        earlier = dict.fromkeys(each.run_id for each in texts.kept if each.run_id != run_id)
        for other_id in list(earlier)[-MAX_KEPT_RUNS:]:
            other = await self._journal.read(partial(_read_unread, run_id=other_id))
            if other is None or other.principal != texts.principal:
                continue
            reading = await self._run_blocking(extract, other, recalled)
            reading = only_kept(reading, [e.text for e in texts.kept if e.run_id == other_id])
            found, _ = await self._plan(other_id, other, reading)
            records += [each for each in found if each.key not in planned]
            planned |= {each.key for each in found}
        return records

    async def _apply_by_itself(self, candidate: CandidateRecord) -> bool:
        try:
            await self._apply(candidate, by="")
        except PalyraError as error:  # it waits for a person
            log.warning(
                "learning.not_applied", candidate=candidate.candidate_id, error=error.message
            )
            return False
        return True

    async def _plan(
        self, run_id: str, texts: RunTexts, reading: Reading
    ) -> tuple[list[CandidateRecord], dict[str, int]]:
        """Return new and changed candidates; what is known already is counted as refused."""
        refused = dict(reading.refused)
        keys = {key_of(found.kind, found.text): found for found in reading.found}
        if not keys:
            return [], refused
        known = await self._journal.read(
            lambda s: s.list_learned(
                CandidateFilter(principal=texts.principal, keys=tuple(keys), limit=len(keys))
            )
        )
        by_key = {each.key: each for each in known}
        hashes = tuple({hash_text(found.text) for found in keys.values()})
        items = await self._journal.read(lambda s: s.find_by_text(texts.principal, hashes))
        stored = {item.text_hash for item in items}
        secret = await self._run_blocking(_find_secret, keys, self._redactor)
        records: list[CandidateRecord] = []
        for key, found in keys.items():
            evidence = Evidence(run_id=run_id, seq=found.seq, quote=found.quote)
            reason, record = "", None
            if key in secret:
                reason = "secret"
            elif key in by_key:
                record = self._again(by_key[key], evidence, found, texts)
                reason = "" if record else "known"
            elif hash_text(found.text) in stored:
                reason = "in_memory"
            else:
                corrected = await self._with_correction(found, texts)
                record = self._new(key, corrected, evidence, texts)
            if record is not None:
                records.append(record)
            elif reason:
                refused[reason] = refused.get(reason, 0) + 1
        return records, refused

    async def _with_correction(self, found: Found, texts: RunTexts) -> Found:
        """Return the statement with the stored item that it corrects.

        The memory would supersede that one by itself, or the sentence takes it back in words of its own
        (`core.context.corrections`), which a person decides about.
        """
        if found.corrects or texts.is_confined:  # what others write in a channel corrects nothing
            return found
        if not is_reviewable(self.rules, found.kind, found.score_bps):
            return found
        old = await self._memories.find_corrected(found.text, found.kind, texts.principal)
        newer = await self._run_blocking(_find_taking_back, found.quote)
        if old is None and newer is not None:
            stored = await self._find_stored(texts.principal, found.text)
            texts_by_id = {each.memory_id: each.text for each in stored}
            old = await self._run_blocking(find_taken_back, newer, texts_by_id)
            if old is not None:
                return msgspec.structs.replace(
                    found, corrects=old, signals={**found.signals, "replaces": MAYBE_BPS}
                )
        return found if old is None else msgspec.structs.replace(found, corrects=old)

    def _new(self, key: str, found: Found, evidence: Evidence, texts: RunTexts) -> CandidateRecord:
        now_ms = self._now_ms()
        is_shown = is_reviewable(self.rules, found.kind, found.score_bps)
        state: Literal["proposed", "suppressed"] = "proposed" if is_shown else "suppressed"
        return CandidateRecord(
            candidate_id=self._new_id("can"),
            principal=texts.principal,
            session_id=texts.session_id,
            kind=found.kind,
            text=found.text,
            score_bps=found.score_bps,
            signals=found.signals,
            evidence=(evidence,),
            trust=texts.trust,
            is_confined=texts.is_confined,
            key=key,
            source=found.source,
            corrects=found.corrects,
            state=state,
            created_ms=now_ms,
            changed_ms=now_ms,
            changes=(CandidateChange(action=state, state=state, by="", at_ms=now_ms),),
        )

    def _again(
        self, known: CandidateRecord, evidence: Evidence, found: Found, texts: RunTexts
    ) -> CandidateRecord | None:
        """Return the known candidate with more evidence; taint and doubt add none."""
        if texts.trust != "trusted_local" or has_doubt(found.signals):
            return None
        if found.source != "model":
            known = msgspec.structs.replace(known, source=found.source)
        seen = see_again(known, evidence, score_bps=found.score_bps, now_ms=self._now_ms())
        if (
            seen is not None
            and seen.state == "suppressed"
            and is_reviewable(self.rules, seen.kind, seen.score_bps)
        ):
            raised = step(seen, "proposed", by="", now_ms=self._now_ms())
            return msgspec.structs.replace(
                raised, revision=seen.revision
            )  # one change of the record
        return seen

    # --- a model that reads as well

    async def _with_claims(
        self,
        model: LanguageModel,
        texts: RunTexts,
        recalled: Sequence[str],
        reading: Reading,
        run_id: str,
    ) -> Reading:
        """Return the reading with what a model claims of the same messages.

        A tainted run is not shown to it: what the user quotes of a page there looks like the user's.
        """
        if texts.is_delegated or texts.trust != "trusted_local" or not texts.messages:
            return reading
        words = " ".join(text for _, text in texts.messages)[-STORED_QUERY_CHARS:]
        stored = await self._find_stored(texts.principal, words)
        try:
            answer = await self._ask(model, texts, reader_prompt(texts, stored), run_id)
        except (ModelFailure, trio.TooSlowError) as failure:
            log.info("learning.model_failed", run_id=run_id, error=str(failure))
            return refused_also(reading, "model_failed")
        return await self._run_blocking(
            partial(
                join_claims, answer, texts, recalled,
                rules=self.rules, reading=reading, stored=stored,
            )
        )  # fmt: skip

    async def _find_stored(self, principal: str, words: str) -> list[Stored]:
        """Return items of the principal that a text with these words may make untrue."""
        place = MemoryPlace(principal=principal)
        kinds: tuple[MemoryKind, ...] = ("fact", "preference", "decision", "note")
        wanted = MemoryFilter(principal=principal, now_ms=0, limit=MAX_STORED, kinds=kinds)
        found = (await self._memories.search.search_in(place, words, wanted)).hits
        return [
            Stored(memory_id=hit.item.memory_id, text=hit.item.text)
            for hit in found
            if hit.item.scope == "principal" and not is_from_outside(hit.item.trust)
        ]

    async def _ask(self, model: LanguageModel, texts: RunTexts, prompt: str, run_id: str) -> str:
        """Return the model's answer, after its ledger line is committed.

        Raises ModelFailure (also over budget), TooSlowError.
        """
        meter = Reservation(model.name, estimate_tokens(READER_INSTRUCTIONS + prompt))
        payer = Payer(texts.principal, "", texts.session_id, self._new_id("use"))
        if await self._budgets.admit_payer(payer, meter) is not None:
            raise ModelFailure("quota", "a budget does not allow the request", was_asked=False)
        request = ModelRequest(
            run_id=run_id,
            turn=1,
            attempt=1,
            model=model.name,
            instructions=READER_INSTRUCTIONS,
            messages=(UserMessage(prompt),),
            json_mode=True,
            sampling=Sampling(max_output_tokens=MAX_ANSWER_TOKENS),
            is_background=True,
            principal=texts.principal,
        )
        outcome: CallOutcome = "abandoned"
        used, was_asked = meter.measure(), True
        try:
            with trio.fail_after(MODEL_DEADLINE_S):
                turn = await model.stream(request, _ignore)
            outcome, used = "completed", turn.usage
        except ModelFailure as failure:
            outcome, used, was_asked = "failed", failure.usage, failure.was_asked
            raise
        finally:
            line = self._line(payer, model, outcome, used) if was_asked else None
            self._budgets.settle_payer(payer, meter, line)
            if line is not None:
                ticket = self._journal.append(Change(records=(line,)))
        await ticket.wait()
        return turn.text

    def _line(
        self, payer: Payer, model: LanguageModel, outcome: CallOutcome, used: Usage
    ) -> UsageRecord:
        return UsageRecord(
            run_id=payer.run_id,
            turn=0,
            attempt=1,
            session_id=payer.session_id,
            principal=payer.principal,
            agent=payer.agent,
            provider=model.provider,
            model=model.name,
            outcome=outcome,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cached_tokens=used.cached_tokens,
            is_estimate=used.source != "provider",
            cost_usd_micros=self._budgets.charge(model.name, used).cost_usd_micros,
            at_ms=self._budgets.now_ms(),
        )

    # --- review

    async def list_candidates(
        self, caller: Caller, wanted: CandidateFilter
    ) -> list[CandidateRecord]:
        """Return candidates of one principal, newest first; without a principal the caller's own."""
        caller.require(READ)
        whose = whose_memory(caller, wanted.principal)
        narrowed = msgspec.structs.replace(wanted, principal=whose)
        return await self._journal.read(lambda s: s.list_learned(narrowed))

    async def get(self, caller: Caller, candidate_id: str) -> CandidateRecord:
        """Return a candidate.  Raises NotFound."""
        caller.require(READ)
        return await self._get_seen(caller, candidate_id)

    async def accept(self, caller: Caller, candidate_id: str) -> CandidateChanged:
        """Make a candidate an item of memory.  Raises NotFound, IllegalState.

        Cancellation: it may have been applied; the same request again changes nothing then.
        """
        caller.require(WRITE)
        found = await self._get_seen(caller, candidate_id)
        return _changed(await self._apply(found, by=caller.principal))

    async def reject(self, caller: Caller, candidate_id: str) -> CandidateChanged:
        """Refuse a candidate; it is not proposed again.  Raises NotFound, IllegalState.

        Cancellation: it may have been refused.
        """
        caller.require(WRITE)
        found = await self._get_seen(caller, candidate_id)
        async with self._lock(found.principal):
            latest = await self._get(candidate_id)
            after = step(latest, "rejected", by=caller.principal, now_ms=self._now_ms())
            await self._journal.commit(Change(records=(after,)))
            return _changed(after)

    async def edit(self, caller: Caller, candidate_id: str, text: str) -> CandidateChanged:
        """Change the text that a candidate would store; the history keeps the one before.

        Raises NotFound, IllegalState, InvalidParams (also for junk and secrets, and for a procedure,
        whose text are its steps), TooLarge.  Cancellation: it may have been changed.
        """
        caller.require(WRITE)
        found = await self._get_seen(caller, candidate_id)
        if found.kind == "procedure":
            raise InvalidParams(
                "the text of a procedure are its steps, which the runs prove: give it another name "
                "instead, or reject it",
                field="text",
            )
        check_text(text)
        junk = await self._run_blocking(find_junk, text)
        if junk is not None:
            raise InvalidParams(
                f"the text is no statement worth keeping ({junk}): write one full sentence",
                field="text",
            )
        if (await self._run_blocking(self._redactor.redact_text, text))[1]:
            raise InvalidParams("the text holds a secret: leave it out", field="text")
        async with self._lock(found.principal):
            latest = await self._get(candidate_id)
            after = step(latest, "edited", by=caller.principal, now_ms=self._now_ms(), text=text)
            await self._journal.commit(Change(records=(after,)))
            return _changed(after)

    async def rename(self, caller: Caller, candidate_id: str, name: str) -> CandidateChanged:
        """Change the name of the tool that a procedure would be.

        Raises NotFound, IllegalState, InvalidParams.  Cancellation: it may have been changed.
        """
        caller.require(WRITE)
        found = await self._get_seen(caller, candidate_id)
        async with self._lock(found.principal):
            latest = await self._get(candidate_id)
            return _changed(await self._procedures.rename(latest, name, by=caller.principal))

    async def undo(self, caller: Caller, candidate_id: str) -> CandidateChanged:
        """Take back an application, so that the memory is as before, or a rejection.

        Raises NotFound, and IllegalState for an item that was changed since.
        Cancellation: it may have been taken back.
        """
        caller.require(WRITE)
        found = await self._get_seen(caller, candidate_id)
        async with self._lock(found.principal):
            latest = await self._get(candidate_id)
            if latest.kind == "procedure":
                return _changed(await self._procedures.undo(latest, by=caller.principal))
            now_ms = self._now_ms()
            after = step(
                latest, "undone", by=caller.principal, now_ms=now_ms,
                memory_id=None, memory_revision=None, superseded_id=None, revision_before=None,
            )  # fmt: skip
            if latest.memory_id is None:
                await self._journal.commit(Change(records=(after,)))
                return _changed(after)
            records: list[Record] = [after]
            for older in await self._of_items(latest.principal, latest.superseded_id):
                if older.state == "superseded":
                    item = await self._find_item(older.memory_id)
                    revision = None if item is None else item.revision + 1
                    records.append(
                        step(
                            older, "restored", by=caller.principal, now_ms=now_ms,
                            memory_revision=revision,
                        )
                    )  # fmt: skip
            await self._memories.unlearn(
                latest.principal,
                latest.memory_id,
                latest.memory_revision or 0,
                before=latest.revision_before or 0,
                by=caller.principal,
                records=records,
            )
        await self._show(latest.principal)
        return _changed(after)

    # --- applying

    async def _apply(self, candidate: CandidateRecord, *, by: str) -> CandidateRecord:
        async with self._lock(candidate.principal):
            latest = await self._get(candidate.candidate_id)
            if latest.state == "applied":
                return latest
            step(latest, "applied", by=by, now_ms=0)  # refuses a state before anything is stored
            if latest.kind == "procedure":
                return await self._procedures.accept(latest, by=by)
            after: list[CandidateRecord] = []

            async def record(done: MemoryAdded, revision: int) -> Sequence[Record]:
                now_ms = self._now_ms()
                after.append(
                    step(
                        latest, "applied", by=by, now_ms=now_ms, memory_id=done.memory_id,
                        memory_revision=revision, superseded_id=done.superseded,
                        revision_before=revision - 1,
                    )
                )  # fmt: skip
                older = [
                    step(each, "superseded", by=by, now_ms=now_ms)
                    for each in await self._of_items(latest.principal, done.superseded)
                    if each.state == "applied"
                ]
                return [*after, *older]

            draft = MemoryDraft(
                text=latest.text,
                kind=latest.kind,
                confidence_bps=latest.score_bps,
                supersedes=await self._find_corrected(latest),
                lineage=tuple(
                    Lineage(run_id=each.run_id, first_seq=each.seq, last_seq=each.seq)
                    for each in latest.evidence
                ),
                source="learning",
                scope="session" if latest.is_confined else "principal",
                session_id=latest.session_id if latest.is_confined else None,
                trust=latest.trust,
            )
            await self._memories.learn(
                draft,
                principal=latest.principal,
                by=by or latest.principal,
                records=record,
            )
        await self._show(latest.principal)
        return after[0]

    async def _find_corrected(self, candidate: CandidateRecord) -> str | None:
        """Return the item that a candidate is to supersede, if that is still current."""
        item = await self._find_item(candidate.corrects or None)
        is_current = item is not None and item.superseded_by is None
        return candidate.corrects if is_current else None

    async def _show(self, principal: str) -> None:
        """Give the managed block `learned` what operators were taught, where documents are written.

        Every run of the workspace can read the file, so it has no statements of other principals.
        """
        if not self._documents.writes:
            return
        operators = await self._journal.read(partial(_list_operators, self._now_ms()))
        if principal not in operators:
            return
        applied = [each for name in operators for each in await self._list_applied(name)]
        entries = {
            each.memory_id: each.text
            for each in applied
            if each.memory_id is not None and each.trust == "trusted_local" and not each.is_confined
        }
        try:
            await self._documents.apply(
                LEARNED_DOCUMENT, LEARNED_BLOCK, entries, principal=principal
            )
        except PalyraError as error:  # the memory has it; the next application writes the file
            log.warning("learning.document_not_written", error=error.message)

    async def _list_applied(self, principal: str) -> list[CandidateRecord]:
        """Return the last ones that were applied."""
        wanted = CandidateFilter(principal=principal, states=("applied",), limit=MAX_SHOWN)
        return await self._journal.read(lambda s: s.list_learned(wanted))

    # --- shared

    async def _of_items(self, principal: str, memory_id: str | None) -> list[CandidateRecord]:
        if memory_id is None:
            return []
        wanted = CandidateFilter(principal=principal, memory_ids=(memory_id,), limit=_WATCHED)
        return await self._journal.read(lambda s: s.list_learned(wanted))

    async def _find_item(self, memory_id: str | None) -> MemoryRecord | None:
        if memory_id is None:
            return None
        return await self._journal.find(lambda s: s.find_memory(memory_id))

    def _lock(self, principal: str) -> trio.Lock:
        return self._locks.setdefault(principal, trio.Lock())

    async def _get_seen(self, caller: Caller, candidate_id: str) -> CandidateRecord:
        found = await self._journal.find(lambda s: s.find_candidate(candidate_id))
        if found is None or caller.principal_filter not in {None, found.principal}:
            raise _unknown(candidate_id)
        return found

    async def _get(self, candidate_id: str) -> CandidateRecord:
        found = await self._journal.find(lambda s: s.find_candidate(candidate_id))
        if found is None:
            raise _unknown(candidate_id)
        return found


class Reflections:
    """Tasks of the kind `reflection`, one for each run that ended.

    The task is committed with the run's terminal event: a crash loses neither and repeats neither.
    A principal has at most `MAX_OPEN_OWN` of them that have not ended.  The queue counts them in each
    of its cycles, and those made since are added here, so the bound is exact to a few tasks.
    """

    def __init__(
        self, new_id: NewId, *, is_on: bool, sample_bps: int = FULL_BPS, cooldown_ms: int = 0
    ) -> None:
        self.is_on = is_on
        self.sample_bps = sample_bps  # share of the runs to read, of 10 000
        self.cooldown_ms = cooldown_ms  # between two readings of one session
        self._reading_ms: dict[str, int] = {}  # the last one that is due, by session
        self._new_id = new_id
        self.notify: Callable[[], None] = lambda: None  # wakes the queue; set by the wiring
        self._open: Counter[str] = Counter()  # tasks that have not ended, by principal
        # Runs without a task, by principal: those with an incident of this life of the daemon.
        self._skipped: dict[str, deque[str]] = {}

    def note_open(
        self, counts: Mapping[str, int], incidents: IncidentReporter, now_ms: int
    ) -> list[TaskRecord]:
        """Take the number of open tasks by principal, as the journal has them.

        Returns tasks to commit for runs that were left out, once the backlog of their principal is
        down to half of the bound; clears its incident when there is none left.
        """
        self._open = Counter(counts)
        due = list[TaskRecord]()
        for principal, skipped in list(self._skipped.items()):
            if self._open[principal] > MAX_OPEN_OWN // 2:
                continue
            for _ in range(min(len(skipped), MAX_OPEN_OWN // 4)):
                due.append(self._task(skipped.popleft(), principal, None, now_ms))
            if not skipped:
                del self._skipped[principal]
                incidents.clear(
                    reflections_key(principal), "all of its runs have been read or wait"
                )
        return due

    def report_skipped(self, run: Run) -> IncidentReport:
        """Return the report of a run that is not read now; its incident counts such runs."""
        principal = run.accepted.principal
        skipped = self._skipped.setdefault(principal, deque(maxlen=MAX_SKIPPED))
        skipped.append(run.run_id)
        return reflections_skipped(principal, run.run_id, MAX_OPEN_OWN)

    def is_wanted(self, run: Run) -> bool:
        """True if the run is one to read.

        False while learning is off, for a run outside the sample, for a run that a model delegated, and
        for a run that ended before its first turn; but a run with a compaction is read in any case,
        for what that kept.
        """
        accepted = run.accepted
        is_own = accepted.depth == 0 and accepted.parent_run_id is None
        if run.summary is not None:
            return is_own
        is_own = is_own and bool(run.turn) and accepted.origin != COMPACTION
        return self.is_on and is_own and is_sampled(run.run_id, self.sample_bps)

    def task_for(self, run: Run, now_ms: int) -> TaskRecord | None:
        """Return the task to commit with the end of the run, in the lowest priority.

        None if the run is not wanted, or without room for another task.
        """
        principal = run.accepted.principal
        if not self.is_wanted(run) or self._open[principal] >= MAX_OPEN_OWN:
            return None
        not_before_ms = self._next_reading_ms(run.accepted.session_id, now_ms)
        return self._task(run.run_id, principal, not_before_ms, now_ms)

    def _task(
        self, run_id: str, principal: str, not_before_ms: int | None, now_ms: int
    ) -> TaskRecord:
        self._open[principal] += 1
        wanted = Submission(
            kind="reflection",
            payload={"run_id": run_id},
            priority=PRIORITIES[0],
            not_before_ms=not_before_ms,
            expires_ms=now_ms + EXPIRES_MS,
        )
        return submit(wanted, self._new_id("tsk"), principal, now_ms)

    def _next_reading_ms(self, session_id: str, now_ms: int) -> int | None:
        """Return when the session may be read next; None: at once.

        Runs that end before then are read together at that time: nothing is left out, and the wait
        is never longer than one cool-down.
        """
        if not self.cooldown_ms:
            return None
        last_ms = self._reading_ms.get(session_id)
        if last_ms is not None and now_ms < last_ms <= now_ms + self.cooldown_ms:
            return last_ms
        is_known = last_ms is not None and last_ms <= now_ms  # else the clock was set back
        next_ms = max(now_ms, (last_ms or 0) + self.cooldown_ms) if is_known else now_ms
        self._keep_reading(session_id, next_ms, now_ms)
        return next_ms

    def _keep_reading(self, session_id: str, reading_ms: int, now_ms: int) -> None:
        if len(self._reading_ms) >= MAX_SESSIONS:
            over_ms = now_ms - self.cooldown_ms
            kept = {each: ms for each, ms in self._reading_ms.items() if ms > over_ms}
            self._reading_ms = kept if len(kept) < MAX_SESSIONS else {}
        self._reading_ms[session_id] = reading_ms


def _list_operators(now_ms: int, store: JournalStore) -> list[str]:
    """Return the principals with a valid token of an operator, who alone see documents.  Blocks."""
    return sorted(
        {
            token.principal
            for token in store.list_tokens()
            if token.role == "operator"
            and token.revoked_ms is None
            and (token.expires_ms is None or token.expires_ms > now_ms)
        }
    )


def _read_run(store: JournalStore, *, run_id: str) -> RunTexts:
    """Read the texts of a run from its tape.  Blocks.  Raises Purged."""
    events: list[tuple[int, Event]] = []
    after_seq: int | None = -1
    while after_seq is not None and len(events) < MAX_ROWS:
        page = store.read_tape(run_id, after_seq=after_seq, limit=PAGE_ROWS)
        events += [(row.seq, decode_event(row.kind, row.data)) for row in page.rows]
        after_seq = page.next_after_seq
    return read_texts(events)


def _read_unread(store: JournalStore, *, run_id: str) -> RunTexts | None:
    """Read the texts of a run that learning has not read and that was not purged.  Blocks."""
    if store.find_reflection(run_id) is not None:
        return None
    try:
        return _read_run(store, run_id=run_id)
    except PalyraError:
        return None


def _find_taking_back(text: str) -> Statement | None:
    """Return the first statement of a text that takes something back.  Blocks."""
    return next((each for each in read_user(text) if takes_back(each)), None)


def _find_secret(keys: Mapping[str, Found], redactor: Redactor) -> set[str]:
    """Return the keys of the statements that hold a secret.  Blocks."""
    return {
        key
        for key, found in keys.items()
        if redactor.redact_text(f"{found.text}\n{found.quote}")[1]
    }


def _describe(reflection: ReflectionRecord, *, is_new: bool) -> Reflected:
    return Reflected(
        run_id=reflection.run_id,
        is_new=is_new,
        is_tainted=reflection.is_tainted,
        candidate_ids=reflection.candidate_ids,
        refused=reflection.refused,
    )


def _changed(candidate: CandidateRecord) -> CandidateChanged:
    """Return the outcome without the text: a receipt outlives a purged candidate."""
    return CandidateChanged(
        candidate_id=candidate.candidate_id,
        state=candidate.state,
        revision=candidate.revision,
        memory_id=candidate.memory_id,
    )


def _ignore(_delta: Delta) -> None:
    """Drop the deltas of an answer: no client watches it."""


def _unknown(candidate_id: str) -> NotFound:
    return NotFound(f"no candidate {candidate_id!r}", field="candidate_id")
