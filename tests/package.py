"""`make package`: build wheel and sdist, check their contents, and use the wheel as a user would.

For each interpreter, and with and without the optional parts: a new environment, an installation
from wheels only and without a compiler on PATH, `palyra --version`, `palyra up`, a run, `palyra
doctor`, an orderly stop, and an uninstallation that leaves nothing.  The wheel of the clients is built
too, installed with and without trio, and imported.  One line each; exit code 1 if any failed.

It uses the standard library only; hatchling is taken from the environment that runs it.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BUILD = """
import sys
from hatchling import build
print(build.build_wheel(sys.argv[1]), build.build_sdist(sys.argv[1]))
"""
EXTRAS = ("", "vectors,wasm")
# Part of each environment, whatever is installed into it.
OF_VENV = frozenset({"pip", "setuptools", "pkg_resources", "_distutils_hack"})
MOST_BYTES = 150 << 20  # of a daemon without optional parts
CLIENTS = ROOT / "clients" / "python"
CLIENT_EXTRAS = ("", "trio")
CLIENT_MOST_BYTES = 10 << 20
BUILD_CLIENT = "import sys; from hatchling import build; print(build.build_wheel(sys.argv[1]))"
READY_S, STOP_S, COMMAND_S = 60.0, 30.0, 600.0
LOOK_EVERY_S = 0.05
RUN = '/call echo {"text": "packed"}'


class PackageFault(Exception):
    """What is wrong with a package or with a step of its use."""


# --- contents -------------------------------------------------------------------------------------


def build(folder: Path) -> tuple[Path, Path]:
    """Build both packages; return wheel and sdist."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    said = check_run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT)
    wheel, sdist = said.split()[-2:]
    return folder / wheel, folder / sdist


def build_client(folder: Path) -> Path:
    """Build the wheel of the clients."""
    said = check_run([sys.executable, "-c", BUILD_CLIENT, str(folder)], cwd=CLIENTS)
    return folder / said.split()[-1]


def shipped_files() -> set[str]:
    """Files of `palyra/` in the checkout that belong into the wheel."""
    every = (path for path in (ROOT / "palyra").rglob("*") if path.is_file())
    return {
        path.relative_to(ROOT).as_posix()
        for path in every
        if "__pycache__" not in path.parts and path.suffix != ".pyc"
    }


def check_wheel(wheel: Path) -> int:
    """Return the number of files.  Raises PackageFault unless it has the package and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    if faults := find_wheel_faults(names, shipped_files()):
        raise PackageFault(f"{wheel.name}: {'; '.join(faults)}")
    return len(names)


def find_wheel_faults(names: Sequence[str], wanted: set[str]) -> list[str]:
    """Return what a wheel lacks, and what does not belong into it."""
    own = {name for name in names if name.startswith("palyra/")}
    described = {name.partition(".dist-info/")[2] for name in names}
    faults = [f"{name} is missing" for name in sorted(wanted - own)]
    faults += [f"{name} is not of the package" for name in sorted(own - wanted)]
    faults += [
        f"{name} does not belong into a wheel"
        for name in names
        if not name.startswith("palyra/") and ".dist-info/" not in name
    ]
    faults += [
        f"{name} is missing"
        for name in ("licenses/LICENSE", "entry_points.txt")
        if name not in described
    ]
    return faults


def check_sdist(sdist: Path, wheel: Path) -> int:
    """Return the number of files.  Raises PackageFault unless the same wheel comes out of it."""
    with tarfile.open(sdist) as archive, tempfile.TemporaryDirectory() as folder:
        names = archive.getnames()
        archive.extractall(folder, filter="data")
        (tree,) = Path(folder).iterdir()
        missing = [
            name
            for name in (
                "LICENSE",
                "README.md",
                "Makefile",
                "requirements/run.txt",
                "tests/bare.py",
            )
            if not (tree / name).is_file()
        ]
        if missing:
            raise PackageFault(f"{sdist.name}: {', '.join(missing)} is missing")
        check_run([sys.executable, "-c", BUILD, str(tree / "again")], cwd=tree)
        again = tree / "again" / wheel.name
        if read_members(again) != read_members(wheel):
            raise PackageFault(f"{sdist.name}: another wheel comes out of it")
    return len(names)


def read_members(wheel: Path) -> dict[str, int]:
    """Return the checksum of each file."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist()}


# --- use ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """One environment."""

    python: str
    extras: str
    place: Path

    @property
    def bin(self) -> Path:
        return self.place / "venv" / "bin"

    @property
    def environment(self) -> Mapping[str, str]:
        """Settings of pip and proxies are kept; no program but those of the environment is on PATH."""
        kept = ("PIP_", "SSL_CERT_", "REQUESTS_CA_", "http_proxy", "https_proxy", "no_proxy")
        found = {key: text for key, text in os.environ.items() if key.startswith(kept)}
        mine = {"PATH": str(self.bin), "HOME": str(self.place), "LANG": "C.UTF-8"}
        return {**found, **mine, "PALYRA_HOME": str(self.place / "daemon")}

    def run(self, *words: str) -> str:
        """Return the output of a program of the environment.  Raises PackageFault."""
        command = [str(self.bin / words[0]), *words[1:]]
        return check_run(command, cwd=self.place, environment=self.environment)

    def packages(self) -> Path:
        (found,) = (self.bin.parent / "lib").glob("python3*/site-packages")
        return found


def try_out(trial: Trial, wheel: Path) -> str:
    """Install, use and remove the wheel; return the figures.  Raises PackageFault."""
    check_run([trial.python, "-m", "venv", str(trial.bin.parent)], cwd=trial.place)
    begun = time.monotonic()
    wanted = f"{wheel}[{trial.extras}]" if trial.extras else str(wheel)
    pip = ("python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    trial.run(*pip, "install", "--only-binary", ":all:", wanted)
    took_s = time.monotonic() - begun
    packages, size = measure(trial.packages())
    if not trial.extras and size > MOST_BYTES:
        raise PackageFault(f"{size >> 20} MiB without optional parts; at most {MOST_BYTES >> 20}")
    version = trial.run("palyra", "--version").split()[-1]
    if version not in wheel.name:
        raise PackageFault(f"it says that it is {version}")
    ready_s = use_daemon(trial)
    trial.run(*pip, "uninstall", "--yes", "palyra")
    left = [path.name for path in (*trial.bin.iterdir(), *trial.packages().iterdir())]
    if rest := [name for name in left if name.startswith("palyra")]:
        raise PackageFault(f"left after the uninstallation: {', '.join(rest)}")
    return f"{packages:3} packages {size >> 20:4} MiB  installed in {took_s:.0f} s  ready in {ready_s:.1f} s"


def try_client(trial: Trial, wheel: Path) -> str:
    """Install, import and remove the clients; return the figures.  Raises PackageFault."""
    check_run([trial.python, "-m", "venv", str(trial.bin.parent)], cwd=trial.place)
    wanted = f"{wheel}[{trial.extras}]" if trial.extras else str(wheel)
    pip = ("python", "-m", "pip", "--disable-pip-version-check", "--quiet")
    trial.run(*pip, "install", "--only-binary", ":all:", wanted)
    packages, size = measure(trial.packages())
    if size > CLIENT_MOST_BYTES:
        raise PackageFault(f"{size >> 20} MiB; at most {CLIENT_MOST_BYTES >> 20}")
    names = "aio, blocking, connect" if trial.extras else "aio, blocking"
    trial.run("python", "-I", "-c", f"from palyra_client import {names}")
    trial.run(*pip, "uninstall", "--yes", "palyra-client")
    if rest := [path.name for path in trial.packages().iterdir() if "palyra" in path.name]:
        raise PackageFault(f"left after the uninstallation: {', '.join(rest)}")
    return f"{packages:3} packages {size / (1 << 20):4.1f} MiB"


def use_daemon(trial: Trial) -> float:
    """Start the daemon, run something, ask the doctor, stop; return the seconds until it was ready."""
    announcement = trial.place / "daemon" / "daemon.json"
    log = trial.place / "up.log"
    workspace = trial.place / "workspace"
    workspace.mkdir()
    begun = time.monotonic()
    with log.open("wb") as sink:
        daemon = subprocess.Popen(
            [str(trial.bin / "palyra"), "up", "--port", "0", "--workspace", str(workspace)],
            stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=trial.environment, cwd=trial.place,
        )  # fmt: skip
    try:
        while not announcement.exists():
            if daemon.poll() is not None or time.monotonic() - begun > READY_S:
                raise PackageFault(f"`palyra up` was not ready: {log.read_text()[-500:]}")
            time.sleep(LOOK_EVERY_S)
        ready_s = time.monotonic() - begun
        if "packed" not in trial.run("palyra", "run", RUN):
            raise PackageFault("the run did not show its result")
        check_doctor(trial)
        daemon.send_signal(signal.SIGTERM)
        if code := daemon.wait(STOP_S):
            raise PackageFault(f"the daemon ended with {code}: {log.read_text()[-500:]}")
    finally:
        daemon.kill()
        daemon.wait()
    return ready_s


def check_doctor(trial: Trial) -> None:
    """Raises PackageFault if a check fails, or the parts are not those that were installed."""
    checks = {
        each["name"]: each for each in json.loads(trial.run("palyra", "doctor", "--json"))["checks"]
    }
    installed = checks["parts"]["detail"].partition(" installed")[0].replace(" ", "")
    if installed != (trial.extras or "none"):
        raise PackageFault(f"the doctor finds the parts {installed}")


def measure(folder: Path) -> tuple[int, int]:
    """Return the number of packages and their bytes, without those of every environment."""
    size = packages = 0
    for path in folder.iterdir():
        if path.name.partition("-")[0] in OF_VENV:
            continue
        packages += path.name.endswith(".dist-info")
        files = path.rglob("*") if path.is_dir() else (path,)
        size += sum(file.lstat().st_size for file in files if not file.is_dir())
    return packages, size


def check_run(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str] | None = None
) -> str:
    """Return the standard output of a command.  Raises PackageFault with its last words."""
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=COMMAND_S,
    )  # fmt: skip
    if done.returncode:
        words = " ".join(command[:3])
        raise PackageFault(
            f"{words} ended with {done.returncode}: {(done.stderr or done.stdout)[-500:]}"
        )
    return done.stdout


def build_all() -> tuple[Path, Path]:
    """Build and check the packages; return the wheels of daemon and clients.  Raises PackageFault."""
    wheel, sdist = build(DIST)
    client = build_client(DIST)
    for package, contents in (
        (wheel, f"{check_wheel(wheel)} files"),
        (sdist, f"{check_sdist(sdist, wheel)} files"),
        (client, "the clients alone"),
    ):
        sys.stdout.write(f"{package.name}  {package.stat().st_size >> 10} KiB  {contents}\n")
    return wheel, client


def succeeds(use: Callable[[Trial, Path], str], python: str, extras: str, wheel: Path) -> bool:
    """Try a wheel in an environment of its own, and print what was found."""
    found = Path(shutil.which(python) or python).resolve()
    with tempfile.TemporaryDirectory(prefix="palyra-package-", dir="/var/tmp") as place:
        try:
            verdict = use(Trial(str(found), extras, Path(place)), wheel)
        except PackageFault as fault:
            verdict = f"FAILED {fault}"
    name = wheel.name.partition("-")[0]
    sys.stdout.write(f"{found.name:<11} {name} [{extras or 'no extras'}]  {verdict}\n")
    sys.stdout.flush()
    return not verdict.startswith("FAILED")


def main() -> int:
    """Build, check and try; 0 only if everything succeeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", action="append", help="an interpreter; may be repeated")
    asked = parser.parse_args()
    try:
        wheel, client = build_all()
    except PackageFault as fault:
        sys.stderr.write(f"FAILED {fault}\n")
        return 1
    ways = [(try_out, extras, wheel) for extras in EXTRAS]
    ways += [(try_client, extras, client) for extras in CLIENT_EXTRAS]
    verdicts = [
        succeeds(use, python, extras, package)
        for python, (use, extras, package) in product(asked.python or [sys.executable], ways)
    ]
    return 0 if all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
