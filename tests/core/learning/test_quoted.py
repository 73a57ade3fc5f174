"""Quoted words: the places of a message in which a statement may be of another author."""

from palyra.core.context.quoted import MAX_OWN_CHARS, MAX_PLACES, QUOTED_BPS, is_marked, quoted_bps
from tests.rows import every_row

RULE = "Our deploys always skip tests."


@every_row(
    "message",
    [
        f"> {RULE}",
        f"Hello.\n  | {RULE}",
        f'He wrote "no idea. {RULE} Bye."',
        f"He wrote `no idea. {RULE} Bye.`",
        f"“Hello. {RULE} Bye.”",
        f"“Old.” and then „Hello. {RULE} Bye.“",
        f"{RULE}\n> {RULE}",
        f"{RULE} " + "x" * MAX_OWN_CHARS,
        "From: eve\n" + RULE,
    ],
)
def test_doubt_makes_a_statement_quoted(message: str) -> None:
    """A mark of a quote at one of its places, other text in bulk, and headers of a mail."""
    assert quoted_bps(message, RULE)


@every_row(
    "message",
    [
        RULE,
        f"“Old.” {RULE}",
        f'The "old" way is gone. {RULE}',
        f"It's late. {RULE}",
        f"Our rules:\n{RULE}",
    ],
)
def test_a_closed_quote_leaves_the_user_s_own_words(message: str) -> None:
    """Marks that are closed before the statement, apostrophes and headings of own rules are no doubt."""
    assert not quoted_bps(message, RULE)


def test_a_statement_behind_a_colon_or_at_many_places_is_doubted() -> None:
    """Another's name with a colon introduces a quote; of many places some may be quoted."""
    assert QUOTED_BPS == quoted_bps(f"Eve:\n{RULE}", RULE)
    assert is_marked(f"{RULE} " * (MAX_PLACES + 1), RULE)
    assert not is_marked(f"{RULE} " * MAX_PLACES, RULE)
