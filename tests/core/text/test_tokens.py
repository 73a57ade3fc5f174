"""Token estimates: sane sizes, cheap to compose, never a crash."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.text.tokens import estimate_tokens
from tests.rows import every_row

TEXTS = st.text(st.characters(codec=None))  # lone surrogates included


@every_row(
    ("expected", "text"),
    [
        (0, ""),
        (1, "a"),
        (10, "The quick brown fox jumps over the lazy dog."),
        (4, "1234567890"),
        (8, '{"path": "README.md"}'),
        (5, "你好世界吗"),
        (5, "Привет мир"),
        (2, "😀"),
        (1, "\ud800"),
    ],
)
def test_estimates_by_script(expected: int, text: str) -> None:
    """Each script class is weighed by its own rule."""
    assert expected == estimate_tokens(text)


@given(TEXTS, TEXTS)
def test_parts_sum_to_the_whole(left: str, right: str) -> None:
    """Estimates of parts add up to the estimate of the whole, give or take the rounding."""
    parts = estimate_tokens(left) + estimate_tokens(right)
    assert estimate_tokens(left + right) in {parts, parts - 1}


@given(TEXTS)
def test_only_nothing_is_free(text: str) -> None:
    """A text costs at least one token and at most two per character."""
    assert min(len(text), 1) <= estimate_tokens(text) <= 2 * len(text)
