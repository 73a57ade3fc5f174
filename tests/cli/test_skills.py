"""`palyra skills`: from a template to a signed package, and what operators see."""

from pathlib import Path

import pytest

from palyra.core.skill.package import read_package
from palyra.store.journal.keys import is_signed
from tests.cli.command import palyra
from tests.client.fake_daemon import fake_daemon

SKILL = {
    "id": "words",
    "version": "1.2.0",
    "publisher": "example.org",
    "public_key": "a" * 64,
    "package_sha256": "b" * 64,
    "description": "Counts words.",
    "state": "quarantined",
    "reason": "it misbehaves",
    "tools": [
        {
            "name": "wasm:words.count",
            "description": "Count.",
            "tool_class": "read_only_safe",
            "risk": "low",
        }
    ],
    "capabilities": ["clock", "log"],
    "granted": ["clock"],
    "installed_ms": 1,
    "changed_ms": 2,
    "changed_by": "root",
}


async def test_a_template_becomes_a_signed_package(tmp_path: Path) -> None:
    """init, build, sign: what comes out is what a daemon takes."""
    folder, package, key = tmp_path / "hello", tmp_path / "hello.zip", tmp_path / "key"
    for command in (
        ("skills", "init", str(folder)),
        ("skills", "build", str(folder), "--out", str(package)),
        ("skills", "sign", str(package), "--key", str(key), "--create"),
    ):
        done = await palyra(*command)
        assert (0, "") == (done.code, done.err)
    read = read_package(package.read_bytes(), is_signed)
    assert ("hello", "1.0.0", "echo") == (
        read.manifest.id, read.manifest.version, read.manifest.tools[0].name,
    )  # fmt: skip
    assert read.public_key in done.out
    assert 0o600 == key.stat().st_mode & 0o777
    again = await palyra("skills", "sign", str(package), "--key", str(key))
    assert read.public_key in again.out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("skills", "init", "."), "does not exist yet"),
        (("skills", "build", "."), "skill.toml"),
        (("skills", "sign", "none.zip", "--key", "none"), "create one with --create"),
        (("skills", "install", "none.zip"), "none.zip cannot be read"),
    ],
)
async def test_a_missing_file_or_key_is_named(command: tuple[str, ...], said: str) -> None:
    """The error has a remedy."""
    failed = await palyra(*command)
    assert failed.code != 0
    assert said in failed.err


async def test_a_name_that_no_skill_can_have_is_refused_at_once(tmp_path: Path) -> None:
    """Nothing is made then; with another name it is."""
    folder = tmp_path / "a b"
    failed = await palyra("skills", "init", str(folder))
    assert (2, False) == (failed.code, folder.exists())
    assert "'a b' is not a skill name" in failed.err
    assert 0 == (await palyra("skills", "init", str(folder), "--id", "ab")).code


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("skill.toml", 'id = "Not an id"', "Expected"),
        ("skill.toml", "no toml", "skill.toml"),
        ("module.wat", "(module (nonsense))", "module.wat"),
    ],
)
async def test_a_folder_with_a_mistake_is_not_packed(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    """The message names the file."""
    folder = tmp_path / "hello"
    await palyra("skills", "init", str(folder))
    (folder / name).write_text(text)
    failed = await palyra("skills", "build", str(folder), "--out", str(tmp_path / "p.zip"))
    assert (2, True) == (failed.code, said in failed.err), failed.err
    assert not (tmp_path / "p.zip").exists()


async def test_a_key_must_be_one(tmp_path: Path) -> None:
    """A file with something else is refused, and is not replaced."""
    key, package = tmp_path / "key", tmp_path / "p.zip"
    key.write_text("not a key")
    await palyra("skills", "init", str(tmp_path / "hello"))
    await palyra("skills", "build", str(tmp_path / "hello"), "--out", str(package))
    failed = await palyra("skills", "sign", str(package), "--key", str(key), "--create")
    assert "is not a publisher's key" in failed.err
    assert "not a key" == key.read_text()


@pytest.mark.parametrize(
    ("command", "method", "reply", "said"),
    [
        (("list",), "skill.list", {"skills": [SKILL], "obstacle": "no jail"}, "no jail"),
        (("list",), "skill.list", {"skills": [], "obstacle": ""}, "no skills"),
        (("show", "words"), "skill.get", SKILL, "it misbehaves"),
        (("quarantine", "words", "--reason", "odd"), "skill.quarantine", SKILL, "is quarantined"),
        (("enable", "words"), "skill.enable", SKILL, "is enabled"),
        (("remove", "words"), "skill.remove", SKILL, "is removed"),
    ],
)
async def test_operators_see_what_is_so(
    command: tuple[str, ...], method: str, reply: dict[str, object], said: str
) -> None:
    """As text and as JSON."""
    async with fake_daemon() as daemon:
        daemon.reply_with(method, reply)
        text = await palyra("skills", *command, url=daemon.url)
        data = await palyra("skills", *command, "--json", url=daemon.url)
    assert (0, 0, True) == (text.code, data.code, said in text.out), text
    assert reply.keys() <= data.json.keys()


async def test_an_audit_with_problems_fails() -> None:
    """So that a script can ask."""
    found = {"skill": SKILL, "problems": [], "imports": ["palyra.log"], "functions": 3,
             "module_bytes": 99}  # fmt: skip
    async with fake_daemon() as daemon:
        daemon.reply_with("skill.audit", found)
        good = await palyra("skills", "audit", "words", url=daemon.url)
        daemon.reply_with("skill.audit", {**found, "problems": ["it was replaced"]})
        bad = await palyra("skills", "audit", "words", url=daemon.url)
    assert (0, True) == (good.code, "imports palyra.log" in good.out)
    assert (1, True) == (bad.code, "it was replaced" in bad.out)


async def test_an_installation_says_what_is_not_granted(tmp_path: Path) -> None:
    """A package is uploaded, then installed by its digest."""
    (tmp_path / "p.zip").write_bytes(b"zip")
    async with fake_daemon() as daemon:
        daemon.reply_with("skill.upload", {"size": 3})
        daemon.reply_with("skill.install", SKILL)
        done = await palyra(
            "skills", "install", str(tmp_path / "p.zip"), "--grant", "clock", url=daemon.url
        )
        sent = [params for method, params in daemon.requests if method == "skill.install"]
    assert (0, True) == (done.code, "not granted: log" in done.out)
    assert [["clock"]] == [params["grant"] for params in sent]
