"""Session compaction: summarise the older part of a conversation before a prompt grows too large.

Owns: nothing.  Talks to: the model that drafts, `services.usage.budgets`; the result goes to the run,
which records it on its tape.
Never: fails a run.  Without a model, over budget, or with a draft that is refused, the
deterministic plan is used; if nothing can be gained, the reason is recorded and the run continues.

Reading a long conversation takes tens of milliseconds, so plans are made in a thread.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import structlog
import trio

from palyra.core.context.entries import Placed
from palyra.core.context.history import History, fresh_tokens
from palyra.core.context.session_compaction import (
    ALGORITHM,
    DRAFT_INSTRUCTIONS,
    MAX_DRAFT_TOKENS,
    TRIGGER_BPS,
    Draft,
    RefusedSummary,
    coverable,
    draft_text,
    find_defects,
    is_due,
    placed_conversation,
    plan_summary,
    read_messages,
    take_draft,
)
from palyra.core.ids import NewId
from palyra.core.journal.changes import Change
from palyra.core.journal.records import CallOutcome, Usage, UsageRecord
from palyra.core.model.messages import (
    Delta,
    ModelFailure,
    ModelRequest,
    Sampling,
    UserMessage,
)
from palyra.core.model.summary import Summary
from palyra.core.ports import Journal, LanguageModel, RunBlocking
from palyra.core.run.inputs import Summarise
from palyra.core.run.state import Run
from palyra.core.tape.events import CompactionApplied, CompactionSkipped
from palyra.core.text.excerpt import truncate_safely
from palyra.core.text.tokens import estimate_tokens
from palyra.core.usage.budgets import Payer
from palyra.services.tape.pins import read_pins
from palyra.services.usage.budgets import Budgets, Reservation

log = structlog.get_logger("palyra.compaction")
# Of earlier runs that no summary covers yet.  A run that was left out before could not be summarised
# any more, and its rules would be lost; the first prompt that has so much is summarised.
UNSUMMARISED_TOKENS = 2_000_000
NEVER = 2**63
UNKNOWN_WINDOW = 128_000  # tokens
DRAFT_DEADLINE_S = 60.0
MAX_ANSWER_CHARS = 200_000
DRAFT_INPUT_TOKENS = 24_000  # of one drafting request; longer conversations are not drafted


class CompactionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The thresholds and the model for summaries of sessions."""

    history_tokens: int  # most of earlier runs in a prompt; 0: sessions have no history
    trigger_bps: int = TRIGGER_BPS  # of the history or of the model's window; 0: never
    model: str = ""  # that drafts; "": deterministic summaries

    @property
    def loaded_tokens(self) -> int:
        """Tokens of earlier runs to load: more than are shown, so that they can be summarised."""
        if not self.trigger_bps or not self.history_tokens:
            return self.history_tokens
        return max(self.history_tokens, UNSUMMARISED_TOKENS)


class SessionCompactor:
    """Plans summaries for runs."""

    def __init__(
        self,
        *,
        settings: CompactionSettings,
        models: Mapping[str, LanguageModel],
        budgets: Budgets,
        journal: Journal,
        run_blocking: RunBlocking,
        new_id: NewId,
    ) -> None:
        self._settings = settings
        self._models = models
        self._budgets = budgets
        self._journal = journal
        self._run_blocking = run_blocking
        self._new_id = new_id

    def least_tokens(self, window: int) -> int:
        """Return the size of a prompt up to which no compaction is due; `window` is the smallest."""
        settings = self._settings
        least = min(settings.history_tokens, window or UNKNOWN_WINDOW)
        return least * settings.trigger_bps // 10_000 if settings.trigger_bps else NEVER

    def is_due(self, run: Run, history: History, input_tokens: int, window: int) -> bool:
        """True if the conversation should be summarised before a prompt of that size is sent.

        `window` is that of the model, in tokens; 0 if it is unknown.  The history has a limit of
        its own, beyond which the oldest runs would be left out.  A branch has chosen its beginning, so
        that is not new; otherwise the first message would repeat a compaction that was undone.
        """
        settings = self._settings
        if not settings.trigger_bps or not settings.history_tokens:
            return False
        past_tokens = sum(past.tokens for past in history.runs)
        sizes = ((input_tokens, window or UNKNOWN_WINDOW), (past_tokens, settings.history_tokens))
        new_tokens = input_tokens - run.cuts.weighed_tokens
        due = [size for size in sizes if is_due(*size, new_tokens, settings.trigger_bps)]
        if not due or (fresh := fresh_tokens(run, history)) is None:
            return bool(due)
        return any(is_due(*size, fresh, settings.trigger_bps) for size in due)

    async def preview(self, run: Run, history: History) -> Summary | str:
        """Return the deterministic summary that a compaction would make now, or why it makes none.

        Cancellation: waits for the thread.
        """
        pins = await self._read_pins(run, history)
        return await self._run_blocking(partial(self._plan, run, history, pins))

    async def summarise(
        self, run: Run, history: History, task: Summarise
    ) -> CompactionApplied | CompactionSkipped:
        """Summarise what the window does not keep; the result is an event to record.

        Cancellation: nothing is recorded; a drafting request that was sent is in the ledger as an
        estimate.
        """
        pins = await self._read_pins(run, history)
        planned = await self._run_blocking(partial(self._plan, run, history, pins))
        if isinstance(planned, str):
            return CompactionSkipped(
                trigger=task.trigger, reason=planned, input_tokens=task.input_tokens
            )
        compaction_id = self._new_id("cmp")
        summary = await self._draft(compaction_id, run, history, planned, pins)
        return CompactionApplied(
            compaction_id=compaction_id,
            algorithm=ALGORITHM,
            trigger=task.trigger,
            summary=summary,
            input_tokens=task.input_tokens,
            model=self._settings.model,
        )

    async def _read_pins(self, run: Run, history: History) -> list[Placed]:
        """Return the session's pinned messages that do not stay in the prompt anyway."""
        session_id = run.accepted.session_id
        found = await self._journal.read(lambda store: read_pins(store, session_id))
        if not found:
            return []
        _, _, window = _split(run, history)
        shown = {(placed.run_id, placed.index) for placed in window}
        return [placed for placed in found if (placed.run_id, placed.index) not in shown]

    def _plan(self, run: Run, history: History, pins: Sequence[Placed]) -> Summary | str:
        """Return the deterministic summary, or why there is none.  Blocks."""
        previous, covered, window = _split(run, history)
        if not covered:
            return f"all {len(window)} messages are among the latest, which stay"
        read = read_messages(previous, covered, window=window, pins=pins)
        try:
            summary = plan_summary(previous, covered, self._settings.history_tokens, read=read)
        except RefusedSummary as refused:
            return refused.message
        defects = find_defects(summary, previous, covered, read=read)
        if summary.ledger.exceeded:
            log.warning("context budget exhausted", run_id=run.run_id, **summary.ledger.exceeded)
        if defects:  # a bug: the plan keeps everything that is protected
            log.error("summary refused", run_id=run.run_id, defects=len(defects))
            return defects[0]
        return summary

    # --- the model's draft

    async def _draft(
        self,
        compaction_id: str,
        run: Run,
        history: History,
        plan: Summary,
        pins: Sequence[Placed],
    ) -> Summary:
        """Let the model improve the plan; return the plan with the reason if that fails."""
        model = self._models.get(self._settings.model)
        if model is None:
            return plan
        previous, covered, window = _split(run, history)
        text = await self._run_blocking(partial(_request_text, plan, covered))
        if text is None:
            return _refused(plan, "the conversation is too long for one drafting request")
        try:
            answer = await self._ask(model, compaction_id, run, text)
            return await self._run_blocking(
                partial(_checked, plan, answer, previous, covered, window=window, pins=pins)
            )
        except (ModelFailure, RefusedSummary) as failure:
            return _refused(plan, failure.message)
        except trio.TooSlowError as failure:
            return _refused(plan, str(failure) or "the model did not answer in time")

    async def _ask(self, model: LanguageModel, compaction_id: str, run: Run, text: str) -> str:
        """Return the model's answer, after its ledger line is committed.

        Raises ModelFailure (also over budget), TooSlowError.
        """
        accepted, meter = (
            run.accepted,
            Reservation(self._settings.model, estimate_tokens(DRAFT_INSTRUCTIONS + text)),
        )
        payer = Payer(accepted.principal, accepted.agent, accepted.session_id, compaction_id)
        if await self._budgets.admit_payer(payer, meter) is not None:
            raise ModelFailure("quota", "a budget does not allow the request", was_asked=False)
        request = ModelRequest(
            run_id=run.run_id,
            turn=max(run.turn, 1),
            attempt=1,
            model=self._settings.model,
            instructions=DRAFT_INSTRUCTIONS,
            messages=(UserMessage(text),),
            json_mode=True,
            sampling=Sampling(max_output_tokens=MAX_DRAFT_TOKENS),
            is_background=True,
            principal=accepted.principal,
        )
        outcome: CallOutcome = "abandoned"
        used, was_asked = meter.measure(), True
        try:
            with trio.fail_after(DRAFT_DEADLINE_S):
                turn = await model.stream(request, _ignore)
            outcome, used = "completed", turn.usage
        except ModelFailure as failure:
            outcome, used, was_asked = "failed", failure.usage, failure.was_asked
            raise
        finally:
            line = self._line(payer, model.provider, outcome, used) if was_asked else None
            self._budgets.settle_payer(payer, meter, line)
            if line is not None:
                ticket = self._journal.append(Change(records=(line,)))
        await ticket.wait()
        return turn.text

    def _line(self, payer: Payer, provider: str, outcome: CallOutcome, used: Usage) -> UsageRecord:
        return UsageRecord(
            run_id=payer.run_id,
            turn=0,
            attempt=1,
            session_id=payer.session_id,
            principal=payer.principal,
            agent=payer.agent,
            provider=provider,
            model=self._settings.model,
            outcome=outcome,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cached_tokens=used.cached_tokens,
            is_estimate=used.source != "provider",
            cost_usd_micros=self._budgets.charge(self._settings.model, used).cost_usd_micros,
            at_ms=self._budgets.now_ms(),
        )


def _ignore(_delta: Delta) -> None:
    """Drop the deltas of a draft: no client watches it."""


def _request_text(plan: Summary, covered: Sequence[Placed]) -> str | None:
    """Return the drafting request; None if it would be too long.  Blocks."""
    text = draft_text(plan, covered)
    return None if estimate_tokens(text) > DRAFT_INPUT_TOKENS else text


def _checked(
    plan: Summary,
    answer: str,
    previous: Summary | None,
    covered: Sequence[Placed],
    *,
    window: Sequence[Placed],
    pins: Sequence[Placed],
) -> Summary:
    """Return the plan with the model's draft.  Raises RefusedSummary.  Blocks."""
    try:
        draft = msgspec.json.decode(answer[:MAX_ANSWER_CHARS], type=Draft)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as failure:
        raise RefusedSummary(f"the draft is no valid JSON: {failure}") from None
    drafted = take_draft(plan, draft, covered)
    defects = find_defects(drafted, previous, covered, window=window, pins=pins)
    if defects:
        raise RefusedSummary(defects[0])
    return drafted


def _refused(plan: Summary, reason: str) -> Summary:
    return msgspec.structs.replace(plan, refusals=(*plan.refusals, truncate_safely(reason, 500)))


def _split(run: Run, history: History) -> tuple[Summary | None, Sequence[Placed], Sequence[Placed]]:
    """Return the summary so far, the messages to cover, and those that stay."""
    messages = placed_conversation(history, run)
    end = coverable([placed.message for placed in messages])
    return run.summary or history.summary, messages[:end], messages[end:]
