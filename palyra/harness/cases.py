"""Input file of a bench: strict JSON, one case a line, read as a stream.

The whole file is validated once before any case runs.  Later passes read it again line by line, so
that memory grows only by a hash of 16 bytes for each id.
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

MAX_LINE_BYTES = 4_194_304  # far above the size limit of a daemon's message
MAX_NAME_CHARS = 200  # leaves room for additions of the harness below the protocol's limit of 256

Approval = Literal["allow", "deny", "ask"]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARS)]
Amount = Annotated[int, msgspec.Meta(ge=1, le=1_000_000_000_000_000)]


class CasePart(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the objects in a line; unknown members are refused."""


class Expectation(CasePart, frozen=True, kw_only=True):
    """Expectations about the end of the run; all that are given must hold."""

    contains: str | None = None  # substring of the answer
    equals: str | None = None  # the complete answer
    json: Any = msgspec.UNSET  # value of the answer parsed as JSON
    reason: str | None = None  # reason of the run's end

    @property
    def is_empty(self) -> bool:
        """True if no expectation is given."""
        return self.json is msgspec.UNSET and {self.contains, self.equals, self.reason} == {None}


class CaseBudget(CasePart, frozen=True, kw_only=True):
    """Limits of the case's run, sent to the daemon unchanged."""

    wall_ms: Amount | None = None
    tokens: Amount | None = None
    usd_micros: Amount | None = None


class Case(CasePart, frozen=True, kw_only=True):
    """One message and the expectations about its run."""

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
    """Hash and number of cases of a valid input file."""

    sha256: str
    cases: int


_CASE = msgspec.json.Decoder(Case)


def check_input(path: Path) -> InputFacts:
    """Validate the whole file.  Raises InvalidParams with the number of the first invalid line."""
    seen: set[bytes] = set()
    digest = hashlib.sha256()
    for number, case in _read(path, digest.update):
        key = hashlib.blake2b(case.id.encode(), digest_size=16).digest()
        if key in seen:
            raise _bad(path, number, f"the id {case.id!r} is used twice: give each case its own")
        seen.add(key)
    if not seen:
        raise InvalidParams(f"{path} holds no case: write one JSON object a line", field="file")
    return InputFacts(sha256=digest.hexdigest(), cases=len(seen))


def read_cases(path: Path, facts: InputFacts) -> Iterator[Case]:
    """Yield the cases in file order.

    Raises InvalidParams at the end if the file has changed since `check_input`.
    """
    digest = hashlib.sha256()
    for _, case in _read(path, digest.update):
        yield case
    if digest.hexdigest() != facts.sha256:
        raise InvalidParams(f"{path} was changed while it was read: restore it", field="file")


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
