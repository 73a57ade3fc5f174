"""Notices to a person who is away: what an address outside gets when a question waits.  Pure.

A notice says that a question waits, how many do, and where the console shows it.  It has no field for
anything else, so no tool, argument, principal or login can leave the machine with it.
"""

import msgspec

INBOX = "#/inbox"


class QuestionNotice(msgspec.Struct, frozen=True, kw_only=True):
    """All that leaves the machine."""

    text: str
    count: int  # of the questions that wait
    url: str  # of the console, without a login


class NoticeSent(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one attempt."""

    address: str  # the setting that names it
    problem: str = ""  # why it was not taken; "" if it was


def make_notice(console_url: str, waiting: int, first: str) -> QuestionNotice:
    """Return the notice of so many questions, with a link to `first` of them."""
    text = "a question waits" if waiting == 1 else f"{waiting} questions wait"
    return QuestionNotice(text=text, count=waiting, url=f"{console_url}{INBOX}/{first}")


def make_trial(console_url: str) -> QuestionNotice:
    """Return the notice of `palyra notify test`."""
    return QuestionNotice(text="a test: no question waits", count=0, url=f"{console_url}{INBOX}")
