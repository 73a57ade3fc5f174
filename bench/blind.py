"""Rules and weights on sentences that they may be written from, and on sentences that nobody has read.

    python bench/blind.py [--parts extraction dates] [--minilm WHEEL_OR_DIR] [--show dev]

Each part has two sets: `bench/dev/PART.json`, which may be read, and `bench/blind/PART.sealed`, the
same form compressed by zlib, then base64 in lines of 76 characters.  The figures of the second are
the claim; a set that was looked at becomes development data and is replaced.  No case of a blind set
is ever printed, an error with one included; `--show dev` prints the wrong cases of the first set.

    extraction   one run for each message, read by the learning service with mode `auto`
    corrections  both sentences stored 90 days apart; and both read by a compaction
    drafts       accounts of a model that summarises: what is left of true and of false ones
    obligations  the class that a compaction gives the sentence
    dates        the days that the rules of dates find in a text
    duplicates   both sentences stored, one after the other
    recall       conversations imported and searched by words with hashed n-grams, and with MiniLM
    prompts      what a daemon sends to its provider after facts and preferences were stored

Precision is the share of what was made that is right, recall the share of what was wanted that was
made; both with their counts.
"""

import argparse
import base64
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog
import trio

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from palyra.core.context.entries import EMPTY, Placed, extend
from palyra.core.context.session_compaction import Draft, RefusedSummary, plan_summary, take_draft
from palyra.core.context.statements import StatementKind, read_user
from palyra.core.journal.changes import CandidateFilter, MemoryFilter
from palyra.core.memory.dates import find_spans
from palyra.core.memory.items import MAX_IMPORT, MemoryDraft
from palyra.core.model.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.ports import Embedder
from palyra.core.tape.events import MessageReceived
from palyra.models.memory_embedders import HashedEmbedder, MiniLmEmbedder
from palyra.models.minilm import files
from palyra.services.memory.embedders import LocalEmbedder
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import somebody
from tests.models.model_kit import chunk
from tests.models.provider import STREAM, provider, sse
from tests.services.learning_kit import LearningKit, Liar
from tests.services.memory_kit import ANN, MemoryKit, caller, run_inline

HERE = Path(__file__).resolve().parent
DAY_MS = 86_400_000
HITS = 10
EMBEDDED_S, LOOK_S = 120.0, 0.05
BUDGET_TOKENS = 32_000
BINDING: frozenset[StatementKind] = frozenset({"constraint", "convention", "preference"})
CONFIG = '[models]\ndefault = "p/m"\nproviders = [{{ name = "p", base_url = "{url}" }}]\n'
END = {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


# --- cases ---------------------------------------------------------------------------------------


class Durable(msgspec.Struct, frozen=True):
    kind: str
    must_contain: tuple[str, ...]
    auto: bool

    def is_in(self, text: str) -> bool:
        return all(word.casefold() in text.casefold() for word in self.must_contain)


class ExtractionCase(msgspec.Struct, frozen=True):
    messages: tuple[str, ...]
    durable: tuple[Durable, ...]


class CorrectionCase(msgspec.Struct, frozen=True):
    old: str
    new: str
    supersedes: bool


class ObligationCase(msgspec.Struct, frozen=True):
    sentence: str
    binds: bool


class SaidMessage(msgspec.Struct, frozen=True):
    by: str
    text: str

    def place(self, index: int) -> Placed:
        made: dict[str, Message] = {
            "user": UserMessage(self.text),
            "assistant": AssistantMessage(self.text),
            "tool": ToolMessage(f"c{index}", "sh", "succeeded", self.text),
        }
        return Placed("run", index, made[self.by])


class DraftSentence(msgspec.Struct, frozen=True):
    text: str
    is_true: bool


class DraftCase(msgspec.Struct, frozen=True):
    talk: tuple[SaidMessage, ...]
    sentences: tuple[DraftSentence, ...]


class DateCase(msgspec.Struct, frozen=True, rename={"first": "from", "last": "to"}):
    now: datetime
    said_at: datetime
    text: str
    first: date | None
    last: date | None = None


class DuplicateCase(msgspec.Struct, frozen=True):
    a: str
    b: str
    same: bool


class Turn(msgspec.Struct, frozen=True):
    id: str | int
    session: str | int
    at: datetime
    author: str
    text: str


class Question(msgspec.Struct, frozen=True):
    question: str
    evidence: tuple[str | int, ...]
    at: datetime


class RecallCase(msgspec.Struct, frozen=True):
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]


class PromptCase(msgspec.Struct, frozen=True):
    memories: tuple[str, ...]
    standing: tuple[str, ...]
    prompt: str
    related: tuple[int, ...]


Case = TypeVar("Case")


def read_dev(path: Path, form: type[Case]) -> list[Case]:
    """Read a development set."""
    return msgspec.json.decode(path.read_bytes(), type=list[form])  # type: ignore[valid-type]  # a value


def read_sealed(path: Path, form: type[Case]) -> list[Case]:
    """Read a blind set."""
    packed = base64.b64decode(path.read_bytes())
    return msgspec.json.decode(zlib.decompress(packed), type=list[form])  # type: ignore[valid-type]  # a value


# --- results -------------------------------------------------------------------------------------


class Result:
    """Figures of one set by name, and its wrong cases."""

    def __init__(self) -> None:
        self.figures: dict[str, tuple[float, int]] = {}
        self.wrong: list[str] = []

    def count(self, name: str, right: Iterable[tuple[float, str]]) -> None:
        """Add to a figure: for each case its share, 0 to 1, and what is shown if that is not 1."""
        self.figures.setdefault(name, (0, 0))
        for share, shown in right:
            before, of = self.figures[name]
            self.figures[name] = (before + share, of + 1)
            if share < 1:
                self.wrong.append(f"{name}: {shown}")

    def judge(self, prefix: str, wanted: bool, made: bool, shown: str) -> None:  # noqa: FBT001 - a pair
        """Add a case to precision and recall."""
        self.count(f"{prefix}precision", [(wanted, shown)] if made else [])
        self.count(f"{prefix}recall", [(made, shown)] if wanted else [])


def render(right: float, of: int) -> str:
    """Return a share with its counts."""
    return f"{right / of:.1%} ({right:.4g} of {of})" if of else "- (0 of 0)"


# --- the parts -----------------------------------------------------------------------------------


async def measure_extraction(
    cases: Sequence[ExtractionCase], folder: Path, model: Liar | None = None
) -> Result:
    """Let learning read each conversation of a principal of its own, with a model or without."""
    result, kit = Result(), LearningKit(folder)
    kit.papers.writes, kit.model = False, model
    learning = kit.learning("auto")
    for number, case in enumerate(cases):
        who = f"p{number}"
        for message in case.messages:
            run_id = kit.record([MessageReceived(text=message)], principal=who)
            await learning.reflect(run_id)
        shown = await learning.list_candidates(
            caller(who), CandidateFilter(principal=who, states=("proposed", "applied"))
        )
        kinds = ((each.kind, each.text) for each in shown)
        result.count("preferences found as preferences, others not", _judge_kinds(case, [*kinds]))
        judge_learned(
            result,
            case,
            proposed=[each.text for each in shown],
            applied=[each.text for each in shown if each.state == "applied"],
        )
    kit.store.close()
    return result


def _judge_kinds(
    case: ExtractionCase, found: Sequence[tuple[str, str]]
) -> Iterable[tuple[bool, str]]:
    """Yield whether a preference, which stands in each prompt, was told from the rest."""
    for kind, text in found:
        wanted = next((each for each in case.durable if each.is_in(text)), None)
        if wanted is not None:
            yield (kind == "preference") is (wanted.kind == "preference"), f"{text}: {kind}"


def judge_learned(
    result: Result, case: ExtractionCase, *, proposed: list[str], applied: list[str]
) -> None:
    """Compare what was made of a conversation with what the case calls durable."""
    sure = [each for each in case.durable if each.auto]

    def in_any(texts: list[str], wanted: Durable) -> tuple[bool, str]:
        return any(map(wanted.is_in, texts)), f"{wanted.must_contain} of {case.messages}"

    def of_any(wanted: Sequence[Durable], text: str) -> tuple[bool, str]:
        return any(each.is_in(text) for each in wanted), text

    result.count("candidates right", (of_any(case.durable, text) for text in proposed))
    result.count("candidates found", (in_any(proposed, each) for each in case.durable))
    result.count("automatic writes right", (of_any(sure, text) for text in applied))
    result.count("written of what may be", (in_any(applied, each) for each in sure))


async def measure_corrections(cases: Sequence[CorrectionCase], folder: Path) -> Result:
    """Store both sentences, and let a compaction read both."""
    result, kit = Result(), MemoryKit(folder, is_indexed=True)
    for number, case in enumerate(cases):
        who, shown = caller(f"p{number}"), f"{case.old} -> {case.new}"
        await kit.put(case.old, who)
        kit.clock.now_ms += 90 * DAY_MS
        await kit.put(case.new, who)
        is_gone = case.old not in await kit.texts(who)
        result.judge("memory ", case.supersedes, is_gone, shown)
        if case.supersedes:
            await kit.keep_up()
            shared = {*case.old.casefold().split()} & {*case.new.casefold().split()}
            asked = " ".join(word for word in case.old.split() if word.casefold() in shared)
            wanted = MemoryFilter(principal="", now_ms=0)
            hits = (await kit.search.search(who, asked or case.new, wanted)).hits
            is_first = bool(hits) and hits[0].item.text == case.new
            result.count("memory newer first", [(is_first, shown)])
        ledger = extend(EMPTY, [_say(0, case.old), _say(1, case.new)])
        is_taken_back = case.old not in {entry.text for entry in ledger.entries}
        result.judge("compaction ", case.supersedes, is_taken_back, shown)
    kit.store.close()
    return result


def _say(index: int, text: str) -> Placed:
    return Placed("run", index, UserMessage(text))


async def measure_obligations(cases: Sequence[ObligationCase], _folder: Path) -> Result:
    """Class each sentence."""
    result = Result()
    for case in cases:
        await trio.lowlevel.checkpoint()
        is_binding = any(each.kind in BINDING for each in read_user(case.sentence))
        result.judge("", case.binds, is_binding, case.sentence)
    return result


async def measure_drafts(cases: Sequence[DraftCase], _folder: Path) -> Result:
    """Let a summary take each account."""
    result = Result()
    for case in cases:
        await trio.lowlevel.checkpoint()
        talk = [each.place(index) for index, each in enumerate(case.talk)]
        talk.append(Placed("run", len(talk), AssistantMessage("So far. " * 400)))
        plan = plan_summary(None, talk, BUDGET_TOKENS)
        told = " ".join(each.text for each in case.sentences)
        try:
            taken, why = take_draft(plan, Draft(narrative=told), talk), ""
        except RefusedSummary as refused:
            taken, why = None, refused.message
        shown = "" if taken is None else taken.narrative
        why = why or "; ".join(() if taken is None else taken.refusals)
        is_honest = all(each.is_true for each in case.sentences)
        honest = [(bool(shown), f"{told} <- {why}")] if is_honest else []
        result.count("honest drafts taken", honest)
        result.count("honest drafts whole", [(told == shown, why)] if is_honest else [])
        result.count(
            "true sentences kept",
            (
                (each.text in shown, f"{each.text} <- {why}")
                for each in case.sentences
                if each.is_true
            ),
        )
        result.count(
            "false sentences left out",
            ((each.text not in shown, each.text) for each in case.sentences if not each.is_true),
        )
    return result


async def measure_dates(cases: Sequence[DateCase], _folder: Path) -> Result:
    """Find the days of each text."""
    result = Result()
    for case in cases:
        await trio.lowlevel.checkpoint()
        spans = find_spans(case.text, case.said_at.date())
        found = (
            (min(each.first for each in spans), max(each.last for each in spans)) if spans else None
        )
        wanted = None if case.first is None else (case.first, case.last or case.first)
        judged = [(wanted == found, f"{case.text} -> {_days(found)}, meant {_days(wanted)}")]
        result.count("exact precision", judged if found else [])
        result.count("exact recall" if wanted else "undated left alone", judged)
    return result


def _days(span: tuple[date, date] | None) -> str:
    return "no date" if span is None else f"{span[0]}..{span[1]}"


async def measure_duplicates(cases: Sequence[DuplicateCase], folder: Path) -> Result:
    """Store both sentences."""
    result, kit = Result(), MemoryKit(folder)
    for number, case in enumerate(cases):
        who = caller(f"p{number}")
        await kit.put(case.a, who)
        is_same = await kit.put(case.b, who) == "updated"
        result.judge("", case.same, is_same, f"{case.a} / {case.b}")
    kit.store.close()
    return result


async def measure_recall(
    cases: Sequence[RecallCase], folder: Path, embedders: dict[str, Embedder]
) -> Result:
    """Import each conversation and ask its questions at their time."""
    result = Result()
    for name, embedder in embedders.items():
        for number, case in enumerate(cases):
            place = folder / f"{name}{number}"
            place.mkdir()
            shares = [each async for each in _ask_all(case, place, embedder)]
            result.count(f"R@{HITS}, {name}", shares)
            result.count(
                f"all evidence@{HITS}, {name}", ((each == 1, text) for each, text in shares)
            )
    return result


async def _ask_all(
    case: RecallCase, folder: Path, embedder: Embedder
) -> AsyncGenerator[tuple[float, str]]:
    """Yield the share of the evidence that each question finds, and what it misses."""
    kit = MemoryKit(folder, is_indexed=True)
    kit.embedder = LocalEmbedder(embedder, run_inline)  # before the index asks for it
    times = [turn.at for turn in case.turns] + [question.at for question in case.questions]
    kit.clock.now_ms = max(map(_ms, times))
    turn_of: dict[str, str | int] = {}
    turns = sorted(case.turns, key=lambda turn: turn.at)
    for part in (turns[at : at + MAX_IMPORT] for at in range(0, len(turns), MAX_IMPORT)):
        drafts = [
            MemoryDraft(
                text=turn.text,
                kind="turn",
                author=turn.author,
                session_id=f"ses_{turn.session}",
                at_ms=_ms(turn.at) + offset,  # several of one minute stay in order
            )
            for offset, turn in enumerate(part)
        ]
        imported = await kit.memories.import_items(ANN, drafts)
        turn_of |= zip(imported.memory_ids, (turn.id for turn in part), strict=True)
    await kit.keep_up()
    for question in case.questions:
        kit.clock.now_ms = _ms(question.at)
        wanted = MemoryFilter(principal="", now_ms=0, limit=HITS)
        hits = (await kit.search.search(ANN, question.question, wanted)).hits
        found = {turn_of[hit.item.memory_id] for hit in hits[:HITS]}
        missed = [each for each in question.evidence if each not in found]
        yield 1 - len(missed) / len(question.evidence), f"{question.question} misses {missed}"
    kit.store.close()


def _ms(at: datetime) -> int:
    return int((at.timestamp() if at.tzinfo else _utc(at)) * 1000)


def _utc(at: datetime) -> float:
    return (at - datetime(1970, 1, 1)).total_seconds()  # noqa: DTZ001 - both without a zone


async def measure_prompts(cases: Sequence[PromptCase], folder: Path, minilm: Path | None) -> Result:
    """Let a daemon ask its provider for principals of their own, and read what it sends."""
    result = Result()
    await _ask_daemon(cases, folder / "words", result, "no model")
    if minilm is not None:
        shutil.copytree(files.folder(minilm), files.folder(folder / "vectors" / "home"))
        await _ask_daemon(cases, folder / "vectors", result, "MiniLM")
    return result


async def _ask_daemon(
    cases: Sequence[PromptCase], folder: Path, result: Result, embedder: str
) -> None:
    answer = [STREAM, sse(chunk(content="fine"), END, "[DONE]")]
    home = folder / "home"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with provider(*([answer] * len(cases))) as served:
        (home / "palyra.toml").write_text(CONFIG.format(url=served.url), encoding="utf-8")
        with running(folder) as daemon:
            for number, case in enumerate(cases):
                await _say_to(daemon, f"p{number}", case)
                _judge_prompt(result, case, "\n".join(_strings(served.bodies[-1])), embedder)


async def _say_to(daemon: DaemonProcess, who: str, case: PromptCase) -> None:
    """Store the statements of a case and let a run answer its prompt."""
    async with somebody(daemon, "client", who) as client:
        for text in case.memories:
            await client.add_memory(text, kind="fact")
        for text in case.standing:
            await client.add_memory(text, kind="preference")
        with trio.fail_after(EMBEDDED_S):
            while (await client.get_memory_status()).without_vector:  # noqa: ASYNC110 - of another process
                await trio.sleep(LOOK_S)
        run = await client.start_run(case.prompt)
        await client.wait_run(run.run_id)


def _judge_prompt(result: Result, case: PromptCase, sent: str, embedder: str) -> None:
    def shown(text: str) -> str:
        return f"{case.prompt}: {text}"

    there = [at for at, text in enumerate(case.memories) if text in sent]
    result.count(
        f"standing preferences present, {embedder}",
        ((each in sent, shown(each)) for each in case.standing),
    )
    result.count(
        f"related facts present, {embedder}",
        ((at in there, shown(case.memories[at])) for at in case.related),
    )
    result.count(
        f"facts that are related, {embedder}",
        ((at in case.related, shown(case.memories[at])) for at in there),
    )
    if not case.related:
        empty = [(not there, shown(f"{len(there)} facts"))]
        result.count(f"unrelated prompts without any, {embedder}", empty)


def _strings(value: object) -> Iterable[str]:
    match value:
        case str():
            yield value
        case dict():
            for each in value.values():
                yield from _strings(each)
        case list():
            for each in value:
                yield from _strings(each)
        case _:
            pass


# --- the report ----------------------------------------------------------------------------------

Measure = Callable[[Any, Path], Awaitable[Result]]


def list_parts(minilm: Path | None) -> dict[str, tuple[type, Measure]]:
    """Return the form of the cases and the measurement of each part; `minilm` is its data directory."""
    embedders: dict[str, Embedder] = {"no model": HashedEmbedder()}
    if minilm is not None:
        embedders["MiniLM"] = MiniLmEmbedder(minilm)
    return {
        "extraction": (ExtractionCase, measure_extraction),
        "corrections": (CorrectionCase, measure_corrections),
        "drafts": (DraftCase, measure_drafts),
        "obligations": (ObligationCase, measure_obligations),
        "dates": (DateCase, measure_dates),
        "duplicates": (DuplicateCase, measure_duplicates),
        "recall": (RecallCase, partial(measure_recall, embedders=embedders)),
        "prompts": (PromptCase, partial(measure_prompts, minilm=minilm)),
    }


def measure(run: Measure, cases: Sequence[object]) -> Result:
    """Measure one set in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="blind") as folder:
        return trio.run(run, cases, Path(folder))


def measure_blind(part: str, run: Measure, path: Path, form: type) -> Result:
    """Measure a blind set; an error is named without its text, which may quote a case."""
    try:
        result = measure(run, read_sealed(path, form))
    except Exception as error:  # noqa: BLE001 - any error may quote a case
        raise SystemExit(f"{part}: the blind set failed with {type(error).__name__}") from None
    result.wrong.clear()
    return result


def report(part: str, dev: Result | None, blind: Result | None) -> Iterable[str]:
    """Yield a row of the table for each figure."""
    names = {**(dev.figures if dev else {}), **(blind.figures if blind else {})}
    for name in names:
        cells = [
            render(*each.figures[name]) if each is not None and name in each.figures else "-"
            for each in (dev, blind)
        ]
        yield f"| {part} | {name} | {cells[0]} | {cells[1]} |"


def find_minilm(given: str | None, folder: Path) -> Path | None:
    """Return the data directory that has MiniLM, for a wheel `folder`; None if there is none."""
    if not given:
        return None
    place = Path(given)
    if place.suffix == ".whl":
        files.install_wheel(place, folder)
        place = folder
    return None if files.find_fault(place) else place


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    names = list(list_parts(None))
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--parts", nargs="*", choices=names, default=names)
    parser.add_argument("--show", choices=("dev",), help="print the wrong cases of that set")
    parser.add_argument("--sets", type=Path, default=HERE, help="directory with `dev` and `blind`")
    parser.add_argument("--minilm", default=os.environ.get("PALYRA_MINILM"))
    options = parser.parse_args(arguments)
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())  # lines may quote a case
    with tempfile.TemporaryDirectory() as folder:
        parts = list_parts(find_minilm(options.minilm, Path(folder)))
        print("| Part | Figure | Development set | Blind set |\n|---|---|---|---|")
        for part in options.parts:
            form, run = parts[part]
            open_set = options.sets / "dev" / f"{part}.json"
            sealed = options.sets / "blind" / f"{part}.sealed"
            dev = measure(run, read_dev(open_set, form)) if open_set.exists() else None
            blind = measure_blind(part, run, sealed, form) if sealed.exists() else None
            for row in report(part, dev, blind):
                print(row, flush=True)
            for each in dev.wrong if options.show and dev is not None else ():
                print(f"    {part}: {each}")


if __name__ == "__main__":
    main()
