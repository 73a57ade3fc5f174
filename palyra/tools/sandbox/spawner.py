"""The blocking half of the sandbox: everything that one thread does for all jails.

The thread is the parent of every jail and may be in a mount namespace of its own (`stage`), so
nothing here is called from another one.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from palyra.tools.sandbox import shared_host
from palyra.tools.sandbox.bubblewrap import Sources
from palyra.tools.sandbox.cgroups import Group, find_control_groups
from palyra.tools.sandbox.command import Command, CommandLimits, Level, SandboxFailure
from palyra.tools.sandbox.idmapped_mounts import IdMappedMounts
from palyra.tools.sandbox.landlock import find_abi
from palyra.tools.sandbox.protected_paths import PathMask, Placeholders
from palyra.tools.sandbox.records import JailRecords
from palyra.tools.sandbox.restored_paths import Before, RestoredPaths
from palyra.tools.sandbox.start import ChildPipes, SpawnRequest, spawn

# Outside, a jail of root's daemon is this user: between the numbers of people and those that
# systemd gives away, so nobody else is.
JAIL_UID = 60_999
NOT_INSTALLED = "bubblewrap is not installed: apt install bubblewrap"
PROGRAM_FOLDERS = "/usr/bin:/usr/local/bin:/bin:/run/current-system/sw/bin"


@dataclass(slots=True)
class Cleanup:
    """What a jail leaves outside of itself, to be cleared when it is gone."""

    placeholders: list[str] = field(default_factory=list)
    folder: str = ""  # private to the command
    root: str = ""  # of the workspace that can be written
    before: Before = field(default_factory=Before)  # what must be the same afterwards
    restored: list[str] = field(default_factory=list)  # paths the command had changed and must not
    group: Group | None = None
    record: Path | None = None


class Spawner:
    """Starts jails and clears up after them."""

    def __init__(self, records: Path | None, *, bubblewrap: str | None = None) -> None:
        """`records`: a folder for what must be found after a kill; None: nothing is recorded."""
        self._bubblewrap = bubblewrap or ""
        self._uid = JAIL_UID if os.geteuid() == 0 else None
        self._stage: IdMappedMounts | None = None
        self._is_staged = False
        self._placeholders = Placeholders()
        self._guards = RestoredPaths()
        self._abi = find_abi()
        self._groups = find_control_groups()
        self._records = None if records is None else JailRecords(records, self._groups)

    @property
    def bubblewrap(self) -> str:
        """Where it is; "" where it is not installed (yet)."""
        if not self._bubblewrap:
            self._bubblewrap = shutil.which("bwrap", path=PROGRAM_FOLDERS) or ""
        return self._bubblewrap

    def enforcement(self, level: Level) -> str:
        """The walls that hold on this machine, at that level."""
        jail = "bubblewrap" if level == "A" else ""
        landlock = f"landlock{self._abi}" if self._abi else ""
        group = f"cgroup-{self._groups.kind}" if self._groups else ""
        return f"{level}:" + "+".join(filter(None, (jail, "seccomp", landlock, "rlimits", group)))

    def find_obstacle(self, workspace: Path) -> str:
        """Why there can be no level B with that workspace; "" when it can be tried."""
        return shared_host.find_obstacle(self._abi, workspace)

    def reap(self) -> int:
        """End what an earlier life of the daemon left; how many processes had to be killed."""
        killed = 0 if self._records is None else self._records.reap()
        if self._groups is not None:
            self._groups.sweep()
        return killed

    def spawn(self, command: Command) -> tuple[int, ChildPipes, Cleanup]:
        """A jail that waits at its gate: bubblewrap's process id, pipes, traces.

        Raises SandboxFailure.
        """
        if not self.bubblewrap:
            raise SandboxFailure(NOT_INSTALLED)
        root = command.workspace
        sources = self._find_sources(command)
        masks: list[PathMask] = []
        traces = Cleanup()
        try:
            if root is not None and command.is_writable:
                masks, traces.placeholders = self._placeholders.take(str(root))
                traces.before = self._guards.take(str(root), lasts=command.lasts)
                traces.root = str(root)
            pid, pipes = spawn(
                SpawnRequest(
                    bubblewrap=self.bubblewrap,
                    name="palyra-jail" if self._records is None else self._records.name,
                    uid=self._uid,
                    command=command,
                    sources=sources,
                    masks=tuple(masks),
                    landlock_abi=self._abi,
                )
            )
        except OSError as error:
            self.clear(traces)
            raise SandboxFailure(f"the workspace {root} cannot be looked at: {error}") from None
        except SandboxFailure:
            self.clear(traces)
            raise
        return pid, pipes, traces

    def spawn_shared(self, command: Command) -> tuple[int, ChildPipes, Cleanup]:
        """The same at level B: a reaper that waits at its gate.  Raises SandboxFailure."""
        pid, pipes, folder = shared_host.spawn(command, self._abi)
        return pid, pipes, Cleanup(folder=folder)

    def limit(self, pid: int, init_pid: int, limits: CommandLimits, traces: Cleanup) -> None:
        """Put the jail into a control group and write it down.  Raises SandboxFailure."""
        try:
            self._limit((pid, init_pid), limits, traces)
        except OSError as error:
            raise SandboxFailure(f"the jail cannot be limited: {error}") from None

    def _limit(self, pids: tuple[int, int], limits: CommandLimits, traces: Cleanup) -> None:
        if self._groups is not None:
            traces.group = self._groups.make(limits)
            traces.group.add(pids[1:] if traces.folder else pids)  # the reaper outlives its limits
        if self._records is not None:
            group = traces.group.name if traces.group else ""
            traces.record = self._records.write(
                pids,
                group,
                traces.placeholders,
                folder=traces.folder,
                root=traces.root,
                state=traces.before,
            )

    def clear(self, traces: Cleanup) -> None:
        """Remove what the jail left, once it is gone; `traces.restored` says what was amiss."""
        if traces.root:
            traces.restored = self._guards.leave(traces.root, traces.before)
        self._placeholders.leave(traces.placeholders)
        if traces.folder:
            shared_host.remove_private_folder(traces.folder)
        if traces.group is not None:
            traces.group.remove()
        if traces.record is not None:
            with suppress(OSError):
                traces.record.unlink(missing_ok=True)

    def _find_sources(self, command: Command) -> Sources:
        """Where the jail's user finds the command's folders."""
        stage, root = self._find_stage(), command.workspace
        if stage is None:
            return Sources(str(root), tuple(str(bind.source) for bind in command.binds))
        return Sources(
            "" if root is None else stage.bind(root, as_owner=True),
            tuple(stage.bind(bind.source, as_owner=False) for bind in command.binds),
        )

    def _find_stage(self) -> IdMappedMounts | None:
        if not self._is_staged and self._uid is not None:
            with suppress(OSError):  # not allowed in this container; what is readable must do
                self._stage = IdMappedMounts(self.bubblewrap, self._uid)
        self._is_staged = True
        return self._stage
