"""`make clients`: programs and libraries that others wrote, against a real daemon.

Each is installed below `.scratch/clients`, by npm and pip in the versions below, and does what its users
do: a text, a stream, tools, a picture read by a tool, a structured answer, subagents side by side, an
interrupt, a resumed conversation, a prompt that is too long.  The two programs that people point at it
first also fix a bug with a provider behind the daemon, which plays recorded turns and refuses a history
that its original would refuse.  One line each; exit code 1 if any failed.
"""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.e2e.daemon_process import DaemonProcess, running
from tests.foreign.recorded_provider import recorded_provider

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".scratch" / "clients"
FOREIGN = Path(__file__).parent / "foreign"
NODE = (
    "@openai/codex@0.171.0", "@anthropic-ai/claude-code@2.1.197", "opencode-ai@1.18.33", "ai@6.0.326",
    "@ai-sdk/openai@3.0.141", "@ai-sdk/anthropic@3.0.140", "@ai-sdk/openai-compatible@2.0.92", "zod@4.6.7",
)  # fmt: skip
PYTHON = (
    "litellm==1.110.2", "langchain-openai==1.7.4", "langchain-anthropic==1.7.10", "openai-agents==0.24.0",
    "instructor==1.17.0", "smolagents==1.26.0",
)  # fmt: skip
LIBRARIES = ("litellm", "langchain", "openai_agents", "instructor", "smolagents")
MODEL = "agent/default"
FORM = '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}'
LIMIT_S = 180


def install() -> None:
    """Install what is missing, once."""
    bins = PLACE / "node_modules" / ".bin"
    if not all((bins / name).exists() for name in ("codex", "claude", "opencode")):
        run(["npm", "install", "--prefix", str(PLACE), "--no-audit", "--no-fund", *NODE], PLACE)
        package = PLACE / "node_modules" / "@anthropic-ai" / "claude-code"
        run(["node", "install.cjs"], package)
    if not (PLACE / "venv").exists():
        run([sys.executable, "-m", "venv", str(PLACE / "venv")], PLACE)
        run([str(PLACE / "venv/bin/pip"), "install", "--quiet", *PYTHON], PLACE)


def run(command: Sequence[str], folder: Path, **more: str) -> str:
    """Run it in that folder, return its output.  Raises SystemExit with all it wrote if it fails."""
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PWD": str(folder), **more},  # some ask it, not the kernel
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S * 3,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)[:200]}\n{done.stdout}{done.stderr}")
    return done.stdout


def script(*steps: str) -> str:
    """A prompt for the scripted model, which no program takes for a command of its own."""
    return "go on\n" + "\n/then\n".join(steps)


def png() -> bytes:
    """A picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(4))) + chunk(b"IEND", b"")
    )


class Programs:
    """The programs, in a project of their own, with the daemon as their model."""

    def __init__(self, daemon: DaemonProcess, base: Path) -> None:
        self.url, self.token = f"http://127.0.0.1:{daemon.port}", daemon.token
        self.project, self.home = base / "project", base / "own"
        for folder in (self.project, self.home / "codex"):
            folder.mkdir(parents=True)
        (self.project / "p.png").write_bytes(png())
        run(["git", "init", "--quiet"], self.project)
        (self.home / "codex" / "config.toml").write_text(
            f'model = "{MODEL}"\nmodel_provider = "palyra"\n[model_providers.palyra]\nname = "Palyra"\n'
            f'base_url = "{self.url}/v1"\nenv_key = "PALYRA_TOKEN"\nwire_api = "responses"\n',
            encoding="utf-8",
        )
        provider = {
            "name": "Palyra",
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{self.url}/v1", "apiKey": self.token},
            "models": {MODEL: {"name": "Palyra"}},
        }
        text = json.dumps({"provider": {"palyra": provider}})
        (self.project / "opencode.json").write_text(text, encoding="utf-8")
        names = ("", "DEFAULT_OPUS_", "DEFAULT_SONNET_", "DEFAULT_HAIKU_")
        self.environment = {
            "HOME": str(self.home),
            "CODEX_HOME": str(self.home / "codex"),
            "PALYRA_TOKEN": self.token,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_AUTH_TOKEN": self.token,
            "IS_SANDBOX": "1",  # so that root may run without questions
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            **{f"ANTHROPIC_{name}MODEL": MODEL for name in names},
        }

    def start(self, name: str, *arguments: str) -> str:
        """Run the program to its end."""
        program = str(PLACE / "node_modules" / ".bin" / name)
        return run([program, *arguments], self.project, **self.environment)

    def claude(self, prompt: str, *options: str) -> str:
        """Ask Claude Code once."""
        return self.start("claude", "-p", "--dangerously-skip-permissions", *options, prompt)

    def codex(self, prompt: str, *options: str) -> str:
        """Ask Codex once."""
        given = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
        return self.start("codex", "exec", *options, *given, prompt)

    def interrupt(self, name: str, *arguments: str) -> None:
        """Start the program, and interrupt it while the model is silent."""
        program = str(PLACE / "node_modules" / ".bin" / name)
        begun = subprocess.Popen(
            [program, *arguments, script("/delay 60000\n/say late")],
            cwd=self.project,
            env={**os.environ, "PWD": str(self.project), **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            begun.wait(5)
        except subprocess.TimeoutExpired:
            begun.send_signal(signal.SIGINT)
            begun.wait(LIMIT_S)


def check_claude(programs: Programs) -> None:
    """A text, tools, a picture, an answer in a form, subagents, an interrupt, a resumed conversation."""
    made = programs.project / "a.txt"
    write = {"file_path": str(made), "content": "hi"}
    look = {"file_path": str(programs.project / "p.png")}
    agents = [
        f"/call Agent {json.dumps({'description': n, 'prompt': f'go{chr(10)}/say {n}', 'subagent_type': kind})}"
        for n, kind in (("one", "general-purpose"), ("two", "Explore"))
    ]
    assert "Hello." in programs.claude(script("/say Hello."))
    steps = (f"/call Write {json.dumps(write)}", f"/call Read {json.dumps(look)}", "/say Seen.")
    assert "Seen." in programs.claude(script(*steps))
    assert "hi" == made.read_text(encoding="utf-8")
    assert "More." in programs.claude(script("/say More."), "--continue")
    assert '"structured_output":{"a":3}' in programs.claude(
        script('/call StructuredOutput {"a": 3}'), "--output-format", "json", "--json-schema", FORM
    )
    assert "Both." in programs.claude(script("\n".join(agents), "/say Both."))
    programs.interrupt("claude", "-p")
    assert "After." in programs.claude(script("/say After."), "--continue")


def check_codex(programs: Programs) -> None:
    """A text, tools, a picture, an answer in a form, a subagent, an interrupt, a resumed conversation."""
    form = programs.home / "form.json"
    form.write_text(FORM, encoding="utf-8")
    look = {"path": str(programs.project / "p.png")}
    steps = (
        '/call exec_command {"cmd": "echo hi > b.txt"}',
        f"/call view_image {json.dumps(look)}",
        '/call multi_agent_v1.spawn_agent {"message": "go\\n/say sub"}',
        "/say Seen.",
    )
    assert "Hello." in programs.codex(script("/say Hello."))
    said = programs.codex(script(*steps)).rstrip()
    # A subagent that ends first is announced by a message, and the model answers that.
    assert said.endswith("Seen.") or '"completed":"sub"' in said, said
    assert "hi" == (programs.project / "b.txt").read_text(encoding="utf-8").strip()
    assert "More." in programs.codex(script("/say More."), "resume", "--last")
    assert '{"a": 3}' in programs.codex(script('/say {"a": 3}'), "--output-schema", str(form))
    programs.interrupt("codex", "exec", "--skip-git-repo-check")
    assert "After." in programs.codex(script("/say After."), "resume", "--last")


BROKEN = "def total(a, b):\n    return a - b\n"
BROKEN_TEST = """import unittest
from total import total


class TestTotal(unittest.TestCase):
    def test_adds(self):
        self.assertEqual(5, total(2, 3))
"""


def check_recorded(
    api: str, fix: Callable[[Programs, str], tuple[str, str]]
) -> Callable[[Path], None]:
    """A bug fixed and a conversation resumed, with a provider of that API behind the daemon."""

    def check(base: Path) -> None:
        project = base / "project"
        with recorded_provider(project) as played:
            home = base / "daemon" / "home"
            home.mkdir(parents=True)
            (home / "palyra.toml").write_text(
                f'[models]\ndefault = "p/big"\nproviders = [{{ name = "p", base_url = "{played.url}", api = "{api}" }}]\n',
                encoding="utf-8",
            )
            with running(base / "daemon") as daemon:
                programs = Programs(daemon, base)
                (project / "total.py").write_text(BROKEN, encoding="utf-8")
                (project / "test_total.py").write_text(BROKEN_TEST, encoding="utf-8")
                first, second = fix(programs, "the test of total.py fails: mend it")
        assert "a + b" in (project / "total.py").read_text(encoding="utf-8")
        assert "The test passes" in first, first
        assert "one operator" in second, second
        assert not played.refused, played.refused

    return check


def fix_with_claude(programs: Programs, task: str) -> tuple[str, str]:
    """Both answers of Claude Code."""
    first = programs.claude(f"[claude-fix] {task}")
    return first, programs.claude("[claude-again] what did you change?", "--continue")


def fix_with_codex(programs: Programs, task: str) -> tuple[str, str]:
    """Both answers of Codex."""
    first = programs.codex(f"[codex-fix] {task}")
    return first, programs.codex("[codex-again] what did you change?", "resume", "--last")


def check_opencode(programs: Programs) -> None:
    """A text; its own tools are offered."""
    asked = ("run", "--format", "json", "-m", f"palyra/{MODEL}", script("/say Hello."))
    assert '"type":"text"' in programs.start("opencode", *asked)


def check_ai_sdk(programs: Programs) -> None:
    """Over the three APIs."""
    shutil.copy(FOREIGN / "ai_sdk.mjs", PLACE)
    run(["node", "ai_sdk.mjs", programs.url, programs.token], PLACE)


def check_library(name: str) -> Callable[[Programs], None]:
    """One library of Python."""

    def check(programs: Programs) -> None:
        python = str(PLACE / "venv" / "bin" / "python")
        script_path = str(FOREIGN / "python_clients.py")
        run([python, script_path, name, programs.url, programs.token], PLACE)

    return check


CHECKS: dict[str, Callable[[Programs], None]] = {
    "claude-code": check_claude,
    "codex": check_codex,
    "opencode": check_opencode,
    "ai-sdk": check_ai_sdk,
    **{name: check_library(name) for name in LIBRARIES},
}
RECORDED: dict[str, Callable[[Path], None]] = {
    f"{name}-{api}": check_recorded(api, fix)
    for api in ("anthropic", "responses")
    for name, fix in (("claude-code", fix_with_claude), ("codex", fix_with_codex))
}


def main() -> int:
    """Return the exit code."""
    missing = [name for name in ("npm", "node", "git") if shutil.which(name) is None]
    if missing:
        sys.stdout.write(f"missing: {', '.join(missing)} (Node 22 or newer)\n")
        return 1
    install()
    with tempfile.TemporaryDirectory() as folder, running(Path(folder) / "daemon") as daemon:
        programs = Programs(daemon, Path(folder) / "scripted")
        checks = {
            **{name: partial(check, programs) for name, check in CHECKS.items()},
            **{name: partial(check, Path(folder) / name) for name, check in RECORDED.items()},
        }
        good = [is_good(name, checks[name]) for name in sys.argv[1:] or checks]
    return int(not all(good))


def is_good(name: str, check: Callable[[], None]) -> bool:
    """True if the check holds; say so."""
    try:
        check()
    except (AssertionError, SystemExit, subprocess.TimeoutExpired):
        said = f"FAILED {name}: {traceback.format_exc()[-2_000:]}"
    else:
        said = f"ok {name}"
    sys.stdout.write(f"{said}\n")
    sys.stdout.flush()
    return said.startswith("ok ")


if __name__ == "__main__":
    sys.exit(main())
