"""Names that were found by attacks, each beside a neighbour that is an ordinary file."""

import pytest

from palyra.core.tool.paths import is_configuration, is_private


@pytest.mark.parametrize(
    ("name", "neighbour"),
    [("renv/activate.R", "renv/settings.json"), (".ruby-lsp/Gemfile", "Gemfile")],
)
def test_code_that_runs_when_a_folder_is_opened_is_configuration(name: str, neighbour: str) -> None:
    """R sources it from the usual .Rprofile, and the language server runs its own Gemfile."""
    assert (True, False) == (is_configuration(name), is_configuration(neighbour))


@pytest.mark.parametrize("name", [".gitcookies", "home/.GitCookies"])
def test_credentials_of_git_are_private(name: str) -> None:
    """A cookie file of git holds credentials, as .git-credentials does."""
    assert (True, False) == (is_private(name), is_private("gitcookies.md"))
