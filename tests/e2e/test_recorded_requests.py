"""Requests that programs send by default, recorded without their texts.

`make clients` runs the programs themselves.
"""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.daemon_process import DaemonProcess

pytestmark = pytest.mark.real

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.json"))
TEXT = re.compile(r"<(\d+) characters>")
ENDS = ("event: response.completed", "event: message_stop")


def expand(value: Any) -> Any:
    """The value with texts of their old lengths in place of the marks."""
    match value:
        case dict():
            return {name: expand(each) for name, each in value.items()}
        case list():
            return list(map(expand, value))
        case str() if found := TEXT.fullmatch(value):
            return "x " * (int(found[1]) // 2)
        case _:
            return value


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_default_request_is_answered(daemon: DaemonProcess, path: Path) -> None:
    """To the end of its stream; what has no effect is named in a header."""
    request = json.loads(path.read_text(encoding="utf-8"))
    headers = {"Authorization": f"Bearer {daemon.token}"}
    base = f"http://127.0.0.1:{daemon.port}"
    with httpx.Client(base_url=base, headers=headers, trust_env=False) as client:
        answer = client.post(request["path"], json=expand(request["body"]), timeout=120)
    assert 200 == answer.status_code, answer.text
    assert any(end in answer.text for end in ENDS)
    assert answer.headers["palyra-ignored"]


def test_each_program_is_recorded() -> None:
    """With a first request and one that has the picture of a tool."""
    names = {path.stem for path in RECORDED}
    assert {"claude-code-first", "claude-code-picture", "codex-first", "codex-picture"} < names
