"""The screenshots of the documents: those that `make shots` takes, each shown somewhere, and small."""

import re
import struct
from pathlib import Path

from tests.console.shots import FOLDER, MOST_BYTES, PICTURES, SIZE

ROOT = Path(__file__).parents[2]
SHOWN = re.compile(r"!\[[^\]]+\]\(([^)]*pictures/[^)]+)\)|<img[^>]*pictures/")


def shown(document: str) -> list[Path]:
    """The pictures that a document shows, with words for those who do not see them."""
    path = ROOT / document
    found = [path.parent / match[1] for match in SHOWN.finditer(path.read_text("utf-8"))]
    return [each.resolve() for each in found]


def test_the_documents_show_what_is_taken() -> None:
    """Each picture is there and shown; none is shown that `make shots` would not take again."""
    taken = {FOLDER / name for name in PICTURES}
    assert taken == set(FOLDER.iterdir())
    assert [FOLDER / "console-now-light.png"] == shown("README.md")
    assert taken == set(shown("docs/console.md"))


def test_the_pictures_are_small() -> None:
    """Each has the size of a window, and few bytes."""
    for name in PICTURES:
        data = (FOLDER / name).read_bytes()
        assert (SIZE["width"], SIZE["height"]) == struct.unpack(">II", data[16:24]), name
        assert len(data) <= MOST_BYTES, name
