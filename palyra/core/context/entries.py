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
    error       a tool call that failed or was denied, and why

`PROTECTED` kinds survive every compaction: a plan that loses one is refused
(`core.context.session_compaction`).  The others are dropped oldest first when the ledger exceeds its
budget, in the order of `DROPPED_FIRST`.  Only if the protected entries alone take more than
HARD_FACTOR budgets, the oldest of them go too, and the summary says so.

Merging is incremental: `extend(ledger, messages)` reads only new messages.  A correction removes
the statements it replaces; an equal statement moves nothing, so an entry keeps the place where it
was said first.  Statements come from the user and the model alone.  Files and errors come from
tool calls: they are facts about calls, and the text of an error keeps the trust of its result.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import chain
from typing import Literal, cast

import msgspec

from palyra.core.context import corrections, statements
from palyra.core.context.corrections import Mentions
from palyra.core.context.statements import Statement, StatementKind
from palyra.core.memory.changes import has_cue
from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.model.summary import Entry, EntryKind, SummaryLedger
from palyra.core.text.excerpt import truncate_safely
from palyra.core.tool.spec import HANDED_OVER
from palyra.core.trust.labels import Trust, is_from_outside, lowest

PROTECTED: frozenset[EntryKind] = frozenset({
    "pin", "request", "ask", "call", "step", "constraint", "convention", "preference", "decision",
    "file",
})  # fmt: skip
DROPPED_FIRST: tuple[EntryKind, ...] = ("finding", "error", "fact", "remark")
_ANY_LENGTH = 1_000_000  # words
CHATTER_WORDS = 3  # a remark of so few words goes first; a longer one may be a rule without a cue
# Protected entries may take twice the budget; beyond that the oldest of these kinds go, and the
# summary and its event say how many: a session with a thousand rules must still fit in a prompt.
EXCEEDED_FIRST: tuple[EntryKind, ...] = (
    "file", "call", "step", "ask", "decision", "preference", "convention", "constraint", "pin",
)  # fmt: skip
HARD_FACTOR = 2
MIN_HARD_TOKENS = 1_000  # of a model with a tiny window
ERROR_CHARS = 300
ERROR_CALL_CHARS = 160
MAX_REPLACED = 100
REQUEST_CHARS = 4_000  # of the last message; a longer one is in the window or in its artifact
PINNED_CHARS = 4_000


def is_protected(entry: Entry) -> bool:
    """True if no compaction may lose the entry.

    The user decides: a decision of the model is only what it said, and so is all that it said after it
    had read a text from outside, which it may repeat.
    """
    if entry.kind not in PROTECTED:
        return False
    return entry.by != "model" or not (entry.kind == "decision" or is_from_outside(entry.trust))


class Placed(msgspec.Struct, frozen=True, gc=False):
    """A message and its place: the run, and the index in that run's conversation."""

    run_id: str
    index: int
    message: Message


EMPTY = SummaryLedger()


def extend(
    ledger: SummaryLedger,
    messages: Sequence[Placed],
    *,
    window: Sequence[Placed] = (),
    pins: Iterable[Placed] | None = None,
) -> SummaryLedger:
    """Return the ledger with what `messages` add, correct, answer and complete.

    `messages` follow those that the ledger was made of, oldest first.  `window` follows them and
    stays in the prompt: its corrections count, its statements are not added, but a correction may be
    about one of them and then removes nothing here.  `pins` are all pins
    that are in force; None keeps those of the ledger.
    """
    builder = _Builder(ledger)
    for placed in messages:
        builder.read(placed)
    for placed in window:
        builder.correct(placed)
    if pins is not None:
        builder.replace_pins(pins)
    return builder.ledger()


def fit(ledger: SummaryLedger, budget_tokens: int) -> SummaryLedger:
    """Drop entries, oldest first, until the ledger fits.

    Unprotected entries go by `DROPPED_FIRST` above the budget.  Protected ones go by
    `EXCEEDED_FIRST` above HARD_FACTOR times the budget, and are counted in `exceeded`; the last
    request stays.
    """
    over = ledger.tokens - budget_tokens
    gone = _oldest(ledger, ("remark",), over, max_words=CHATTER_WORDS)
    over -= sum(ledger.entries[place].tokens for place in gone)
    gone |= _oldest(ledger, DROPPED_FIRST, over, without=gone)
    over = ledger.tokens - budget_tokens - sum(ledger.entries[place].tokens for place in gone)
    kept = {place for place, entry in enumerate(ledger.entries) if is_protected(entry)}
    gone |= _oldest(ledger, EXCEEDED_FIRST, over, without=gone | kept)
    over = sum(
        entry.tokens for place, entry in enumerate(ledger.entries) if place not in gone
    ) - max(HARD_FACTOR * budget_tokens, MIN_HARD_TOKENS)
    lost = _oldest(ledger, EXCEEDED_FIRST, over, without=gone)
    if not gone and not lost:
        return ledger
    exceeded = Counter(ledger.exceeded)
    exceeded.update(ledger.entries[place].kind for place in lost)
    left = (entry for place, entry in enumerate(ledger.entries) if place not in gone | lost)
    return msgspec.structs.replace(
        ledger,
        entries=tuple(left),
        dropped=ledger.dropped + len(gone),
        exceeded=dict(sorted(exceeded.items())),
    )


def _oldest(
    ledger: SummaryLedger,
    kinds: Sequence[EntryKind],
    over: int,
    *,
    max_words: int = _ANY_LENGTH,
    without: Container[int] = (),
) -> set[int]:
    """Return the places of the first entries of these kinds that together have `over` tokens."""
    gone: set[int] = set()
    for kind in kinds:
        for place, entry in enumerate(ledger.entries):
            if over <= 0:
                return gone
            if entry.kind == kind and place not in without and _is_short(entry, max_words):
                gone.add(place)
                over -= entry.tokens
    return gone


def _is_short(entry: Entry, max_words: int) -> bool:
    return len(entry.text.split(maxsplit=CHATTER_WORDS)) <= max_words


# Words of the names of arguments that hold a path, in any spelling: `targetFile`, `old_path`.
_PATH_WORDS = frozenset(
    [
        "path",
        "paths",
        "file",
        "files",
        "filename",
        "filepath",
        "filenames",
        "source",
        "src",
        "destination",
        "dest",
        "dst",
        "target",
        "uri",
        "document",
        "notebook",
        "from",
        "to",
        "old",
        "new",
    ]
)
_KEY_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SURE = frozenset(["path", "paths", "file", "files", "filename", "filepath", "filenames"])
_LOOKS_LIKE_PATH = re.compile(r"[^\s\0]*(?:[/\\][^\s\0]*|\.[A-Za-z]\w{0,7})")
_MAX_PATH_CHARS = 512
_MAX_DEPTH = 4  # of nested arguments
_PATCH_PATH = re.compile(
    r"^(?:\*\*\* (?:Add|Update|Delete|Move to|Move)(?: File)?: |\+\+\+ (?:b/)?)(?P<path>[^\t\n]+)",
    re.MULTILINE,
)
_CHANGES = re.compile(
    r"write|edit|patch|create|delete|remove|move|rename|append|replace|save|insert|update|put",
    re.IGNORECASE,
)
_CAUSE = re.compile(
    r"error|exception|fail|denied|refused|not found|no such|cannot|fatal|panic", re.IGNORECASE
)
_DONE = r"\[[xX✓✔]\]|[☑✅✔✓]|~~"
_DONE_STEP = re.compile(
    rf"^\s*(?:[-*+]\s+|\d{{1,2}}[.)]\s+)?(?:{_DONE})\s*(?P<text>.+)$", re.MULTILINE
)
_OPEN_STEP = re.compile(
    r"^\s*(?:[-*+]\s+|\d{1,2}[.)]\s+)?(?:\[ ?\]|[☐⬜])\s*(?P<text>.+)$", re.MULTILINE
)
_PLAN = re.compile(
    r"^[^\n]*\b(?:plan|steps|next|todo|roadmap|proceed|go about|going to|i(?:.?ll| will| would|.d)|"
    r"vorgehen|schritte|ablauf|fahrplan|so gehe ich|reihenfolge)\b[^\n]*:\s*\n+"
    r"(?P<list>(?:\s*(?:\d{1,2}[.)]|[-*+•])\s+[^\n]+\n?){2,})",
    re.IGNORECASE | re.MULTILINE,
)
_NUMBERED = re.compile(r"^\s*(?:\d{1,2}[.)]|[-*+•])\s+(?P<text>.+)$", re.MULTILINE)
_ROW = re.compile(r"^[ \t]*\|(?P<cells>.+)\|[ \t]*$", re.MULTILINE)
_PLAN_TOOL = re.compile(r"plan|todo|task|step", re.IGNORECASE)
_STEP_KEYS = (
    "step", "content", "text", "title", "task", "description", "name", "summary", "activeForm",
)  # fmt: skip
_STATUS = frozenset(
    [
        "pending",
        "in_progress",
        "todo",
        "open",
        "not_started",
        "active",
        "blocked",
        "planned",
        "offen",
        "started",
        "waiting",
    ]
)
_OK, _DENIED = "succeeded", "denied"


_STATEMENTS = frozenset(
    {"constraint", "convention", "preference", "decision", "fact", "finding", "remark"}
)
_CORRECTABLE = _STATEMENTS | {"ask"}
_ABOUT = re.compile(r" \[about: (?P<subject>.*)\]$")
_AUTHORS: dict[type[Message], Literal["user", "model", "tool"]] = {
    UserMessage: "user",
    AssistantMessage: "model",
    ToolMessage: "tool",
    GuidanceMessage: "tool",
}


def labels_of(message: Message) -> list[Trust]:
    """Return the labels of the texts of others in a message."""
    if isinstance(message, ToolMessage):
        return [message.trust]
    if isinstance(message, UserMessage):
        return [source.trust for source in message.references if source.text]
    return []


class _Builder:
    """A ledger while messages are read into it."""

    def __init__(self, ledger: SummaryLedger) -> None:
        self._before = ledger
        self._entries = dict[str, Entry]()
        self._keys: dict[EntryKind, dict[str, None]] = defaultdict(dict)  # of each kind, in order
        self._lowest_trust = ledger.lowest_trust
        self._request = next((e for e in ledger.entries if e.kind == "request"), None)
        self._replaced = list(ledger.replaced)
        self._mentions = Mentions()
        self._unread = list[str]()  # keys that the first correction adds to the index
        self._shown = dict[str, Entry]()  # statements that stay in the prompt
        self._open: dict[str, ProposedCall] = {}
        self._ahead = list[tuple[str, int]]()
        for entry in ledger.entries:
            if entry.kind != "request":
                self._put(entry)
        self._before_ids = frozenset(self._entries)

    def ledger(self) -> SummaryLedger:
        """Return what was read so far."""
        last = () if self._request is None else (self._request,)
        return SummaryLedger(
            entries=(*self._entries.values(), *last),
            dropped=self._before.dropped,
            exceeded=self._before.exceeded,
            replaced=tuple(self._replaced[-MAX_REPLACED:]),
            lowest_trust=self._lowest_trust,
            ahead=tuple(self._ahead),
        )

    def read(self, placed: Placed) -> None:
        """Read one message."""
        self._lowest_trust = lowest((self._lowest_trust, *labels_of(placed.message)))
        match placed.message:
            case UserMessage(text):
                self._drop("ask", lambda entry: entry.by == "model")  # answered
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

    def correct(self, placed: Placed) -> None:
        """Remove what a message that stays in the prompt corrects; it may be the last request.

        The correction itself becomes an entry: it may name its subject only through what it removes.
        """
        match placed.message:
            case UserMessage(text):
                self._request = None
                self._ahead.append((placed.run_id, placed.index))
                for statement in statements.read_user(text):
                    count = len(self._replaced)
                    kept = self._remove_replaced(statement, "user", placed)
                    if len(self._replaced) > count:
                        self._put(Entry(kept.kind, kept.text, placed.run_id, placed.index))
                    else:
                        self._show(statement, "user", placed)
            case AssistantMessage(text):
                for statement in statements.read_model(text):
                    self._show(statement, "model", placed)
            case _:
                pass

    def _show(self, statement: Statement, by: Literal["user", "model"], placed: Placed) -> None:
        """Let later corrections be about a statement that is no entry, because it stays in the prompt."""
        entry = Entry(statement.kind, statement.text, placed.run_id, placed.index, by)
        if entry.kind in _CORRECTABLE and entry.entry_id not in self._entries:
            self._shown[entry.entry_id] = entry
            self._unread.append(entry.entry_id)

    def replace_pins(self, pins: Iterable[Placed]) -> None:
        """Keep exactly these pinned messages."""
        self._drop("pin")
        for placed in pins:
            self._pin(placed)

    def _pin(self, placed: Placed) -> None:
        message = placed.message
        text = message.output if isinstance(message, ToolMessage) else message.text
        trust: Trust = message.trust if isinstance(message, ToolMessage) else "trusted_local"
        by = _AUTHORS[type(message)]
        shown = truncate_safely(text.strip(), PINNED_CHARS)
        self._put(Entry("pin", shown, placed.run_id, placed.index, by, trust=trust))

    def _put(self, entry: Entry) -> None:
        key = entry.entry_id
        known = self._entries.get(key)
        if known is not None and known.by == "model" and entry.by == "user":
            self._entries[key] = entry  # the user confirms what the model said
        if known is None:
            self._entries[key] = entry
            self._keys[entry.kind][key] = None
            if entry.kind in _CORRECTABLE:
                self._unread.append(key)

    def _remove(self, key: str) -> Entry:
        entry = self._entries.pop(key)
        del self._keys[entry.kind][key]
        self._mentions.remove(key, entry.text)
        return entry

    def _drop(self, kind: EntryKind, goes: Callable[[Entry], bool] = lambda _entry: True) -> None:
        for key in [key for key in self._keys[kind] if goes(self._entries[key])]:
            self._remove(key)

    # --- statements

    def _add_statements(
        self, placed: Placed, found: Iterable[Statement], by: Literal["user", "model"]
    ) -> None:
        for statement in found:
            is_known = self._is_known(statement, placed)
            kept = self._remove_replaced(statement, by, placed)
            if not is_known:
                trust: Trust = self._lowest_trust if by == "model" else "trusted_local"
                self._put(Entry(kept.kind, kept.text, placed.run_id, placed.index, by, trust=trust))

    def _remove_replaced(
        self, statement: Statement, by: Literal["user", "model"], placed: Placed
    ) -> Statement:
        """Remove the statements that this one corrects; the model corrects only its own.

        Returns the statement to keep: a correction without a subject keeps that of what it
        corrects, without the value that is no longer valid.
        """
        if not _may_change(statement, by):
            return statement
        place = (placed.run_id, placed.index)
        known = self._before_ids if place in self._before.ahead else frozenset[str]()

        def removable(keys: Iterable[str]) -> Iterator[tuple[str, Entry]]:
            for key in keys:
                entry = self._entries.get(key) or self._shown.get(key)
                if entry is None or key in known or (entry.run_id, entry.message) == place:
                    continue  # the correction was applied to the known ones
                if by == "user" or entry.by == "model":
                    yield key, entry

        mentions = self._index()
        near = list(removable(mentions.find_replaceable(statement)))
        found = corrections.find_replaced(statement, [entry.text for _, entry in near])
        wrong = [near[at][0] for at in found]
        wrong = wrong or _find_changed(statement, by, removable(mentions.find_sharing(statement)))
        is_spent = self._is_known(statement, placed)  # its guess was right or wrong before
        if not (wrong or is_spent) and by == "user" and corrections.takes_back(statement):
            near = list(removable(mentions.find_near(statement)))
            one = corrections.find_corrected(
                statement, ((cast("StatementKind", e.kind), e.text) for _, e in near)
            )
            wrong = [] if one is None else [near[one][0]]
        if wrong:
            last = wrong[-1]
            statement = _completed(statement, self._entries.get(last) or self._shown[last])
        for key in wrong:
            if key in self._entries:
                self._replaced.append(self._remove(key).text)
            else:
                self._mentions.remove(key, self._shown.pop(key).text)
        return statement

    def _index(self) -> Mentions:
        """Return the index of the statements; made only for a conversation with corrections."""
        for key in self._unread:
            entry = self._entries.get(key) or self._shown.get(key)
            if entry is not None:
                self._mentions.add(key, entry.text)
        self._unread.clear()
        return self._mentions

    def _is_known(self, statement: Statement, placed: Placed) -> bool:
        """True if a statement of a message that was read ahead is an entry, or was one."""
        if (placed.run_id, placed.index) not in self._before.ahead:
            return False
        return any(
            entry.text.startswith(statement.text)
            and (entry.run_id, entry.message) == (placed.run_id, placed.index)
            for entry in self._entries.values()
        ) or any(text.startswith(statement.text) for text in self._replaced)

    # --- calls

    def _start(self, call: ProposedCall, placed: Placed) -> None:
        """Add an open call, and the plan that it carries."""
        text = truncate_safely(f"{call.tool} {_compact(call.arguments)}", ERROR_CHARS)
        entry = Entry("call", text, placed.run_id, placed.index, "model", call.call_id)
        self._put(entry)
        self._open[call.call_id] = call
        items = list(_plan_items(call))
        if items:
            self._replace_plan([text for text, is_open in items if is_open], placed)

    def _finish(self, result: ToolMessage, placed: Placed) -> None:
        """Close the call; record the files it used, or its error."""
        call = self._open.pop(result.call_id, None)
        self._drop("call", lambda entry: entry.detail == result.call_id)
        if result.status == _OK:
            for path in () if call is None else _paths(call.arguments):
                self._use(path, result.tool, placed)
        elif result.status != HANDED_OVER:
            shown = result.tool if call is None else f"{call.tool} {_compact(call.arguments)}"
            self._put(
                Entry(
                    "error",
                    _cause(result),
                    placed.run_id,
                    placed.index,
                    "tool",
                    truncate_safely(shown, ERROR_CALL_CHARS),
                    result.trust,
                )
            )

    def _use(self, path: str, tool: str, placed: Placed) -> None:
        entry = Entry("file", path, placed.run_id, placed.index, "tool")
        self._put(entry)
        known = self._entries[entry.entry_id]
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
        rows = [] if opened or closed else list(_table_steps(text))
        if opened or closed or rows:
            self._replace_plan(opened or rows, placed)

    def _replace_plan(self, steps: Sequence[str], placed: Placed) -> None:
        self._drop("step")
        for step in steps:
            self._put(
                Entry("step", step, placed.run_id, placed.index, "model", trust=self._lowest_trust)
            )

    def _ask(self, text: str, placed: Placed) -> None:
        """Add the question that the model ended its answer with: it waits for the user."""
        asked = [sentence for sentence in statements.sentences(text) if sentence.endswith("?")]
        if asked and text.rstrip().endswith("?"):
            self._put(
                Entry(
                    "ask", asked[-1], placed.run_id, placed.index, "model", trust=self._lowest_trust
                )
            )


def _may_change(statement: Statement, by: Literal["user", "model"]) -> bool:
    return statement.corrects or (by == "user" and has_cue(statement.text))


def _find_changed(
    statement: Statement, by: Literal["user", "model"], sharing: Iterable[tuple[str, Entry]]
) -> list[str]:
    """Return the keys of the user's statements that another one of the user changes as a whole."""
    if by != "user":
        return []
    near = [(key, entry) for key, entry in sharing if entry.by == "user"]
    said = ((cast("StatementKind", entry.kind), entry.text) for _, entry in near)
    return [near[at][0] for at in corrections.find_changed(statement, said)]


def _completed(statement: Statement, corrected: Entry) -> Statement:
    """Return the correction with the subject and the class of what it corrects, if it has none."""
    kind = statement.kind
    if kind in {"remark", "fact", "preference"}:
        kind = cast("StatementKind", corrected.kind)
    text = statement.text
    if statements.is_elliptic(text) and corrections.names_more(corrected.text, text):
        known = _ABOUT.search(corrected.text)
        subject = corrections.elide(corrected.text, text) if known is None else known["subject"]
        text = f"{text} [about: {subject}]"
    return msgspec.structs.replace(statement, kind=kind, text=text)


def _compact(arguments: object) -> str:
    return msgspec.json.encode(arguments).decode()


def _paths(arguments: object) -> Iterator[str]:
    """Yield the paths that a call's arguments name, nested ones included."""
    for key, text in _strings(arguments):
        if "\n" in text:
            yield from (match["path"].strip() for match in _PATCH_PATH.finditer(text))
        elif _is_path(key, path := text.removeprefix("file://")):
            yield path


def _strings(value: object, key: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the strings of a JSON value, each with the name of the member that holds it."""
    if isinstance(value, str):
        yield key, value
    if depth == _MAX_DEPTH:
        return
    members: Iterable[tuple[str, object]] = ()
    if isinstance(value, dict):
        members = value.items()
    elif isinstance(value, list):
        members = ((key, each) for each in value)
    for name, each in members:
        yield from _strings(each, name, depth + 1)


def _is_path(key: str, text: str) -> bool:
    words = {word.casefold() for word in _KEY_WORD.findall(key)}
    if not words & _PATH_WORDS or not 0 < len(text) <= _MAX_PATH_CHARS or "://" in text:
        return False
    return bool(words & _SURE) or _LOOKS_LIKE_PATH.fullmatch(text) is not None


def _cause(result: ToolMessage) -> str:
    """Return the line of a result that names the cause: the last with a word of failure.

    The reason of a denial is a person's or a rule's; the call did not fail, it was never made.
    """
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    if result.status == _DENIED:
        reason = next(iter(lines), "")
        return truncate_safely(
            reason if _DENIED in reason.casefold() else f"{_DENIED}: {reason}", ERROR_CHARS
        )
    named = [line for line in lines if _CAUSE.search(line)]
    return truncate_safely((named or lines or [""])[-1], ERROR_CHARS)


def _table_steps(text: str) -> Iterator[str]:
    """Yield the open steps of a table with a column of states."""
    for row in _ROW.finditer(text):
        cells = [cell.strip() for cell in row["cells"].split("|")]
        states = [cell for cell in cells if _state(cell) in _STATUS]
        if states:
            yield max((cell for cell in cells if cell not in states), key=len, default="")


def _state(text: object) -> str:
    return text.casefold().replace(" ", "_").replace("-", "_") if isinstance(text, str) else ""


def _plan_items(call: ProposedCall) -> Iterator[tuple[str, bool]]:
    """Yield the steps of a plan that a call carries as a list, and which of them are open."""
    is_plan = _PLAN_TOOL.search(call.tool) is not None
    given = call.arguments.values() if isinstance(call.arguments, dict) else ()
    items = chain.from_iterable(value for value in given if isinstance(value, list))
    found = (_plan_item(item, is_plan=is_plan) for item in items)
    yield from (step for step in found if step is not None)


def _plan_item(item: object, *, is_plan: bool) -> tuple[str, bool] | None:
    if isinstance(item, dict):
        return _step(item, is_plan=is_plan)
    return (item, True) if isinstance(item, str) and is_plan else None


def _step(item: dict[str, object], *, is_plan: bool) -> tuple[str, bool] | None:
    text = next((item[key] for key in _STEP_KEYS if key in item), "")
    state = item.get("status", item.get("state"))
    done = item.get("done", item.get("completed"))
    if not isinstance(text, str) or not text:
        return None
    if isinstance(state, str):
        return text, _state(state) in _STATUS
    return (text, not done) if isinstance(done, bool) and is_plan else None
