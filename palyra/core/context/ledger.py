"""Ledger: the parts of a conversation that a compaction carries as data, not as prose.

A summary in prose loses details silently.  So a compaction keeps typed entries, each a verbatim
piece of a message with the place it came from:

    pin         a message that a person pinned
    request     the last message of the user, whole, unless it stays in the prompt
    ask         a request or question that may still be open
    call        a tool call without a result
    step        an open step of the last plan
    constraint, convention, preference, decision, fact, finding, remark   statements
    file        a file that tool calls read or changed
    error       a failed tool call and its cause

`PROTECTED` kinds survive every compaction: a plan that loses one is refused
(`core.context.session_window`).  The others are dropped oldest first when the ledger exceeds its
budget, in the order of `DROPPED_FIRST`.

Merging is incremental: `extend(ledger, messages)` reads only new messages.  A correction removes
the statements it replaces; an equal statement moves nothing, so an entry keeps the place where it
was said first.  Statements come from the user and the model alone.  Files and errors come from
tool calls: they are facts about calls, and the text of an error keeps the trust of its result.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from palyra.core.context import statements
from palyra.core.context.statements import Statement
from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.model.summary import Entry, EntryKind, Ledger
from palyra.core.text.excerpt import truncate_safely
from palyra.core.tool.spec import HANDED_OVER
from palyra.core.trust.labels import Trust

PROTECTED: frozenset[EntryKind] = frozenset({
    "pin", "request", "ask", "call", "step", "constraint", "convention", "preference", "decision",
    "file",
})  # fmt: skip
DROPPED_FIRST: tuple[EntryKind, ...] = ("remark", "finding", "error", "fact")
ERROR_CHARS = 300
ERROR_CALL_CHARS = 160
MAX_REPLACED = 100
REQUEST_CHARS = 4_000  # of the last message; a longer one is in the window or in its artifact
PINNED_CHARS = 4_000


class Placed(msgspec.Struct, frozen=True, gc=False):
    """A message and its place: the run, and the index in that run's conversation."""

    run_id: str
    index: int
    message: Message


EMPTY = Ledger()


def extend(
    ledger: Ledger,
    messages: Sequence[Placed],
    *,
    window: Sequence[Placed] = (),
    pins: Iterable[Placed] = (),
) -> Ledger:
    """Return the ledger with what `messages` add, correct, answer and complete.

    `messages` follow those that the ledger was made of, oldest first.  `window` follows them and
    stays in the prompt: its corrections count, its statements are not added.
    """
    builder = _Builder(ledger)
    for placed in messages:
        builder.read(placed)
    for placed in window:
        builder.correct(placed.message)
    for placed in pins:
        builder.pin(placed)
    return builder.ledger()


def fit(ledger: Ledger, budget_tokens: int) -> Ledger:
    """Drop unprotected entries, oldest first and by `DROPPED_FIRST`, until the ledger fits.

    The result may still exceed the budget if the protected entries alone do.
    """
    over = ledger.tokens - budget_tokens
    gone: set[int] = set()
    for kind in DROPPED_FIRST:
        for place, entry in enumerate(ledger.entries):
            if over <= 0:
                break
            if entry.kind == kind:
                gone.add(place)
                over -= entry.tokens
    if not gone:
        return ledger
    kept = tuple(entry for place, entry in enumerate(ledger.entries) if place not in gone)
    return Ledger(entries=kept, dropped=ledger.dropped + len(gone), replaced=ledger.replaced)


_PATH_KEYS = ("path", "file", "file_path", "filename", "paths", "files", "source", "destination")
_PATCH_PATH = re.compile(
    r"^(?:\*\*\* (?:Add|Update|Delete|Move to|Move)(?: File)?: |\+\+\+ (?:b/)?)(?P<path>[^\t\n]+)",
    re.MULTILINE,
)
_CHANGES = re.compile(
    r"write|edit|patch|create|delete|remove|move|rename|append|replace|save", re.IGNORECASE
)
_CAUSE = re.compile(
    r"error|exception|fail|denied|refused|not found|no such|cannot|fatal|panic", re.IGNORECASE
)
_DONE_STEP = re.compile(r"^\s*[-*+]\s+\[[xX]\]\s+(?P<text>.+)$", re.MULTILINE)
_OPEN_STEP = re.compile(r"^\s*[-*+]\s+\[ \]\s+(?P<text>.+)$", re.MULTILINE)
_PLAN = re.compile(
    r"^[^\n]*\b(?:plan|steps|next|todo|vorgehen|schritte)\b[^\n]*:\s*\n+(?P<list>(?:\s*\d{1,2}[.)]\s+"
    r"[^\n]+\n?){2,})",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBERED = re.compile(r"^\s*\d{1,2}[.)]\s+(?P<text>.+)$", re.MULTILINE)
_STATUS = frozenset({"pending", "in_progress", "todo", "open", "not_started"})
_OK = "succeeded"


_STATEMENTS = frozenset(
    {"constraint", "convention", "preference", "decision", "fact", "finding", "remark"}
)
_AUTHORS: dict[type[Message], Literal["user", "model", "tool"]] = {
    UserMessage: "user",
    AssistantMessage: "model",
    ToolMessage: "tool",
    GuidanceMessage: "tool",
}


class _Builder:
    """A ledger while messages are read into it."""

    def __init__(self, ledger: Ledger) -> None:
        self._before = ledger
        self._entries = {e.entry_id: e for e in ledger.entries if e.kind != "request"}
        self._request = next((e for e in ledger.entries if e.kind == "request"), None)
        self._replaced = list(ledger.replaced)
        self._open: dict[str, ProposedCall] = {}

    def ledger(self) -> Ledger:
        """Return what was read so far."""
        last = () if self._request is None else (self._request,)
        return Ledger(
            entries=(*self._entries.values(), *last),
            dropped=self._before.dropped,
            replaced=tuple(self._replaced[-MAX_REPLACED:]),
        )

    def read(self, placed: Placed) -> None:
        """Read one message."""
        match placed.message:
            case UserMessage(text):
                self._drop(lambda entry: entry.kind == "ask" and entry.by == "model")  # answered
                self._add_statements(placed, statements.read_user(text), "user")
                shown = truncate_safely(text.strip(), REQUEST_CHARS)
                self._request = Entry("request", shown, placed.run_id, placed.index)
            case AssistantMessage(text, calls):
                self._add_statements(placed, statements.read_model(text), "model")
                self._take_plan(text, placed)
                for call in calls:
                    self._start(call, placed)
                if not calls:
                    self._ask(text, placed)
            case ToolMessage():
                self._finish(placed.message, placed)
            case _:
                pass

    def correct(self, message: Message) -> None:
        """Remove what a message that stays in the prompt corrects; it may be the last request."""
        if isinstance(message, UserMessage):
            self._request = None
            for statement in statements.read_user(message.text):
                self._remove_replaced(statement, "user")

    def pin(self, placed: Placed) -> None:
        """Add a pinned message."""
        message = placed.message
        text = message.output if isinstance(message, ToolMessage) else message.text
        trust: Trust = message.trust if isinstance(message, ToolMessage) else "trusted_local"
        by = _AUTHORS[type(message)]
        shown = truncate_safely(text.strip(), PINNED_CHARS)
        self._put(Entry("pin", shown, placed.run_id, placed.index, by, trust=trust))

    def _put(self, entry: Entry) -> None:
        self._entries.setdefault(entry.entry_id, entry)

    def _drop(self, goes: Callable[[Entry], bool]) -> list[str]:
        gone = [key for key, entry in self._entries.items() if goes(entry)]
        return [self._entries.pop(key).text for key in gone]

    # --- statements

    def _add_statements(
        self, placed: Placed, found: Iterable[Statement], by: Literal["user", "model"]
    ) -> None:
        for statement in found:
            self._remove_replaced(statement, by)
            self._put(Entry(statement.kind, statement.text, placed.run_id, placed.index, by))

    def _remove_replaced(self, statement: Statement, by: Literal["user", "model"]) -> None:
        """Remove the statements that this one corrects; the model corrects only its own."""
        if statement.corrects:
            self._replaced += self._drop(
                lambda entry: (
                    entry.kind in _STATEMENTS
                    and (by == "user" or entry.by == "model")
                    and entry.text != statement.text
                    and statements.replaces(statement, entry.text)
                )
            )

    # --- calls

    def _start(self, call: ProposedCall, placed: Placed) -> None:
        """Add an open call, and the plan that it carries."""
        text = truncate_safely(f"{call.tool} {_compact(call.arguments)}", ERROR_CHARS)
        entry = Entry("call", text, placed.run_id, placed.index, "model", call.call_id)
        self._put(entry)
        self._open[call.call_id] = call
        items = list(_plan_items(call.arguments))
        if items:
            self._replace_plan([text for text, is_open in items if is_open], placed)

    def _finish(self, result: ToolMessage, placed: Placed) -> None:
        """Close the call; record the files it used, or its error."""
        call = self._open.pop(result.call_id, None)
        self._drop(lambda entry: entry.kind == "call" and entry.detail == result.call_id)
        if result.status == _OK:
            for path in () if call is None else _paths(call.arguments):
                self._use(path, result.tool, placed)
        elif result.status != HANDED_OVER:
            shown = result.tool if call is None else f"{call.tool} {_compact(call.arguments)}"
            self._put(
                Entry(
                    "error",
                    _cause(result.output),
                    placed.run_id,
                    placed.index,
                    "tool",
                    truncate_safely(shown, ERROR_CALL_CHARS),
                    result.trust,
                )
            )

    def _use(self, path: str, tool: str, placed: Placed) -> None:
        entry = Entry("file", path, placed.run_id, placed.index, "tool")
        known = self._entries.get(entry.entry_id, entry)
        uses = {*known.detail.split(", "), "changed" if _CHANGES.search(tool) else "read"} - {""}
        detail = ", ".join(sorted(uses))
        self._entries[entry.entry_id] = msgspec.structs.replace(known, detail=detail)

    # --- plans and questions

    def _take_plan(self, text: str, placed: Placed) -> None:
        """Let a plan in the model's text replace the one before; ticked steps are closed."""
        opened = [match["text"].strip() for match in _OPEN_STEP.finditer(text)]
        closed = _DONE_STEP.search(text) is not None
        numbered = _PLAN.search(text)
        if numbered is not None and not (opened or closed):
            opened = [match["text"].strip() for match in _NUMBERED.finditer(numbered["list"])]
        if opened or closed:
            self._replace_plan(opened, placed)

    def _replace_plan(self, steps: Sequence[str], placed: Placed) -> None:
        self._drop(lambda entry: entry.kind == "step")
        for step in steps:
            self._put(Entry("step", step, placed.run_id, placed.index, "model"))

    def _ask(self, text: str, placed: Placed) -> None:
        """Add the question that the model ended its answer with: it waits for the user."""
        asked = [sentence for sentence in statements.sentences(text) if sentence.endswith("?")]
        if asked and text.rstrip().endswith("?"):
            self._put(Entry("ask", asked[-1], placed.run_id, placed.index, "model"))


def _compact(arguments: object) -> str:
    return msgspec.json.encode(arguments).decode()


def _paths(arguments: object) -> Iterator[str]:
    """Yield the paths that a call's arguments name."""
    if not isinstance(arguments, dict):
        return
    for key in _PATH_KEYS:
        value = arguments.get(key)
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, str) and 0 < len(path) <= 512:  # noqa: PLR2004 - a path, not a text
                yield path
    for value in arguments.values():
        if isinstance(value, str) and "\n" in value:
            yield from (match["path"].strip() for match in _PATCH_PATH.finditer(value))


def _cause(output: str) -> str:
    """Return the line of a failed result that names the cause: the last with a word of failure."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = [line for line in lines if _CAUSE.search(line)]
    return truncate_safely((named or lines or [""])[-1], ERROR_CHARS)


def _plan_items(arguments: object) -> Iterator[tuple[str, bool]]:
    """Yield the steps of a plan that a call carries as a list of objects with a status."""
    for value in arguments.values() if isinstance(arguments, dict) else ():
        for item in value if isinstance(value, list) else ():
            if not (isinstance(item, dict) and isinstance(item.get("status"), str)):
                continue
            text = next(
                (item[k] for k in ("step", "content", "text", "title", "task") if k in item), ""
            )
            if isinstance(text, str) and text:
                yield text, item["status"] in _STATUS
