"""The preview of one approval, from its record and the targets that its tool names.

Nothing is taken from the model's own description of its call.  The arguments are those of the record:
redacted like the tape, and bound to the digest of the question.  File contents are read when the
preview is made, so each is compared with the digest that the question recorded.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from palyra.core.journal.records import ApprovalRecord
from palyra.core.policy.questions import ASK_USER, list_choices
from palyra.core.preview.blocks import (
    Block,
    FieldsBlock,
    Preview,
    TextBlock,
    WordsBlock,
)
from palyra.core.preview.files import Redact, file_block
from palyra.core.preview.spelling import Speller
from palyra.core.tape.events import BudgetExceeded
from palyra.core.tape.taint import TaintSource
from palyra.core.text.visible import visible
from palyra.core.tool.targets import CallTargets

DEFAULT_LINES = 400  # of all blocks together
MAX_LINES = 20_000  # that a request may ask for
_FIELD_CHARS = 200  # a longer value has a block of its own
# Arguments that have a block of their own even if they are short.
_TEXTS = {"command": "line for /bin/sh", "question": "question"}
# Arguments that the blocks of files show.
_IN_FILES = {"write_file": frozenset({"path", "content"}), "apply_patch": frozenset({"patch"})}


def build_preview(  # noqa: PLR0913 - all by name
    record: ApprovalRecord,
    targets: CallTargets | None,
    *,
    redact: Redact,
    exceeded: BudgetExceeded | None = None,
    changed: Sequence[str] = (),
    taint: Sequence[TaintSource] = (),
    max_lines: int = DEFAULT_LINES,
) -> Preview:
    """Return the preview.

    `targets` is None for a tool that names none, or if they could not be read.  `exceeded` is the budget
    that a question is about.  `changed` has what else
    differs from the recorded inspection, in words.
    """
    arguments: dict[str, Any] = msgspec.json.decode(record.arguments)
    choices = list_choices(arguments) if record.tool == ASK_USER else ()
    if choices:
        del arguments["choices"]
    builder = _Builder(redact, max_lines)
    stale = [*builder.add_files(record, targets), *changed]
    if targets is not None and targets.address:
        builder.add_fields("request", {"address": targets.address})
    if exceeded is not None:
        builder.add_fields("budget", _account_of(exceeded))
    else:
        builder.add_arguments(record.tool, arguments, has_files=bool(targets and targets.files))
    if choices:  # under the numbers that answer
        builder.add_fields("choices", {str(at): each for at, each in enumerate(choices, 1)})
    spell = builder.spell
    return Preview(
        approval_id=record.approval_id,
        run_id=record.run_id,
        digest=record.digest,
        state=record.state,
        tool=spell(record.tool),
        summary=record.summary,
        why=visible(record.policy_reason),
        risk=record.risk,
        scopes=record.scopes,
        blocks=tuple(builder.blocks),
        grant_key=record.grant_key,
        once_because=record.once_because,
        stale=tuple(stale) if record.state == "pending" else (),
        hidden=spell.hidden(),
        redacted=spell.redacted,
        cut=sum(block.cut for block in builder.blocks) + builder.cut_lines,
        taint=tuple(taint),
        workspace=record.workspace,
    )


class _Builder:
    """The blocks so far, and the number of lines that may follow."""

    def __init__(self, redact: Redact, max_lines: int) -> None:
        self.blocks: list[Block] = []
        self.spell = Speller()
        self.cut_lines = 0  # lines that are shown in part
        self._redact = redact
        self._left = max_lines

    def add_files(self, record: ApprovalRecord, targets: CallTargets | None) -> list[str]:
        """Add a block for each file; return what changed since the question, in words."""
        if targets is None:
            return []
        expected = (record.inspection or {}).get("operands", {})
        stale = []
        for target in targets.files:
            block = file_block(
                target,
                redact=self._redact,
                spell=self.spell,
                expected=expected.get(target.path),
                max_lines=self._left,
            )
            self._left -= sum(len(hunk.lines) for hunk in block.hunks)
            self.cut_lines += sum(
                bool(line.cut_chars) for hunk in block.hunks for line in hunk.lines
            )
            self.blocks.append(block)
            if block.is_stale:
                stale.append(f"{block.path} is not as it was when the question was asked")
        if targets.notes:
            self.add_fields("notes", {str(at): note for at, note in enumerate(targets.notes, 1)})
        return stale

    def add_arguments(self, tool: str, arguments: Mapping[str, Any], *, has_files: bool) -> None:
        """Add the arguments; contents that are in the blocks of files are not repeated."""
        rows: dict[str, Any] = {}
        for name, value in arguments.items():
            if has_files and name in _IN_FILES.get(tool, ()):
                continue
            if name == "argv" and isinstance(value, list):
                self._add_words(name, value)
            elif isinstance(value, str) and ("\n" in value or len(value) > _FIELD_CHARS):
                self._add_text(name, value)
            elif isinstance(value, str) and name in _TEXTS:
                self._add_text(_TEXTS[name], value)
            elif isinstance(value, dict) and value:
                self.add_fields(name, value)
            elif isinstance(value, list) and value:
                self._add_words(name, value)
            else:
                rows[name] = value
        if rows:
            self.add_fields("arguments", rows)

    def add_fields(self, title: str, values: Mapping[str, Any]) -> None:
        """Add names with their values on one line each."""
        shown = list(values.items())[: max(self._left, 0)]
        self._left -= len(shown)
        self.blocks.append(
            FieldsBlock(
                title=self.spell(title),
                rows=tuple((self.spell(name), self.spell(_plain(value))) for name, value in shown),
                cut=len(values) - len(shown),
            )
        )

    def _add_words(self, title: str, values: Sequence[Any]) -> None:
        shown = values[: max(self._left, 0)]
        self._left -= len(shown)
        words = tuple(self.spell(_plain(word)) for word in shown)
        self.blocks.append(
            WordsBlock(title=self.spell(title), words=words, cut=len(values) - len(shown))
        )

    def _add_text(self, title: str, text: str) -> None:
        lines = text.split("\n")
        shown = lines[: max(self._left, 0)]
        self._left -= len(shown)
        self.blocks.append(
            TextBlock(
                title=self.spell(title),
                lines=tuple(map(self.spell, shown)),
                cut=len(lines) - len(shown),
                size_bytes=len(text.encode()),
            )
        )


def _account_of(exceeded: BudgetExceeded) -> dict[str, str]:
    """Return the account, what it has spent, and what the next call takes."""

    def amount(number: int) -> str:
        if exceeded.metric == "tokens":
            return f"{number} tokens"
        dollars = f"{number / 1_000_000:.6f}"
        return f"${dollars[:-4]}{dollars[-4:].rstrip('0')}"

    whose = "everybody" if exceeded.scope == "global" else f"{exceeded.scope} {exceeded.subject}"
    within = (
        f"last {(exceeded.window_ms or 0) // 1000} s" if exceeded.window_ms else exceeded.window
    )
    found = {
        "budget": exceeded.budget_id,
        "account": whose,
        "window": within,
        "spent": amount(exceeded.spent),
        "limit": amount(exceeded.limit),
        "left": amount(max(exceeded.limit - exceeded.spent, 0)),
        "next call": f"takes at least {amount(exceeded.needs)}" if exceeded.needs else "",
        "model": exceeded.model,
    }
    if exceeded.rolls_ms is not None:
        found["starts anew"] = (
            f"{datetime.fromtimestamp(exceeded.rolls_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
        )
    return {name: value for name, value in found.items() if value}


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
