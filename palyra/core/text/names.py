"""Names that decide identity: a new one must not look like one that exists.

Principals, channels, agents and senders are identified by their names alone, by the daemon byte by
byte and by a person at a glance.  So a name is refused if it is shown otherwise than it is stored
(`core.text.visible`), begins or ends with a blank, or differs from a known one only in its Unicode form,
case, blanks, or in letters and digits that look alike.
"""

from collections.abc import Iterable

from palyra.core.text.visible import visible, without_invisible
from palyra.errors import InvalidParams

_LOOK_ALIKES = str.maketrans({"I": "l", "1": "l", "|": "l", "0": "O"})  # in usual fonts
_DOTLESS = str.maketrans({"\u0131": "i"})


def looks(name: str, *, folds_case: bool = True) -> frozenset[str]:
    """Return the forms of a name; names with a form in common may be confused by a person."""
    plain = "".join(without_invisible(name).split())
    if not folds_case:
        return frozenset({plain})
    return frozenset(
        {
            plain.casefold().translate(_DOTLESS),
            plain.translate(_LOOK_ALIKES).casefold().translate(_DOTLESS),
        }
    )


def check_new_name(name: str, known: Iterable[str], *, field: str, folds_case: bool = True) -> None:
    """Raise InvalidParams for a name that looks like a known one, which the message names.

    A known name is no new one.  Without `folds_case` case and digits count: ids of other systems.
    """
    others = sorted(set(known))
    if name in others:
        return
    own = looks(name, folds_case=folds_case)
    shown = visible(name)
    for other in others:
        if looks(other, folds_case=folds_case) & own or (
            shown != name and _may_be(without_invisible(name), without_invisible(other))
        ):
            raise InvalidParams(
                f"{field} {shown!r} looks like {visible(other)!r}, which exists: choose a name that "
                "differs more",
                field=field,
            )
    if shown != name or name != name.strip():
        raise InvalidParams(
            f"{field} {shown!r} has blanks around it or characters that imitate others: leave them out",
            field=field,
        )


def _may_be(name: str, other: str) -> bool:
    """True if the names are equal but for letters outside of ASCII, which may imitate any."""
    pairs = zip(name.casefold(), other.casefold(), strict=False)
    return len(name) == len(other) and all(
        one == two or not (one.isascii() and two.isascii()) for one, two in pairs
    )
