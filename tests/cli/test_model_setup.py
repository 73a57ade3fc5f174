"""`palyra models add`: one call to a real listener, then a configuration that the daemon loads."""

import os
import pty
import stat
from pathlib import Path

import pytest
import trio

from palyra.config.file import replace_text
from palyra.config.load import load
from palyra.config.sections import ModelProvider
from palyra.errors import Conflict
from palyra.secrets.resolver import Resolver
from tests.cli.command import Result, palyra, start_palyra
from tests.models.model_kit import CHAT_TURN
from tests.models.provider import STREAM, Provider, provider, refusal, sse

pytestmark = pytest.mark.real
KEY = "sk-test-0123456789abcdef"
ANSWER = (STREAM + sse(*CHAT_TURN),)
VARIABLE = "PALYRA_TEST_KEY_OF_A_PROVIDER"


async def add(home: Path, *arguments: str, url: str | None = None) -> Result:
    """Add the provider `openai` at that address without questions."""
    address = () if url is None else ("--base-url", url)
    return await palyra("models", "add", "openai", "--yes", *address, *arguments, home=home)


def stored_key(home: Path) -> str:
    """Put the key into the vault; return its reference."""
    Resolver(home, home / "keys").vault.put("k", KEY, 0)
    return "vault:k"


def configured(home: Path) -> tuple[str, tuple[ModelProvider, ...]]:
    """The default model and the providers, as the daemon reads them."""
    models = load(home=home, environ={}).models
    return models.default, models.providers


async def test_a_provider_is_tried_and_written(tmp_path: Path) -> None:
    """The call has the key and the model; the file is private and has neither key nor test."""
    reference = stored_key(tmp_path)
    async with provider(ANSWER) as served:
        done = await add(tmp_path, "--key", reference, "--model", "big", url=served.url)
    assert 0 == done.code, done.err
    assert f"authorization: bearer {KEY}" in served.heads[0]
    assert "big" == served.bodies[0]["model"]
    entry = ModelProvider(name="openai", base_url=served.url, key=reference, models=("big",))
    assert ("openai/big", (entry,)) == configured(tmp_path)
    file = tmp_path / "palyra.toml"
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert KEY not in file.read_text(encoding="utf-8") + done.out + done.err
    assert "openai/big answers: Let me see" in done.out


FAILURES = [
    (refusal(401, {"error": {"message": f"bad key {KEY}"}}), "the key is refused"),
    (
        refusal(404, {"error": {"code": "model_not_found", "message": "It is gone"}}),
        "error: openai has no model 'big': HTTP 404: It is gone\n",
    ),
    (refusal(400, {"error": {"message": "The model `big` does not exist"}}), "it has no model"),
    (refusal(429, {"error": {"code": "insufficient_quota", "message": "pay"}}), "answers no more"),
    (refusal(404, b"not here"), "it has no model 'big': HTTP 404"),
    (refusal(500, {}), "it answers with an error: HTTP 500 without an explanation"),
    (refusal(502, b"HTTP 502"), "it answers with an error: HTTP 502 without an explanation"),
    (refusal(400, {"error": {"message": "what?"}}), "the call failed: HTTP 400: what?"),
    (b"", "it cannot be reached"),
]


@pytest.mark.parametrize(("answer", "said"), FAILURES)
async def test_a_failed_call_writes_nothing(tmp_path: Path, answer: bytes, said: str) -> None:
    """The error names the part that is wrong, without the key, and has a remedy."""
    reference = stored_key(tmp_path)
    async with provider((answer,)) as served:
        done = await add(tmp_path, "--key", reference, "--model", "big", url=served.url)
    assert 1 == done.code
    assert said in done.err
    assert "remedy:" in done.err
    assert KEY not in done.err
    assert not (tmp_path / "palyra.toml").exists()


async def test_a_server_that_wants_a_key_is_not_said_to_refuse_one(tmp_path: Path) -> None:
    """Without --key the remedy is to name its place."""
    async with provider((refusal(401, {}),)) as served:
        named = ("ours", "--yes", "--model", "m", "--base-url", served.url)
        done = await palyra("models", "add", *named, home=tmp_path)
    assert (1, True) == (done.code, "ours: it wants a key" in done.err)
    assert "with --key" in done.err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("opanai", "did you mean openai? give the address of your own with --base-url"),
        ("ours", "give the address of your own with --base-url"),
    ],
)
async def test_an_unknown_name_needs_an_address(tmp_path: Path, name: str, said: str) -> None:
    """It may be a slip, or a provider of one's own."""
    done = await palyra("models", "add", name, "--yes", "--model", "m", home=tmp_path)
    assert (2, True) == (done.code, said in done.err), done.err


async def test_a_closed_port_is_no_network(tmp_path: Path) -> None:
    """A local server that is not running is named as the reason."""
    async with provider() as served:
        url = served.url
    done = await palyra(
        "models", "add", "vllm", "--yes", "--model", "m", "--base-url", url, home=tmp_path
    )
    assert (1, True) == (done.code, "vllm: it cannot be reached" in done.err)
    assert not (tmp_path / "palyra.toml").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--key", KEY), 2, "a secret is named by a reference"),
        (("--key", f"env:{VARIABLE}"), 1, "`palyra secrets set openai`"),
        (("--key", "vault:none"), 1, "the key of openai is not there"),
        (("--no-test", "--model", "a\tb"), 2, "is no name of a model"),
        (("--no-test", "--base-url", "ftp://x"), 2, "base_url"),
        (("--no-test", "--region", "eu-west-1"), 2, "--region is no setting of openai"),
        (("--no-test", "--base-url", f"https://u:{KEY}@x/v1"), 2, "put a key into `key`"),
    ],
)
async def test_wrong_answers_write_nothing(
    tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """A key on the command line, a key that is not there, a bad name or address."""
    done = await add(tmp_path, *arguments)
    assert (code, True) == (done.code, said in done.err), done.err
    assert KEY not in done.out + done.err
    assert not (tmp_path / "palyra.toml").exists()


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("gemini", (), ModelProvider(name="gemini", models=("gemini-2.5-flash",))),
        ("bedrock", ("--region", "eu-west-1", "--model", "m", "--key-id", "env:ID"),
         ModelProvider(name="bedrock", region="eu-west-1", models=("m",), key_id="env:ID")),
        ("azure", ("--base-url", "https://a.openai.azure.com", "--model", "m", "--api-version", "9"),
         ModelProvider(name="azure", base_url="https://a.openai.azure.com", models=("m",),
                       api_version="9")),
        ("openrouter", ("--model", "meta-llama/llama-4"),
         ModelProvider(name="openrouter", models=("meta-llama/llama-4",))),
        ("ours", ("--model", "m", "--base-url", "http://127.0.0.1:8000/v1"),
         ModelProvider(name="ours", models=("m",), base_url="http://127.0.0.1:8000/v1")),
    ],
)  # fmt: skip
async def test_every_kind_of_provider(
    tmp_path: Path, name: str, arguments: tuple[str, ...], expected: ModelProvider
) -> None:
    """The file has what differs from the provider's defaults."""
    done = await palyra("models", "add", name, "--yes", "--no-test", *arguments, home=tmp_path)
    assert 0 == done.code, done.err
    assert (expected,) == configured(tmp_path)[1]


async def test_a_short_key_is_a_placeholder(tmp_path: Path) -> None:
    """It is used from a file, and the vault, which refuses it, says where it goes."""
    file = tmp_path / "key"
    file.write_text("abc123\n", encoding="utf-8")
    file.chmod(0o600)
    async with provider(ANSWER) as served:
        done = await add(tmp_path, "--key", f"file:{file}", "--model", "m", url=served.url)
    assert 0 == done.code, done.err
    assert "authorization: bearer abc123" in served.heads[0]
    refused = await palyra("secrets", "set", "K", home=tmp_path, stdin=b"abc123")
    assert "goes into env:NAME or file:PATH" in refused.err


async def test_an_existing_file_keeps_its_comments_and_its_default(tmp_path: Path) -> None:
    """A second provider goes beside the first; a default that somebody chose stays."""
    file = tmp_path / "palyra.toml"
    before = '# mine\n[models]\ndefault = "ollama/q" # local\nproviders = [{ name = "ollama" }]\n'
    file.write_text(before, encoding="utf-8")
    done = await add(tmp_path, "--no-test")
    assert 0 == done.code, done.err
    assert ["ollama", "openai"] == [each.name for each in configured(tmp_path)[1]]
    assert before.splitlines()[:3] == file.read_text(encoding="utf-8").splitlines()[:3]
    again = await add(tmp_path, "--no-test", "--default")
    assert "openai/gpt-5-mini" == configured(tmp_path)[0]
    assert 0 == again.code
    same = await add(tmp_path, "--no-test", "--default")
    assert "has it already" in same.out


async def test_a_dry_run_shows_the_change(tmp_path: Path) -> None:
    """And writes nothing, also where a file exists."""
    done = await add(tmp_path, "--no-test", "--dry-run")
    assert '+    {name = "openai", models = ["gpt-5-mini"]},' in done.out
    assert not (tmp_path / "palyra.toml").exists()


async def test_a_broken_file_is_left_alone(tmp_path: Path) -> None:
    """A file that the daemon would refuse is not written to."""
    file = tmp_path / "palyra.toml"
    file.write_text("[models\n", encoding="utf-8")
    done = await add(tmp_path, "--no-test")
    assert 0 != done.code
    assert "[models\n" == file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("before", "now"), [("a = 1\n", "a = 2\n"), (None, "a = 2\n")])
def test_a_file_that_changed_meanwhile_is_left_alone(
    tmp_path: Path, before: str | None, now: str
) -> None:
    """The change was shown for another text, so it is not written."""
    file = tmp_path / "palyra.toml"
    file.write_text(now, encoding="utf-8")
    with pytest.raises(Conflict, match="changed meanwhile"):
        replace_text(file, before, "b = 1\n")
    assert now == file.read_text(encoding="utf-8")


async def test_at_a_terminal_a_key_goes_into_the_vault(tmp_path: Path) -> None:
    """Questions have defaults; a key that is typed is hidden, stored, and used for the call."""
    async with provider(ANSWER) as served:
        shown = await converse(tmp_path, served)
    assert KEY.encode() not in shown
    assert KEY == Resolver(tmp_path, tmp_path / "keys").resolve("vault:openai")
    assert f"authorization: bearer {KEY}" in served.heads[0]
    default, (entry,) = configured(tmp_path)
    assert ("openai/big", "vault:openai") == (default, entry.key)


async def converse(home: Path, served: Provider) -> bytes:
    """Answer the questions of the command; return what the terminal showed."""
    ours, theirs = pty.openpty()
    process = start_palyra(
        "models", "add", "openai", "--base-url", served.url, home=home, terminal=theirs
    )
    shown = b""
    with trio.fail_after(120):
        for expected, answer in (
            (b"reference to the key", f"env:{VARIABLE}"),
            (b"keep it as vault:openai?", "y"),
            (b"value of", KEY),
            (b"epeat", KEY),
            (b"model [gpt-5-mini]", "big"),
            (b"instead of scripted?", ""),
            (b"palyra.toml?", "y"),
        ):
            part = b""
            while expected not in part:
                await trio.lowlevel.wait_readable(ours)
                part += os.read(ours, 4_096)
            shown += part
            os.write(ours, answer.encode() + b"\n")
        assert 0 == await process.ended()
    os.close(theirs)
    os.close(ours)
    return shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a provider: openai, "),
        (("Ours!", "--base-url", "http://127.0.0.1:1/v1"), "'Ours!' is no name of a provider"),
        (("a/b", "--base-url", "http://127.0.0.1:1/v1"), "'a/b' is no name of a provider"),
        (("ours", "--base-url", "127.0.0.1:8911/v1"), "write http://127.0.0.1:8911/v1"),
        (("ours", "--base-url", "ftp://127.0.0.1/v1"), "write http://127.0.0.1/v1"),
        (("ours", "--base-url", "//localhost/v1"), "write http://localhost/v1"),
        (("ours", "--base-url", "api.example.com/v1"), "write https://api.example.com/v1"),
    ],
)
async def test_a_mistake_is_named_with_what_would_work(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    """A missing or odd name, and an address without its scheme; nothing is written."""
    done = await palyra("models", "add", *arguments, "--yes", "--model", "m", home=tmp_path)
    assert (2, True) == (done.code, said in done.err), done.err
    assert not (tmp_path / "palyra.toml").exists()


async def test_what_names_no_daemon_is_named(tmp_path: Path) -> None:
    """A file instead of a directory, and a word instead of an address; an address is tried."""
    file = tmp_path / "file"
    file.touch()
    wrong = await palyra("runs", "list", home=file)
    assert (2, True) == (wrong.code, "is a file: name the daemon's directory" in wrong.err)
    word = await palyra("runs", "list", "--url", "foo", home=tmp_path)
    assert (2, True) == (word.code, "'foo' is no WebSocket address (ws://host:port" in word.err)
    near = await palyra("config", "set", "models.defualt", "x", home=tmp_path)
    assert (2, True) == (near.code, "did you mean models.default?" in near.err)
