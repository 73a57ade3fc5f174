"""`palyra doctor` and `palyra config`: findings with remedies, values with their keys."""

import os
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from palyra.cli.command.talk import Options
from palyra.cli.host import doctor
from palyra.core.journal.backup import BackupMade
from palyra.core.model.views import ModelList, ModelView
from palyra.core.redaction.patterns import RULES
from palyra.core.redaction.redactor import Redactor
from palyra.net.protocol.results import HealingModesView, IncidentPage, IncidentView
from tests.cli.command import palyra
from tests.client.fake_daemon import fake_daemon
from tests.net.api.fake_incidents import FULL

pytestmark = pytest.mark.real


def find(options: Options, name: str) -> doctor.Check:
    """The finding of one check."""
    check = next(check for check in doctor.CHECKS if check.__name__ == f"check_{name}")
    return check(options)


def write_config(home: Path, text: str) -> Options:
    (home / "palyra.toml").write_text(text)
    return Options(home=home)


def test_python_is_new_enough() -> None:
    """The interpreter that runs the tests passes."""
    assert "ok" == find(Options(), "python").verdict


def test_old_python_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An older interpreter fails with the version that is needed."""
    monkeypatch.setattr(doctor, "OLDEST_PYTHON", (99, 0))
    assert "fail" == find(Options(), "python").verdict


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A requirement that is not installed is named."""
    monkeypatch.setattr(
        "palyra.cli.host.doctor.metadata.requires",
        lambda _: ["trio>=0.31", "no-such-thing>=1; python_version>'3'"],
    )
    found = find(Options(), "packages")
    assert ("fail", "missing: no-such-thing") == (found.verdict, found.detail)


def test_bad_configuration_is_named(tmp_path: Path) -> None:
    """A key that does not exist is a failure that names it."""
    found = find(write_config(tmp_path, "[server]\nprot = 1\n"), "config")
    assert "fail" == found.verdict
    assert "server.prot" in found.detail


def test_home_open_to_others_fails(tmp_path: Path) -> None:
    """A key file others can read is a failure that names the file and the command."""
    keys = tmp_path / "keys"
    keys.mkdir(mode=0o700)
    tmp_path.chmod(0o700)
    token = keys / "operator.token"
    token.touch(mode=0o600)
    assert "ok" == find(Options(home=tmp_path), "home").verdict
    token.chmod(0o644)
    found = find(Options(home=tmp_path), "home")
    assert "fail" == found.verdict
    assert str(token) in found.detail
    assert "chmod" in str(found.remedy)


def test_a_file_is_no_home(tmp_path: Path) -> None:
    """`palyra up` would not make it."""
    (tmp_path / "home").touch()
    found = find(Options(home=tmp_path / "home"), "home")
    assert ("fail", "name another place with --home") == (found.verdict, found.remedy)
    assert "is no directory" in found.detail


def test_public_key_may_be_public(tmp_path: Path) -> None:
    """The public half of the signing key is no secret."""
    (tmp_path / "keys").mkdir(mode=0o700)
    tmp_path.chmod(0o700)
    (tmp_path / "keys" / "signing.pub").touch(mode=0o644)
    assert "ok" == find(Options(home=tmp_path), "home").verdict


@pytest.mark.parametrize(("limit", "verdict"), [("LOW_BYTES", "warn"), ("LEAST_BYTES", "fail")])
def test_little_room_is_found(monkeypatch: pytest.MonkeyPatch, limit: str, verdict: str) -> None:
    """A disk below the first limit is a warning, below the second a failure."""
    monkeypatch.setattr(doctor, limit, 1 << 80)
    assert verdict == find(Options(), "disk").verdict


def test_a_read_only_disk_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Room would not help it."""
    real = os.statvfs(tmp_path)
    fields = [*real[:8], real.f_flag | os.ST_RDONLY, *real[9:]]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    check = find(Options(home=tmp_path), "disk")
    assert ("fail", f"{tmp_path} is on a read-only file system") == (check.verdict, check.detail)
    assert "writable" in str(check.remedy)


@pytest.mark.parametrize(
    ("free_bytes", "text"),
    [(5 << 30, "5.0 GiB"), (6 << 20, "6.0 MiB"), (700 << 10, "700 KiB"), (0, "0 KiB")],
)
def test_free_space_has_a_fitting_unit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free_bytes: int, text: str
) -> None:
    """A small volume with free space is not shown as zero."""
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: real._replace(free=free_bytes))
    assert f"{text} free at {tmp_path}" == find(Options(home=tmp_path), "disk").detail


def test_a_port_in_use_is_found(tmp_path: Path) -> None:
    """It is a failure that names the setting."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = find(write_config(tmp_path, f"[server]\nport = {port}\n"), "port")
    assert "fail" == found.verdict
    assert "server.port" in str(found.remedy)


async def test_healthy_daemon_passes(tmp_path: Path) -> None:
    """With a daemon that answers nothing fails, and the exit code is 0."""
    async with fake_daemon() as daemon:
        daemon.reply_with(
            "system.status",
            {
                "state": "ready",
                "version": "0.1.0",
                "instance_id": "i",
                "protocol": "palyra.v1",
                "now_ms": 1,
                "is_writable": True,
            },
        )
        daemon.reply_with(
            "tape.verify",
            {
                "checked_events": 3,
                "checked_roots": 1,
                "through_position": 3,
                "signed_through_position": 3,
            },
        )
        found = await palyra("doctor", "--json", home=tmp_path, url=daemon.url)
    verdicts = {check["name"]: check["verdict"] for check in found.json["checks"]}
    assert ("ok", "ok") == (verdicts["daemon"], verdicts["journal"])


async def test_broken_journal_fails(tmp_path: Path) -> None:
    """A break in the journal makes the doctor fail and say where."""
    broken = {"kind": "edited", "position": 2, "run_id": None, "seq": None, "detail": "row 2"}
    async with fake_daemon() as daemon:
        daemon.reply_with(
            "tape.verify",
            {
                "checked_events": 3,
                "checked_roots": 1,
                "through_position": 3,
                "signed_through_position": 3,
                "first_break": broken,
                "breaks": 1,
            },
        )
        found = await palyra("doctor", home=tmp_path, url=daemon.url)
    assert 1 == found.code
    assert "row 2" in found.out
    assert "remedy: restore" in found.out


async def test_config_shows_what_holds(tmp_path: Path) -> None:
    """`config show` has the file's values, and the defaults for the rest."""
    write_config(tmp_path, "[server]\nport = 1234\n")
    text = await palyra("config", "show", home=tmp_path)
    data = await palyra("config", "show", "--json", home=tmp_path)
    assert ["server.port", "1234"] in [line.split() for line in text.out.splitlines()]
    assert ("127.0.0.1", 1234) == (data.json["server"]["host"], data.json["server"]["port"])


async def test_config_is_read_and_changed_without_a_daemon(tmp_path: Path) -> None:
    """`get` names the source, `set` keeps comments and refuses what a start would, `unset` undoes."""
    write_config(tmp_path, "[server]\nport = 1234  # mine\n")
    changed = await palyra("config", "set", "server.port", "4321", "--json", home=tmp_path)
    assert ("restart", 4321) == (changed.json["effect"], changed.json["value"])
    assert "[server]\nport = 4321  # mine\n" == (tmp_path / "palyra.toml").read_text()
    shown = await palyra("config", "get", "server.port", "--json", home=tmp_path)
    (entry,) = shown.json["entries"]
    assert ("file", 4321) == (entry["source"], entry["value"])
    for key, value, says in (("server.port", "70000", "65535"), ("server.prot", "1", "port?")):
        refused = await palyra("config", "set", key, value, home=tmp_path)
        assert 2 == refused.code
        assert says in refused.err
    assert 0 == (await palyra("config", "unset", "server.port", home=tmp_path)).code
    assert "port" not in (tmp_path / "palyra.toml").read_text()
    assert 0 != (await palyra("config", "get", "sever", home=tmp_path)).code


async def test_config_template_is_a_configuration(tmp_path: Path) -> None:
    """The output of `config template` is a valid configuration."""
    printed = await palyra("config", "template")
    (tmp_path / "palyra.toml").write_text(printed.out)
    assert "ok" == find(Options(home=tmp_path), "config").verdict
    assert "# port = 7467" in printed.out


@pytest.mark.parametrize("command", ["serve", "up"])
async def test_bad_configuration_stops_the_start(tmp_path: Path, command: str) -> None:
    """A daemon with a bad configuration does not start: exit code 2, key and remedy named."""
    write_config(tmp_path, "[server]\nport = 70000\n")
    found = await palyra(command, home=tmp_path)
    assert 2 == found.code
    assert "server.port = 70000" in found.err
    assert "Traceback" not in found.err


async def test_unknown_default_model_stops_the_start(tmp_path: Path) -> None:
    """A default model that does not exist is an error of the start, not of the first run."""
    home, workspace = tmp_path / "home", tmp_path / "workspace"
    home.mkdir()
    workspace.mkdir()
    write_config(home, '[models]\ndefault = "gpt"\n')
    found = await palyra("serve", "--port", "0", "--workspace", str(workspace), home=home)
    assert 2 == found.code
    assert "models.default = 'gpt'" in found.err
    assert "scripted" in found.err


@pytest.mark.parametrize("kind", ["jsonschema", "asyncapi"])
async def test_schema_needs_no_daemon(kind: str) -> None:
    """`schema` prints the protocol in either form."""
    printed = await palyra("schema", "--format", kind)
    assert 0 == printed.code
    assert "run.start" in printed.out
    assert isinstance(printed.json, dict)


def test_redaction_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules find a planted secret, and are counted; rules that find nothing are a failure."""
    options = Options(home=None)
    assert f"{len(RULES)} rules detect secrets" == find(options, "redaction").detail
    monkeypatch.setattr(Redactor, "redact_text", lambda _self, text: (text, False))
    assert "fail" == find(options, "redaction").verdict


@pytest.mark.parametrize(
    ("enforcement", "verdict", "word"),
    [
        ("A:bubblewrap+seccomp", "ok", "A:bubblewrap"),
        ("B:seccomp+landlock7", "warn", "every call asks"),
        (None, "ok", "no programs"),
    ],
)
def test_the_isolation_in_force_is_named(
    enforcement: str | None, verdict: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the daemon tested it; level B is a warning with what it costs and what helps."""
    shell = SimpleNamespace(name="shell", enforcement=enforcement)
    tools = [] if enforcement is None else [shell]
    monkeypatch.setattr(doctor, "talk", lambda *_: SimpleNamespace(tools=tools))
    found = find(Options(), "isolation")
    assert (verdict, True) == (found.verdict, word in found.detail)
    assert ("user.max_user_namespaces" in str(found.remedy)) is (verdict == "warn")


def test_project_files_that_no_run_reads_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links and second names are named with the reason; a link to the file that is read is not."""
    root = tmp_path / "work"
    for folder in ("docs", "linked", "hard", "beside", ".git", "plain"):
        (root / folder).mkdir(parents=True)
    (root / "docs/agents.md").write_text("rules")
    (root / "AGENTS.md").symlink_to("docs/agents.md")
    (root / "hard/PALYRA.md").hardlink_to(root / "docs/agents.md")
    (root / "linked/AGENTS.md").symlink_to("CLAUDE.md")
    (root / "linked/CLAUDE.md").write_text("rules")
    (root / "beside/AGENTS.md").symlink_to("../plain/AGENTS.md")
    (root / "beside/CLAUDE.md").write_text("others")
    (root / "plain/AGENTS.md").write_text("rules")
    (root / "plain/CLAUDE.md").symlink_to("AGENTS.md")
    (root / ".git/AGENTS.md").symlink_to("nowhere")
    options = write_config(tmp_path, f'[tools]\nworkspace = "{root}"\n')
    found = find(options, "project")
    link, second = "(a link)", "(a second name, a hard link, leads to it)"
    assert found.verdict == "warn"
    assert found.detail == (
        f"not read by runs: {root}/AGENTS.md {link}; {root}/beside/AGENTS.md {link}; "
        f"{root}/hard/PALYRA.md {second}"
    )
    for path in ("AGENTS.md", "beside/AGENTS.md", "hard/PALYRA.md"):
        (root / path).unlink()
    assert find(options, "project").verdict == "ok"
    monkeypatch.setattr(doctor, "MOST_ENTRIES", 0)
    assert find(options, "project").verdict == "ok"
    off = write_config(tmp_path, "[context]\nproject_files = false\n")
    assert "context.project_files" in find(off, "project").detail


def test_at_level_b_that_is_impossible_it_is_not_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what would help is named."""
    problem = "level B needs Landlock; level A: the jail could not be built: no namespace"
    status = SimpleNamespace(
        state="ready", version="1", is_writable=True, stranded_runs=0, problems=[problem]
    )
    monkeypatch.setattr(doctor, "talk", lambda _options, _ask: status)
    assert "min_level" not in str(find(Options(), "daemon").remedy)


def test_remedies_fit_the_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is not there is mended in [mcp], not in policies."""
    problem = "MCP server papers: /nonexistent/prog: no such program"
    status = SimpleNamespace(
        state="ready", version="1", is_writable=True, stranded_runs=0, problems=[problem]
    )
    monkeypatch.setattr(doctor, "talk", lambda _options, _ask: status)
    found = find(Options(), "daemon")
    assert "fail" == found.verdict
    assert problem in found.detail
    assert found.remedy is not None
    assert "[mcp]" in found.remedy
    assert "policy" not in found.remedy


@pytest.mark.parametrize(
    ("problem", "word"),
    [
        ("user policies: a.cedar: unexpected token", "palyra policy check"),
        ("configuration: usage.prices[0]: expected a number", "palyra config show"),
        ("the vault cannot be read", "palyra secrets set"),
        ("the workspace is gone", "--workspace"),
        ("skills: no worker starts", "wasm.enabled"),
        ("the jail could not be built: setting up uid map", "user.max_user_namespaces"),
        ("the jail could not be built: no namespace", "palyra config set sandbox.min_level B"),
        ("the jail could not be built: no namespace", "every call asks"),
        ("the jail could not be built: Unknown option --bind-fd", "docs/operations.md"),
        ("MCP server papers: bubblewrap is not installed", "apt install bubblewrap"),
    ],
)
def test_each_problem_has_its_own_remedy(
    problem: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remedy names a command about that problem."""
    status = SimpleNamespace(
        state="ready", version="1", is_writable=True, stranded_runs=0, problems=[problem]
    )
    monkeypatch.setattr(doctor, "talk", lambda _options, _ask: status)
    assert word in str(find(Options(), "daemon").remedy)


@pytest.mark.parametrize(
    ("severities", "verdict", "word"),
    [
        ([], "ok", "none is open"),
        (["error", "warning"], "warn", "2 open; error: 0"),
        (["warning", "critical", "error"], "fail", "3 open; critical: 1"),
    ],
)
def test_open_incidents_are_named(
    severities: list[str], verdict: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their number and the worst one are shown; a critical one is a failure."""
    found = [
        msgspec.convert(
            {**msgspec.structs.asdict(FULL), "severity": severity, "summary": str(number)},
            IncidentView,
        )
        for number, severity in enumerate(severities)
    ]
    monkeypatch.setattr(doctor, "talk", lambda *_: IncidentPage(incidents=found))
    check = find(Options(), "incidents")
    assert (verdict, True) == (check.verdict, word in check.detail)


def test_an_incident_that_could_be_treated_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not once it is treated, and for each domain once."""
    known = {**msgspec.structs.asdict(FULL), "remedy": "checkpoint_wal"}
    found = [msgspec.convert({**known, "attempts": each}, IncidentView) for each in (0, 0, 1)]
    monkeypatch.setattr(doctor, "talk", lambda *_: IncidentPage(incidents=found))
    command = "palyra healing mode auto --domain store"
    assert 1 == str(find(Options(), "incidents").remedy).count(command)
    monkeypatch.setattr(doctor, "talk", lambda *_: IncidentPage(incidents=found[2:]))
    assert command not in str(find(Options(), "incidents").remedy)


def test_the_mode_of_healing_is_named_with_its_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode of most domains comes first."""
    modes = HealingModesView(modes={"run": "auto", "store": "disabled", "edge": "disabled"})
    monkeypatch.setattr(doctor, "talk", lambda *_: modes)
    assert "disabled; auto for run" == find(Options(), "healing").detail


@pytest.mark.parametrize(
    ("breaker", "verdict", "word"), [("closed", "ok", "a/x"), ("open", "warn", "not called after")]
)
def test_an_ill_provider_is_a_warning(
    breaker: str, verdict: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named, with what helps; a well one is counted."""
    model = ModelView(name="a/x", provider="a", breaker=breaker, is_default=True)  # type: ignore[arg-type]  # one of them
    found = ModelList(models=[model], routing="suggest", failover=())
    monkeypatch.setattr(doctor, "talk", lambda *_: found)
    check = find(Options(), "models")
    assert verdict == check.verdict
    assert word in check.detail


def test_a_home_without_a_backup_is_a_warning_once_it_is_old(tmp_path: Path) -> None:
    """A new home has a week; then the command that makes one is named."""
    assert "ok" == find(Options(home=tmp_path), "backup").verdict
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "signing.pub").touch()
    os.utime(tmp_path / "keys" / "signing.pub", (1, 1))
    found = find(Options(home=tmp_path), "backup")
    assert ("warn", doctor.MAKE_BACKUP) == (found.verdict, found.remedy)


@pytest.mark.parametrize(("days", "verdict"), [(1, "ok"), (40, "warn")])
def test_an_old_backup_is_a_warning(tmp_path: Path, days: int, verdict: str) -> None:
    """The newest one is named with its age."""
    made = BackupMade(
        backup_id="bak_1",
        path=str(tmp_path),
        created_ms=int(time.time() * 1000) - days * doctor.DAY_MS,
        has_keys=False,
        files=1,
        size_bytes=1,
        head_position=1,
        key_id="k",
    )
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "latest.json").write_bytes(msgspec.json.encode(made))
    found = find(Options(home=tmp_path), "backup")
    assert (verdict, True) == (found.verdict, f"{days} day" in found.detail)


def test_an_abandoned_backup_is_named(tmp_path: Path) -> None:
    """With the way to get rid of it."""
    left = tmp_path / "backups" / ".bak_1.palyra-draft"
    left.mkdir(parents=True)
    found = find(Options(home=tmp_path), "backup")
    assert ("warn", True) == (found.verdict, str(left) in found.detail)


QUIET = {"due": 1, "running": 1, "oldest_due_ms": None, "failed": 0, "own": 0, "own_limit": 1_000}


@pytest.mark.parametrize(
    ("counts", "verdict", "words", "remedy"),
    [
        ({}, "ok", "1 running, 1 due", None),
        ({"oldest_due_ms": 1}, "warn", "the oldest has waited", "tasks.max_running"),
        ({"failed": 2}, "warn", "2 failed within a day", "palyra tasks retry"),
        ({"own": 500}, "ok", "1 running", None),
        ({"own": 501}, "warn", "501 reflections", "learning.model"),
        ({"own": 501, "failed": 1}, "warn", "1 failed within a day; 501", "retry TASK_ID` repeats"),
    ],
)
async def test_a_queue_that_falls_behind_is_a_warning(
    tmp_path: Path, counts: dict[str, int], verdict: str, words: str, remedy: str | None
) -> None:
    """Backlog, failed tasks and unread runs each have their remedy."""
    async with fake_daemon() as daemon:
        daemon.reply_with("task.counts", {**QUIET, **counts})
        found = await palyra("doctor", "--json", home=tmp_path, url=daemon.url)
    check = next(each for each in found.json["checks"] if each["name"] == "tasks")
    assert verdict == check["verdict"]
    assert words in check["detail"]
    assert (remedy is None) == (check.get("remedy") is None)
    assert remedy is None or remedy in check["remedy"]


async def test_a_task_that_is_due_for_a_moment_is_no_backlog(tmp_path: Path) -> None:
    """Ten minutes of waiting are the bound."""
    async with fake_daemon() as daemon:
        for minutes, verdict in ((9, "ok"), (11, "warn")):
            oldest_ms = round((time.time() - 60 * minutes) * 1000)
            daemon.reply_with("task.counts", {**QUIET, "oldest_due_ms": oldest_ms})
            found = await palyra("doctor", "--json", home=tmp_path, url=daemon.url)
            check = next(each for each in found.json["checks"] if each["name"] == "tasks")
            assert verdict == check["verdict"]


@pytest.mark.parametrize("count", [0, 1, 7])
async def test_a_schedule_without_its_zone_is_named(tmp_path: Path, count: int) -> None:
    """At most five are named, with the remedy."""
    schedule = {
        "schedule_id": "sch_1", "name": "nightly", "principal": "ann", "kind": "prompt",
        "priority": 5, "max_attempts": 3, "missed": "once", "overlap": "forbid", "created_ms": 1,
    }  # fmt: skip
    broken = {**schedule, "problem": "the zone 'Mars/Olympus' is not known"}
    async with fake_daemon() as daemon:
        daemon.reply_with("schedule.list", {"schedules": [schedule, *[broken] * count]})
        daemon.reply_with("incident.list", {"incidents": []})
        found = await palyra("doctor", "--json", home=tmp_path, url=daemon.url)
    check = next(each for each in found.json["checks"] if each["name"] == "schedules")
    assert ("warn" if count else "ok") == check["verdict"]
    assert min(count, 5) == check["detail"].count("Mars/Olympus")
    assert ("and 2 more" in check["detail"]) is (count == 7)
    assert ("tzdata" in (check.get("remedy") or "")) is bool(count)


@pytest.mark.parametrize(
    ("is_incremental", "mib", "verdict"), [(True, 65, "ok"), (False, 65, "warn"), (False, 63, "ok")]
)
async def test_a_large_database_that_cannot_shrink_is_a_warning(
    tmp_path: Path, *, is_incremental: bool, mib: int, verdict: str
) -> None:
    """A file without automatic vacuum needs one compaction without the daemon, once it has grown."""
    size = {"database_bytes": mib << 20, "is_incremental": is_incremental}
    async with fake_daemon() as daemon:
        daemon.reply_with("retention.preview", {"is_set": False, **size})
        found = await palyra("doctor", "--json", home=tmp_path, url=daemon.url)
    check = next(each for each in found.json["checks"] if each["name"] == "retention")
    assert verdict == check["verdict"]
    assert ("retention compact" in (check.get("remedy") or "")) is (verdict == "warn")


def test_a_missing_daemon_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checks that need the daemon are one row; those that do not are shown as ever."""
    with suppress(SystemExit):  # a busy port is a failure
        doctor.doctor.main(["--home", str(tmp_path / "none")], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert 1 == sum("no daemon is running" in line for line in lines)
    (row,) = [line for line in lines if "without a daemon: " in line]
    assert {"incidents", "models", "schedules"} <= set(row.partition(": ")[2].split(", "))


def test_short_keys_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A placeholder of a local server is no failure; the check names it, for it is never redacted."""
    (tmp_path / "key").write_text("EMPTY", encoding="utf-8")
    (tmp_path / "key").chmod(0o600)
    keys = ["env:SHORT_KEY", f"file:{tmp_path / 'key'}", "env:LONG_KEY", "env:ABSENT_KEY"]
    monkeypatch.setenv("SHORT_KEY", "sk-1")
    monkeypatch.setenv("LONG_KEY", "sk-" + "1" * 40)
    lines = ", ".join(
        f'{{ name = "p{n}", base_url = "http://127.0.0.1:9/v1", key = "{key}" }}'
        for n, key in enumerate(keys)
    )
    (tmp_path / "palyra.toml").write_text(f"[models]\nproviders = [{lines}]\n", encoding="utf-8")
    found = find(Options(home=tmp_path), "secrets")
    assert "ok" == found.verdict
    assert found.detail.endswith(f"never redacted: {keys[0]}, {keys[1]}")
