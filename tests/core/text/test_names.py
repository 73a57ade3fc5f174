"""Names: which of them a person would confuse."""

import unicodedata

import pytest

from palyra.core.text.names import check_new_name
from palyra.errors import InvalidParams

KNOWN = ("admin", "ann", "Büro", "IT", "bridge1")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("adm\u0131n", "admin"),
        ("admin ", "admin"),
        (" admin", "admin"),
        ("adm in", "admin"),
        ("ADMIN", "admin"),
        ("adm\u200bin", "admin"),
        ("\uff41dmin", "admin"),
        ("\u0430nn", "ann"),
        ("a\U0001d427n", "ann"),
        (unicodedata.normalize("NFD", "Büro"), "Büro"),
        ("büro", "Büro"),
        ("lT", "IT"),
        ("1T", "IT"),
        ("bridgel", "bridge1"),
        ("bridgeI", "bridge1"),
    ],
)
def test_a_name_that_looks_like_another_is_refused(name: str, other: str) -> None:
    """Blanks, case, Unicode forms, other scripts and digits; the message names the other one."""
    with pytest.raises(InvalidParams, match=f"looks like '{other}'"):
        check_new_name(name, KNOWN, field="principal")


@pytest.mark.parametrize(
    "name",
    [
        "admin",
        "anna",
        "Buro",
        "bob",
        "bridge2",
        "Иван",
        "I\u015f\u0131k",
        "O'Neil",
        "团队",
        "Müller",
    ],
)
def test_other_names_are_taken(name: str) -> None:
    """The control: known names themselves, other names, and names of other languages."""
    check_new_name(name, KNOWN, field="principal")


@pytest.mark.parametrize("name", ["zo\u0435", "eve ", "\u00a0eve"])
def test_a_name_that_imitates_nothing_known_is_refused_too(name: str) -> None:
    """Else the look-alike is first, and the honest name is the one that is refused."""
    with pytest.raises(InvalidParams, match="leave them out"):
        check_new_name(name, KNOWN, field="principal")


def test_ids_of_other_systems_keep_their_case() -> None:
    """A bridge names senders by ids, in which case and digits count; their blanks do not."""
    check_new_name("u1B", ["u1b", "ulB"], field="sender", folds_case=False)
    with pytest.raises(InvalidParams, match="looks like 'u1b'"):
        check_new_name("u1b ", ["u1b"], field="sender", folds_case=False)
