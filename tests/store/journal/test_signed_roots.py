"""The roots file: signatures, effects of a power cut, and changes by others."""

import json
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path

import pytest

from palyra.core.journal.changes import ChainViolation
from palyra.errors import Unavailable
from palyra.store.files.disk import Disk, OsFile
from palyra.store.journal.keys import KeyRing
from palyra.store.journal.signed_roots import SignedRoot, SignedRootsFile
from tests.rows import every_row
from tests.store.kit import KEYS, rows, sqlite_journal
from tests.store.memory.tapes import MemoryFile


def roots_file(file: MemoryFile, journal_id: str = "j1", keys: KeyRing = KEYS) -> SignedRootsFile:
    return SignedRootsFile(file, keys, journal_id)


def written(count: int) -> MemoryFile:
    """A file of that many roots, each over ten events."""
    file = MemoryFile()
    roots = roots_file(file)
    for number in range(count):
        roots.append(
            kind="root",
            first=10 * number + 1,
            through=10 * number + 10,
            merkle_root=number.to_bytes(32, "big"),
            at_ms=number,
        )
    return file


def indexes(roots: SignedRootsFile) -> list[int | str]:
    """The numbers of the valid roots, and the problem of the first invalid one."""
    return [
        entry.index if isinstance(entry, SignedRoot) else entry.detail for entry in roots.entries()
    ]


def opened(file: MemoryFile, expected: int) -> SignedRootsFile:
    roots = roots_file(file)
    roots.open(expected)
    return roots


def test_roots_are_read_back_in_order() -> None:
    """Every line that was appended holds and says what it was given."""
    roots = opened(written(3), 3)
    assert [0, 1, 2] == indexes(roots)
    assert (21, 30, f"{2:064x}", 2) == (
        roots.last and roots.last.first_position,
        roots.last and roots.last.through_position,
        roots.last and roots.last.merkle_root,
        roots.last and roots.last.at_ms,
    )


def test_a_line_is_json_with_a_signature() -> None:
    """Other programs can read the file: one JSON object a line."""
    lines = [json.loads(line) for line in bytes(written(2).content).splitlines()]
    assert ["root", "root"] == [line["body"]["kind"] for line in lines]
    assert [64, 64] == [len(bytes.fromhex(line["signature"])) for line in lines]


def test_an_opened_file_is_continued() -> None:
    """After opening, the next root follows the last one."""
    roots = opened(written(2), 2)
    roots.append(kind="root", first=21, through=21, merkle_root=bytes(32), at_ms=9)
    assert [0, 1, 2] == indexes(roots)


@every_row("keep", range(0, 600, 37))
def test_a_torn_last_line_is_cut_off_and_reported(keep: int) -> None:
    """A power cut within the last line loses that line only."""
    file = written(3)
    start = bytes(file.content).rindex(b"\n", 0, -1) + 1
    keep = min(keep, len(file.content) - start - 2)
    file.truncate(start + keep)
    roots = opened(file, 2)
    assert [0, 1] == indexes(roots)
    assert (keep > 0) == (roots.note is not None)
    assert () == roots.breaks
    roots.append(kind="root", first=21, through=21, merkle_root=bytes(32), at_ms=9)
    assert [0, 1, 2] == indexes(opened(file, 3))


def test_a_last_line_torn_in_its_middle_is_cut_off() -> None:
    """Sectors may arrive in any order: a line with its end but without its middle is torn too."""
    file = written(3)
    file.content[-300:-100] = bytes(200)
    roots = opened(file, 2)
    assert ([0, 1], True) == (indexes(roots), roots.note is not None)


def test_a_missing_line_known_to_the_database_is_a_break() -> None:
    """A line that the database counts as durable cannot have been torn."""
    file = written(3)
    file.truncate(len(file.content) - 10)
    assert [0, 1, "roots 2 to 2 are missing"] == indexes(opened(file, 3))


Damage = Callable[[list[bytes]], list[bytes]]


@every_row(
    ("damage", "expected"),
    [
        (lambda lines: lines[:1] + lines[2:], [0, "roots 1 to 1 are missing", 2, 3]),
        (itemgetter(slice(2, None)), ["roots 0 to 1 are missing", 2, 3]),
        (
            lambda lines: [lines[0], lines[1].replace(b'"through_position":20', b'"through_position":19'), *lines[2:]],
            [0, "line 2 of the roots file is damaged or signed with another key", 2, 3],
        ),
        (lambda lines: [lines[0], b"", *lines[2:]], [0, "line 2 of the roots file is damaged or signed with another key", 2, 3]),
        (itemgetter(slice(2)), [0, 1, "roots 2 to 3 are missing"]),
        (lambda _: [], ["roots 0 to 3 are missing"]),
    ],
)  # fmt: skip
def test_damage_in_the_middle_is_a_break(damage: Damage, expected: list[int | str]) -> None:
    """A line that is missing or does not hold is reported once, and those around it are used."""
    file = written(4)
    lines = bytes(file.content).split(b"\n")[:-1]
    file.content[:] = b"".join(line + b"\n" for line in damage(lines))
    assert expected == indexes(opened(file, 4))


def test_swapped_lines_are_breaks() -> None:
    """The order of roots is signed as well."""
    file = written(4)
    lines = bytes(file.content).split(b"\n")[:-1]
    file.content[:] = b"".join(lines[n] + b"\n" for n in (0, 2, 1, 3))
    found = indexes(opened(file, 4))
    assert [0, 2, 1, 3] == [entry for entry in found if isinstance(entry, int)]
    assert 3 == sum(isinstance(entry, str) for entry in found)


def test_a_root_of_another_history_is_a_break() -> None:
    """A root that was signed, but behind other roots than these, does not belong here."""
    other = MemoryFile()
    fork = roots_file(other)
    for number in (7, 8):
        fork.append(kind="root", first=1, through=9, merkle_root=bytes(32), at_ms=number)
    file = written(1)
    file.write(len(file.content), bytes(other.content).splitlines(keepends=True)[1])
    assert [0, "root 1 does not follow the root before it", 1] == indexes(opened(file, 2))


def test_several_damaged_last_lines_are_left_alone() -> None:
    """One line can be torn; more is damage, which is reported and kept as evidence."""
    file = written(4)
    lines = bytes(file.content).splitlines(keepends=True)
    file.content[:] = b"".join([*lines[:2], b"x" * 50 + b"\n", b"y" * 60 + b"\n"])
    before = bytes(file.content)
    roots = opened(file, 4)
    assert 2 == len(roots.breaks)
    assert before == bytes(file.content)
    roots.append(kind="root", first=41, through=41, merkle_root=bytes(32), at_ms=9)
    assert 4 == indexes(roots)[-1]


@pytest.mark.parametrize(
    ("roots", "fault"),
    [
        (roots_file(written(1), journal_id="j2"), "belongs to another journal"),
        (roots_file(written(1), keys=KeyRing(bytes(32))), "is damaged or signed with another key"),
    ],
    ids=["another journal", "another key"],
)
def test_a_foreign_root_does_not_count(roots: SignedRootsFile, fault: str) -> None:
    """A root signed for another journal or by another key proves nothing here, and is kept."""
    before = roots.file.read(0, 10_000)
    roots.open(0)
    assert [f"line 1 of the roots file {fault}"] == indexes(roots)
    assert [f"line 1 of the roots file {fault}"] == [found.detail for found in roots.breaks]
    assert (before, None) == (roots.file.read(0, 10_000), roots.note)


@pytest.mark.parametrize("count", [1, 2, 300])
def test_one_whole_bad_line_is_a_break_and_kept(count: int) -> None:
    """A last line with its line end cannot be torn: a signature that fails is damage."""
    file = written(count)
    at = bytes(file.content).rindex(b'"signature":"') + len(b'"signature":"')
    file.content[at] = ord("0") if file.content[at] != ord("0") else ord("1")
    before = bytes(file.content)
    roots = opened(file, count - 1)
    assert (1, None, before) == (len(roots.breaks), roots.note, bytes(file.content))


def test_a_line_without_its_line_end_alone_is_completed() -> None:
    """A root whose signature holds is not lost for the want of one byte."""
    file = written(2)
    whole = bytes(file.content)
    file.truncate(len(file.content) - 1)
    roots = opened(file, 2)
    assert ((), None, whole) == (roots.breaks, roots.note, bytes(file.content))


def test_an_endless_line_is_damage() -> None:
    """More bytes without a line end than any line has were not left by a power cut."""
    file = MemoryFile()
    file.write(0, b"x" * 70_000)
    roots = opened(file, 0)
    assert (1, None, 70_001) == (len(roots.breaks), roots.note, len(file.content))


@every_row(
    ("order", "details"),
    [
        ((1, 0), ["roots 0 to 0 are missing", "root 0 is repeated or out of order", "roots 1 to 1 are missing"]),
        ((0, 1, 1), ["root 1 is repeated or out of order"]),
        ((0, 0, 1), ["root 0 is repeated or out of order"]),
    ],
)  # fmt: skip
def test_disorder_near_the_end_is_found_at_once(order: tuple[int, ...], details: list[str]) -> None:
    """Opening checks that the last lines follow each other, and once a segment began, no more."""
    file = written(2)
    lines = bytes(file.content).splitlines(keepends=True)
    file.content[:] = b"".join(lines[number] for number in order)
    roots = opened(file, 2)
    assert details == [found.detail for found in roots.breaks]
    roots.append(
        kind="segment", first=21, through=20, merkle_root=b"", at_ms=9, found=roots.breaks[0]
    )
    assert () == opened(file, 3).breaks


def test_long_files_are_read_in_pieces() -> None:
    """More lines than fit into one read are all found, and the last one at once."""
    roots = opened(written(300), 300)
    assert list(range(300)) == indexes(roots)


class FullFile(MemoryFile):
    """A file on a disk without space."""

    is_full = True

    def write(self, offset: int, content: bytes) -> None:
        if self.is_full:
            super().write(offset, content[:100])
            raise OSError(28, "No space left on device")
        super().write(offset, content)


def test_a_root_that_cannot_be_written_leaves_no_trace() -> None:
    """When the disk is full the half line goes, and the root is signed again later."""
    file = FullFile()
    roots = roots_file(file)
    append = {"kind": "root", "first": 1, "through": 2, "merkle_root": bytes(32), "at_ms": 1}
    with pytest.raises(Unavailable, match="No space left"):
        roots.append(**append)  # type: ignore[arg-type]  # one dict for two calls
    assert (0, None) == (len(file.content), roots.last)
    file.is_full = False
    roots.append(**append)  # type: ignore[arg-type]  # one dict for two calls
    assert [0] == indexes(opened(file, 1))


@pytest.mark.real
@pytest.mark.parametrize(
    ("damage", "detail"),
    [
        (lambda path: path.unlink(), "roots 0 to 2 are missing"),
        (lambda path: path.write_bytes(b""), "roots 0 to 2 are missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "roots 2 to 2 are missing"),
        (lambda path: path.write_bytes(b"x\ny\n" * 5), "line 1 of the roots file is damaged"),
    ],
    ids=["removed", "emptied", "cut", "overwritten"],
)
def test_lost_roots_are_found_at_start(
    tmp_path: Path, damage: Callable[[Path], object], detail: str
) -> None:
    """The database remembers how many roots there were; a new segment begins behind the loss."""
    store = sqlite_journal(tmp_path)
    store.open()
    for seq in range(3):
        store.commit([rows("run_a", seq, 1)])
        store.seal()
    store.close()
    damage(store.roots_path)
    found = store.open().verification.first_break
    assert isinstance(found, ChainViolation)
    assert ("root", True) == (found.kind, found.detail.startswith(detail))
    store.commit([rows("run_a", 3, 1)])
    store.close()
    assert None is store.open().verification.first_break
    report = store.verify()
    assert (4, 4) == (report.checked_events, report.signed_through_position)
    assert report.first_break is not None
    store.close()


@pytest.mark.real
def test_a_torn_root_is_reported_at_the_start(tmp_path: Path) -> None:
    """The report of the opening has the repair, and no break."""
    store = sqlite_journal(tmp_path)
    store.open()
    store.commit([rows("run_a", 0, 1)])
    store.close()
    with store.roots_path.open("ab") as file:
        file.write(b'{"body":{"kind":"root","ind')
    report = store.open()
    assert (None, 1) == (report.verification.first_break, len(report.notes))
    store.close()


@pytest.mark.real
def test_sealing_survives_a_full_disk(tmp_path: Path) -> None:
    """A root that could not be written is written with the next one; commits are not touched."""

    class File(OsFile):
        is_full = False

        def sync(self) -> None:
            if self.is_full:
                raise OSError(28, "No space left on device")
            super().sync()

    store = sqlite_journal(tmp_path, disk=Disk(open_file=File))
    store.open()
    store.commit([rows("run_a", 0, 2)])
    File.is_full = True
    with pytest.raises(Unavailable, match="No space"):
        store.seal()
    assert [None] == store.commit([rows("run_a", 2, 1)])
    File.is_full = False
    assert store.seal()
    report = store.verify()
    assert (3, 1, None) == (
        report.signed_through_position,
        report.checked_roots,
        report.first_break,
    )
    store.close()
