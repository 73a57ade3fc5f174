"""What a wider answer covers, tried with the options of real programs in a jail."""

import pytest

from tests.attacks.options import campaign, find_programs, old_key
from tests.optional import needs
from tests.tools.sandbox.jails import needs_bubblewrap

pytestmark = [pytest.mark.real, needs_bubblewrap, needs("git")]
SAMPLE = ("git grep", "git log", "sort", "rg", "cat")


async def test_no_covered_call_runs_or_writes_what_was_not_shown() -> None:
    """A sample of the programs and of their covered calls; each leaves the workspace as it was."""
    tally = await campaign(SAMPLE, sample=60)
    assert () == tally.findings
    assert 60 == tally.ran


@pytest.mark.slow
async def test_no_covered_call_of_any_program_runs_or_writes_what_was_not_shown() -> None:
    """All programs of the machine; a part of the covered calls is run."""
    tally = await campaign(sample=12_000)
    assert () == tally.findings
    assert tally.programs > len(find_programs()) // 2


async def test_control_a_key_by_program_covers_an_option_that_runs_a_command() -> None:
    """With grants keyed by program and subcommand the campaign finds `git grep -O`."""
    tally = await campaign(["git grep"], key=old_key, only="-O")
    assert any("-O" in word for each in tally.findings for word in each.call)
