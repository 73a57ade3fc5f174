"""A remedy that names a command names one that exists, with the options it has."""

from tests.cli.named_commands import find_fault, in_messages, in_pages
from tests.rows import every_row


def test_commands_in_messages_exist() -> None:
    """Every command in an error message exists."""
    named = list(in_messages())
    assert len(named) > 40
    faults = [(each.place, each.text, fault) for each in named if (fault := find_fault(each.text))]
    assert [] == faults


def test_commands_in_pages_exist() -> None:
    """So can what a page shows, whether its block is run or not."""
    named = list(in_pages())
    assert len(named) > 100
    faults = [(each.place, each.text, fault) for each in named if (fault := find_fault(each.text))]
    assert [] == faults


@every_row(
    ("text", "fault"),
    [
        ("approvals list --all", None),
        ("--json status", None),
        ("run … > file", None),
        ("--version", None),
        ("approvals lst", "no command 'lst' in 'palyra approvals'"),
        ("stop", "no command 'stop' in 'palyra'"),
        ("status --loud", "No such option '--loud'."),
        ("status now", "'palyra status' takes no 'now'"),
        ("runs show", None),  # arguments are left to the reader
    ],
)
def test_a_wrong_command_is_found(text: str, fault: str | None) -> None:
    """The control: names, options and arguments that are not there are faults."""
    found = find_fault(text)
    assert (fault is None) == (found is None)
    assert fault is None or fault.split(".")[0] in str(found)
