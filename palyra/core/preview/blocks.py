"""Blocks of a preview, as they go over the wire.

Every text in a block is safe to show: deceptive characters are spelled out (`core.text.visible`), and
secrets are redacted.  A tab is a tab, because it is part of the content.  Lines beyond the bound of the
request are left out of a block and counted in `cut`.
"""

from typing import Literal

import msgspec

from palyra.core.journal.records import DEFAULT_WORKSPACE, ApprovalScope, ApprovalState
from palyra.core.tape.taint import TaintSource

FileChange = Literal["created", "updated", "deleted", "mode", "unchanged"]


class DiffLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a diff; `old` and `new` are its line numbers, from 1."""

    op: Literal["same", "removed", "added"]
    text: str
    old: int | None = None
    new: int | None = None
    spans: tuple[tuple[int, int], ...] = ()  # characters that differ from the other side
    cut_chars: int = 0  # characters left out at the end of the line
    no_newline: bool = False  # the file ends here without a line feed


class DiffHunk(msgspec.Struct, frozen=True, kw_only=True):
    """Changed lines with the lines around them."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: tuple[DiffLine, ...]


class FileBlock(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="file", tag_field="type"
):
    """Change of one file.  Sizes in bytes, digests SHA-256 in hex, modes as `0644`."""

    path: str
    change: FileChange
    is_binary: bool = False
    is_stale: bool = False  # its content is not the one that the question is about
    before_bytes: int | None = None
    after_bytes: int | None = None
    before_sha256: str = ""
    after_sha256: str = ""
    before_mode: str = ""
    after_mode: str = ""
    added: int = 0  # lines, also those left out
    removed: int = 0
    hunks: tuple[DiffHunk, ...] = ()
    cut: int = 0  # lines left out
    is_redacted: bool = False
    notes: tuple[str, ...] = ()


class WordsBlock(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="words", tag_field="type"
):
    """Words of a command, in order, as the program gets them."""

    title: str
    words: tuple[str, ...]
    cut: int = 0  # words left out


class TextBlock(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="text", tag_field="type"
):
    """A text by lines: a line for a shell, the body of a request, a statement."""

    title: str
    lines: tuple[str, ...]
    cut: int = 0  # lines left out
    size_bytes: int = 0


class FieldsBlock(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="fields", tag_field="type"
):
    """Names with short values."""

    title: str
    rows: tuple[tuple[str, str], ...]
    cut: int = 0  # rows left out


# One block of a preview; `type` says which.
Block = FileBlock | WordsBlock | TextBlock | FieldsBlock


class Hidden(msgspec.Struct, frozen=True, kw_only=True):
    """A character that is spelled out because it is invisible, imitates another, or turns the text."""

    character: str  # U+202E
    name: str
    count: int


class AskingRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the chain that leads to the question."""

    run_id: str
    agent: str
    depth: int


class EarlierAnswers(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answers to the same `grant_key` of the agent and the tool, among the newest approvals."""

    allowed: int = 0
    denied: int = 0
    latest_ms: int | None = None
    latest_by: str | None = None


class Preview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything a person needs to answer one approval."""

    approval_id: str
    run_id: str
    digest: str  # of the call; an answer with it is about this call
    state: ApprovalState
    tool: str
    summary: str
    why: str  # it is asked
    risk: str
    scopes: tuple[ApprovalScope, ...]
    blocks: tuple[Block, ...]
    grant_key: str = ""
    once_because: str = ""
    stale: tuple[str, ...] = ()  # what changed since the question; the call will not run like this
    hidden: tuple[Hidden, ...] = ()
    redacted: int = 0  # texts of the blocks with a mark in place of a secret
    cut: int = 0  # lines, words and rows left out of all blocks
    taint: tuple[TaintSource, ...] = ()
    workspace: str = DEFAULT_WORKSPACE  # that the call works in
    chain: tuple[AskingRun, ...] = ()  # the asking run first, then those that delegated to it
    earlier: EarlierAnswers = EarlierAnswers()


class Reach(msgspec.Struct, frozen=True, kw_only=True):
    """Recent calls that an answer with this scope would have decided."""

    scope: ApprovalScope
    calls: int  # that it would have decided
    asked: int  # of these, calls that a person was asked about
    examples: tuple[str, ...] = ()  # summaries, the newest first
    beyond: tuple[str, ...] = ()  # examples of other calls that it covers, never seen or not


class ReachList(msgspec.Struct, frozen=True, kw_only=True):
    """The reach of each offered scope over the last calls of the principal."""

    approval_id: str
    looked_at: int  # recent calls
    reaches: tuple[Reach, ...]
