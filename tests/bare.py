"""`make bare`: the commands of README.md on a machine with nothing but Python and make.

For each interpreter and each user: a fresh clone, every optional program out of reach, a home of
its own, busy processes next to it; then `make run` and `make test`.  One line each, and exit
code 1 if any failed.  It uses the standard library only and needs no installed environment.

A program is hidden by an overlay over its folder in a mount namespace, so that an absolute path
does not find it either.  As root the ordinary user is `nobody`, and root is tried as well.
Without root the mount namespace lies in a user namespace; where the kernel allows neither, the
programs are only off PATH, and the table says so.
"""

import argparse
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / ".scratch" / "bare"
FOLDERS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
# Programs that some feature or test uses when they are there; none is needed.
OPTIONAL = (
    "bwrap",
    "git",
    "git-*",
    "node",
    "nodejs",
    "npm",
    "npx",
    "chrome*",
    "chromium*",
    "google-chrome*",
    "cc",
    "c++",
    "c[89]9*",
    "gcc*",
    "g++*",
    "*-gcc*",
    "*-g++*",
    "clang*",
    "tcc",
    "rustc",
    "cargo",
    "asc",
    "go",
    "curl",
    "uv",
)
COMMANDS = ("run", "test")
KEPT = ("PIP_", "SSL_CERT_", "REQUESTS_CA_", "http_proxy", "https_proxy", "no_proxy", "HTTPS_PROXY")
ORDINARY = "nobody"
COUNTED = (" passed", " failed", " error")


@dataclass(frozen=True)
class Case:
    """One interpreter and one user."""

    python: str
    prefix: str  # where the interpreter is installed
    uid: int
    gid: int
    user: str
    place: str  # an empty folder for the clone, the home and the hiding
    pytest_args: str

    @property
    def name(self) -> str:
        return f"{Path(self.python).name}-{self.user}"


# --- outside the namespace ------------------------------------------------------------------------


def main() -> int:
    """Run all cases; 0 only if every command succeeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", help="an interpreter; may be repeated")
    parser.add_argument("--user", action="append", help="only this user; may be repeated")
    parser.add_argument("--load", type=int, default=4, help="busy processes meanwhile")
    parser.add_argument("--pytest-args", default="-n 2", help="PYTEST_ARGS of `make test`")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("--command", choices=COMMANDS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        run_inside(Case(**json.loads(asked.inside)), asked.command)
    wrap = find_wrap()
    if not wrap:
        sys.stderr.write("no mount namespaces here: programs are only off PATH\n")
    succeeded = True
    with (
        tempfile.TemporaryDirectory(prefix="palyra-bare-", dir="/var/tmp") as base,
        busy(asked.load),
    ):
        Path(base).chmod(0o755)
        for python, user in product(asked.python or ["python3"], asked.user or users()):
            case = prepare(Path(base), python, user, asked.pytest_args)
            for command in COMMANDS:
                succeeded &= try_out(case, wrap, command)
            shutil.rmtree(case.place, ignore_errors=True)
    return 0 if succeeded else 1


def users() -> list[str]:
    """An ordinary user, and root where that is who asks."""
    return [ORDINARY, "root"] if os.geteuid() == 0 else [pwd.getpwuid(os.geteuid()).pw_name]


def find_wrap() -> list[str]:
    """The beginning of a command that runs in a mount namespace of its own; [] without any."""
    own = ["--user", "--map-root-user"] if os.geteuid() else []
    wrap = ["unshare", *own, "--mount", "--propagation", "private"]
    try:
        trial = subprocess.run([*wrap, "true"], capture_output=True, check=False)
    except FileNotFoundError:
        return []
    return wrap if trial.returncode == 0 else []


def prepare(base: Path, python: str, user: str, pytest_args: str) -> Case:
    """A clone and a home that belong to the user."""
    found = shutil.which(python)
    if found is None:
        raise SystemExit(f"no interpreter {python!r}: name others with PYTHONS=")
    ask = "import sys; print(sys.base_prefix)"
    prefix = subprocess.run([found, "-c", ask], capture_output=True, text=True, check=True)
    who = pwd.getpwnam(user)
    place = base / f"{Path(found).name}-{user}"
    (place / "home").mkdir(parents=True)
    (place / "hidden").mkdir()
    clone = ["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(place / "palyra")]
    subprocess.run(clone, check=True)
    if os.geteuid() == 0:
        for folder, _, files in os.walk(place):
            for path in (folder, *(os.path.join(folder, file) for file in files)):  # noqa: PTH118 - walk's
                os.chown(path, who.pw_uid, who.pw_gid, follow_symlinks=False)
    return Case(
        python=str(Path(found).resolve()),
        prefix=prefix.stdout.strip(),
        uid=who.pw_uid,
        gid=who.pw_gid,
        user=user,
        place=str(place),
        pytest_args=pytest_args,
    )


def try_out(case: Case, wrap: Sequence[str], command: str) -> bool:
    """Run `make COMMAND` there; print one line; whether it succeeded."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{case.name}-{command}.log"
    own = [sys.executable, __file__, "--inside", json.dumps(asdict(case)), "--command", command]
    begun = time.monotonic()
    with log.open("wb") as sink:
        ended = subprocess.run(
            [*wrap, *own], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, check=False
        )
    text = log.read_text(encoding="utf-8", errors="replace")
    summary = [line for line in text.splitlines() if any(word in line for word in COUNTED)]
    verdict = "ok" if ended.returncode == 0 else f"FAILED ({ended.returncode}), see {log}"
    hidden = "hidden" if wrap else "off PATH"
    took = f"{time.monotonic() - begun:6.0f} s"
    what = f"{Path(case.python).name:<12} {case.user:<10} {hidden:<9} make {command:<5} {took}"
    tests = summary[-1].strip("= ") if command == "test" and summary else ""
    sys.stdout.write(f"{what} {verdict} {tests}\n")
    sys.stdout.flush()
    return ended.returncode == 0


@contextmanager
def busy(count: int) -> Generator[None]:
    """So many processes that compute for the length of the block."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


# --- inside ---------------------------------------------------------------------------------------


def run_inside(case: Case, command: str) -> None:
    """Hide the programs, become the user, run the command in place of this process."""
    place = Path(case.place)
    path = os.pathsep.join(FOLDERS)
    make = ["make", f"PYTHON={case.python}", f"PYTEST_ARGS={case.pytest_args}", command]
    words = [*become(case), *make]
    kept = {key: text for key, text in os.environ.items() if key.startswith(KEPT)}
    environment = {**kept, "HOME": str(place / "home"), "USER": case.user, "LANG": "C.UTF-8"}
    os.chdir(place / "palyra")
    program = shutil.which(words[0], path=path) or words[0]
    try:
        hide(place / "hidden")
    except subprocess.CalledProcessError:  # no mount namespace
        path = str(link_others(place / "hidden"))
    else:
        open_way(case)  # from here on this interpreter may have lost its own library
    os.execve(program, words, {**environment, "PATH": path})  # noqa: S606 - no shell is wanted


def become(case: Case) -> list[str]:
    """The beginning of a command that runs as the user, without rights over the namespace."""
    if case.uid == 0:
        return []
    try:
        inner = Path("/proc/self/uid_map").read_text(encoding="ascii").split()
    except OSError:
        inner = ["0", "0", ""]
    if os.geteuid() == 0 and inner[1] != "0":  # a user namespace in which we only seem to be root
        return ["unshare", "--user", f"--map-user={case.uid}", f"--map-group={case.gid}", "--"]
    if os.geteuid() == 0:
        ids = [f"--reuid={case.uid}", f"--regid={case.gid}", "--clear-groups"]
        return ["setpriv", *ids, "--"]
    return []


def is_optional(name: str) -> bool:
    """Whether a program of that name is to be hidden."""
    return any(fnmatchcase(name, pattern) for pattern in OPTIONAL)


def hide(scratch: Path) -> None:
    """Lay over each folder of programs another view of it, in which some are deleted."""
    mount("-t", "tmpfs", "tmpfs", str(scratch))
    for folder in dict.fromkeys(Path(name).resolve() for name in FOLDERS):
        names = [path.name for path in folder.iterdir() if is_optional(path.name)]
        if not names:
            continue
        upper, work = (scratch / f"{kind}{folder.name}{len(names)}" for kind in ("upper", "work"))
        upper.mkdir()
        work.mkdir()
        for name in names:
            os.mknod(upper / name, 0o020000, os.makedev(0, 0))  # overlayfs: it is not there
        mount(
            "-t",
            "overlay",
            "-o",
            f"lowerdir={folder},upperdir={upper},workdir={work}",
            "overlay",
            str(folder),
        )
        left = [name for name in names if (folder / name).exists()]
        if left:
            raise SystemExit(f"not hidden in {folder}: {left}")


def open_way(case: Case) -> None:
    """Let the user reach the interpreter at its own path, though it lie in root's home.

    Its libraries are found by absolute paths, so a copy elsewhere would load others.
    """
    prefix = Path(case.prefix)
    closed = [path for path in prefix.parents if not path.stat().st_mode & 0o001]
    if os.geteuid() or case.uid == 0 or not closed:
        return
    kept = Path(case.place) / "python"
    kept.mkdir(exist_ok=True)
    mount("--bind", str(prefix), str(kept))
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", str(closed[-1]))
    prefix.mkdir(parents=True)
    mount("--bind", str(kept), str(prefix))


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, stderr=subprocess.DEVNULL)


def link_others(scratch: Path) -> Path:
    """A folder of links to every program but the optional ones."""
    folder = scratch / "bin"
    folder.mkdir(exist_ok=True)
    for name in FOLDERS:
        for path in Path(name).iterdir() if Path(name).is_dir() else ():
            link = folder / path.name
            if not is_optional(path.name) and not link.is_symlink():
                link.symlink_to(path)
    return folder


if __name__ == "__main__":
    sys.exit(main())
