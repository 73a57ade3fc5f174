"""What the documents take from code is what the code says."""

import pytest

from tests.reference_pages import PAGES, PART, PARTS, ROOT, render


@pytest.mark.parametrize("page", PAGES)
def test_page_is_up_to_date(page: str) -> None:
    """Each generated part is as `python -m tests.reference_pages` would write it."""
    assert render(page) == (ROOT / page).read_text(encoding="utf-8")


def test_every_part_is_on_a_page() -> None:
    """Nothing that is generated is generated for nobody."""
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    assert set(PARTS) == {part["name"] for text in texts for part in PART.finditer(text)}
