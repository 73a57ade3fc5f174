"""`palyra doctor`: check the machine, the configuration and the daemon.

Each check is one function that returns a `Check` and raises no expected error.
"""

import ctypes
import errno
import os
import re
import shlex
import shutil
import socket
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from itertools import chain, count
from pathlib import Path
from typing import Literal

import click
import msgspec

from palyra.cli.command.errors import FAILED, CommandFailed
from palyra.cli.command.options import load_config, shared_options
from palyra.cli.command.output import print_json, say
from palyra.cli.command.talk import Options, talk
from palyra.cli.host.status import describe_embedder
from palyra.cli.suspend import describe_suspension
from palyra.config.load import Config
from palyra.config.parts import PARTS, list_absent, list_installed
from palyra.core.context.references import PROJECT_FILES
from palyra.core.incident.incident import SEVERITIES, UNRESOLVED
from palyra.core.incident.kinds import CLOCK
from palyra.core.redaction.known_secrets import MIN_KNOWN_BYTES
from palyra.core.redaction.patterns import RULES
from palyra.core.redaction.redactor import Redactor
from palyra.core.text.visible import pluralize, visible
from palyra.errors import PalyraError, Unavailable
from palyra.models.minilm import files as minilm
from palyra.models.presets import key_of
from palyra.net.protocol.discovery import find_discovery, find_home

OLDEST_PYTHON = (3, 11)
LOW_BYTES, LEAST_BYTES = 1 << 30, 100 << 20
FREE_BYTES = 64 << 20
DAY_MS = 86_400_000
BACKUP_DAYS = 30
NEW_DAYS = 7  # without a backup
STORED_S = 10.0  # of reading stored files, such as artifacts
LATE_S = 600.0  # a due task that still waits
MOST_NAMED = 5
MOST_ENTRIES = 20_000  # of a workspace, to look for project files: a fraction of a second
MAKE_BACKUP = "`palyra backup create` makes one while the daemon runs"
OTHERS = stat.S_IRWXG | stat.S_IRWXO
OPENAT2 = 437  # the same number on every architecture
AT_FDCWD = -100
RESOLVE_BENEATH = 0x08
CANARY = "c4nary-of-the-doctor"
TOOLCHAIN_PROGRAMS = (
    "python3", "python", "node", "cargo", "go", "java", "ruby", "uv", "pytest", "deno", "bun",
)  # fmt: skip
PROJECT_NAMES = tuple(chain(*PROJECT_FILES))
BUBBLEWRAP_FOLDERS = "/usr/bin:/usr/local/bin:/bin:/run/current-system/sw/bin"
INSTALL_BUBBLEWRAP = "apt install bubblewrap"


ALLOW_NAMESPACES = (
    "allow user namespaces: `sysctl -w user.max_user_namespaces=15000`, on Debian also "
    "kernel.unprivileged_userns_clone=1, on Ubuntu an AppArmor profile for bubblewrap"
)
COST_OF_B = (
    "every call asks, unattended runs are denied it, skills and MCP servers in the jail stay closed"
)
# Words of bubblewrap where the kernel refuses a namespace.
NO_JAIL, NO_NAMESPACES = "the jail could not be built", ("namespace", "setting up uid map")
ALLOW_OR_LOWER = (
    f"{ALLOW_NAMESPACES}; or `palyra config set sandbox.min_level B` and start again: programs then "
    f"run without namespaces, and {COST_OF_B}"
)

# Prefix of a problem in `system.status` -> remedy.  The last entry matches any other problem.
PROBLEM_REMEDIES = (
    ("MCP server ", "repair the server or its entry in [mcp] of the configuration"),
    ("push ", "the browser rings again at its next question, or ends: see docs/console.md"),
    ("notify.", "correct the setting, then `palyra notify test` tries it again"),
    ("the vault ", "repair the named file, or set the secrets again with `palyra secrets set`"),
    (
        "env:",
        "start the daemon with that variable, or name vault:NAME after `palyra secrets set NAME`",
    ),
    (
        "the workspace ",
        "restore the folder and its owner's permissions, or name another (--workspace, tools.workspaces)",
    ),
    ("user policies: ", "`palyra policy check` checks policies without the daemon"),
    ("configuration: ", "`palyra config show` validates the configuration without the daemon"),
    (
        "the memory's embedder ",
        "repair what is named, or choose another memory.embedder; searches use words until then",
    ),
    ("skills: ", "repair the named file, or set wasm.enabled = false in the configuration"),
    ("", "see the section on programs in docs/operations.md"),
)


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Result of one check; `remedy` is an action that solves the problem."""

    name: str
    verdict: Literal["ok", "warn", "fail"]
    detail: str
    remedy: str | None = None


def run_checks(options: Options) -> list[Check]:
    """Run all checks in the order in which their problems should be repaired.

    With a stopped daemon its home is inspected, instead of asking for the state of the journal.
    """
    stopped = [] if options.url else _guard("home", inspect_stopped, options)
    checks = [
        found
        for check in CHECKS
        if not (stopped and check is check_journal)
        for found in _guard(check.__name__.removeprefix("check_"), check, options)
    ]
    return checks + stopped


def _guard(
    name: str, check: Callable[[Options], Check | list[Check]], options: Options
) -> list[Check]:
    """Run a check; an error of the file system fails it."""
    try:
        found = check(options)
    except (OSError, PalyraError) as error:
        return [Check(name=name, verdict="fail", detail=str(error), remedy=f"repair {name}")]
    return found if isinstance(found, list) else [found]


def inspect_stopped(options: Options) -> list[Check]:
    """Inspect the home of a stopped daemon: one check a part, and the way back if one fails."""
    from palyra.store.backup.inspection import (  # noqa: PLC0415 - a heavy import
        PARTS,
        inspect_home,
    )

    home = find_home(options.home)
    try:
        days = load_config(options.home, None).retention.artifacts_days
    except CommandFailed:  # `check_config` names it
        days = 0
    found = inspect_home(home, days, STORED_S)
    if found is None or found.is_meanwhile_running:
        return []
    checks: list[Check] = []
    for part in PARTS:
        findings = found.of(part)
        more = f"; {len(findings) - MOST_NAMED} more" if len(findings) > MOST_NAMED else ""
        checks.append(
            Check(
                name=part,
                verdict="fail" if findings else "ok",
                detail="; ".join(each.detail for each in findings[:MOST_NAMED]) + more
                if findings
                else found.checked[part],
                remedy="; ".join(dict.fromkeys(each.remedy for each in findings)) or None,
            )
        )
    if found.findings:
        checks.append(_find_way_back(home, are_keys_sound=not found.of("keys")))
    return checks


def _find_way_back(home: Path, *, are_keys_sound: bool) -> Check:
    """Name the newest good backup of a damaged home and the command that restores it."""
    from palyra.store.backup.home import read_trusted  # noqa: PLC0415 - a heavy import
    from palyra.store.backup.inspection import find_good_backup, read_body  # noqa: PLC0415 - as above

    backup = find_good_backup(home, read_trusted(home) if are_keys_sound else ())
    if backup is None:
        return Check(
            name="way back",
            verdict="fail",
            detail="there is no good backup in the home's backups/ or on record",
            remedy="keep a copy of the home, and look for a backup elsewhere: `palyra backup verify PATH`",
        )
    target = next(
        place
        for number in count(1)
        if not (place := home.with_name(f"{home.name}.restored{number}")).exists()
    )
    given = (
        ("--keys", str(home / "keys"))
        if are_keys_sound
        else ("--key", read_body(Path(backup.path)).public_key)
    )
    command = ("palyra", "backup", "restore", backup.path, str(target), *given)
    days = int((time.time() * 1000 - backup.created_ms) / DAY_MS)
    return Check(
        name="way back",
        verdict="warn",
        detail=f"the newest good backup, {pluralize(days, 'day')} old: {backup.path}",
        remedy=f"`{shlex.join((*command, '--home', str(home)))}`",
    )


def check_python(_options: Options) -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return Check(name="python", verdict="fail", detail=version, remedy="use 3.11 or newer")
    return Check(name="python", verdict="ok", detail=version)


def check_packages(_options: Options) -> Check:
    """Check that every required package is installed; versions are left to the installer."""
    try:
        wanted = [
            _name(line) for line in metadata.requires("palyra") or [] if "extra ==" not in line
        ]
    except metadata.PackageNotFoundError:
        return Check(
            name="packages",
            verdict="warn",
            detail="palyra itself is not installed, only importable",
            remedy="pip install -e .",
        )
    missing = sorted(name for name in set(wanted) if not _is_installed(name))
    if missing:
        return Check(
            name="packages",
            verdict="fail",
            detail=f"missing: {', '.join(missing)}",
            remedy="install it again: `make run` in the checkout",
        )
    return Check(name="packages", verdict="ok", detail=f"{len(set(wanted))} requirements installed")


def _name(requirement: str) -> str:
    return re.split(r"[ ;<>=!~\[(]", requirement, maxsplit=1)[0]


def _is_installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def check_parts(_options: Options) -> Check:
    """Name the optional parts that are installed, and how to get the others."""
    absent = list_absent()
    extras = {part.extra for part in PARTS} - set(list_installed())
    return Check(
        name="parts",
        verdict="ok",
        detail="; ".join((f"{', '.join(list_installed()) or 'none'} installed", *absent)),
        remedy=f"pip install 'palyra[{','.join(sorted(extras))}]'" if extras else None,
    )


def check_config(options: Options) -> Check:
    try:
        found = load_config(options.home, None)
    except CommandFailed as stop:
        return Check(name="config", verdict="fail", detail=stop.message, remedy=stop.remedy)
    path = found.paths.config_file
    if found.notes:
        return Check(
            name="config",
            verdict="warn",
            detail="; ".join(found.notes),
            remedy="the old name is still read",
        )
    detail = str(path) if path.is_file() else f"defaults; {path} does not exist"
    return Check(name="config", verdict="ok", detail=detail)


def check_home(options: Options) -> Check:
    """Check that only the owner can access the data directory and the secrets in it."""
    home = find_home(options.home)
    if home.exists() and not home.is_dir():
        return Check(
            name="home",
            verdict="fail",
            detail=f"{home} is no directory",
            remedy="name another place with --home",
        )
    if not home.is_dir():
        return Check(
            name="home",
            verdict="warn",
            detail=f"{home} does not exist yet",
            remedy="`palyra up` creates it",
        )
    exposed = [path for path in (home, *_secrets(home)) if path.stat().st_mode & OTHERS]
    if exposed:
        return Check(
            name="home",
            verdict="fail",
            detail=f"open to others: {', '.join(map(str, exposed))}",
            remedy=f"chmod -R go= {home}",
        )
    return Check(name="home", verdict="ok", detail=f"{home} is yours alone")


def _secrets(home: Path) -> list[Path]:
    keys = home / "keys"
    found = [
        keys,
        *(keys.iterdir() if keys.is_dir() else ()),
        *home.glob("journal.sqlite3*"),
        *home.glob("vault.*"),
    ]
    return [path for path in found if path.exists() and path.suffix != ".pub"]


def check_disk(options: Options) -> Check:
    home = find_home(options.home)
    place = next(path for path in (home, *home.absolute().parents) if path.exists())
    free_bytes = shutil.disk_usage(place).free
    detail = f"{_size(free_bytes)} free at {place}"
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return Check(
            name="disk",
            verdict="fail",
            detail=f"{place} is on a read-only file system",
            remedy="mount it writable, or choose another place with --home",
        )
    if free_bytes < LEAST_BYTES:
        return Check(
            name="disk", verdict="fail", detail=detail, remedy="free disk space: writes will fail"
        )
    if free_bytes < LOW_BYTES:
        return Check(name="disk", verdict="warn", detail=detail, remedy="free disk space soon")
    return Check(name="disk", verdict="ok", detail=detail)


def _size(count: int) -> str:
    """Format a number of bytes in GiB, MiB or KiB, the largest unit of at least 1."""
    for unit, shift in (("GiB", 30), ("MiB", 20)):
        if count >= 1 << shift:
            return f"{count / (1 << shift):.1f} {unit}"
    return f"{count >> 10} KiB"


def check_openat2(_options: Options) -> Check:
    """Check that the kernel can restrict the opening of a path to a directory (openat2)."""
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, RESOLVE_BENEATH)
    libc = ctypes.CDLL(None, use_errno=True)
    opened = libc.syscall(OPENAT2, AT_FDCWD, b".", ctypes.byref(how), ctypes.sizeof(how))
    if opened < 0:
        reason = errno.errorcode.get(ctypes.get_errno(), "?")
        return Check(
            name="openat2",
            verdict="warn",
            detail=f"not available ({reason}): file tools fall back to slower checks",
            remedy="use Linux 5.6 or newer, or allow the call in the container's seccomp profile",
        )
    os.close(opened)
    return Check(name="openat2", verdict="ok", detail="paths cannot escape the workspace")


def check_sandbox(options: Options) -> Check:
    """Check that bubblewrap is installed; the daemon itself tests the sandbox."""
    found = shutil.which("bwrap", path=BUBBLEWRAP_FOLDERS)
    if found is None:
        shell = "shell at level B if the daemon can prove it" if _may_be_b(options) else "no shell"
        return Check(
            name="sandbox",
            verdict="warn",
            detail=f"bubblewrap is not installed: {shell}, no skills (looked for in {BUBBLEWRAP_FOLDERS})",
            remedy=INSTALL_BUBBLEWRAP,
        )
    return Check(name="sandbox", verdict="ok", detail=f"{found}; the daemon tests the sandbox")


def _may_be_b(options: Options) -> bool:
    try:
        return load_config(options.home, None).sandbox.min_level == "B"
    except CommandFailed:
        return False


def check_port(options: Options) -> Check:
    """Check that the configured port is free or used by the daemon of this home directory."""
    try:
        server = load_config(options.home, None).server
    except CommandFailed:
        return Check(name="port", verdict="warn", detail="unknown: the configuration is not valid")
    found = find_discovery(find_home(options.home))
    if found is not None and found.is_alive:
        return Check(name="port", verdict="ok", detail=f"the daemon listens at {found.url}")
    try:
        with socket.create_server((server.host, server.port)) as bound:
            port = bound.getsockname()[1]
    except OSError as error:
        return Check(
            name="port",
            verdict="fail",
            detail=f"{server.host}:{server.port}: {error.strerror or error}",
            remedy="choose another with --port or server.port",
        )
    return Check(name="port", verdict="ok", detail=f"{server.host}:{port} is free")


def check_daemon(options: Options) -> Check:
    try:
        status = talk(options, lambda client: client.status())
    except CommandFailed as stop:
        return Check(name="daemon", verdict="warn", detail=stop.message, remedy=stop.remedy)
    detail = f"{status.state}, version {status.version}"
    if not status.is_writable:
        return Check(
            name="daemon",
            verdict="fail",
            detail=f"{detail}; its journal refuses writes",
            remedy="`palyra incidents list --open` names the reason: a full disk, or files that are gone",
        )
    if status.stranded_runs:
        return Check(
            name="daemon",
            verdict="fail",
            detail=f"{detail}; {status.stranded_runs} open run(s) cannot be resumed",
            remedy="`palyra incidents list --open` shows the reason; cancel a run to give it up",
        )
    if status.problems:
        return Check(
            name="daemon",
            verdict="fail",
            detail=f"{detail}; {'; '.join(status.problems)}",
            remedy="; ".join(dict.fromkeys(map(_remedy, status.problems))),
        )
    if status.suspension is not None:
        return Check(
            name="daemon",
            verdict="warn",
            detail=f"{detail}; {describe_suspension(status.suspension)}",
            remedy="`palyra resume` takes new runs again",
        )
    return Check(name="daemon", verdict="ok", detail=detail)


def _remedy(problem: str) -> str:
    """Return the remedy for a problem of `system.status`."""
    if "bubblewrap is not installed" in problem:
        return INSTALL_BUBBLEWRAP
    if NO_JAIL in problem and any(cause in problem for cause in NO_NAMESPACES):
        return ALLOW_NAMESPACES if problem.startswith("level B") else ALLOW_OR_LOWER
    if problem.startswith("MCP server ") and ": the package mcp is missing: " in problem:
        return problem.partition(": the package mcp is missing: ")[2]
    return next((remedy for start, remedy in PROBLEM_REMEDIES if problem.startswith(start)), "")


def check_isolation(options: Options) -> Check:
    """Name the isolation of programs that the daemon has tested; level B is a warning."""
    try:
        tools = talk(options, lambda client: client.list_tools()).tools
    except CommandFailed as stop:
        return Check(name="isolation", verdict="warn", detail=f"unknown: {stop.message}")
    found = next((tool.enforcement for tool in tools if tool.name == "shell"), None)
    if found is None:
        return Check(
            name="isolation",
            verdict="ok",
            detail="no programs: the lines on sandbox and daemon name the reason, if there is one",
        )
    if found.startswith("B:"):
        return Check(
            name="isolation",
            verdict="warn",
            detail=f"{found}: programs run without namespaces, and {COST_OF_B}",
            remedy=f"for level A {ALLOW_NAMESPACES}",
        )
    return Check(name="isolation", verdict="ok", detail=found)


def check_toolchains(options: Options) -> Check:
    """Name programs of the caller's PATH, and interpreters of workspaces, that no program sees."""
    from palyra.tools.sandbox.toolchains import Toolchains  # noqa: PLC0415 - for this check only

    config = load_config(options.home, None)
    shown = Toolchains(config.sandbox.folders, config.sandbox.path)
    hidden = {name: path for name in TOOLCHAIN_PROGRAMS if (path := shown.find_hidden(name))}
    said = [f"the {name} on your PATH ({path})" for name, path in hidden.items()]
    roots = config.workspaces.values() if config.tools.workspace else ()
    for link in (root / name / "bin/python" for root in roots for name in (".venv", "venv")):
        path = os.readlink(link) if link.is_symlink() and link.exists() else ""  # noqa: PTH115 - text
        if path.startswith("/") and not shown.shows(path):
            hidden[str(link)] = path
            said.append(f"{link}, which leads to {path},")
    if not hidden:
        return Check(
            name="toolchains", verdict="ok", detail="programs see the interpreters of your PATH"
        )
    found = shown.find_remedy_for(hidden.values())
    return Check(
        name="toolchains",
        verdict="warn",
        detail=f"not visible to programs: {'; '.join(said[:MOST_NAMED])}",
        remedy=f"`{found}`, then start the daemon again"
        if found
        else "install it in a folder of its own; see sandbox.folders in docs/configuration.md",
    )


def check_project(options: Options) -> Check:
    """Name project files of the workspaces that no run reads, although they are there."""
    config = load_config(options.home, None)
    if not config.context.project_files:
        return Check(name="project", verdict="ok", detail="no project files: context.project_files")
    try:
        found = talk(options, lambda client: client.list_workspaces())
        roots = [Path(each.path) for each in found if not each.problem]
    except (CommandFailed, Unavailable):
        roots = list(config.workspaces.values()) if config.tools.workspace else []
    unread = [each for root in roots for each in _unread_project_files(root)]
    with suppress(CommandFailed, Unavailable):
        texts = talk(options, lambda client: client.list_skills()).texts
        unread += [f"{each.folder} ({each.problem})" for each in texts if each.problem]
    if not unread:
        names = ", ".join(PROJECT_NAMES)
        return Check(name="project", verdict="ok", detail=f"every {names} can be read")
    more = f" and {len(unread) - MOST_NAMED} more" if len(unread) > MOST_NAMED else ""
    return Check(
        name="project",
        verdict="warn",
        detail=f"not read by runs: {'; '.join(unread[:MOST_NAMED])}{more}",
        remedy="put a plain file there (`cp --remove-destination`): programs can change what a link or a "
        "second name leads to, and models the target (docs/context.md)",
    )


def _unread_project_files(root: Path) -> list[str]:
    """Return each project file that is not read, with the reason, as far as a short walk finds them."""
    unread: list[str] = []
    entries = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        entries += len(folders) + len(files)
        if entries > MOST_ENTRIES:
            break
        for row in PROJECT_FILES:
            reasons = {name: _why_unread(Path(folder, name)) for name in row if name in files}
            read = next((name for name, reason in reasons.items() if not reason), None)
            unread += [
                f"{visible(str(Path(folder, name)))} ({reason})"
                for name, reason in reasons.items()
                if reason
                and not (read and Path(folder, name).resolve() == Path(folder, read).resolve())
            ]
    return unread


def _why_unread(path: Path) -> str:
    """Return why `read_file` refuses the file; "" if it does not."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        return "a link"
    if not stat.S_ISREG(found.st_mode):
        return "no regular file"
    if found.st_nlink > 1:
        return "a second name, a hard link, leads to it"
    return "" if os.access(path, os.R_OK) else "no permission to read it"


def check_incidents(options: Options) -> Check:
    """Check that no incident is unresolved."""
    try:
        page = talk(options, lambda client: client.list_incidents(states=UNRESOLVED, limit=500))
    except CommandFailed as stop:
        return Check(name="incidents", verdict="warn", detail=f"unknown: {stop.message}")
    found = page.incidents
    if not found:
        return Check(name="incidents", verdict="ok", detail="none is open")
    worst = max(found, key=lambda each: (SEVERITIES.index(each.severity), each.last_ms))
    count = f"{len(found)}{'+' if page.next_cursor else ''}"
    treatable = sorted({each.domain for each in found if each.remedy and not each.attempts})
    healing = "".join(
        f", treat with `palyra healing mode auto --domain {one}`" for one in treatable
    )
    return Check(
        name="incidents",
        verdict="fail" if worst.severity == "critical" else "warn",
        detail=f"{count} open; {worst.severity}: {worst.summary}",
        remedy="`palyra incidents list --open` lists them; "
        f"close one with `palyra incidents resolve`{healing}",
    )


def check_healing(options: Options) -> Check:
    """Name the mode of self-healing, and the domains with another one."""
    try:
        modes = talk(options, lambda client: client.healing_mode()).modes
    except CommandFailed as stop:
        return Check(name="healing", verdict="warn", detail=f"unknown: {stop.message}")
    usual, _ = Counter(modes.values()).most_common(1)[0]
    others = [f"{mode} for {domain}" for domain, mode in modes.items() if mode != usual]
    return Check(name="healing", verdict="ok", detail="; ".join([usual, *others]))


def check_models(options: Options) -> Check:
    """Check that no model is suspended by its circuit breaker after repeated failures."""
    try:
        found = talk(options, lambda client: client.list_models())
    except CommandFailed as stop:
        return Check(name="models", verdict="warn", detail=f"unknown: {stop.message}")
    ill = sorted({each.name for each in found.models if each.breaker != "closed"})
    if ill:
        return Check(
            name="models",
            verdict="warn",
            detail=f"not called after repeated failures: {', '.join(ill)}",
            remedy="check the provider; models.failover names models that replace it",
        )
    default = next((each.name for each in found.models if each.is_default), "none")
    return Check(
        name="models", verdict="ok", detail=f"{len(found.models)} listed, {default} by default"
    )


def check_journal(options: Options) -> Check:
    try:
        report = talk(options, lambda client: client.verify_tape())
    except CommandFailed as stop:
        return Check(name="journal", verdict="warn", detail=f"not verified: {stop.message}")
    if report.first_break is not None:
        return Check(
            name="journal",
            verdict="fail",
            detail=f"{report.breaks} break(s); the first: {report.first_break.detail}",
            remedy="restore the data directory from a backup; `palyra tape verify` shows more",
        )
    return Check(
        name="journal", verdict="ok", detail=f"{pluralize(report.checked_events, 'event')} intact"
    )


def check_memory(options: Options) -> Check:
    """Check the files of MiniLM if the memory may use them, and name the embedder in use."""
    try:
        config = load_config(options.home, None)
        if config.memory.embedder == "minilm" or (
            config.memory.embedder == "auto" and minilm.has_any(config.paths.data_dir)
        ):
            for file in minilm.FILES:
                minilm.read_file(config.paths.data_dir, file)
        status = talk(options, lambda client: client.status())
    except CommandFailed as stop:
        return Check(name="memory", verdict="warn", detail=f"unknown: {stop.message}")
    except Unavailable as error:
        return Check(
            name="memory",
            verdict="fail",
            detail=f"minilm fails, searches use words only; {error.message}",
            remedy="`palyra models install minilm`, or another memory.embedder",
        )
    in_use = None if status.embedder is None else status.embedder.in_use
    fails = status.embedder is not None and in_use is None
    usual: Literal["ok", "warn"] = "warn" if in_use == "words" else "ok"
    return Check(
        name="memory",
        verdict="fail" if fails else usual,
        detail=f"embedder: {describe_embedder(status.embedder)}",
        remedy="repair what is named, or choose another memory.embedder" if fails else None,
    )


def check_secrets(options: Options) -> Check:
    """Check that the vault opens and every secret named in the configuration can be resolved."""
    try:
        detail = _look_for_secrets(load_config(options.home, None))
    except CommandFailed:
        return Check(name="secrets", verdict="warn", detail="unknown: the configuration is invalid")
    except PalyraError as error:
        remedy = "`palyra secrets test` checks each"
        return Check(name="secrets", verdict="fail", detail=error.message, remedy=remedy)
    return Check(name="secrets", verdict="ok", detail=detail)


def check_redaction(_options: Options) -> Check:
    """Check that the redaction rules find a planted secret; report the number of rules."""
    found, _ = Redactor([]).redact_text(f"password={CANARY}")
    if "[redacted:password]" not in found:
        return Check(
            name="redaction",
            verdict="fail",
            detail="a planted secret was not found",
            remedy="pip install --force-reinstall google-re2",
        )
    return Check(name="redaction", verdict="ok", detail=f"{len(RULES)} rules detect secrets")


def _look_for_secrets(config: Config) -> str:
    """Resolve the configured secrets and return the number of those in the vault, and short keys.

    A short key of a provider is a placeholder (`EMPTY`), which is used and never redacted.  References
    to the environment are only measured, because the daemon has another environment.  References to a keyring are skipped, because a keyring may prompt for a password.
    Raises PalyraError for a secret that cannot be resolved.
    """
    from palyra.cli.secrets import configured, open_resolver  # noqa: PLC0415 - a heavy import

    resolver = open_resolver(config)
    keys = {key_of(provider) for provider in config.models.providers}
    short: list[str] = []
    for text in configured(config):
        value = os.environ.get(text.removeprefix("env:"), " " * MIN_KNOWN_BYTES)
        if not text.startswith(("env:", "keyring:")):
            value = resolver.resolve(text, may_be_short=text in keys)
        if text in keys and len(value.encode()) < MIN_KNOWN_BYTES:
            short.append(text)
    found = f"{len(resolver.vault.read())} in the vault"
    if not short:
        return found
    return f"{found}; shorter than {MIN_KNOWN_BYTES} bytes, so used and never redacted: {', '.join(short)}"


def check_backup(options: Options) -> Check:
    """Check that there is a recent backup, and that no draft of one was left behind."""
    from palyra.store.backup.create import FOLDER, find_latest  # noqa: PLC0415 - a heavy import
    from palyra.store.backup.draft import find_abandoned  # noqa: PLC0415 - a heavy import

    home = find_home(options.home)
    left = [*find_abandoned(home / FOLDER), *find_abandoned(home.absolute().parent)]
    if left:
        return Check(
            name="backup",
            verdict="warn",
            detail=f"left by a process that died: {', '.join(map(str, left))}",
            remedy="the next backup or restore there removes it; or `rm -r` it",
        )
    latest = find_latest(home)
    now_ms = time.time() * 1000
    if latest is None:
        return _check_first_backup(home, now_ms)
    days = int((now_ms - latest.created_ms) / DAY_MS)
    detail = f"the newest is {pluralize(days, 'day')} old: {latest.path}"
    if not Path(latest.path).is_dir():
        detail = f"the newest was moved or removed: {latest.path}"
    if days > BACKUP_DAYS:
        return Check(name="backup", verdict="warn", detail=detail, remedy=MAKE_BACKUP)
    return Check(name="backup", verdict="ok", detail=detail)


def _check_first_backup(home: Path, now_ms: float) -> Check:
    """Check that a home without a backup is still new."""
    try:
        since_ms = (home / "keys" / "signing.pub").stat().st_mtime * 1000
    except OSError:
        since_ms = now_ms
    is_new = now_ms - since_ms < NEW_DAYS * DAY_MS
    return Check(
        name="backup",
        verdict="ok" if is_new else "warn",
        detail="none was made yet",
        remedy=MAKE_BACKUP,
    )


def check_tasks(options: Options) -> Check:
    """Check that background work keeps up, and that no task has failed lately."""
    try:
        found = talk(options, lambda client: client.count_tasks())
    except CommandFailed as stop:
        return Check(name="tasks", verdict="warn", detail=f"unknown: {stop.message}")
    late_s = 0.0 if found.oldest_due_ms is None else time.time() - found.oldest_due_ms / 1000
    counts = f"{found.running} running, {found.due} due"
    problems: dict[str, str] = {}
    if late_s > LATE_S:
        problems[f"the oldest has waited for {int(late_s / 60)} min"] = (
            "raise tasks.max_running, or cancel some of `palyra tasks list --state queued`"
        )
    if found.failed:
        problems[f"{found.failed} failed within a day"] = (
            "`palyra tasks list --state failed` names them, `palyra tasks retry TASK_ID` repeats one"
        )
    if found.own > found.own_limit // 2:
        problems[f"{pluralize(found.own, 'reflection')} of learning wait"] = (
            "raise tasks.max_running, choose a quicker learning.model, or cancel some; at "
            f"{found.own_limit} of one principal further runs are left out"
        )
    return Check(
        name="tasks",
        verdict="warn" if problems else "ok",
        detail="; ".join((counts, *problems)),
        remedy="; ".join(problems.values()) or None,
    )


def check_schedules(options: Options) -> Check:
    """Check that every schedule can fire."""
    try:
        found = talk(options, lambda client: client.list_schedules())
        page = talk(options, lambda client: client.list_incidents(states=UNRESOLVED, domain="task"))
    except CommandFailed as stop:
        return Check(name="schedules", verdict="warn", detail=f"unknown: {stop.message}")
    broken = [f"{each.schedule_id} ({each.name}): {each.problem}" for each in found if each.problem]
    if broken:
        return Check(
            name="schedules",
            verdict="warn",
            detail=f"cannot fire: {'; '.join(broken[:MOST_NAMED])}"
            + (f" and {len(broken) - MOST_NAMED} more" if len(broken) > MOST_NAMED else ""),
            remedy="`palyra schedules remove` and add it again with an IANA zone such as "
            "Europe/Berlin, or update the package tzdata",
        )
    for clock in page.incidents:
        if clock.key == CLOCK:
            return Check(
                name="schedules",
                verdict="warn",
                detail=clock.summary,
                remedy="see that the clock of the machine is set before the daemon starts, then "
                f"`palyra incidents resolve {clock.incident_id}`",
            )
    return Check(
        name="schedules", verdict="ok", detail=f"{pluralize(len(found), 'schedule')}, no problem"
    )


def check_retention(options: Options) -> Check:
    """Check that nothing is over a bound of retention and that few pages are free."""
    try:
        found = talk(options, lambda client: client.preview_retention())
    except CommandFailed as stop:
        return Check(name="retention", verdict="warn", detail=f"unknown: {stop.message}")
    over = [
        pluralize(count, noun)
        for count, noun in (
            (found.runs, "run"),
            (found.artifacts, "artifact"),
            (found.file_checkpoints, "file checkpoint"),
            (found.incidents, "incident"),
            (found.tasks, "ended task"),
        )
        if count
    ]
    size = f"the database has {_size(found.database_bytes)}"
    if over and found.is_set:
        return Check(
            name="retention",
            verdict="warn",
            detail=f"over its bounds: {', '.join(over)}; {size}",
            remedy="`palyra retention apply` removes them",
        )
    if found.free_bytes > max(FREE_BYTES, found.database_bytes // 4):
        return Check(
            name="retention",
            verdict="warn",
            detail=f"{size}, {_size(found.free_bytes)} of them free",
            remedy="`palyra retention compact` returns them",
        )
    if (
        not found.is_incremental and found.database_bytes > FREE_BYTES
    ):  # a small one is never worth it
        return Check(
            name="retention",
            verdict="warn",
            detail=f"{size}; auto_vacuum is off, so free pages stay in it while the daemon runs",
            remedy="stop the daemon and run `palyra retention compact` once",
        )
    bounds = "within its bounds" if found.is_set else "no bounds are set"
    return Check(name="retention", verdict="ok", detail=f"{bounds}; {size}")


CHECKS: tuple[Callable[[Options], Check], ...] = (
    check_python,
    check_packages,
    check_parts,
    check_config,
    check_home,
    check_disk,
    check_openat2,
    check_sandbox,
    check_port,
    check_daemon,
    check_isolation,
    check_toolchains,
    check_project,
    check_incidents,
    check_healing,
    check_models,
    check_journal,
    check_memory,
    check_tasks,
    check_schedules,
    check_retention,
    check_backup,
    check_secrets,
    check_redaction,
)


COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
NAME_CHARS = 12


@click.command()
@shared_options
def doctor(options: Options) -> None:
    """Check this machine and the daemon.

    The exit code is 1 if any check fails; a warning is not a failure.
    """
    checks = run_checks(options)
    if options.as_json:
        print_json({"checks": checks})
    else:
        for check in _without_repeats(checks):
            _print(check)
    if any(check.verdict == "fail" for check in checks):
        raise SystemExit(FAILED)


def _without_repeats(checks: Sequence[Check]) -> list[Check]:
    """Return the checks with those in one row that only repeat why the daemon cannot be asked."""
    down = next(
        (each.detail for each in checks if each.name == "daemon" and each.verdict != "ok"), ""
    )
    unasked = [
        each
        for each in checks
        if down and each.name != "daemon" and each.detail.endswith(f": {down}")
    ]
    shown = [each for each in checks if each not in unasked]
    if unasked:
        names = ", ".join(each.name for each in unasked)
        shown.append(Check(name="not checked", verdict="warn", detail=f"without a daemon: {names}"))
    return shown


def _print(check: Check) -> None:
    say(f"{check.verdict:<5}", fg=COLOURS[check.verdict], bold=True, nl=False)
    say(f"{check.name:<{NAME_CHARS}} {check.detail}")
    if check.remedy:
        say(f"{'':5}{'':{NAME_CHARS}} remedy: {check.remedy}", dim=True)
