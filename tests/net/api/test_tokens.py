"""Tokens: made once, known by digest, listed without secrets, for operators only."""

import pytest
import trio.testing

from palyra.core.journal.records import TokenRecord
from palyra.net.api.tokens import PREFIX, digest_token, new_token
from tests.net.api.fake_services import open_daemon

Clock = trio.testing.MockClock


def test_tokens_are_long_and_different() -> None:
    """256 bits behind a recognisable prefix, never twice the same."""
    tokens = {new_token() for _ in range(100)}
    assert 100 == len(tokens)
    assert all(token.startswith(PREFIX) and len(token) == len(PREFIX) + 43 for token in tokens)


async def test_created_token_connects_as_its_principal(autojump_clock: Clock) -> None:
    """The reply holds the secret once; the store holds its digest only; it opens the door."""
    async with open_daemon() as daemon:
        operator = await daemon.connect("tok-operator")
        made = await operator.call(
            "token.create", principal="ann", role="approver", name="phone", ttl_ms=60_000
        )
        token = made.pop("token")
        expected = {
            "token_id": made["token_id"],
            "principal": "ann",
            "role": "approver",
            "name": "phone",
            "created_ms": daemon.now_ms,
            "expires_ms": daemon.now_ms + 60_000,
        }
        assert expected == made
        record = daemon.store.tokens[digest_token(token)]
        assert isinstance(record, TokenRecord)
        assert token not in str(daemon.store.tokens)
        welcome = await daemon.dial().call("connect", token=token)
        assert ("ann", "approver") == (welcome["principal"], welcome["role"])


async def test_secret_is_not_in_the_receipt(autojump_clock: Clock) -> None:
    """Neither the receipt nor a repeated reply contains the token."""
    async with open_daemon() as daemon:
        operator = await daemon.connect("tok-operator")
        params = {"principal": "a", "role": "client", "name": "n", "idempotency_key": "k"}
        token = (await operator.call("token.create", **params))["token"]
        assert "token" not in await operator.call("token.create", **params)
        assert token not in str(daemon.store.receipts)


async def test_list_shows_no_secret(autojump_clock: Clock) -> None:
    """Listing names every token, with its fate, and neither token nor digest."""
    async with open_daemon() as daemon:
        operator = await daemon.connect("tok-operator")
        await operator.call("token.revoke", token_id="id-of-tok-bob")
        tokens = (await operator.call("token.list"))["tokens"]
        revoked = {token["token_id"]: token.get("revoked_ms") for token in tokens}
        assert len(daemon.store.tokens) == len(tokens)
        assert daemon.now_ms == revoked["id-of-tok-bob"]
        assert revoked["id-of-tok-ann"] is None
        assert not {"token", "sha256"} & {name for token in tokens for name in token}


async def test_revoking_twice_keeps_the_first_time(autojump_clock: Clock) -> None:
    """A second revocation is no error and changes nothing; an unknown token is not found."""
    async with open_daemon() as daemon:
        operator = await daemon.connect("tok-operator")
        first = await operator.call("token.revoke", token_id="id-of-tok-bob")
        daemon.now_ms += 5
        assert first == await operator.call("token.revoke", token_id="id-of-tok-bob")
        error = await operator.fail("token.revoke", token_id="tok_x")
        assert "not_found" == error["data"]["code"]


@pytest.mark.parametrize("token", ["tok-ann", "tok-approver", "tok-observer"])
async def test_only_operators_manage_tokens(autojump_clock: Clock, token: str) -> None:
    """Every other role is forbidden to create, list and revoke, and nothing happens."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(token)
        before = dict(daemon.store.tokens)
        for method, params in (
            ("token.create", {"principal": "x", "role": "operator", "name": "x"}),
            ("token.list", {}),
            ("token.revoke", {"token_id": "id-of-tok-bob"}),
        ):
            assert "forbidden" == (await peer.fail(method, **params))["data"]["code"]
        assert before == daemon.store.tokens
