"""`palyra secrets`: values go in and are never seen again."""

import os
import pty
from pathlib import Path

import pytest
import trio

from palyra.cli.command.talk import Options
from palyra.cli.host import doctor
from palyra.secrets.resolver import Resolver
from tests.cli.command import palyra, start_palyra

pytestmark = pytest.mark.real
SECRET = "a-value-nobody-may-see"


def in_vault(home: Path, name: str) -> str:
    """The value, read as the daemon does."""
    return Resolver(home, home / "keys").resolve(f"vault:{name}")


async def test_set_list_remove(tmp_path: Path) -> None:
    """The value comes from standard input, without the end of its line; names are listed."""
    done = await palyra("secrets", "set", "KEY", home=tmp_path, stdin=SECRET.encode() + b"\n")
    assert (0, "vault:KEY is set\n") == (done.code, done.out)
    assert SECRET == in_vault(tmp_path, "KEY")
    listed = await palyra("secrets", "list", home=tmp_path)
    assert "vault:KEY" in listed.out
    as_json = await palyra("secrets", "list", "--json", home=tmp_path)
    assert ["KEY"] == [row["name"] for row in as_json.json["secrets"]]
    removed = await palyra("secrets", "remove", "KEY", home=tmp_path)
    assert 0 == removed.code
    again = await palyra("secrets", "remove", "KEY", home=tmp_path)
    assert 1 == again.code
    assert "no secrets" in (await palyra("secrets", "list", home=tmp_path)).out
    for result in (done, listed, as_json, removed, again):
        assert SECRET not in result.out + result.err


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [("KEY", b"1234567\n", "shorter"), ("KEY", b"", "shorter"), ("a b", b"x" * 20, "vault"),
     ("KEY", b"x" * 70_000, "bytes")],
)  # fmt: skip
async def test_an_invalid_secret_is_refused(
    tmp_path: Path, name: str, value: bytes, says: str
) -> None:
    """Nothing is written, and the value is not repeated."""
    done = await palyra("secrets", "set", name, home=tmp_path, stdin=value)
    assert 2 == done.code
    assert says in done.err
    assert "1234567" not in done.err
    assert not (tmp_path / "vault.sealed").exists()


async def test_a_value_on_the_command_line_is_refused(tmp_path: Path) -> None:
    """There is no argument for it."""
    done = await palyra("secrets", "set", "KEY", SECRET, home=tmp_path, stdin=b"")
    assert 2 == done.code
    assert not (tmp_path / "vault.sealed").exists()


async def test_at_a_terminal_it_is_asked_for(tmp_path: Path) -> None:
    """Twice, and hidden."""
    ours, theirs = pty.openpty()
    process = start_palyra("secrets", "set", "KEY", home=tmp_path, terminal=theirs)
    with trio.fail_after(120):
        shown = await _until(ours, b"value of KEY")
        os.write(ours, SECRET.encode() + b"\n")
        shown += await _until(ours, b"epeat")
        os.write(ours, SECRET.encode() + b"\n")
        assert 0 == await process.ended()
    os.close(theirs)
    shown += await _until(ours, b"is set")
    os.close(ours)
    assert SECRET.encode() not in shown
    assert SECRET == in_vault(tmp_path, "KEY")


async def _until(terminal: int, expected: bytes) -> bytes:
    """The terminal's output up to that text."""
    shown = b""
    while expected not in shown:
        await trio.lowlevel.wait_readable(terminal)
        shown += os.read(terminal, 1_000)
    return shown


async def test_test_looks_at_references(tmp_path: Path) -> None:
    """Good ones and bad ones; a value in the place of a reference is not shown."""
    await palyra("secrets", "set", "KEY", home=tmp_path, stdin=SECRET.encode())
    good = await palyra("secrets", "test", "vault:KEY", home=tmp_path)
    assert 0 == good.code
    assert "ok" in good.out
    bad = await palyra("secrets", "test", "vault:NONE", "hunter2hunter2", "--json", home=tmp_path)
    assert 1 == bad.code
    assert ["vault:NONE", "?"] == [row["reference"] for row in bad.json["secrets"]]
    assert "hunter2" not in bad.out + bad.err


CONFIG = """
[[fetch.credentials]]
name = "key"
secret = "vault:KEY"
host = "e.example"
"""


async def test_test_looks_at_the_configuration(tmp_path: Path) -> None:
    """When it is given nothing."""
    (tmp_path / "palyra.toml").write_text(CONFIG, encoding="utf-8")
    assert 1 == (await palyra("secrets", "test", home=tmp_path)).code
    await palyra("secrets", "set", "KEY", home=tmp_path, stdin=SECRET.encode())
    done = await palyra("secrets", "test", home=tmp_path)
    assert (0, True) == (done.code, "vault:KEY" in done.out)
    server = (
        '[[mcp.servers]]\nname = "a"\ncommand = ["/bin/a"]\nenvironment = ["A=b", "C=vault:NONE"]\n'
    )
    (tmp_path / "palyra.toml").write_text(CONFIG + server, encoding="utf-8")
    done = await palyra("secrets", "test", home=tmp_path)
    assert (1, True) == (done.code, "vault:NONE" in done.out)


async def test_test_looks_at_keys_of_providers(tmp_path: Path) -> None:
    """The usual variable of a provider counts as configured; a local one needs no key."""
    providers = (
        '[models]\nproviders = [{ name = "openrouter", key = "vault:K" }, { name = "ollama" }]\n'
    )
    (tmp_path / "palyra.toml").write_text(providers, encoding="utf-8")
    missing = await palyra("secrets", "test", "--json", home=tmp_path)
    assert ["vault:K"] == [row["reference"] for row in missing.json["secrets"]]
    (tmp_path / "palyra.toml").write_text(
        '[models]\nproviders = [{ name = "azure", base_url = "http://x" }]\n'
    )
    usual = await palyra("secrets", "test", "--json", home=tmp_path)
    assert ["env:AZURE_OPENAI_API_KEY"] == [row["reference"] for row in usual.json["secrets"]]


async def test_a_damaged_vault_is_an_error(tmp_path: Path) -> None:
    """For every command, with the remedy."""
    await palyra("secrets", "set", "KEY", home=tmp_path, stdin=SECRET.encode())
    (tmp_path / "vault.sealed").write_bytes(b"{}")
    for arguments in (("list",), ("set", "KEY"), ("remove", "KEY")):
        done = await palyra("secrets", *arguments, home=tmp_path, stdin=SECRET.encode())
        assert done.code
        assert "backup" in done.err


def test_doctor_checks_references(tmp_path: Path) -> None:
    """Doctor reports the references of the configuration that resolve to no secret."""
    options = Options(home=tmp_path)
    assert ("ok", "0 in the vault") == _finding(options)
    (tmp_path / "palyra.toml").write_text(CONFIG, encoding="utf-8")
    verdict, detail = _finding(options)
    assert "fail" == verdict
    assert "KEY" in detail
    Resolver(tmp_path, tmp_path / "keys").vault.put("KEY", SECRET, 5)
    assert ("ok", "1 in the vault") == _finding(options)
    (tmp_path / "palyra.toml").write_text("[fetch]\nx = 1\n", encoding="utf-8")
    assert "warn" == _finding(options)[0]


def _finding(options: Options) -> tuple[str, str]:
    found = doctor.check_secrets(options)
    return found.verdict, found.detail


async def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """Before the vault is made, and without a traceback."""
    done = await palyra("secrets", "set", "KEY", home=tmp_path, stdin=b"\xff\xfeabcdefgh")
    assert 0 != done.code
    assert "not text in UTF-8" in done.err
    assert "no secrets" in (await palyra("secrets", "list", home=tmp_path)).out
