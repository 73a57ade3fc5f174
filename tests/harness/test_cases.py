"""The input of the harness: strict, streamed, and wrong lines are named."""

import tracemalloc
from pathlib import Path

import msgspec
import pytest

from palyra.errors import InvalidParams
from palyra.harness.cases import MAX_LINE_BYTES, CaseBudget, check_input, read_cases

GOOD = b'{"id": "a", "text": "hello"}\n'


def write(directory: Path, content: bytes) -> Path:
    path = directory / "cases.jsonl"
    path.write_bytes(content)
    return path


def test_every_field_is_read(tmp_path: Path) -> None:
    """A line may say everything a case has."""
    line = {
        "id": "a",
        "text": "t",
        "agent": "default",
        "model": "m",
        "session": "s",
        "expect": {"contains": "x", "equals": "y", "json": None, "reason": "answered"},
        "budget": {"wall_ms": 1, "tokens": 2, "usd_micros": 3},
        "seed": -4,
        "approval": "ask",
        "json_mode": True,
    }
    path = write(tmp_path, msgspec.json.encode(line))  # and the last newline may be missing
    (case,) = read_cases(path, check_input(path))
    assert ("a", "t", "s", -4, "ask", True) == (
        case.id,
        case.text,
        case.session,
        case.seed,
        case.approval,
        case.json_mode,
    )
    assert CaseBudget(wall_ms=1, tokens=2, usd_micros=3) == case.budget
    assert case.expect is not None
    assert case.expect.json is None


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"id": "b", "text": "x", "colour": 1}', "colour"),
        (b'{"id": "b", "text": "x", "expect": {"contain": "x"}}', "contain"),
        (b'{"id": "b", "text": "x", "expect": {}}', "expects nothing"),
        (b'{"id": "b", "text": "x", "budget": {"wall_ms": 0}}', "wall_ms"),
        (b'{"id": "b", "text": "x", "approval": "maybe"}', "maybe"),
        (b'{"id": "b", "text": ""}', "text"),
        (b'{"id": "", "text": "x"}', "id"),
        (b'{"id": "b"}', "text"),
        (b'{"id": "a", "text": "again"}', "'a' is used twice"),
        (b'{"id": "b", "text": "x"', "truncated"),
        (b"[]", "object"),
        (b"", "blank"),
        (b'{"id": "b", "text": "\xff"}', "UTF-8"),
        (b'{"id": "b", "text": "x", "expect": {"json": 9007199254740993}}', "canonical"),
        (b'{"id": "b", "text": "x", "approval": "auto"}', 'approval: expected "allow", "ask" or'),
        (b'{"id": "b", "text": "x", "budget": {"tokens": 0}}', "budget.tokens: expected a whole"),
        (b'{"id": "b", "text": "x", "budget": {"tokens": 0}}', "got 0"),
        (b'\xef\xbb\xbf{"id": "b", "text": "x"}', "byte order mark"),
        (b" " * (MAX_LINE_BYTES + 1), "longer than"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, line: bytes, problem: str) -> None:
    """A line that is not a case is refused with its number and what is wrong."""
    path = write(tmp_path, GOOD + line + b"\n")
    with pytest.raises(InvalidParams) as caught:
        check_input(path)
    assert "line 2" in caught.value.message
    assert problem.lower() in caught.value.message.lower()


@pytest.mark.parametrize("content", [b"", None])
def test_file_without_cases_is_refused(tmp_path: Path, content: bytes | None) -> None:
    """An empty file and a missing one are refused."""
    path = tmp_path / "missing" if content is None else write(tmp_path, content)
    with pytest.raises(InvalidParams):
        check_input(path)


def test_change_on_the_way_is_noticed(tmp_path: Path) -> None:
    """A file that is no longer the one that was checked is an error at its end."""
    path = write(tmp_path, GOOD)
    facts = check_input(path)
    write(tmp_path, GOOD.replace(b"hello", b"HELLO"))
    with pytest.raises(InvalidParams, match="changed"):
        list(read_cases(path, facts))


def test_memory_does_not_hold_the_file(tmp_path: Path) -> None:
    """Reading 20 MB of cases takes a small part of that."""
    path = tmp_path / "cases.jsonl"
    with path.open("wb") as file:
        for number in range(200):
            file.write(msgspec.json.encode({"id": f"c{number}", "text": "x" * 100_000}) + b"\n")
    tracemalloc.start()
    try:
        facts = check_input(path)
        assert 200 == sum(1 for _ in read_cases(path, facts))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2_000_000
