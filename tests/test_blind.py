"""The figures of rules on development and blind sets (`bench/blind.py`)."""

import base64
import importlib
import json
import textwrap
import zlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import structlog

ROOT = Path(__file__).parent.parent
NOW = "2026-11-24T10:00:00"
SETS: dict[str, list[dict[str, Any]]] = {
    "extraction": [
        {
            "messages": ["Please always answer me in {word} units.", "thanks"],
            "durable": [{"kind": "preference", "must_contain": ["{word}"], "auto": True}],
        },
        {"messages": ["The {word} never slept last night."], "durable": []},
        {
            "messages": ["lol"],
            "durable": [{"kind": "fact", "must_contain": ["{word}"], "auto": False}],
        },
    ],
    "corrections": [
        {"old": "The {word} port is 80.", "new": "The {word} port is 81.", "supersedes": True},
        {"old": "Ann likes {word}.", "new": "Bob likes tea.", "supersedes": False},
    ],
    "obligations": [
        {"sentence": "Never touch the {word} database.", "binds": True},
        {"sentence": "The {word} was fine.", "binds": False},
    ],
    "dates": [
        {"now": NOW, "said_at": NOW, "text": "{word} on 2026-11-09", "from": "2026-11-09", "to": "2026-11-09"},
        {"now": NOW, "said_at": NOW, "text": "{word} march on", "from": None},
    ],
    "duplicates": [
        {"a": "The {word} port is 80.", "b": "The {word} port is 80.", "same": True},
        {"a": "The {word} port is 80.", "b": "The tea is cold.", "same": False},
    ],
    "recall": [
        {
            "turns": [
                {"id": "a", "session": "1", "at": NOW, "author": "Ann", "text": "the {word} is blue"},
                {"id": "b", "session": "2", "at": NOW, "author": "Bob", "text": "my cat sleeps"},
            ],
            "questions": [
                {"question": "which colour has the {word}", "evidence": ["a"], "at": NOW}
            ],
        }
    ],
    "prompts": [
        {
            "memories": ["The {word} listens on port 8080."],
            "standing": ["Always answer in {word} units."],
            "prompt": "Which port has the {word}?",
            "related": [0],
        }
    ],
}  # fmt: skip


def cases(part: str, word: str) -> bytes:
    return json.dumps(SETS[part]).replace("{word}", word).encode()


@pytest.fixture
def sets(tmp_path: Path) -> Generator[Path]:
    """Two sets of each part, equal but for one word."""
    for folder in ("dev", "blind"):
        (tmp_path / folder).mkdir()
    for part in SETS:
        (tmp_path / "dev" / f"{part}.json").write_bytes(cases(part, "lantern"))
        packed = base64.b64encode(zlib.compress(cases(part, "zeppelin"))).decode()
        sealed = "\n".join(textwrap.wrap(packed, 76))
        (tmp_path / "blind" / f"{part}.sealed").write_text(sealed, encoding="ascii")
    yield tmp_path
    structlog.reset_defaults()


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark's entry."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("blind").main


@pytest.mark.real
def test_blind_cases_are_counted_and_never_printed(
    main: Any, sets: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Both sets have a column; the wrong cases shown are of the development set alone."""
    main(["--sets", str(sets), "--show", "dev"])
    said = "".join(capfd.readouterr())
    rows = [line.split("|")[1:5] for line in said.splitlines() if line.startswith("| ")]
    assert {"Part", *SETS} == {row[0].strip() for row in rows}
    assert all(dev.strip() == blind.strip() for _, _, dev, blind in rows[1:])
    assert "| extraction | candidates found | 50.0% (1 of 2) | 50.0% (1 of 2) |" in said
    assert "| recall | R@10, no model | 100.0% (1 of 1) | 100.0% (1 of 1) |" in said
    assert "lantern" in said
    assert "zeppelin" not in said


def test_an_error_in_a_blind_set_is_named_without_its_text(
    main: Any, sets: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A case that cannot be read ends the benchmark with the kind of the error."""
    broken = json.dumps([{"old": "zeppelin", "new": 3, "supersedes": True}]).encode()
    packed = base64.b64encode(zlib.compress(broken))
    (sets / "blind" / "corrections.sealed").write_bytes(packed)
    with pytest.raises(SystemExit) as ended:
        main(["--sets", str(sets), "--parts", "corrections"])
    assert "corrections: the blind set failed with ValidationError" == str(ended.value)
    assert "zeppelin" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("path", sorted((ROOT / "bench" / "blind").glob("*.sealed")), ids=str)
def test_a_blind_set_cannot_be_read_by_accident(path: Path) -> None:
    """It has lines of base64 alone, so that a search over the files finds none of its words."""
    lines = path.read_text(encoding="ascii").splitlines()
    assert all(len(line) <= 76 and " " not in line for line in lines)
