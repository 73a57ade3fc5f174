"""Secrets inside the daemon: found, and known to the redactor before they are used."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import structlog
import trio
from trio.testing import MockClock

from palyra.core.access import Caller
from palyra.core.journal.records import Role
from palyra.core.redaction.known_secrets import MAX_KNOWN_BYTES
from palyra.core.redaction.redactor import Redactor
from palyra.errors import Forbidden, InvalidParams, NotFound, Unavailable
from palyra.net.api.words import protocol_words
from palyra.secrets.resolver import Resolver
from palyra.secrets.service import LOOK_S, SecretService
from tests.tools.web.internet import here

FIRST, SECOND = "the-first-secret-value", "the-second-secret-value"


def a_keeper(home: Path, redactor: Redactor, **environ: str) -> SecretService:
    """Over a data directory and an environment."""
    resolver = Resolver(home, home / "keys", environ=environ)
    return SecretService(resolver, here, redactor.learn)


@asynccontextmanager
async def knowing(keeper: SecretService, *references: str) -> AsyncGenerator[None]:
    """A keeper that looks at its vault inside the block."""
    async with trio.open_nursery() as nursery:
        await nursery.start(keeper.keep_known, references)
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()


async def wait_look() -> None:
    """Until the keeper has looked once more."""
    await trio.sleep(LOOK_S * 1.5)


async def test_what_is_found_is_known(tmp_path: Path) -> None:
    """The control: before that it is a text like any other."""
    redactor = Redactor([])
    assert FIRST == redactor.redact_text(FIRST)[0]
    assert FIRST == await a_keeper(tmp_path, redactor, TOKEN=FIRST).find("env:TOKEN")
    assert "[redacted:known]" == redactor.redact_text(FIRST)[0]


async def test_what_is_not_found_is_an_error(tmp_path: Path) -> None:
    """Nothing is learnt."""
    redactor = Redactor([])
    with pytest.raises(NotFound):
        await a_keeper(tmp_path, redactor).find("env:TOKEN")


async def test_a_name_that_the_environment_lacks_is_a_problem(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """It can only be given at a start; a secret of the vault may still come, and is none."""
    keeper = a_keeper(tmp_path, Redactor([]), TOKEN=FIRST)
    async with knowing(keeper, "env:TOKEN", "env:NONE", "vault:NONE"):
        assert ("env:NONE: the environment of the daemon has no such name",) == keeper.problems


async def test_the_vault_by_name(tmp_path: Path) -> None:
    """None for a name it does not have."""
    keeper = a_keeper(tmp_path, Redactor([]))
    Resolver(tmp_path, tmp_path / "keys").vault.put("KEY", FIRST, 5)
    assert FIRST == await keeper.find_in_vault("KEY")
    assert await keeper.find_in_vault("OTHER") is None


async def test_all_that_can_be_known_is_known_from_the_start(tmp_path: Path) -> None:
    """From the start the redactor knows vault and configured secrets; missing ones are logged."""
    redactor = Redactor([])
    Resolver(tmp_path, tmp_path / "keys").vault.put("KEY", FIRST, 5)
    keeper = a_keeper(tmp_path, redactor, TOKEN=SECOND, PIN="1234567")
    with structlog.testing.capture_logs() as lines:
        async with knowing(keeper, "env:TOKEN", "env:NONE", "env:PIN", "keyring:a/b"):
            pass
    assert "[redacted:known] [redacted:known]" == redactor.redact_text(f"{FIRST} {SECOND}")[0]
    assert ["env:NONE", "env:PIN"] == [line["reason"].split()[0].rstrip(":") for line in lines]


async def test_a_damaged_vault_does_not_keep_the_daemon_down(tmp_path: Path) -> None:
    """A damaged vault is logged, and all other secrets are known."""
    redactor = Redactor([])
    Resolver(tmp_path, tmp_path / "keys").vault.put("KEY", FIRST, 5)
    (tmp_path / "vault.sealed").write_bytes(b"{}")
    with structlog.testing.capture_logs() as lines:
        async with knowing(a_keeper(tmp_path, redactor, TOKEN=SECOND), "env:TOKEN"):
            pass
    assert ["the vault cannot be read"] == [line["event"] for line in lines]
    assert "[redacted:known]" == redactor.redact_text(SECOND)[0]


async def test_what_is_set_later_is_known_too(tmp_path: Path, autojump_clock: MockClock) -> None:
    """In a vault that was not there before, or has changed; what was removed stays known."""
    redactor = Redactor([])
    vault = Resolver(tmp_path, tmp_path / "keys").vault
    async with knowing(a_keeper(tmp_path, redactor)):
        vault.put("KEY", FIRST, 5)
        await wait_look()
        assert "[redacted:known]" == redactor.redact_text(FIRST)[0]
        vault.put("LATE", SECOND, 6)
        vault.remove("KEY")
        assert SECOND == redactor.redact_text(SECOND)[0]  # the control: not known yet
        await wait_look()
        assert "[redacted:known] [redacted:known]" == redactor.redact_text(f"{FIRST} {SECOND}")[0]


async def test_a_vault_without_its_key_is_a_problem_until_it_is_back(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A missing vault key is reported once and its return is noticed, with the same vault file."""
    redactor = Redactor([])
    vault = Resolver(tmp_path, tmp_path / "keys").vault
    vault.put("KEY", FIRST, 5)
    key = tmp_path / "keys" / "vault.key"
    keeper = a_keeper(tmp_path, redactor)
    with structlog.testing.capture_logs() as lines:
        async with knowing(keeper):
            assert () == keeper.problems
            vault.put("LATE", SECOND, 6)
            hidden = key.rename(tmp_path / "elsewhere")
            await wait_look()
            await wait_look()
            told: list[str] = list(keeper.problems)
            assert [f"the vault cannot be read: {key}: the vault's key"] == [
                problem.split(" is missing")[0] for problem in told
            ]
            hidden.rename(key)
            await wait_look()
            assert () == keeper.problems
    assert ["the vault cannot be read"] == [line["event"] for line in lines]
    assert "[redacted:known]" == redactor.redact_text(SECOND)[0]


OPERATOR = Caller(principal="root", role="operator", token_id="tok_r")


async def test_a_secret_of_a_client_is_known_at_once_and_never_comes_back(tmp_path: Path) -> None:
    """Set, listed and removed by name; no log line has the value, and it stays redacted."""
    redactor = Redactor([])
    keeper = a_keeper(tmp_path, redactor)
    with structlog.testing.capture_logs() as lines:
        stored = await keeper.put(OPERATOR, "KEY", FIRST + "\n", 7)
        assert "[redacted:known]" == redactor.redact_text(FIRST)[0]
        assert [stored] == await keeper.list_stored(OPERATOR)
        assert FIRST == await keeper.find("vault:KEY")
        await keeper.remove(OPERATOR, "KEY")
    assert [("secret set", "KEY", "root"), ("secret removed", "KEY", "root")] == [
        (line["event"], line["name"], line["by"]) for line in lines
    ]
    assert FIRST not in repr((stored, lines))
    assert [] == await keeper.list_stored(OPERATOR)
    assert "[redacted:known]" == redactor.redact_text(FIRST)[0]
    with pytest.raises(NotFound):
        await keeper.remove(OPERATOR, "KEY")


@pytest.mark.parametrize(
    ("name", "value"), [("KEY", "1234567"), ("a b", FIRST), ("KEY", FIRST * 4_000)]
)
async def test_a_refused_secret_is_in_no_message(tmp_path: Path, name: str, value: str) -> None:
    """Too short, too long or without a name: nothing is stored."""
    keeper = a_keeper(tmp_path, Redactor([]))
    with pytest.raises(InvalidParams) as caught:
        await keeper.put(OPERATOR, name, value, 7)
    assert value not in caught.value.message
    assert [] == await keeper.list_stored(OPERATOR)


@pytest.mark.parametrize("role", ["client", "person", "approver", "observer"])
async def test_the_vault_is_for_operators(tmp_path: Path, role: Role) -> None:
    """Not even the names are for others; the same calls by an operator are served."""
    keeper, other = (
        a_keeper(tmp_path, Redactor([])),
        Caller(principal="ann", role=role, token_id="tok_a"),
    )
    for who in (other, OPERATOR):
        outcomes = list[str]()
        for ask in (
            partial(keeper.put, who, "KEY", FIRST, 7),
            partial(keeper.list_stored, who),
            partial(keeper.remove, who, "KEY"),
        ):
            try:
                await ask()
            except Forbidden:
                outcomes.append("forbidden")
            else:
                outcomes.append("served")
        assert 3 * ["forbidden" if who is other else "served"] == outcomes


REFUSED = [
    "session_id", "operator", "in_progress", "tool.proposed", "conversation_id", "read_file", "redacted",
    "run_018f3c1e-5b7a-7bbb-8ccc-0123456789ab", "x" * 65_537, "seven77",
]  # fmt: skip


@pytest.mark.parametrize("value", REFUSED, ids=range(len(REFUSED)))
async def test_words_of_the_daemon_are_no_secrets(tmp_path: Path, value: str) -> None:
    """Neither stored nor found nor learnt, and the reason has not the value; one sign more makes it one."""
    redactor = Redactor([])
    resolver = Resolver(
        tmp_path, tmp_path / "keys", environ={"TOKEN": value}, find_words=protocol_words
    )
    keeper = SecretService(resolver, here, redactor.learn)
    for attempt in (
        partial(keeper.put, OPERATOR, "a", value, 1),
        partial(keeper.find, "env:TOKEN"),
    ):
        with pytest.raises((InvalidParams, Unavailable)) as refused:
            await attempt()
        assert value not in refused.value.message
    redactor.learn("x" * 70_000)
    text = f"x {value} y"
    assert redactor.redact_text(text) == (text, False)
    if len(value) < MAX_KNOWN_BYTES:
        await keeper.put(OPERATOR, "a", f"{value}-Q7", 1)
        assert redactor.redact_text(f"x {value}-Q7 y")[0] == "x [redacted:known] y"
