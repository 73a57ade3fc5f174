"""What a hostile program tries; it runs inside a jail, and outside of it as the control.

Prints a JSON object: attempt -> "reached" or why not.  Its argument is a JSON object that says
where things are.  It stands alone: nothing of the project is there to import.
"""

import ctypes
import json
import os
import pathlib
import resource
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WHERE = json.loads(sys.argv[1])
LIBC = ctypes.CDLL(None, use_errno=True)
ATTEMPTS: dict[str, Callable[[], object]] = {}


def attempt(function: Callable[[], object]) -> Callable[[], object]:
    ATTEMPTS[function.__name__] = function
    return function


def call(name: str, *arguments: object) -> int:
    """A function of the C library, or a system call by number.  Raises OSError."""
    found = (
        LIBC.syscall(ctypes.c_long(int(name)), *arguments)
        if name.isdecimal()
        else getattr(LIBC, name)(*arguments)
    )
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(found)


def in_child(function: Callable[[], object]) -> None:
    """Try it in a process of its own: it changes the one that succeeds."""
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except OSError:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, "it failed"


def read(path: str) -> None:
    with pathlib.Path(path).open("rb") as file:
        file.read(1)


def connect(family: int, address: Any) -> None:
    with socket.socket(family, socket.SOCK_STREAM) as caller:
        caller.settimeout(2)
        caller.connect(address)


def write(path: str) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x", "ascii")


@attempt
def read_shadow() -> None:
    read("/etc/shadow")


@attempt
def read_data_directory() -> None:
    read(WHERE["data"])


@attempt
def read_ssh_key() -> None:
    read(WHERE["ssh"])


@attempt
def read_file_of_another_user() -> None:
    read(WHERE["foreign"])


@attempt
def read_secret_of_the_workspace() -> None:
    assert Path(WHERE["workspace"], ".env").read_text("ascii"), "it is empty"


@attempt
def see_variable_of_the_daemon() -> None:
    assert os.environ["PALYRA_TEST_SECRET"]


@attempt
def see_variable_in_proc() -> None:
    assert b"VICTIM_SECRET" in Path(f"/proc/{WHERE['victim']}/environ").read_bytes()


@attempt
def find_open_descriptor() -> None:
    os.fstat(WHERE["descriptor"])


@attempt
def connect_to_loopback() -> None:
    connect(socket.AF_INET, ("127.0.0.1", WHERE["port"]))


@attempt
def send_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.connect(("127.0.0.1", WHERE["datagram_port"]))
        caller.send(b"x")
        caller.send(b"x")  # refused, if the one before it met no listener


@attempt
def connect_to_loopback_of_ipv6() -> None:
    connect(socket.AF_INET6, ("::1", WHERE["port6"]))


@attempt
def connect_to_another_address_of_the_machine() -> None:
    connect(socket.AF_INET, (WHERE["address"], WHERE["any_port"]))


@attempt
def send_to_another_machine() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
        caller.connect((WHERE["address"], 9))
        assert caller.getsockname()[0] == WHERE["address"], "it has no such address"


@attempt
def connect_to_abstract_socket() -> None:
    connect(socket.AF_UNIX, b"\0" + WHERE["abstract"].encode())


@attempt
def connect_to_socket_in_workspace() -> None:
    connect(socket.AF_UNIX, WHERE["workspace"] + "/listener")


@attempt
def connect_to_socket_in_the_git_folder() -> None:
    connect(socket.AF_UNIX, WHERE["workspace"] + "/.git/monitor.ipc")


@attempt
def connect_to_socket_deep_in_the_workspace() -> None:
    connect(socket.AF_UNIX, WHERE["workspace"] + "/part/listener")


@attempt
def make_socket_in_the_workspace() -> None:
    path = WHERE["workspace"] + "/part/made"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
    pathlib.Path(path).unlink()


@attempt
def send_to_socket_in_workspace_over_a_pair() -> None:
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", WHERE["workspace"] + "/datagrams")


@attempt
def open_netlink() -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


@attempt
def open_packet_socket() -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close()


@attempt
def signal_process_outside() -> None:
    os.kill(WHERE["victim"], 0)


@attempt
def trace_process_outside() -> None:
    call("ptrace", 0x4206, WHERE["victim"], 0, 0)  # PTRACE_SEIZE


@attempt
def read_memory_of_process() -> None:
    here = ctypes.create_string_buffer(8)
    vector = struct.pack("PN", ctypes.addressof(here), 8)
    call("process_vm_readv", os.getpid(), vector, 1, vector, 1, 0)


@attempt
def remount_root() -> None:
    call("mount", b"none", b"/", None, ctypes.c_ulong(0x1020), None)


@attempt
def mount_tmpfs() -> None:
    call("mount", b"none", WHERE["workspace"].encode(), b"tmpfs", ctypes.c_ulong(0), None)


@attempt
def write_to_system_folder() -> None:
    path = "/usr/palyra-test-of-the-walls"
    write(path)
    pathlib.Path(path).unlink()


@attempt
def get_keyring() -> None:
    call(str(WHERE["numbers"]["keyctl"]), 0, -3, 1)


@attempt
def make_user_namespace() -> None:
    in_child(lambda: call("unshare", 0x10000000))


@attempt
def make_user_namespace_by_clone3() -> None:
    how = struct.pack("=QQQQQQQQ", 0x10000000, 0, 0, 0, 17, 0, 0, 0)
    pid = call("435", how, ctypes.c_size_t(64))
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@attempt
def load_bpf() -> None:
    call(str(WHERE["numbers"]["bpf"]), 0, struct.pack("=IIII112x", 2, 4, 4, 1), 128)


@attempt
def change_root() -> None:
    in_child(lambda: os.chroot("/"))


@attempt
def make_device() -> None:
    os.mknod(WHERE["workspace"] + "/device", 0o020666, os.makedev(1, 1))


@attempt
def make_program_that_runs_as_its_owner() -> None:
    path = WHERE["workspace"] + "/as-owner"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o755))
    pathlib.Path(path).chmod(0o4755)


@attempt
def open_program_that_runs_as_its_owner() -> None:
    os.umask(0)
    os.close(os.open(WHERE["workspace"] + "/as-owner-2", os.O_CREAT | os.O_WRONLY, 0o4755))


@attempt
def change_git_configuration() -> None:
    write(WHERE["workspace"] + "/.git/config")


@attempt
def add_git_hook() -> None:
    write(WHERE["workspace"] + "/.git/hooks/pre-commit")


@attempt
def rename_git_folder() -> None:
    pathlib.Path(WHERE["workspace"] + "/.git").rename(WHERE["workspace"] + "/.git-old")
    pathlib.Path(WHERE["workspace"] + "/.git-old").rename(WHERE["workspace"] + "/.git")


@attempt
def add_direnv_file() -> None:
    write(WHERE["workspace"] + "/.envrc")


@attempt
def add_editor_configuration() -> None:
    write(WHERE["workspace"] + "/.vscode/settings.json")


@attempt
def add_agent_instructions() -> None:
    write(WHERE["workspace"] + "/AGENTS.md")


@attempt
def change_agent_instructions_below() -> None:
    write(WHERE["workspace"] + "/part/CLAUDE.md")


# --- what only level B has to hold by other means than namespaces


@attempt
def change_mode_outside() -> None:
    pathlib.Path(WHERE["own"]).chmod(0o644)


@attempt
def change_times_outside() -> None:
    os.utime(WHERE["own"])


@attempt
def read_own_file_outside() -> None:
    read(WHERE["own"])


@attempt
def write_own_file_outside() -> None:
    write(WHERE["own"])


@attempt
def list_folder_outside() -> None:
    list(Path(WHERE["own"]).parent.iterdir())


@attempt
def make_file_in_temporary_folder() -> None:
    write(WHERE["beside"])


@attempt
def link_file_outside_into_the_workspace() -> None:
    os.link(WHERE["own"], WHERE["workspace"] + "/part/linked")


@attempt
def lower_limits_of_process() -> None:
    resource.prlimit(WHERE["victim"], resource.RLIMIT_CORE, (0, 0))


@attempt
def bind_process_to_processor() -> None:
    os.sched_setaffinity(WHERE["victim"], os.sched_getaffinity(0))


@attempt
def slow_process_down() -> None:
    os.setpriority(os.PRIO_PROCESS, WHERE["victim"], 19)


@attempt
def leave_the_process_group() -> None:
    in_child(os.setsid)


@attempt
def share_memory_with_the_machine() -> None:
    key = ctypes.c_int(LIBC.shmget(0, 4096, 0o1600)).value
    assert key >= 0
    call("shmctl", key, 0, None)  # IPC_RMID


results = {}
for name, function in ATTEMPTS.items():
    try:
        function()
    except (OSError, KeyError, AssertionError) as error:
        results[name] = f"{type(error).__name__}: {error}"
    else:
        results[name] = "reached"
sys.stdout.write(json.dumps(results))
