"""Programs that some tests need; without them the suite is green and says once what it left out."""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from functools import cache

import pytest

# Name as in "X is missing" -> how to get it on Debian.
REMEDIES = {
    "bubblewrap": "apt install bubblewrap",
    "git": "apt install git",
    "curl": "apt install curl",
    "pyenv": "pyenv install 3.12 (github.com/pyenv/pyenv)",
    "clang for WASM": "apt install clang lld wasi-libc libclang-rt-14-dev-wasm32",
    "rustc for WASM": "apt install rustc libstd-rust-dev-wasm32 lld",
    "asc": "npm install --global assemblyscript",
    "mock-ai-api": "`make test` installs it into .venv/mock",
    "mcp": ".venv/bin/pip install '.[mcp]'",
    "systemd-analyze": "apt install systemd",
    "tsc": "npm install --global typescript",
    "node": "apt install nodejs (version 22 or newer)",
    "npm": "apt install npm",
    "chromium": "apt install chromium",
    "playwright": "make browser",
    "nginx": "apt install nginx-light",
    "caddy": "apt install caddy",
    "MiniLM": "`palyra models install minilm`, PALYRA_MINILM=DATA_DIRECTORY",
    "LoCoMo": "PALYRA_CORPORA=DIRECTORY with locomo/conv-*.json",
}
COMMANDS = {"bubblewrap": "bwrap"}  # where the program is called otherwise
AT_LEAST = {"node": 22}  # major versions; an older one counts as missing
MISSING = " is missing: "


def is_installed(program: str) -> bool:
    """Whether it is on PATH, and new enough."""
    path = shutil.which(COMMANDS.get(program, program))
    return path is not None and (program not in AT_LEAST or _major(path) >= AT_LEAST[program])


@cache
def _major(path: str) -> int:
    """The major version of a program as `--version` says it; 0 if it says none."""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+", done.stdout)
    return int(found[0]) if found else 0


def reason_without(program: str) -> str:
    """Why a test is skipped; the same text for every test, so that it is reported once."""
    return f"{program}{MISSING}{REMEDIES[program]}"


def needs(program: str, *, is_found: bool | None = None) -> pytest.MarkDecorator:
    """Skip the test without that program; `is_found` where PATH does not tell."""
    found = is_installed(program) if is_found is None else is_found
    return pytest.mark.skipif(not found, reason=reason_without(program))


def fold_skips(reasons: Iterable[str]) -> list[str]:
    """One line for each reason, with the number of tests; missing programs first."""
    counted = Counter(reason.removeprefix("Skipped: ") for reason in reasons)
    by_kind = sorted(counted, key=lambda reason: (MISSING not in reason, reason))
    return [
        f"{'MISSING' if MISSING in reason else 'SKIPPED'} [{counted[reason]}] {reason}"
        for reason in by_kind
    ]
