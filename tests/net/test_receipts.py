"""Receipts: an effect that has begun is the only one, whoever stays to hear of it."""

import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from palyra.core.commands import ReceiptKey, Steered
from palyra.core.journal import Change
from palyra.core.records import Receipt
from palyra.net.receipts import Receipts
from tests.net.fake_store import FakeJournal, FakeStore

KEY = ReceiptKey(principal="ann", key="k", body_sha256="b")


async def test_the_sender_leaves_while_its_effect_commits() -> None:
    """The next request with that key waits for the effect and gets its receipt."""
    store = FakeStore()
    receipts = Receipts(FakeJournal(store), lambda: 0)
    committing = trio.Event()
    effects: list[int] = []
    outcomes: list[Steered] = []

    async def effect() -> Steered:
        effects.append(len(effects))
        result = Steered(seq=effects[-1])
        await committing.wait()
        kept = Receipt(
            principal=KEY.principal,
            key=KEY.key,
            body_sha256=KEY.body_sha256,
            result=msgspec.Raw(msgspec.json.encode(result)),
            created_ms=0,
        )
        store.write(Change(records=(kept,)))
        return result

    async def request(leaving: trio.CancelScope) -> None:
        with leaving:
            outcomes.append(await receipts.once(KEY, Steered, effect, is_kept_by_effect=True))

    async with trio.open_nursery() as nursery:
        leaving = trio.CancelScope()
        nursery.start_soon(request, leaving)
        await wait_all_tasks_blocked()
        leaving.cancel("the sender is gone")
        nursery.start_soon(request, trio.CancelScope())
        await wait_all_tasks_blocked()
        committing.set()
    assert [0] == effects
    assert Steered(seq=0) == outcomes[-1]
