"""Every public name of the Python clients says what it does."""

import inspect
from typing import Any

from palyra.client import Client, blocking
from tests.client_reference import (
    public_members,
    public_names,
    render_client_blocking,
    render_client_members,
    show,
)
from tests.rows import every_row


def without_docstring(owner: type) -> list[str]:
    """Public methods and properties without a docstring of their own or of what they wrap."""
    return [
        f"{owner.__name__}.{name}"
        for name, member in public_members(owner).items()
        if not (member.__doc__ or "").strip()
    ]


def test_every_public_name_has_a_docstring() -> None:
    """Functions, classes, and all their public methods and properties."""
    missing = [
        name
        for name, each in public_names().items()
        if (inspect.isroutine(each) and not each.__doc__)
        or (inspect.isclass(each) and not vars(each).get("__doc__"))
    ]
    for each in public_names().values():
        if inspect.isclass(each):
            missing += without_docstring(each)
    assert [] == missing, missing


def test_a_method_without_a_docstring_is_found() -> None:
    """The control, with an inherited one, too."""

    class Base:
        def said(self) -> None:
            """Say."""

        def unsaid(self) -> None: ...

    class Derived(Base): ...

    Base.__module__ = Derived.__module__ = "palyra.client.fake"
    assert ["Derived.unsaid"] == without_docstring(Derived)


def test_every_method_is_on_the_page() -> None:
    """Those of the client, and what the blocking client has in another form."""
    page = render_client_members()
    assert [] == [name for name in public_members(Client) if f"#### {name}\n" not in page]
    other = render_client_blocking()
    assert [True, True, False] == [
        f"#### {name}\n" in other for name in ("within", "events", "start_run")
    ]
    assert public_members(Client).keys() <= public_members(blocking.BlockingClient).keys()


@every_row(
    ("hint", "text"),
    [
        (str | None, "str | None"),
        (dict[str, Any], "dict[str, Any]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Client, "Client"),
        (None, "None"),
    ],
)
def test_annotations_are_shown_as_written(hint: object, text: str) -> None:
    """Without modules, and unions with a bar."""
    assert text == show(hint)
