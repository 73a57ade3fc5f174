"""Identifiers: what is one, and of which kind."""

from palyra.core.ids import is_id
from tests.rows import every_row

UUID7 = "018f3c5e-7d2a-7b11-9c3d-0123456789ab"


def test_an_id_is_its_prefix_and_a_uuid7() -> None:
    """An id is of one kind."""
    assert is_id(f"run_{UUID7}", "run")
    assert not is_id(f"run_{UUID7}", "ses")


@every_row(
    "text",
    ["", UUID7, f"run_{UUID7}\n", f"run_{UUID7.upper()}", f"run_{UUID7.replace('-7b', '-4b')}"],
)
def test_a_malformed_id_is_refused(text: str) -> None:
    """Another version, another case and surrounding text make an id invalid."""
    assert not is_id(text, "run")
