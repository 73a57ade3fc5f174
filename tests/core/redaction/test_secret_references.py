"""References to secrets."""

import pytest

from palyra.core.redaction.secret_references import SecretReference, is_reference, parse_reference
from palyra.errors import InvalidParams
from tests.rows import every_row


@every_row(
    ("text", "kind", "name"),
    [
        ("env:TOKEN", "env", "TOKEN"),
        ("file:/run/secrets/token", "file", "/run/secrets/token"),
        ("file:~/with space:colon", "file", "~/with space:colon"),
        ("keyring:palyra/github", "keyring", "palyra/github"),
        ("keyring:palyra/a/b", "keyring", "palyra/a/b"),
        ("vault:github.token-1", "vault", "github.token-1"),
    ],
)
def test_a_reference(text: str, kind: str, name: str) -> None:
    """Kind and name; written out it is what it was."""
    assert is_reference(text)
    found = parse_reference(text)
    assert (kind, name, text) == (found.kind, found.name, found.text)
    assert SecretReference(found.kind, found.name) == found


@every_row(
    "text",
    ["", "ghp_hunter2hunter2", "env:", "env:A-B", "env:1A", "ENV:A", "vault:", "vault:a b",
     "vault:-a", "vault:../x", "vault:" + "x" * 65, "keyring:github", "keyring:/x", "keyring:x/",
     "file:", "file:a\nb", "http://hunter2/"],
)  # fmt: skip
def test_an_invalid_reference_is_refused_without_being_repeated(text: str) -> None:
    """The error does not repeat the value, which may be the secret itself."""
    with pytest.raises(InvalidParams) as caught:
        parse_reference(text)
    assert "hunter2" not in caught.value.message


def test_a_secret_itself_has_not_the_form_of_a_reference() -> None:
    """Nor has nothing at all."""
    assert [False, False] == [is_reference("ghp_hunter2hunter2"), is_reference("")]
