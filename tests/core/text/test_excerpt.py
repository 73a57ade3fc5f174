"""Excerpts: a cut that leaves no usable part of a secret."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.redaction.redactor import Redactor
from palyra.core.text.excerpt import truncate_safely
from tests.rows import every_row

SECRET = "ghp_" + "Canary0123456789abcdefghijABCDEFGHIJ"
REDACTOR = Redactor([])


@every_row("limit", range(1, 100))
@every_row("before", ["a text of some words, ", "--token=", "", "https://x/?q="])
def test_no_cut_leaves_half_a_secret(before: str, limit: int) -> None:
    """Cut anywhere and then redacted: at most a few characters are left of it."""
    shown, _ = REDACTOR.redact_text(truncate_safely(f"{before}{SECRET} and more", limit))
    assert SECRET[:9] not in shown
    assert len(shown) <= max(limit, len(before) + len("[redacted:github] and more"))


def test_control_a_plain_cut_leaves_half() -> None:
    """After a plain cut the redactor does not recognise the rest of the secret."""
    assert SECRET[:30] in REDACTOR.redact_text(f"a text {SECRET}"[:40])[0]


@given(st.text(max_size=40), st.integers(1, 50))
def test_it_is_a_beginning(text: str, limit: int) -> None:
    """Never longer than the limit, whole if it fits, whole words where it is cut."""
    head = truncate_safely(text, limit)
    assert text.startswith(head)
    assert len(head) <= limit
    assert head == text if len(text) <= limit else limit - len(head) < 42


def test_an_excerpt_of_a_long_blob_keeps_most_of_it() -> None:
    """A text without blanks for thousands of characters keeps most of its start."""
    assert 100_000 - 4_096 + 8 == len(truncate_safely("x" * 200_000, 100_000))
