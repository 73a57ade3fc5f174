"""tape.*: read, follow, verify, export."""

from typing import Annotated

import msgspec

from palyra.core.incident.kinds import chain_broken
from palyra.core.journal.changes import ChainedRow, VerifyReport
from palyra.core.ports import JournalStore
from palyra.core.tape.events import KINDS
from palyra.core.tape.export import ExportLine, claim
from palyra.core.tape.outline import Mark, TapeOutline
from palyra.core.tape.search import TapeFound, TapeSearch
from palyra.errors import Forbidden, InvalidParams, PalyraError
from palyra.net.api.method import AfterSeq, Id, Limit, Method, MethodCall, Seq, at_once
from palyra.net.delivery.encoding import read_item
from palyra.net.delivery.subscription import LiveSubscription, SubscriptionFilter
from palyra.net.protocol.params import Params
from palyra.net.protocol.results import ExportPage, Subscribed, TapeItems, Unsubscribed
from palyra.services.tape.looks import outline_tape, search_tape

MAX_ROWS = 1000
MAX_TEXT_CHARS = 256
MAX_BUCKETS = 2_000
PageLimit = Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)]


class TapeRead(Params, frozen=True, kw_only=True):
    """A page of committed events after a cursor."""

    run_id: Id
    after_seq: AfterSeq = -1
    limit: PageLimit = 200


class TapeSubscribe(Params, frozen=True, kw_only=True):
    """One run after a cursor; or a session, or everything, from now on."""

    run_id: Id | None = None
    session_id: Id | None = None
    all: bool = False
    after_seq: AfterSeq | None = None
    kinds: tuple[Annotated[str, msgspec.Meta(max_length=64)], ...] | None = None
    progress: bool = True


class TapeUnsubscribe(Params, frozen=True, kw_only=True):
    """End a subscription."""

    subscription: Id


class TapeVerify(Params, frozen=True, kw_only=True):
    """One run, or without `run_id` the whole journal."""

    run_id: Id | None = None


class TapeExport(Params, frozen=True, kw_only=True):
    """A page of a tape with its proof."""

    run_id: Id
    after_seq: AfterSeq = -1
    limit: PageLimit = 200


class TapeFind(Params, frozen=True, kw_only=True):
    """Search of events of one tape; each given filter must fit."""

    run_id: Id
    text: Annotated[str, msgspec.Meta(max_length=MAX_TEXT_CHARS)] = ""
    kinds: tuple[Annotated[str, msgspec.Meta(max_length=64)], ...] = ()
    call_id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    marks: tuple[Mark, ...] = ()
    from_seq: Seq | None = None  # the first, or the last when backwards
    backwards: bool = False
    limit: Limit = 50


class TapeOutlineParams(Params, frozen=True, kw_only=True):
    """A tape, summed up in so many buckets; on request with a code for each event."""

    run_id: Id
    buckets: Annotated[int, msgspec.Meta(ge=1, le=MAX_BUCKETS)] = 400
    codes: bool = False


async def find(call: MethodCall, params: TapeFind) -> TapeFound:
    await _require_visible(call, params.run_id)
    _require_known(params.kinds)
    given = msgspec.structs.asdict(params)
    run_id = given.pop("run_id")
    wanted = TapeSearch(**given)
    return await call.backend.journal.read(lambda store: search_tape(store, run_id, wanted))


async def outline(call: MethodCall, params: TapeOutlineParams) -> TapeOutline:
    await _require_visible(call, params.run_id)
    return await call.backend.journal.read(
        lambda store: outline_tape(store, params.run_id, params.buckets, with_codes=params.codes)
    )


async def read(call: MethodCall, params: TapeRead) -> TapeItems:
    await _require_visible(call, params.run_id)
    page = await call.backend.journal.read(
        lambda store: store.read_tape(params.run_id, after_seq=params.after_seq, limit=params.limit)
    )
    return TapeItems(
        events=[read_item(row) for row in page.rows],
        head_seq=page.head_seq,
        floor_seq=page.floor_seq,
        bytes=page.size_bytes,
        next_after_seq=page.next_after_seq,
    )


async def _require_visible(call: MethodCall, run_id: str) -> None:
    """Raise NotFound for a missing run or one that the caller does not see."""
    await call.backend.gateway.get_run(call.caller, run_id)


async def subscribe(call: MethodCall, params: TapeSubscribe) -> Subscribed:
    given = [params.run_id is not None, params.session_id is not None, params.all]
    if sum(given) != 1:
        raise InvalidParams("give exactly one of run_id, session_id and all", field="run_id")
    kinds = None if params.kinds is None else frozenset(params.kinds)
    _require_known(params.kinds or ())
    wanted = SubscriptionFilter(kinds, params.progress)
    if params.run_id is None:
        return await _subscribe_many(call, params, wanted)
    return await _subscribe_run(call, params.run_id, params.after_seq, wanted)


def _require_known(kinds: tuple[str, ...]) -> None:
    """Raise InvalidParams for a kind that does not exist."""
    unknown = sorted({*kinds} - KINDS.keys())
    if unknown:
        known = ", ".join(sorted(KINDS))
        raise InvalidParams(f"there are no events of kind {unknown[0]!r}: {known}", field="kinds")


async def _subscribe_run(
    call: MethodCall, run_id: str, after_seq: int | None, wanted: SubscriptionFilter
) -> Subscribed:
    await _require_visible(call, run_id)
    next_seq = 0 if after_seq is None else after_seq + 1
    subscription, lane = call.subscriptions.open_run(run_id, next_seq, wanted)
    try:  # the cursor joins the feed before the head is read: no event can fall between the two
        page, record = await call.backend.journal.read(
            lambda store: (store.read_tape(run_id, after_seq=-1, limit=1), store.find_run(run_id))
        )
    except PalyraError:
        call.subscriptions.close(subscription.subscription_id)
        raise
    lane.next_seq = min(next_seq, page.head_seq + 1)
    call.backend.hub.note_head(lane.feed, page.head_seq)
    call.then(subscription.start)
    return Subscribed(
        subscription=subscription.subscription_id,
        from_=max(lane.next_seq, page.floor_seq),
        through=page.head_seq,
        floor=page.floor_seq,
        ended=record is not None and record.is_terminal and record.head_seq == page.head_seq,
    )


async def _subscribe_many(
    call: MethodCall, params: TapeSubscribe, wanted: SubscriptionFilter
) -> Subscribed:
    if params.after_seq is not None:
        raise InvalidParams(
            "after_seq needs run_id: session_id and all start with new events",
            field="after_seq",
        )
    if params.session_id is not None:
        await call.backend.sessions.get(call.caller, params.session_id)
    subscription = call.subscriptions.open_many(params.session_id, wanted)
    await _follow_open_runs(call, params.session_id, subscription)
    call.then(subscription.start)
    return Subscribed(subscription=subscription.subscription_id, from_=0, through=-1, floor=0)


async def _follow_open_runs(
    call: MethodCall, session_id: str | None, subscription: LiveSubscription
) -> None:
    """Follow open runs too that have published nothing since the daemon started."""
    try:
        records = await call.backend.journal.read(lambda store: store.list_open_runs())
    except PalyraError:
        call.subscriptions.close(subscription.subscription_id)
        raise
    for record in records:
        if call.caller.sees(record.principal) and session_id in {None, record.session_id}:
            subscription.follow(call.backend.hub.get_feed(record.run_id))


def unsubscribe(call: MethodCall, params: TapeUnsubscribe) -> Unsubscribed:
    call.subscriptions.close(params.subscription)
    return Unsubscribed()


async def verify(call: MethodCall, params: TapeVerify) -> VerifyReport:
    if params.run_id is not None:
        await _require_visible(call, params.run_id)
    elif call.caller.principal_filter is not None:
        raise Forbidden(
            "verifying the whole journal needs a role that sees all principals: give run_id"
        )
    report = await call.backend.journal.read(lambda store: store.verify(params.run_id))
    if report.first_break is not None:
        await call.backend.incidents.report_finding(chain_broken(report.first_break, report))
    return report


async def export(call: MethodCall, params: TapeExport) -> ExportPage:
    await _require_visible(call, params.run_id)
    rows, next_after_seq = await call.backend.journal.read(lambda store: _read_chain(store, params))
    return ExportPage(
        run_id=params.run_id,
        ndjson="".join(_render_line(row) for row in rows),
        public_key=call.backend.public_key.hex(),
        signature=_sign(call, rows),
        next_after_seq=next_after_seq,
        former_keys=_former_keys(call),
    )


def _former_keys(call: MethodCall) -> tuple[str, ...]:
    return tuple(key.hex() for key in call.backend.former_keys)


def _read_chain(store: JournalStore, params: TapeExport) -> tuple[list[ChainedRow], int | None]:
    """Read as many rows as a page of the tape has, so that this page too is bounded in bytes."""
    page = store.read_tape(params.run_id, after_seq=params.after_seq, limit=params.limit)
    rows = store.read_chain(params.run_id, after_seq=params.after_seq, limit=len(page.rows))
    return rows, page.next_after_seq


def _sign(call: MethodCall, rows: list[ChainedRow]) -> str:
    if not rows:
        return ""
    last = rows[-1]
    return call.backend.sign(
        claim(last.row.run_id, last.row.seq, last.hash, _former_keys(call))
    ).hex()


def _render_line(chained: ChainedRow) -> str:
    row = chained.row
    line = ExportLine(
        **msgspec.structs.asdict(read_item(row)),
        principal=row.principal,
        redacted=row.redacted,
        position=chained.position,
        hash=chained.hash.hex(),
    )
    return msgspec.json.encode(line).decode() + "\n"


METHODS = (
    Method("tape.read", TapeRead, TapeItems, "runs:read", read, is_bulk=True, is_exact=True),
    Method("tape.find", TapeFind, TapeFound, "runs:read", find),
    Method("tape.outline", TapeOutlineParams, TapeOutline, "runs:read", outline, is_bulk=True),
    Method("tape.subscribe", TapeSubscribe, Subscribed, "runs:read", subscribe, is_read=False),
    Method(
        "tape.unsubscribe",
        TapeUnsubscribe,
        Unsubscribed,
        "runs:read",
        at_once(unsubscribe),
        is_read=False,
    ),
    Method("tape.verify", TapeVerify, VerifyReport, "runs:read", verify),
    Method("tape.export", TapeExport, ExportPage, "runs:read", export, is_bulk=True, is_exact=True),
)
