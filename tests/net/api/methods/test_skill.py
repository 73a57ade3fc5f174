"""skill.* on the wire: what is passed on, what is shown, who is refused."""

import base64
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import trio.testing

from palyra.core.skill.manifest import InstallSkill
from palyra.net.api.methods import skill as methods
from palyra.tools.files.workspace import Workspace
from palyra.tools.skills.text_skills import TextSkills
from tests.net.api.fake_services import open_daemon
from tests.net.api.fake_skills import COUNTER

Clock = trio.testing.MockClock
OPERATOR = "tok-operator"
DIGEST = "d" * 64


async def test_skills_are_listed_with_their_obstacle(autojump_clock: Clock) -> None:
    """The list has name, publisher, key, grants, and the tools of the catalogue."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        listed = await peer.call("skill.list")
        assert "no sandbox" == listed["obstacle"]
        (skill,) = listed["skills"]
        assert skill == await peer.call("skill.get", id="counter")
        assert ("counter", "1.2.0", "example.org", "enabled") == (
            skill["id"], skill["version"], skill["publisher"], skill["state"],
        )  # fmt: skip
        assert (["clock", "fetch:example.org"], ["clock"]) == (
            skill["capabilities"], skill["granted"],
        )  # fmt: skip
        (tool,) = skill["tools"]
        assert ("wasm:counter.count", "low") == (tool["name"], tool["risk"])


async def test_a_package_comes_in_as_base64(autojump_clock: Clock) -> None:
    """And is installed with its grants."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        chunk = base64.b64encode(b"zip").decode()
        sent = await peer.call("skill.upload", sha256=DIGEST, offset=4, chunk=chunk)
        assert {"size": 7} == sent
        await peer.call("skill.install", sha256=DIGEST, grant=["clock"], trust_key="e" * 64)
        assert [
            ("upload", DIGEST, 4, b"zip"),
            ("install", InstallSkill(sha256=DIGEST, granted=("clock",), trust_key="e" * 64)),
        ] == daemon.skills.asked


async def test_changes_are_passed_on(autojump_clock: Clock) -> None:
    """Once for each idempotency key."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        for _ in range(2):
            shown = await peer.call(
                "skill.quarantine", id="counter", reason="odd", idempotency_key="k"
            )
        assert COUNTER.package_sha256 == shown["package_sha256"]
        await peer.call("skill.enable", id="counter")
        await peer.call("skill.remove", id="counter")
        assert [
            ("quarantine", "counter", "odd"), ("enable", "counter"), ("remove", "counter"),
        ] == daemon.skills.asked  # fmt: skip


async def test_an_audit_shows_its_problems(autojump_clock: Clock) -> None:
    """And the skill it is about."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        found = await peer.call("skill.audit", id="counter")
        assert (["it is damaged"], 3) == (found["problems"], found["functions"])
        assert "counter" == found["skill"]["id"]


@pytest.mark.parametrize("token", ["tok-ann", "tok-approver", "tok-observer"])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("skill.list", {}),
        ("skill.get", {"id": "counter"}),
        ("skill.upload", {"sha256": DIGEST, "offset": 0, "chunk": "eA=="}),
        ("skill.install", {"sha256": DIGEST}),
        ("skill.audit", {"id": "counter"}),
        ("skill.quarantine", {"id": "counter", "reason": "r"}),
        ("skill.enable", {"id": "counter"}),
        ("skill.remove", {"id": "counter"}),
    ],
)
async def test_only_operators(
    autojump_clock: Clock, token: str, method: str, params: dict[str, Any]
) -> None:
    """Everybody else lacks the scope."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(token)
        reply = await peer.ask(method, **params)
        assert "forbidden" == reply["error"]["data"]["code"]
        assert [] == daemon.skills.asked


@pytest.mark.parametrize(
    ("method", "params", "field"),
    [
        ("skill.upload", {"sha256": DIGEST, "offset": 0, "chunk": ""}, "chunk"),
        ("skill.upload", {"sha256": DIGEST, "offset": 0, "chunk": "%"}, "chunk"),
        ("skill.upload", {"sha256": DIGEST, "offset": -1, "chunk": "eA=="}, "offset"),
        ("skill.upload", {"sha256": "short", "offset": 0, "chunk": "eA=="}, "sha256"),
        ("skill.upload", {"sha256": DIGEST, "offset": 0, "chunk": "x" * 400_000}, "chunk"),
        ("skill.install", {"sha256": DIGEST, "trust_key": "k"}, "trust_key"),
        ("skill.install", {"sha256": DIGEST, "grant": "clock"}, "grant"),
        ("skill.quarantine", {"id": "counter", "reason": ""}, "reason"),
    ],
)
async def test_invalid_parameters_are_refused(
    autojump_clock: Clock, method: str, params: dict[str, Any], field: str
) -> None:
    """The error names the field."""
    async with open_daemon() as daemon:
        peer = await daemon.connect(OPERATOR)
        error = (await peer.ask(method, **params))["error"]["data"]
        assert ("invalid_params", field) == (error["code"], error["field"])


@pytest.mark.parametrize("is_used", [True, False])
def test_text_skills_that_no_run_knows_say_so(tmp_path: Path, is_used: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A folder with a problem of its own keeps that one."""
    for name in ("good", "bad"):
        (tmp_path / "place/.palyra/skills" / name).mkdir(parents=True)
    (tmp_path / "place/.palyra/skills/good/SKILL.md").write_text(
        "---\nname: good\ndescription: Good.\n---\n", encoding="utf-8"
    )
    workspaces = {"default": Workspace(tmp_path / "place")}
    found = TextSkills(workspaces, tmp_path / "none", lambda _tool: None, is_used=is_used)
    bad, good = methods._list_texts(Mock(text_skills=found, workspaces=workspaces))
    assert good.problem == ("" if is_used else methods._OFF)
    assert bad.problem not in {"", methods._OFF}
