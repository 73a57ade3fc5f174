"""Nothing crosses principals: objects of others do not exist for a client."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest
import trio

from palyra.client import Client
from palyra.errors import Forbidden, NotFound
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import ask_for, make_token, write_call
from tests.e2e.wire import WITHIN_S, connected

pytestmark = pytest.mark.real

NOBODY = "run_01890a5d-ac96-774b-bcce-b302099a8057"


@dataclass(frozen=True)
class House:
    """A daemon with two clients of their own and an operator."""

    daemon: DaemonProcess
    operator: Client
    ann: Client
    bob: Client
    bobs_token: str


@asynccontextmanager
async def house(daemon: DaemonProcess) -> AsyncGenerator[House]:
    """Everybody connected."""
    async with AsyncExitStack() as stack:
        operator = await stack.enter_async_context(daemon.connect())
        tokens = [await make_token(operator, "client", name) for name in ("ann", "bob")]
        ann, bob = [await stack.enter_async_context(daemon.connect(token)) for token in tokens]
        yield House(daemon, operator, ann, bob, tokens[1])


async def message_of(error: type[Exception], ask: Callable[[], Awaitable[object]]) -> str:
    """The message of the refusal."""
    with pytest.raises(error) as caught:
        await ask()
    return str(caught.value)


async def test_foreign_runs_are_not_there(daemon: DaemonProcess) -> None:
    """Every way to a foreign run answers exactly as for a run that never was."""
    async with house(daemon) as people:
        run_id = (await people.ann.start_run("hello")).run_id
        await people.ann.wait_run(run_id)
        bob = people.bob
        ways: list[Callable[[str], Awaitable[object]]] = [
            bob.get_run,
            bob.read_tape,
            bob.cancel,
            bob.wait_run,
            bob.export_tape,
            bob.verify_tape,
            lambda run_id: bob.steer(run_id, "a word"),
            lambda run_id: bob.call("tape.subscribe", {"run_id": run_id}),
        ]
        for way in ways:
            foreign = await message_of(NotFound, lambda: way(run_id))  # noqa: B023 - called at once
            missing = await message_of(NotFound, lambda: way(NOBODY))  # noqa: B023 - called at once
            assert missing == foreign.replace(run_id, NOBODY)
        assert "done" == (await people.operator.get_run(run_id)).state


async def test_lists_have_only_own_objects(daemon: DaemonProcess) -> None:
    """Runs, sessions and approvals of others are in no list, also when named."""
    async with house(daemon) as people:
        asked = await ask_for(people.ann, write_call("anns.txt"))
        bob = people.bob
        assert not (await bob.list_runs()).runs
        assert not (await bob.list_runs(principal="ann")).runs
        assert not (await bob.list_runs(session_id=asked.session_id)).runs
        assert not (await bob.list_sessions()).sessions
        assert not await bob.list_approvals()
        assert not await bob.list_approvals(run_id=asked.run_id)
        for way in (bob.get_session, bob.archive_session, bob.reset_session, bob.queue):
            await message_of(NotFound, lambda: way(asked.session_id))  # noqa: B023 - called at once
        await message_of(NotFound, lambda: bob.rename_session(asked.session_id, "bob's"))
        await message_of(NotFound, lambda: bob.get_approval(asked.approval_id))
        await message_of(NotFound, lambda: bob.start_run("x", session_id=asked.session_id))
        assert [asked] == await people.operator.list_approvals(run_id=asked.run_id)
        await people.ann.cancel(asked.run_id)


async def test_same_names_are_different_things(daemon: DaemonProcess) -> None:
    """Session keys and idempotency keys of two principals never meet."""
    async with house(daemon) as people:
        started = [
            await who.start_run(text, session_key="shared", idempotency_key="shared")
            for who, text in ((people.ann, "ann's"), (people.bob, "bob's"))
        ]
        assert 2 == len({one.run_id for one in started})
        assert 2 == len({one.session_id for one in started})
        views = [
            await who.wait_run(one.run_id)
            for who, one in zip((people.ann, people.bob), started, strict=True)
        ]
    assert ["ann", "bob"] == [view.principal for view in views]


async def test_notifications_do_not_cross_principals(daemon: DaemonProcess) -> None:
    """A subscriber to everything gets no event, approval or session of others."""
    async with house(daemon) as people, connected(daemon.port, people.bobs_token) as wire:
        await wire.call("tape.subscribe", all=True)
        await wire.named("tape.caught_up")
        asked = await ask_for(people.ann, write_call("unseen.txt"))
        await people.operator.resolve_approval(asked.approval_id, "deny", asked.digest)
        await people.ann.wait_run(asked.run_id)
        await people.ann.archive_session(asked.session_id)
        own = await people.bob.start_run("mine")
        await people.bob.wait_run(own.run_id)
        with trio.fail_after(WITHIN_S):
            told = await wire.notice()
            while told["params"].get("kind") != "run.done":
                assert own.run_id == told["params"]["run_id"]
                told = await wire.notice()
        assert asked.run_id.encode() not in b"".join(wire.seen)


async def test_a_client_cannot_operate_the_daemon(daemon: DaemonProcess) -> None:
    """Tokens, the tree, the whole journal and metrics are for operators."""
    async with house(daemon) as people:
        bob = people.bob
        forbidden: list[Callable[[], Awaitable[object]]] = [
            bob.list_tokens,
            bob.tree,
            bob.verify_tape,
            lambda: bob.create_token(principal="bob", role="operator", name="x"),
            lambda: bob.revoke_token("tok_1"),
        ]
        for way in forbidden:
            await message_of(Forbidden, way)
        status = await bob.status()
        assert (None, None) == (status.connections, status.journal_backlog)
        assert (await people.operator.status()).connections


async def test_observer_only_looks(daemon: DaemonProcess) -> None:
    """An observer sees every run and changes none."""
    async with house(daemon) as people:
        token = await make_token(people.operator, "observer")
        run_id = (await people.ann.start_run("hello")).run_id
        async with daemon.connect(token) as observer:
            assert "ann" == (await observer.wait_run(run_id)).principal
            for way in (
                lambda: observer.start_run("x"),
                lambda: observer.cancel(run_id),
                lambda: observer.steer(run_id, "x"),
                lambda: observer.resolve_session(session_key="x"),
                observer.list_tokens,
            ):
                await message_of(Forbidden, way)
