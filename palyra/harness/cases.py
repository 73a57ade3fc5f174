"""The input: one case a line, strict JSON, read as a stream.

The whole file is checked once before anything runs; later passes read it again, line by line, so
that memory does not grow with it beyond 16 bytes an id.
"""

import hashlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from palyra.core.text.canonical_json import NotCanonical, canonical_json
from palyra.core.text.validation_errors import explain
from palyra.errors import InvalidParams

MAX_LINE_BYTES = 4_194_304  # far above what a daemon takes in one message
MAX_NAME_CHARS = 200  # with what the harness adds it stays below the protocol's 256

Approval = Literal["allow", "deny", "ask"]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
Amount = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000_000_000)]


class CasePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what a line consists of."""


class Expectation(CasePart, frozen=True, kw_only=True):
    """What must hold of the end; everything that is given must."""

    contains: str | None = None  # a part of the answer
    equals: str | None = None  # the whole answer
    json: Any = msgspec.UNSET  # the answer, read as JSON
    reason: str | None = None  # of the run's end

    @property
    def is_empty(self) -> bool:
        """Whether nothing is expected."""
        return self.json is msgspec.UNSET and {self.contains, self.equals, self.reason} == {None}


class CaseBudget(CasePart, frozen=True, kw_only=True):
    """Limits of the case's run, passed on as they are."""

    wall_ms: Amount | None = None
    tokens: Amount | None = None
    usd_micros: Amount | None = None


class Case(CasePart, frozen=True, kw_only=True):
    """One message and what is expected of the run it becomes."""

    id: Name
    text: Annotated[str, msgspec.Meta(min_length=1)]
    agent: str | None = None
    model: str | None = None
    session: Name | None = None  # cases of one session run one after another, in file order
    expect: Expectation | None = None
    budget: CaseBudget = CaseBudget()
    seed: int | None = None
    approval: Approval | None = None
    json_mode: bool = False


class InputFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was read to its end without an error."""

    sha256: str
    cases: int


_CASE = msgspec.json.Decoder(Case)


def check_input(path: Path) -> InputFacts:
    """Read everything once.  Raises InvalidParams with the first bad line's number."""
    seen: set[bytes] = set()
    digest = hashlib.sha256()
    for number, case in _read(path, digest.update):
        key = hashlib.blake2b(case.id.encode(), digest_size=16).digest()
        if key in seen:
            raise _bad(path, number, f"the id {case.id!r} was used before: give each case its own")
        seen.add(key)
    if not seen:
        raise InvalidParams(f"{path} holds no case: write one JSON object a line", field="file")
    return InputFacts(sha256=digest.hexdigest(), cases=len(seen))


def read_cases(path: Path, facts: InputFacts) -> Iterator[Case]:
    """The cases in file order.  Raises InvalidParams at the end of a file that was changed."""
    digest = hashlib.sha256()
    for _, case in _read(path, digest.update):
        yield case
    if digest.hexdigest() != facts.sha256:
        raise InvalidParams(f"{path} was changed while it was read: put it back", field="file")


def _read(path: Path, on_line: Callable[[bytes], None]) -> Iterator[tuple[int, Case]]:
    try:
        with path.open("rb") as file:
            lines = iter(partial(file.readline, MAX_LINE_BYTES + 1), b"")
            for number, line in enumerate(lines, 1):
                on_line(line)
                yield number, _parse(path, number, line)
    except OSError as error:
        raise InvalidParams(f"{path} cannot be read: {error.strerror}", field="file") from None


def _parse(path: Path, number: int, line: bytes) -> Case:
    if len(line) > MAX_LINE_BYTES:
        raise _bad(path, number, f"longer than {MAX_LINE_BYTES} bytes")
    if line.startswith(BOM_UTF8):
        problem = "begins with a byte order mark: save the file as UTF-8 without one"
        raise _bad(path, number, problem)
    if not line.strip():
        raise _bad(path, number, "blank: write one JSON object a line")
    try:
        case = _CASE.decode(line)
        if case.expect is not None and case.expect.json is not msgspec.UNSET:
            canonical_json(case.expect.json)
    except msgspec.ValidationError as error:
        raise _bad(path, number, explain(error, Case, msgspec.json.decode(line)).message) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, NotCanonical) as error:
        raise _bad(path, number, str(error)) from None
    if case.expect is not None and case.expect.is_empty:
        raise _bad(path, number, "`expect` expects nothing: name contains, equals, json or reason")
    return case


def _bad(path: Path, number: int, problem: str) -> InvalidParams:
    return InvalidParams(f"{path}, line {number}: {problem}", field="file")
