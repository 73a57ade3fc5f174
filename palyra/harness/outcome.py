"""Result of one case, and its evaluation against the expectations of the case."""

import msgspec

from palyra.core.journal.records import Usage
from palyra.core.tape import events as ev
from palyra.core.tape.export import ExportLine
from palyra.core.text.canonical_json import NotCanonical, canonical_json
from palyra.harness.cases import Expectation

REFUSED = "refused"  # the daemon accepted no run, so there is no run id and no tape


class CaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """Line of results.jsonl; times are Unix milliseconds of the daemon's clock."""

    id: str
    repeat: int
    seed: int
    run_id: str | None
    session_id: str | None = None
    state: str  # done, failed, cancelled, or refused
    reason: str | None = None
    answer: str | None = None
    met: bool | None = None  # None: the case has no expectations
    missed: tuple[str, ...] = ()  # names of the expectations that did not hold
    model: str | None = None
    usage: Usage = Usage()
    cost_usd_micros: int = 0
    unpriced_calls: int = 0  # model calls with unknown cost, which that sum leaves out
    turns: int = 0
    tool_calls: int = 0
    created_ms: int | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    took_ms: int | None = None  # from acceptance to the end, including time in the queue
    tape_sha256: str | None = None  # of the exported file
    tape_bytes: int = 0  # size of the exported file
    catalogue_hash: str | None = None  # of the tools offered to the model
    policy_version: str | None = None  # of the rules that decided; None if no call was decided


class TapeFacts(msgspec.Struct, kw_only=True):
    """Facts that a result takes from a tape; each is the last value on the tape."""

    answer: str | None = None
    catalogue_hash: str | None = None
    policy_version: str | None = None


_LINE = msgspec.json.Decoder(ExportLine)


def read_facts(export: str) -> TapeFacts:
    """Read the facts from an exported tape; the last line is the seal and is skipped."""
    facts = TapeFacts()
    for text in export.splitlines()[:-1]:
        line = _LINE.decode(text)
        if line.kind not in _TELLING:
            continue
        match ev.decode_event(line.kind, bytes(line.data)):
            case ev.MessageCompleted(text=answer):
                facts.answer = answer
            case ev.ContextAssembled(catalogue_hash=catalogue_hash):
                facts.catalogue_hash = catalogue_hash
            case ev.ToolDecided(policy_version=version):
                facts.policy_version = version
            case _:
                pass
    return facts


_TELLING = frozenset({ev.MessageCompleted.KIND, ev.ContextAssembled.KIND, ev.ToolDecided.KIND})


def find_missed(expected: Expectation, answer: str | None, reason: str | None) -> tuple[str, ...]:
    """Return the names of the expectations that do not hold.

    Without an answer, no expectation about the answer holds.
    """
    text = answer or ""
    has_answer = answer is not None
    holds = {
        "contains": expected.contains is None or (has_answer and expected.contains in text),
        "equals": expected.equals is None or expected.equals == answer,
        "json": expected.json is msgspec.UNSET or (has_answer and _is_json(text, expected.json)),
        "reason": expected.reason is None or expected.reason == reason,
    }
    return tuple(name for name, is_so in holds.items() if not is_so)


def _is_json(text: str, wanted: object) -> bool:
    """True if the text is JSON equal to `wanted`, regardless of spaces and member order."""
    try:
        return canonical_json(msgspec.json.decode(text)) == canonical_json(wanted)
    except (msgspec.DecodeError, NotCanonical, RecursionError):
        return False
