"""`make container`: run the steps of the Containerfile in a root directory, without an engine.

The base image is what debootstrap installs, kept in `.scratch/container/base`; the steps run in a
copy of it, in mount and process namespaces of their own, and the daemon then runs there as the
user of the Containerfile: it is started with ENTRYPOINT and CMD on a free port of the loopback,
executes a run, is asked by `palyra doctor`, and stops by STOPSIGNAL.  Layers, volumes and the
network of an engine are not imitated.

Needs root, debootstrap and a mirror of Debian.  It uses the standard library only.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRATCH = ROOT / ".scratch" / "container"
MIRROR = "http://deb.debian.org/debian"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")  # also those of a proxy of this machine
TRUSTED = "/etc/certificates-of-the-host.crt"  # the image's own are written by its package
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PORT_IN_IMAGE = "7420"
READY_S, STOP_S, LOOK_EVERY_S = 60.0, 30.0, 0.1
RUN = '/call echo {"text": "contained"}'
# Mounts are gone with the namespaces, and so are all processes with the first one.
ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")
# A jail needs a user namespace, and the kernel refuses one to a process in a changed root (chroot):
# the root of the mount namespace itself is exchanged, as engines do.
ENTER = """
set -e
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount -t tmpfs tmpfs "$1/dev"
for each in null zero full random urandom tty; do
  : > "$1/dev/$each"; mount --bind "/dev/$each" "$1/dev/$each"
done
ln -s /proc/self/fd "$1/dev/fd"
mkdir -m 1777 "$1/dev/shm"
cd "$1"
shift
pivot_root . .
umount -l .
cd /
exec "$@"
"""


class StepFailed(Exception):
    """A step of the Containerfile, or of the use of what it makes, and what it said."""


@dataclass
class Image:
    """What the instructions so far have set."""

    user: str = "root"
    settings: dict[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    stop_signal: signal.Signals = signal.SIGTERM


def read_instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction with its arguments; lines that end with a backslash are one."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def build(root: Path, instructions: Sequence[tuple[str, str]]) -> Image:
    """Execute the instructions in the root.  Raises StepFailed, also for an unknown instruction."""
    image = Image()
    for name, rest in instructions:
        begun = time.monotonic()
        match name:
            case "RUN":
                run_in(root, image, ["/bin/sh", "-c", rest])
            case "COPY":
                copy(root, *rest.split())
            case "USER":
                image.user = rest
            case "ENV":
                key, _, text = rest.partition("=")
                image.settings[key] = text
            case "ENTRYPOINT":
                image.entrypoint = tuple(json.loads(rest))
            case "CMD":
                image.command = tuple(json.loads(rest))
            case "STOPSIGNAL":
                image.stop_signal = signal.Signals[rest]
            case "FROM" | "EXPOSE" | "VOLUME":
                pass
            case _:
                raise StepFailed(f"{name} is not imitated: add it to tests/container.py")
        sys.stdout.write(f"{time.monotonic() - begun:6.1f} s  {name} {rest[:80]}\n")
        sys.stdout.flush()
    return image


def copy(root: Path, pattern: str, target: str) -> None:
    """Copy files of the checkout into a directory of the image."""
    found = glob(pattern, root_dir=ROOT)  # noqa: PTH207 - relative names
    if not found:
        raise StepFailed(f"COPY {pattern}: no such file; `make package` builds dist/")
    for name in found:
        shutil.copy(ROOT / name, root / target.lstrip("/"))


def command_in(
    root: Path, image: Image, words: Sequence[str], *, beside: int | None = None
) -> list[str]:
    """Return the command that runs words in the root as the user of the image.

    They run in namespaces of their own, or in those of the process `beside`.
    """
    kept = {key: text for key, text in os.environ.items() if key.lower().endswith("_proxy")}
    home = "/root" if image.user == "root" else f"/var/lib/{image.user}"
    certificates = {"PIP_CERT": TRUSTED} if CERTIFICATES.exists() else {}
    settings = {
        **kept,
        **certificates,
        "PATH": PATH,
        "HOME": home,
        "LANG": "C.UTF-8",
        **image.settings,
    }
    assigned = [f"{key}={text}" for key, text in settings.items()]
    person = [f"--reuid={image.user}", f"--regid={image.user}", "--init-groups"]
    inside = ["setpriv", *person, "env", "-i", *assigned, *words]
    if beside is not None:
        return ["nsenter", f"--target={beside}", "--mount", "--pid", *inside]
    return [*ISOLATED, "/bin/sh", "-c", ENTER, "enter", str(root), *inside]


def run_in(
    root: Path, image: Image, words: Sequence[str], *, beside: int | None = None, code: int = 0
) -> str:
    """Return the output of a command in the root.  Raises StepFailed for a larger exit code."""
    done = subprocess.run(
        command_in(root, image, words, beside=beside),
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode > code or done.returncode < 0:
        said = (done.stderr or done.stdout)[-800:]
        raise StepFailed(f"{shlex.join(words)[:200]} ended with {done.returncode}: {said}")
    return done.stdout


def use(root: Path, image: Image) -> Mapping[str, str]:
    """Start the daemon, execute a run, ask the doctor, stop it; return figures.  Raises StepFailed."""
    # The network is this machine's: neither its port nor its other addresses are to be taken.
    command = ["127.0.0.1" if word == "0.0.0.0" else word for word in image.command]  # noqa: S104 - compared
    words = [*image.entrypoint, *command, "--port", "0"]
    log = SCRATCH / "daemon.log"
    home = root / image.settings["PALYRA_HOME"].lstrip("/")
    begun = time.monotonic()
    with log.open("wb") as sink:
        daemon = subprocess.Popen(
            command_in(root, image, words), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
        )
    try:
        while not (home / "daemon.json").exists():
            if daemon.poll() is not None or time.monotonic() - begun > READY_S:
                raise StepFailed(f"the daemon was not ready: {log.read_text()[-800:]}")
            time.sleep(LOOK_EVERY_S)
        ready_s = time.monotonic() - begun
        pid = find_child(daemon.pid)
        if "contained" not in run_in(root, image, [*image.entrypoint, "run", RUN], beside=pid):
            raise StepFailed("the run did not show its result")
        warned = ask_doctor(root, image, pid)
        owner = Path(f"/proc/{pid}").stat().st_uid
        os.kill(pid, image.stop_signal)
        if code := daemon.wait(STOP_S):
            raise StepFailed(f"the daemon ended with {code}: {log.read_text()[-800:]}")
    finally:
        daemon.kill()
        daemon.wait()
    return {
        "uid of the daemon": str(owner),
        "ready in": f"{ready_s:.1f} s",
        "warnings of the doctor": "; ".join(warned) or "none",
    }


def ask_doctor(root: Path, image: Image, pid: int) -> list[str]:
    """Return the details of all warnings.  Raises StepFailed with those of a failed check."""
    said = run_in(root, image, [*image.entrypoint, "doctor", "--json"], beside=pid, code=1)
    found: dict[str, list[str]] = {"ok": [], "warn": [], "fail": []}
    for each in json.loads(said)["checks"]:
        found[each["verdict"]].append(f"{each['name']}: {each['detail']}")
    if found["fail"]:
        raise StepFailed(f"`palyra doctor`: {'; '.join(found['fail'])}")
    return found["warn"]


def find_child(pid: int) -> int:
    """Return the process that `unshare` started, which has become the daemon."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(child)


def base_image(suite: str) -> Path:
    """Return the installed base, which is made once."""
    base = SCRATCH / f"base-{suite}"
    if not base.exists():
        draft = SCRATCH / "draft"
        shutil.rmtree(draft, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", suite, str(draft), MIRROR], check=True)
        draft.rename(base)
    return base


def prepare(root: Path, suite: str) -> Path:
    """Make the root a copy of the base that reaches the network as this machine does."""
    base = base_image(suite)
    shutil.rmtree(root, ignore_errors=True)
    subprocess.run(["cp", "--archive", str(base), str(root)], check=True)
    shutil.copy("/etc/resolv.conf", root / "etc")
    if CERTIFICATES.exists():
        shutil.copy(CERTIFICATES, root / TRUSTED[1:])
    return root


def measure(root: Path) -> Mapping[str, str]:
    """Return the sizes of the image and of what was installed by pip."""
    sizes = {}
    for name, folder in (("size", root), ("/opt/palyra", root / "opt/palyra")):
        done = subprocess.run(
            ["du", "-sm", str(folder)], capture_output=True, text=True, check=True
        )
        sizes[name] = f"{done.stdout.split()[0]} MiB"
    return sizes


def main() -> int:
    """Build and use; 0 if every step succeeded."""
    if os.geteuid() or not shutil.which("debootstrap"):
        sys.stderr.write("this needs root and debootstrap (apt install debootstrap)\n")
        return 1
    instructions = list(read_instructions((ROOT / "Containerfile").read_text(encoding="utf-8")))
    suite = instructions[0][1].rpartition(":")[2].removesuffix("-slim")
    root = SCRATCH / "root"
    SCRATCH.mkdir(parents=True, exist_ok=True)
    try:
        image = build(prepare(root, suite), instructions)
        figures = {**use(root, image), **measure(root)}
    except StepFailed as failed:
        sys.stderr.write(f"FAILED {failed}\n")
        return 1
    sys.stdout.write("".join(f"{name}: {value}\n" for name, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
