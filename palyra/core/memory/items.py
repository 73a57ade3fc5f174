"""Items of memory: what may be stored, who may see it, and how an item changes.

An item is one statement with its origin.  Its **place** says where it is recalled: everywhere for
its principal, in one channel, or in one session.  A search names the place that it is made from and
sees the items of the principal, of that channel and of that session, and no others; this is part of
the query itself, so an item of another place costs no rank and leaves no trace.

Each change of an item is a new revision.  An item ends in one of three ways: another one supersedes
it (a correction, the item stays as history), its time to live ends, or it is forgotten, which
deletes every copy.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from palyra.core.journal.records import (
    ItemScope,
    Lineage,
    MemoryAction,
    MemoryKind,
    MemoryRecord,
    MemorySource,
    MemoryWay,
)
from palyra.core.text.visible import without_invisible
from palyra.core.trust.labels import Trust, lowest
from palyra.errors import IllegalState, InvalidParams, TooLarge

MAX_TEXT_BYTES = 16_384
MAX_TAGS, MAX_TAG_CHARS = 32, 64
MAX_NAME_CHARS = 256  # of an author, a channel or a session
MAX_LINEAGE = 32
MAX_IMPORT = 500
MAX_TTL_MS = 10 * 366 * 86_400_000
TRANSIENT_TTL_MS = 86_400_000  # of facts about a running system: a port, a process, a free disk
LAST_MS = 253_402_300_799_999  # the end of the year 9999
FULL_BPS = 10_000
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_TEXT_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")  # tab and line ends are text
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_WORD = re.compile(r"\w+")


class MemoryDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A statement to store, before it has an id."""

    text: str
    kind: MemoryKind = "note"
    scope: ItemScope = "principal"
    channel: str | None = None
    session_id: str | None = None
    author: str | None = None
    at_ms: int | None = None  # None: now
    tags: tuple[str, ...] = ()
    confidence_bps: int = FULL_BPS
    ttl_ms: int | None = None  # None: kept until it is forgotten
    is_transient: bool = False  # a fact about a running system: 24 h if no ttl is given
    valid_from_ms: int | None = None
    pinned: bool = False
    never_recall: bool = False
    supersedes: str | None = None  # the item that this one corrects
    lineage: tuple[Lineage, ...] = ()
    source: MemorySource = "client"
    trust: Trust = "trusted_local"

    @property
    def is_utterance(self) -> bool:
        """True for a turn of a conversation, which the same words at another time repeat."""
        has_position = self.session_id is not None and self.at_ms is not None
        return self.kind == "turn" or has_position


class TypedEntry(NamedTuple):
    """An entry of a document as a person wrote or confirmed it."""

    memory_id: str
    kind: MemoryKind
    text: str
    is_new: bool  # of the person: an item is made of it; else it shows one


# --- validation ----------------------------------------------------------------------------------


def check_draft(draft: MemoryDraft, field: str = "") -> None:
    """Raise InvalidParams or TooLarge for a draft that cannot be an item.

    `field` is the prefix of the fields in the error, such as `items[3].`.
    """
    check_text(draft.text, f"{field}text")
    _check_tags(draft.tags, f"{field}tags")
    for name in ("author", "channel", "session_id"):
        _check_name(getattr(draft, name), f"{field}{name}")
    _check_scope(draft, field)
    for name in ("at_ms", "valid_from_ms"):
        _check_range(getattr(draft, name), 0, LAST_MS, f"{field}{name}")
    _check_range(draft.ttl_ms, 1, MAX_TTL_MS, f"{field}ttl_ms")
    _check_range(draft.confidence_bps, 0, FULL_BPS, f"{field}confidence_bps")
    if len(draft.lineage) > MAX_LINEAGE:
        raise InvalidParams(
            f"{len(draft.lineage)} places of origin; name at most {MAX_LINEAGE}",
            field=f"{field}lineage",
        )


def check_text(text: str, field: str = "text") -> None:
    """Raise InvalidParams or TooLarge for a text that cannot be an item's."""
    if not any(char.isprintable() and not char.isspace() for char in text):
        raise InvalidParams("the text is empty: give the statement to remember", field=field)
    control = _TEXT_CONTROLS.search(text)
    if control is not None:
        raise InvalidParams(
            f"the text holds the control character U+{ord(control.group()):04X}: remove it",
            field=field,
        )
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_TEXT_BYTES:
        raise TooLarge(
            f"{size} bytes of text; an item holds at most {MAX_TEXT_BYTES}: split it", field=field
        )
    if _SURROGATE.search(text) is not None:
        raise InvalidParams("the text holds half a surrogate pair: send UTF-8", field=field)


def _check_tags(tags: tuple[str, ...], field: str) -> None:
    if len(tags) > MAX_TAGS:
        raise InvalidParams(f"{len(tags)} tags; give at most {MAX_TAGS}", field=field)
    for tag in tags:
        if not tag.strip() or len(tag) > MAX_TAG_CHARS or _CONTROLS.search(tag):
            raise InvalidParams(
                f"the tag {tag[:MAX_TAG_CHARS]!r} is not one line of 1 to {MAX_TAG_CHARS} characters",
                field=field,
            )


def _check_name(name: str | None, field: str) -> None:
    if name is None:
        return
    if not name.strip() or len(name) > MAX_NAME_CHARS or _CONTROLS.search(name):
        raise InvalidParams(
            f"{field}: {name[:40]!r} is not one line of 1 to {MAX_NAME_CHARS} characters",
            field=field,
        )


def _check_scope(draft: MemoryDraft, field: str) -> None:
    wanted = {"channel": draft.channel, "session": draft.session_id}
    if draft.scope in wanted and wanted[draft.scope] is None:
        name = "channel" if draft.scope == "channel" else "session_id"
        raise InvalidParams(f"the scope {draft.scope!r} needs a {name}", field=f"{field}{name}")


def _check_range(value: int | None, least: int, most: int, field: str) -> None:
    if value is not None and not least <= value <= most:
        raise InvalidParams(f"{field}: {value} is not from {least} to {most}", field=field)


# --- making and changing -------------------------------------------------------------------------


def hash_text(text: str) -> str:
    """Return the SHA-256 of the text's words; case, punctuation and spacing do not count."""
    plain = without_invisible(text).casefold()
    words = " ".join(_WORD.findall(plain)) or plain.strip()
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()


def make_item(
    draft: MemoryDraft, *, memory_id: str, principal: str, by: str, now_ms: int
) -> MemoryRecord:
    """Return the first revision of an item from a checked draft."""
    at_ms = now_ms if draft.at_ms is None else draft.at_ms
    ttl_ms = draft.ttl_ms
    if ttl_ms is None and draft.is_transient:
        ttl_ms = TRANSIENT_TTL_MS
    return MemoryRecord(
        memory_id=memory_id,
        principal=principal,
        kind=draft.kind,
        text=draft.text,
        scope=draft.scope,
        channel=draft.channel,
        session_id=draft.session_id,
        author=draft.author,
        at_ms=at_ms,
        tags=merge_tags(draft.tags),
        confidence_bps=draft.confidence_bps,
        source=draft.source,
        lineage=draft.lineage,
        trust=draft.trust,
        pinned=draft.pinned,
        never_recall=draft.never_recall,
        valid_from_ms=at_ms if draft.valid_from_ms is None else draft.valid_from_ms,
        expires_ms=None if ttl_ms is None else now_ms + ttl_ms,
        text_hash=hash_text(draft.text),
        created_ms=now_ms,
        changed_ms=now_ms,
        changed_by=by,
        action="imported" if draft.source == "import" else "added",
    )


def merge_tags(*groups: Iterable[str]) -> tuple[str, ...]:
    """Return the tags without repetition, at most `MAX_TAGS`, earlier ones first."""
    merged = dict.fromkeys(tag.strip() for tags in groups for tag in tags)
    return tuple(merged)[:MAX_TAGS]


def revise(
    item: MemoryRecord,
    action: MemoryAction,
    *,
    by: str,
    now_ms: int,
    **fields: Any,  # noqa: ANN401 - fields of the record
) -> MemoryRecord:
    """Return the next revision of an item with these fields changed."""
    if "text" in fields:
        fields["text_hash"] = hash_text(fields["text"])
    return msgspec.structs.replace(
        item,
        **fields,
        action=action,
        revision=item.revision + 1,
        changed_ms=now_ms,
        changed_by=by,
    )


def merge_item(old: MemoryRecord, new: MemoryRecord, *, text: str) -> MemoryRecord:
    """Return the revision of `old` that takes in a repetition of it.

    The longer life wins, the higher confidence, all tags and origins; the label is the lower one.
    A repetition of lower trust changes nothing else.
    """
    if lowest((old.trust, new.trust)) != old.trust:
        return revise(old, "updated", by=new.changed_by, now_ms=new.changed_ms)
    ends = (old.expires_ms, new.expires_ms)
    lineage = dict.fromkeys((*new.lineage, *old.lineage))
    return revise(
        old,
        "updated",
        by=new.changed_by,
        now_ms=new.changed_ms,
        text=text,
        tags=merge_tags(old.tags, new.tags),
        confidence_bps=max(old.confidence_bps, new.confidence_bps),
        expires_ms=None if None in ends else max(end for end in ends if end is not None),
        lineage=tuple(lineage)[:MAX_LINEAGE],
        trust=lowest((old.trust, new.trust)),
        pinned=old.pinned or new.pinned,
        at_ms=max(old.at_ms, new.at_ms),
    )


def supersede(old: MemoryRecord, new: MemoryRecord) -> MemoryRecord:
    """Return the revision of `old` that ends with the item that corrects it."""
    return revise(
        old,
        "superseded",
        by=new.changed_by,
        now_ms=new.changed_ms,
        superseded_by=new.memory_id,
        superseded_ms=new.valid_from_ms,
    )


EDITABLE = ("text", "kind", "tags", "author", "confidence_bps", "expires_ms")
_UNDONE = (*EDITABLE, "trust", "pinned", "never_recall", "superseded_by", "superseded_ms", "at_ms")


def edit_item(
    item: MemoryRecord, fields: Mapping[str, Any], *, by: str, now_ms: int
) -> MemoryRecord:
    """Return the edited item.  Raises InvalidParams, TooLarge, and IllegalState for a superseded one."""
    if item.superseded_by is not None:
        raise IllegalState(
            f"{item.memory_id} was superseded by {item.superseded_by}: edit that, or undo first"
        )
    check_fields(fields)
    if "tags" in fields:
        fields = {**fields, "tags": merge_tags(fields["tags"])}
    return revise(item, "edited", by=by, now_ms=now_ms, **fields)


def check_fields(fields: Mapping[str, Any]) -> None:
    """Raise InvalidParams or TooLarge for fields that no item may have."""
    if not fields:
        raise InvalidParams("give at least one field to change", field="text")
    if "text" in fields:
        check_text(fields["text"])
    if "tags" in fields:
        _check_tags(fields["tags"], "tags")
    _check_name(fields.get("author"), "author")
    _check_range(fields.get("confidence_bps"), 0, FULL_BPS, "confidence_bps")


def restore(item: MemoryRecord, earlier: MemoryRecord, *, by: str, now_ms: int) -> MemoryRecord:
    """Return the revision of `item` that has the content of an earlier one again."""
    fields = {name: getattr(earlier, name) for name in _UNDONE}
    return revise(item, "undone", by=by, now_ms=now_ms, **fields)


# --- results ------------------------------------------------------------------------------------

Disposition = Literal["added", "updated", "superseded"]


class MemoryAdded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of storing one statement: the item that holds it now."""

    memory_id: str
    disposition: Disposition
    superseded: str | None = None  # the item that was corrected


class MemoryImported(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of an import; `memory_ids` has one id for each given item, in their order."""

    added: int
    updated: int
    skipped: int
    memory_ids: tuple[str, ...]


class MemoryChanged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of a change of one item: its new revision, and what made it."""

    memory_id: str
    action: MemoryAction
    revision: int
    superseded_by: str | None = None


class MemoryForgotten(msgspec.Struct, frozen=True, kw_only=True):
    """Items that were deleted: those named, and those they had superseded."""

    memory_ids: tuple[str, ...]
    dry_run: bool = False  # nothing was deleted


class MemoryPurged(msgspec.Struct, frozen=True, kw_only=True):
    """Number of items deleted with everything about them; with `dry_run` nothing was deleted."""

    principal: str
    items: int
    dry_run: bool = False
    sessions: int = 0  # whose content was removed too


class MemoryHit(msgspec.Struct, frozen=True, kw_only=True):
    """An item that matches a search, with its score and the parts of the score."""

    item: MemoryRecord
    score: float
    parts: dict[str, float]  # summands, by the names of `ranking.ScoreParts`, and `rerank`
    later: str | None = None  # a newer hit that says otherwise


SearchMode = Literal["hybrid", "lexical"]
WORDS_DAMAGED = "its words are damaged"  # begins the damage of a text index
VECTORS_DAMAGED = "its vectors are damaged"  # likewise, of the vectors in the journal
FILE_GONE = "its file is gone"  # damage of an index whose vectors in memory are sound


class MemoryHits(msgspec.Struct, frozen=True, kw_only=True):
    """Matching items, best first."""

    hits: tuple[MemoryHit, ...] = ()
    mode: SearchMode = "lexical"
    degraded: str = ""  # why a part of the search was left out
    is_related: bool = True  # some item says something about a prompt that did not ask for any
    noise: float = 0.0  # part of each score that says nothing


class RecallPack(msgspec.Struct, frozen=True, kw_only=True):
    """Items for one question, in the order in which the model reads them."""

    hits: tuple[MemoryHit, ...] = ()
    tokens: int = 0
    mode: SearchMode = "lexical"
    degraded: str = ""
    is_failed: bool = False  # the search failed, as `degraded` says

    @property
    def trust(self) -> Trust:
        """Lowest label of the items."""
        return lowest(hit.item.trust for hit in self.hits)


class RecallUse(msgspec.Struct, frozen=True, kw_only=True):
    """Run that a recall was for."""

    run_id: str
    session_id: str
    principal: str
    way: MemoryWay
    question: str
