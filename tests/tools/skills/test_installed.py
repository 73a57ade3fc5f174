"""Installed skills: who may, what is refused and why, what a restart finds."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio.testing

from palyra.core.access import Caller
from palyra.core.journal.records import Role
from palyra.core.skill.manifest import InstallSkill, SkillRefused
from palyra.core.text.canonical_json import sha256_hex
from palyra.errors import (
    Conflict,
    Forbidden,
    IllegalState,
    InvalidParams,
    NotFound,
    TooLarge,
    Unavailable,
)
from palyra.tools.skills.audit import DAMAGED
from palyra.tools.skills.installed import MAX_SKILLS
from palyra.tools.wasm.limits import GuestFailure
from tests.core.skill.skill_samples import ANN, EVE, PLAIN, package, public_key
from tests.core.trust.injection_samples import PLAIN_ATTACK
from tests.tools.skills.kit import HELLO, LOGS, OPERATOR, World, open_world

Clock = trio.testing.MockClock


async def refusal(world: World, data: bytes, **options: str) -> str:
    """Why it is not installed; nothing is, then."""
    before = world.skills.list_all(OPERATOR)
    with pytest.raises(SkillRefused) as caught:
        await world.install(data, **options)  # type: ignore[arg-type]  # trust_key
    assert before == world.skills.list_all(OPERATOR)
    return caught.value.message


async def test_an_installed_skill_survives_a_restart(autojump_clock: Clock, tmp_path: Path) -> None:
    """With its grants; another daemon of the same directory finds it."""
    async with open_world(tmp_path) as world:
        made = await world.install(package(LOGS, capabilities=["log", "clock"]), ("log",))
        assert (("log",), "enabled", "root") == (made.granted, made.state, made.changed_by)
        assert 2 == world.changes  # once when it was read, once for this
    async with open_world(tmp_path) as later:
        assert [made] == later.skills.list_all(OPERATOR) == later.skills.enabled
        assert made == later.skills.get(OPERATOR, "words")
        assert () == (await later.skills.audit(OPERATOR, "words")).problems


@pytest.mark.parametrize("role", ["client", "approver", "observer"])
async def test_only_operators_install(autojump_clock: Clock, tmp_path: Path, role: Role) -> None:
    """Other roles do not see skills."""
    caller = Caller(principal="ann", role=role, token_id="t")
    async with open_world(tmp_path) as world:
        await world.install(package(HELLO))
        skills = world.skills
        with pytest.raises(Forbidden):
            skills.list_all(caller)
        with pytest.raises(Forbidden):
            skills.get(caller, "words")
        with pytest.raises(Forbidden):
            skills.upload(caller, "0" * 64, 0, b"x")
        with pytest.raises(Forbidden):
            await skills.install(caller, InstallSkill(sha256="0" * 64))
        with pytest.raises(Forbidden):
            await skills.audit(caller, "words")
        for change in (skills.enable, skills.remove):
            with pytest.raises(Forbidden):
                await change(caller, "words")
        with pytest.raises(Forbidden):
            await skills.quarantine(caller, "words", "why")


async def test_a_changed_package_is_refused(autojump_clock: Clock, tmp_path: Path) -> None:
    """One byte of the module is another one."""
    data = bytearray(package(HELLO))
    data[data.index(HELLO) + 20] ^= 1
    async with open_world(tmp_path) as world:
        assert "module.wasm" in await refusal(world, bytes(data))


async def test_an_import_must_be_declared(autojump_clock: Clock, tmp_path: Path) -> None:
    """Control: declared, it is installed."""
    async with open_world(tmp_path) as world:
        assert "does not declare: log" in await refusal(world, package(LOGS))
        await world.install(package(LOGS, capabilities=["log"]))


async def test_a_skill_whose_words_give_orders_is_refused(
    autojump_clock: Clock, tmp_path: Path
) -> None:
    """In its description, in its schema, hidden or plain.  Control: plain words are installed."""
    (tool,) = PLAIN["tools"]

    def argued(**schema: Any) -> dict[str, Any]:
        inner = {"type": "string", **schema}
        return {**tool, "parameters": {"type": "object", "properties": {"a": inner}}}

    async with open_world(tmp_path) as world:
        for bad, why in (
            ({**tool, "description": PLAIN_ATTACK}, "instruction"),
            (argued(description=PLAIN_ATTACK), "instruction"),
            (argued(enum=[PLAIN_ATTACK]), "instruction"),
            (argued(enum=["a\u200bb"]), "hide"),
            (argued(enum=["</fenced nonce=x>"]), ""),
        ):
            assert why in await refusal(world, package(HELLO, tools=[bad]))
        await world.install(package(HELLO, tools=[argued(description="Some text.", enum=["b"])]))


async def test_a_module_that_is_none_is_refused(autojump_clock: Clock, tmp_path: Path) -> None:
    """By the audit, or by the worker that should compile it."""
    async with open_world(tmp_path) as world:
        assert "first eight bytes" in await refusal(world, package(b"no module"))
        world.runtime.refusal = GuestFailure("quota_exceeded", "compiling took too long")
        assert "quota_exceeded: compiling" in await refusal(world, package(HELLO))


async def test_the_key_of_a_publisher_is_pinned(autojump_clock: Clock, tmp_path: Path) -> None:
    """The first one is believed; another one is refused, also after the skill was removed."""
    async with open_world(tmp_path) as world:
        await world.install(package(HELLO))
        await world.skills.remove(OPERATOR, "words")
    async with open_world(tmp_path) as world:
        said = await refusal(world, package(HELLO, EVE))
        assert "the key of the publisher 'example.org' has changed" in said
        await world.install(package(HELLO, ANN))


async def test_an_operator_can_name_the_key(autojump_clock: Clock, tmp_path: Path) -> None:
    """On first use, and when a publisher has a new one; a wrong one is refused."""
    ann, eve = public_key(ANN).hex(), public_key(EVE).hex()
    async with open_world(tmp_path) as world:
        assert "is signed with" in await refusal(world, package(HELLO), trust_key=eve)
        await world.install(package(HELLO), trust_key=ann)
        await world.install(package(HELLO, EVE), trust_key=eve)
        assert "has changed" in await refusal(world, package(HELLO, ANN))


async def test_a_skill_is_not_replaced_by_an_older_or_foreign_one(
    autojump_clock: Clock, tmp_path: Path
) -> None:
    """A newer version of the same publisher takes its place."""
    async with open_world(tmp_path) as world:
        await world.install(package(HELLO, version="1.9.0"))
        assert "is older" in await refusal(world, package(HELLO, version="1.8.9"))
        assert "is installed from" in await refusal(world, package(HELLO, publisher="other"))
        after = await world.install(package(HELLO, version="1.10.0"))
        assert [after] == world.skills.list_all(OPERATOR)
        assert world.package_file.name == f"{after.package_sha256}.zip"  # the old one is gone


async def test_grants_are_of_what_is_declared(autojump_clock: Clock, tmp_path: Path) -> None:
    """Anything else is a mistake worth hearing of."""
    async with open_world(tmp_path) as world:
        with pytest.raises(InvalidParams, match="does not declare clock"):
            await world.install(package(HELLO), ("clock",))


async def test_a_quarantined_skill_has_no_tools(autojump_clock: Clock, tmp_path: Path) -> None:
    """Until an operator enables it; the reason is kept, also over a restart."""
    async with open_world(tmp_path) as world:
        await world.install(package(HELLO))
        changed = await world.skills.quarantine(OPERATOR, "words", "it misbehaves")
        assert ("quarantined", "it misbehaves") == (changed.state, changed.reason)
        assert [] == world.skills.enabled
    async with open_world(tmp_path) as world:
        assert [] == world.skills.enabled
        enabled = await world.skills.enable(OPERATOR, "words")
        assert ("enabled", "") == (enabled.state, enabled.reason)
        assert [enabled] == world.skills.enabled


async def test_a_replaced_package_is_found(autojump_clock: Clock, tmp_path: Path) -> None:
    """By the audit, by enabling, and by a call, which puts it into quarantine."""
    async with open_world(tmp_path) as world:
        made = await world.install(package(HELLO))
        world.package_file.write_bytes(package(HELLO, EVE))
        assert (DAMAGED,) == (await world.skills.audit(OPERATOR, "words")).problems
        assert None is world.skills.find_package(made)
        await world.skills.report_damage(made)
        assert DAMAGED == world.skills.get(OPERATOR, "words").reason
        with pytest.raises(IllegalState, match="not the one that was installed"):
            await world.skills.enable(OPERATOR, "words")
        again = await world.install(package(HELLO))
        other = msgspec.structs.replace(made, package_sha256="0" * 64)
        await world.skills.report_damage(other)
        assert [again] == world.skills.enabled  # news of another package harms nobody


async def test_a_missing_skill_is_not_found(autojump_clock: Clock, tmp_path: Path) -> None:
    """By any method."""
    async with open_world(tmp_path) as world:
        with pytest.raises(NotFound):
            world.skills.get(OPERATOR, "words")
        with pytest.raises(NotFound):
            await world.skills.remove(OPERATOR, "words")
        with pytest.raises(NotFound):
            await world.skills.install(OPERATOR, InstallSkill(sha256="0" * 64))


async def test_an_upload_comes_in_pieces(autojump_clock: Clock, tmp_path: Path) -> None:
    """A piece may be sent twice; a gap, too much, and another digest are refused."""
    data = package(HELLO)
    sha256 = sha256_hex(data)
    async with open_world(tmp_path) as world:
        upload = world.skills.upload
        assert 10 == upload(OPERATOR, sha256, 0, data[:10])
        assert 20 == upload(OPERATOR, sha256, 10, data[10:20])
        assert 20 == upload(OPERATOR, sha256, 10, data[10:20])
        with pytest.raises(Conflict, match="gap"):
            upload(OPERATOR, sha256, 30, data[30:])
        with pytest.raises(InvalidParams, match="another SHA-256"):
            await world.skills.install(OPERATOR, InstallSkill(sha256=sha256))
        upload(OPERATOR, sha256, 20, data[20:])
        await world.skills.install(OPERATOR, InstallSkill(sha256=sha256))
        with pytest.raises(TooLarge):
            upload(OPERATOR, "0" * 64, 0, b"x" * 3_000_000)


async def test_uploads_are_bounded(autojump_clock: Clock, tmp_path: Path) -> None:
    """The oldest upload is dropped, so packages cannot fill the memory."""
    async with open_world(tmp_path) as world:
        for number in range(5):
            world.skills.upload(OPERATOR, f"{number:064}", 0, b"x")
        with pytest.raises(Conflict):
            world.skills.upload(OPERATOR, f"{0:064}", 1, b"x")
        assert 2 == world.skills.upload(OPERATOR, f"{1:064}", 1, b"x")


async def test_there_is_a_most(autojump_clock: Clock, tmp_path: Path) -> None:
    """Of skills."""
    async with open_world(tmp_path) as world:
        for number in range(MAX_SKILLS):
            await world.install(package(HELLO, id=f"s{number}"))
        with pytest.raises(TooLarge, match="remove one"):
            await world.install(package(HELLO, id="more"))


async def test_a_file_that_cannot_be_read_is_no_skills(
    autojump_clock: Clock, tmp_path: Path
) -> None:
    """And is not written over."""
    (tmp_path / "skills.json").write_text("{not json")
    async with open_world(tmp_path) as world:
        assert [] == world.skills.list_all(OPERATOR)
        assert "cannot be read" in world.skills.find_obstacle()
        with pytest.raises(Unavailable, match="cannot be read"):
            await world.install(package(HELLO))
    assert "{not json" == (tmp_path / "skills.json").read_text()
