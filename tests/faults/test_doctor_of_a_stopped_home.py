"""`palyra doctor` of a home whose daemon is stopped: each kind of damage is found."""

import os
import shlex
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import apsw
import msgspec
import pytest
import trio

from palyra.cli.command.talk import Options
from palyra.cli.host import doctor
from palyra.secrets.vault import Vault
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess
from tests.e2e.people import ask_for, write_call
from tests.store.backup.kit import flip, opened, tree

pytestmark = pytest.mark.real

Damage = Callable[[Path], object]
PAGE = 4_096
LONG = "a line of €€€\n" * 1_000


async def live(daemon: DaemonProcess) -> None:
    """Make records of many tables, an artifact, a checkpoint and two backups."""
    async with daemon.connect() as client:
        for number in range(3):
            run = await client.start_run(f"/say number {number}", session_key=f"s{number}")
            await client.wait_run(run.run_id)
            await client.add_memory(f"The staging host number {number} is called elm{number}.")
            await client.submit_task("prompt", {"text": "/say"}, not_before_ms=4 * 10**12)
        call = f"/call echo {msgspec.json.encode({'text': LONG}).decode()}"
        run = await client.start_run(call, session_key="s0")
        await client.wait_run(run.run_id)
        asked = await ask_for(client, write_call("a.txt"))
        await client.resolve_approval(asked.approval_id, "allow", asked.digest)
        await client.wait_run(asked.run_id)
        for _ in range(2):
            await client.create_backup(with_keys=True)


def make_home(base: Path) -> Path:
    daemon = DaemonProcess(base)
    Vault(daemon.home, daemon.home / "keys").put("api", "value", 1)
    daemon.start()
    try:
        trio.run(live, daemon)
        assert 0 == daemon.stop()
    finally:
        daemon.end()
    return daemon.home


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a daemon that was stopped."""
    return make_home(tmp_path_factory.mktemp("lived"))


@pytest.fixture
def home(lived: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(lived, tmp_path / "home", symlinks=True))


def inspect(home: Path) -> dict[str, doctor.Check]:
    """Run the checks that need no daemon, by name."""
    offline = (doctor.check_config, doctor.check_home, doctor.check_secrets)
    options = Options(home=home)
    found = [each for check in offline for each in doctor._guard("home", check, options)]
    found += doctor._guard("home", doctor.inspect_stopped, options)
    return {each.name: each for each in found}


def failures(home: Path) -> dict[str, doctor.Check]:
    """The failed checks by name."""
    return {name: each for name, each in inspect(home).items() if each.verdict == "fail"}


def journal(home: Path) -> Path:
    return home / "journal.sqlite3"


def write(home: Path, name: str, content: bytes) -> None:
    (home / name).parent.mkdir(mode=0o700, exist_ok=True)
    (home / name).write_bytes(content)


def only(home: Path, pattern: str) -> Path:
    """The first file of a pattern."""
    return min(path for path in home.glob(pattern) if path.is_file())


def sql(home: Path, *statements: str) -> None:
    """Change the database as another program would, past its triggers."""
    with closing(apsw.Connection(str(journal(home)))) as connection:
        triggers = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall()
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for name, _ in triggers:
            connection.execute(f'DROP TRIGGER "{name}"')
        for statement in statements:
            connection.execute(statement)
            assert connection.total_changes() or statement.startswith("DROP")
        for _, text in triggers:
            connection.execute(str(text))


def flip_pages(home: Path, seed: int) -> None:
    """Overwrite forty bytes of each of ten pages that are in use."""
    rng = Random(seed)
    with journal(home).open("r+b") as file:
        pages = journal(home).stat().st_size // PAGE
        for page in rng.sample(range(1, pages), 10):
            file.seek(page * PAGE + rng.randrange(0, 40))
            file.write(rng.randbytes(40))


def replace_by_folder(home: Path, name: str) -> None:
    (home / name).unlink()
    (home / name).mkdir(mode=0o700)


def replace_by_file(home: Path, name: str) -> None:
    shutil.rmtree(home / name)
    write(home, name, b"")


def replace_by_link(home: Path, name: str) -> None:
    """Put a link to the file itself, which was moved, in its place."""
    moved = (home / name).rename(home.parent / Path(name).name)
    (home / name).symlink_to(moved)


def replace_by_pipe(home: Path, name: str) -> None:
    (home / name).unlink()
    os.mkfifo(home / name, 0o600)


def swap_database(home: Path) -> None:
    """Put the journal of another home in its place."""
    opened(home.parent / "other")
    shutil.copy(home.parent / "other" / "journal.sqlite3", journal(home))


def add_foreign_log(home: Path) -> None:
    """Put a write-ahead log of another database beside it."""
    other = home.parent / "other.sqlite3"
    with closing(apsw.Connection(str(other))) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (1)")
        shutil.copy(f"{other}-wal", f"{journal(home)}-wal")


def roll_back(home: Path) -> None:
    """Put an earlier copy of journal and roots back."""
    saved = {
        name: (home / name).read_bytes() for name in ("journal.sqlite3", "journal.roots.ndjson")
    }
    opened(home)
    for name, content in saved.items():
        write(home, name, content)


def truncate(path: Path, count: int) -> None:
    os.truncate(path, count)


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def half(path: Path) -> None:
    truncate(path, path.stat().st_size // 2)


def other_key(home: Path) -> None:
    """Put the keys of another home in their place."""
    opened(home.parent / "other")
    for name in ("signing.key", "signing.pub"):
        shutil.copy(home.parent / "other" / "keys" / name, home / "keys" / name)


def sign_again(home: Path) -> None:
    """Put the roots of another journal and key in their place."""
    opened(home.parent / "other")
    line = (home / "journal.roots.ndjson").read_text().splitlines()[0]
    swapped = line.replace('"signature":"', '"signature":"00', 1)
    write(home, "journal.roots.ndjson", swapped.encode() + b"\n")


KEYS = "keys/signing.key"
CASES: dict[str, tuple[str, Damage]] = {
    # the database
    "header flipped": ("tapes", lambda home: flip(journal(home), 3)),
    "half a file": ("tapes", lambda home: half(journal(home))),
    "zero length": ("files", lambda home: truncate(journal(home), 0)),
    "a few bytes": ("tapes", lambda home: truncate(journal(home), 50)),
    "random pages 1": ("tapes", lambda home: flip_pages(home, 1)),
    "random pages 2": ("tapes", lambda home: flip_pages(home, 2)),
    "appended": ("tapes", lambda home: append(journal(home))),
    "zeros": ("tapes", lambda home: write(home, "journal.sqlite3", bytes(8 * PAGE))),
    "text": ("tapes", lambda home: write(home, "journal.sqlite3", b"not a database" * 1_000)),
    "database deleted": ("tapes", lambda home: journal(home).unlink()),
    "database a folder": ("files", lambda home: replace_by_folder(home, "journal.sqlite3")),
    "database a link": ("files", lambda home: replace_by_link(home, "journal.sqlite3")),
    "database a pipe": ("files", lambda home: replace_by_pipe(home, "journal.sqlite3")),
    "database of another home": ("tapes", swap_database),
    "log of another database": ("tapes", add_foreign_log),
    "rolled back": ("tapes", roll_back),
    "newer schema": ("tapes", lambda home: sql(home, "INSERT INTO turn_log (row) VALUES (0)", "PRAGMA user_version = 99")),
    "older schema": ("tapes", lambda home: sql(home, "INSERT INTO turn_log (row) VALUES (0)", "PRAGMA user_version = 3")),
    "not our file": ("tapes", lambda home: sql(home, "INSERT INTO turn_log (row) VALUES (0)", "PRAGMA application_id = 7")),
    "table dropped": ("tapes", lambda home: sql(home, "DROP TABLE memory_log")),
    "index dropped": ("tapes", lambda home: sql(home, "DROP INDEX tasks_by_start")),
    "owner deleted": ("tapes", lambda home: sql(home, "DELETE FROM owner")),
    "owner of another id": ("tapes", lambda home: sql(home, "UPDATE owner SET id = 7")),
    # the tapes
    "event edited": ("tapes", lambda home: sql(home, "UPDATE tape SET data = CAST(replace(CAST(data AS TEXT), 'number', 'NUMBER') AS BLOB)")),
    "event deleted": ("tapes", lambda home: sql(home, "DELETE FROM tape WHERE position = 3")),
    "tail deleted": ("tapes", lambda home: sql(home, "DELETE FROM tape WHERE position = (SELECT max(position) FROM tape)")),
    "roots deleted": ("tapes", lambda home: (home / "journal.roots.ndjson").unlink()),
    "roots empty": ("tapes", lambda home: truncate(home / "journal.roots.ndjson", 0)),
    "roots flipped": ("tapes", lambda home: flip(home / "journal.roots.ndjson", 60)),
    "roots of another key": ("tapes", sign_again),
    "roots a folder": ("files", lambda home: replace_by_folder(home, "journal.roots.ndjson")),
    # the keys
    "key deleted": ("keys", lambda home: (home / KEYS).unlink()),
    "key empty": ("keys", lambda home: truncate(home / KEYS, 0)),
    "key short": ("keys", lambda home: truncate(home / KEYS, 40)),
    "key flipped": ("keys", lambda home: write(home, KEYS, b"g" + (home / KEYS).read_bytes()[1:])),
    "key of another home": ("tapes", other_key),
    "key open to others": ("home", lambda home: (home / KEYS).chmod(0o644)),
    "key without modes": ("files", lambda home: (home / KEYS).chmod(0)),
    "key a link": ("files", lambda home: replace_by_link(home, KEYS)),
    "key a folder": ("files", lambda home: replace_by_folder(home, KEYS)),
    "public key deleted": ("keys", lambda home: (home / "keys" / "signing.pub").unlink()),
    "public key of another": ("keys", lambda home: write(home, "keys/signing.pub", b"ab" * 32)),
    "keys deleted": ("keys", lambda home: shutil.rmtree(home / "keys")),
    "keys a file": ("files", lambda home: replace_by_file(home, "keys")),
    "mark damaged": ("keys", lambda home: write(home, "keys/journal.mark", b"???")),
    "journal's id deleted": ("keys", lambda home: (home / "keys" / "journal.id").unlink()),
    "former keys damaged": ("keys", lambda home: write(home, "keys/signing.former", b"zz")),
    "token deleted": ("keys", lambda home: (home / "keys" / "operator.token").unlink()),
    "token flipped": ("keys", lambda home: write(home, "keys/operator.token", b"x" * 43)),
    "token short": ("keys", lambda home: write(home, "keys/operator.token", b"abc")),
    # vault and configuration
    "vault flipped": ("secrets", lambda home: flip(home / "vault.sealed", 90)),
    "vault deleted": ("files", lambda home: (home / "vault.sealed").unlink()),
    "vault's key deleted": ("secrets", lambda home: (home / "keys" / "vault.key").unlink()),
    "configuration damaged": ("config", lambda home: write(home, "palyra.toml", b"[server\n\xff")),
    "configuration a folder": ("config", lambda home: (home / "palyra.toml").mkdir()),
    # records and indexes
    "run cut": ("records", lambda home: sql(home, "UPDATE runs SET record = substr(record, 1, 9) WHERE rowid = 1")),
    "session empty": ("records", lambda home: sql(home, "UPDATE sessions SET record = '' WHERE rowid = 1")),
    "task of bytes": ("records", lambda home: sql(home, "UPDATE tasks SET record = CAST(x'fffe7b' AS TEXT) WHERE rowid = 1")),
    "token without members": ("records", lambda home: sql(home, "UPDATE tokens SET record = '{}'")),
    "state of a run": ("records", lambda home: sql(home, "UPDATE runs SET state = 'failed' WHERE rowid = 1")),
    "memory of no kind": ("records", lambda home: sql(home, "UPDATE memories SET kind = 'none' WHERE row = 1")),
    "tags of a memory": ("records", lambda home: sql(home, "UPDATE memories SET tags = '[1]' WHERE row = 1")),
    "text index": ("records", lambda home: sql(home, "DELETE FROM memory_fts_data WHERE id > 10")),
    "text index of turns": ("records", lambda home: sql(home, "DELETE FROM turn_fts_data WHERE id = 10")),
    "shadow table dropped": ("tapes", lambda home: sql(home, "DROP TABLE memory_fts_data")),
    "index without a row": ("records", lambda home: sql(home, "DELETE FROM memory_fts_docsize WHERE id = 1")),
    "vectors overwritten": ("records", lambda home: sql(home, "UPDATE memory_vectors SET vector = randomblob(length(vector))")),
    "vectors exchanged": ("records", lambda home: sql(home, "UPDATE memory_vectors SET vector = (SELECT vector FROM memory_vectors ORDER BY row LIMIT 1)")),
    # files beside the journal
    "file of vectors": ("stored files", lambda home: flip(only(home, "vectors/*"), 300)),
    "file of vectors empty": ("stored files", lambda home: truncate(only(home, "vectors/*"), 0)),
    "artifact flipped": ("stored files", lambda home: flip(only(home, "artifacts/*/*"), 5_000)),
    "artifact cut": ("stored files", lambda home: half(only(home, "artifacts/*/*"))),
    "artifact deleted": ("stored files", lambda home: only(home, "artifacts/*/*").unlink()),
    "artifact a link": ("stored files", lambda home: replace_by_link(home, str(only(home, "artifacts/*/*").relative_to(home)))),
    "artifacts deleted": ("stored files", lambda home: shutil.rmtree(home / "artifacts")),
    "artifacts a file": ("files", lambda home: replace_by_file(home, "artifacts")),
    "artifact a folder": ("stored files", lambda home: replace_by_folder(home, str(only(home, "artifacts/*/*").relative_to(home)))),
    "file of vectors a folder": ("stored files", lambda home: replace_by_folder(home, "vectors/memory.index")),
    "checkpoint appended": ("stored files", lambda home: append(only(home, "checkpoints/*"))),
    "checkpoint flipped": ("stored files", lambda home: flip(only(home, "checkpoints/*"), 1)),
    "checkpoint's content": ("stored files", lambda home: truncate(only(home, "checkpoints/*"), only(home, "checkpoints/*").stat().st_size - 2)),
    "list of skills": ("stored files", lambda home: write(home, "skills/skills.json", b"{")),
    "home without modes": ("files", lambda home: home.chmod(0o300)),
}  # fmt: skip

ENDS: dict[str, Damage] = {
    "journal's id a folder": lambda home: replace_by_folder(home, "keys/journal.id"),
}


def test_a_sound_home_passes_and_is_not_changed(home: Path) -> None:
    """Negative control: nothing is found in a stopped home, and no byte of it changes."""
    before = tree(home)
    found = inspect(home)
    assert {} == {name: each for name, each in found.items() if each.verdict != "ok"}
    assert {"files", "keys", "tapes", "records", "stored files"} < found.keys()
    assert before == tree(home)


@pytest.mark.parametrize("name", CASES)
def test_each_kind_of_damage_is_found(home: Path, name: str) -> None:
    """It is found by the check that is about it, with a remedy, and a backup is named."""
    part, damage = CASES[name]
    damage(home)
    found = inspect(home)
    failed = {each for each, check in found.items() if check.verdict == "fail"}
    assert part in failed, found
    assert all(found[each].remedy for each in failed - {"config"})
    home.chmod(0o700)


def test_there_are_enough_kinds() -> None:
    """The table is no sample of itself."""
    assert len(CASES) >= 34


def test_a_killed_daemon_leaves_a_sound_home(tmp_path: Path) -> None:
    """Negative control: the log that a kill leaves is read, and is no damage; a flipped byte of it is."""
    daemon = DaemonProcess(tmp_path)
    daemon.start()
    try:
        trio.run(live, daemon)
        daemon.kill()
    finally:
        daemon.end()
    before = tree(daemon.home)
    assert {} == failures(daemon.home)
    assert before == tree(daemon.home)
    flip(daemon.home / "journal.sqlite3-wal", 3 * PAGE)
    assert "a frame is damaged, which hides" in failures(daemon.home)["tapes"].detail


@pytest.fixture
def damaged(home: Path) -> Path:
    """A home without its database."""
    journal(home).unlink()
    return home


def backups_of(home: Path) -> list[Path]:
    return list(home.glob("backups/bak_*"))


@pytest.mark.parametrize("lost", ["database", "database and keys"])
async def test_the_named_command_restores(damaged: Path, lost: str) -> None:
    """The newest backup that is good itself is named, and its command makes a sound home."""
    if lost == "database and keys":
        shutil.rmtree(damaged / "keys")
    newest = max(backups_of(damaged))
    flip(newest / "data" / "journal.sqlite3", 5_000)
    way = inspect(damaged)["way back"]
    assert str(newest) not in str(way.remedy)
    words = shlex.split(str(way.remedy).strip("`"))
    made = await palyra(*words[1:])
    assert 0 == made.code, made.err
    assert {} == failures(Path(words[4]))


@pytest.mark.parametrize(
    "name", ["half a file", "text", "key a folder", "journal's id a folder", "owner of another id"]
)
def test_a_daemon_that_cannot_start_names_the_backup(home: Path, name: str) -> None:
    """One line names the newest good backup and the command that lists the damage."""
    damage = ENDS.get(name) or CASES[name][1]
    damage(home)
    daemon = DaemonProcess(home.parent)
    daemon.launch()
    assert 0 != daemon.wait()
    line = daemon.said.strip().splitlines()[-1]
    assert "the newest good backup is " in line
    assert max(backups_of(home)).name in line
    assert f"palyra doctor --home {home}" in line


def test_without_a_backup_it_says_so(damaged: Path) -> None:
    """And fails."""
    shutil.rmtree(damaged / "backups")
    way = inspect(damaged)["way back"]
    assert ("fail", True) == (way.verdict, "no good backup" in way.detail)


async def test_the_exit_code_tells(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 for the sound home, 1 for the damaged one, which names what is wrong."""
    monkeypatch.setenv("PALYRA_SERVER__PORT", "0")  # that of the defaults may be in use
    sound = await palyra("doctor", home=home)
    assert 0 == sound.code, sound.out
    flip(journal(home), 3)
    found = await palyra("doctor", home=home)
    assert 1 == found.code
    assert "palyra backup restore" in found.out


def test_a_home_without_a_daemon_before_has_no_such_checks(tmp_path: Path) -> None:
    """There is nothing to inspect yet."""
    assert [] == doctor.inspect_stopped(Options(home=tmp_path))
