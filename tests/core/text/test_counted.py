"""Numbers in words."""

from palyra.core.text.visible import pluralize
from tests.rows import every_row


@every_row(
    ("number", "text"), [(0, "0 rules"), (1, "1 rule"), (2, "2 rules"), (1_000, "1000 rules")]
)
def test_one_is_singular(number: int, text: str) -> None:
    """Everything else takes an s."""
    assert text == pluralize(number, "rule")
