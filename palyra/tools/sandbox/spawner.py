"""Blocking half of the sandbox: starts jails and cleans up after them.

All of it runs in one thread.  That thread is the parent of every jail, so a jail gets
PR_SET_PDEATHSIG only when the daemon ends, and it may be in a mount namespace of its own
(`idmapped_mounts`).
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from palyra.tools.sandbox import shared_host
from palyra.tools.sandbox.bubblewrap import Sources
from palyra.tools.sandbox.cgroups import Group, find_control_groups
from palyra.tools.sandbox.command import Command, CommandLimits, Level, SandboxFailure
from palyra.tools.sandbox.git_folders import GitFolder, find_git_folder
from palyra.tools.sandbox.idmapped_mounts import IdMappedMounts
from palyra.tools.sandbox.landlock import find_abi
from palyra.tools.sandbox.protected_paths import PathMask, Placeholders
from palyra.tools.sandbox.records import JailRecords
from palyra.tools.sandbox.restored_paths import PathSnapshot, RestoredPaths
from palyra.tools.sandbox.start import ChildPipes, SpawnRequest, spawn

# The jails of a daemon that is root run as this user, which lies between the ids of people and those
# that systemd allocates.
JAIL_UID = 60_999
NOT_INSTALLED = "bubblewrap is not installed: apt install bubblewrap"
PROGRAM_FOLDERS = "/usr/bin:/usr/local/bin:/bin:/run/current-system/sw/bin"


@dataclass(slots=True)
class JailLeftovers:
    """State of one jail outside of it, to be removed after its end."""

    placeholders: list[str] = field(default_factory=list)
    prevented: tuple[str, ...] = ()  # names in the workspace that placeholders hold
    folder: str = ""  # private to the command
    root: str = ""  # of the writable workspace
    snapshot: PathSnapshot = field(default_factory=PathSnapshot)
    restored: list[str] = field(default_factory=list)  # protected paths the command had changed
    group: Group | None = None
    record: Path | None = None


_control_groups = cache(find_control_groups)  # of this process


class Spawner:
    """Starts jails and cleans up after them."""

    def __init__(self, records: Path | None, *, bubblewrap: str | None = None) -> None:
        """`records`: a folder for the records of jails; None: none are written."""
        self._bubblewrap = bubblewrap or ""
        self._uid = JAIL_UID if os.geteuid() == 0 else None
        self._mounts: IdMappedMounts | None = None
        self._has_tried_mounts = False
        self._placeholders = Placeholders()
        self._restored_paths = RestoredPaths()
        self._abi = find_abi()
        self._groups = _control_groups()
        self._records = None if records is None else JailRecords(records, self._groups)

    @property
    def bubblewrap(self) -> str:
        """Path of bubblewrap; "" as long as it is not installed."""
        if not self._bubblewrap:
            self._bubblewrap = shutil.which("bwrap", path=PROGRAM_FOLDERS) or ""
        return self._bubblewrap

    def enforcement(self, level: Level) -> str:
        """Name the isolation layers that hold on this machine at that level."""
        jail = "bubblewrap" if level == "A" else ""
        landlock = f"landlock{self._abi}" if self._abi else ""
        group = f"cgroup-{self._groups.kind}" if self._groups else ""
        return f"{level}:" + "+".join(filter(None, (jail, "seccomp", landlock, "rlimits", group)))

    def find_obstacle(self, workspace: Path) -> str:
        """Return why level B is impossible with that workspace; "" if it can be tried."""
        return shared_host.find_obstacle(self._abi, workspace)

    def reap(self) -> int:
        """Clean up after a killed daemon; return the number of processes killed."""
        killed = 0 if self._records is None else self._records.reap()
        if self._groups is not None:
            self._groups.sweep()
        return killed

    def spawn(self, command: Command) -> tuple[int, ChildPipes, JailLeftovers]:
        """Start a jail that waits at its gate; return bubblewrap's process id, pipes, cleanup.

        Raises SandboxFailure.
        """
        if not self.bubblewrap:
            raise SandboxFailure(NOT_INSTALLED)
        root = command.workspace
        sources = self._find_sources(command)
        masks: list[PathMask] = []
        cleanup = JailLeftovers()
        try:
            git = None if root is None else self._find_git(root, command, cleanup)
            if root is not None and command.is_writable:
                masks = self._protect(str(root), command, git, cleanup)
            pid, pipes = spawn(
                SpawnRequest(
                    bubblewrap=self.bubblewrap,
                    name="palyra-jail" if self._records is None else self._records.name,
                    uid=self._uid,
                    command=command,
                    sources=sources,
                    masks=tuple(masks),
                    landlock_abi=self._abi,
                    git=git,
                )
            )
        except OSError as error:
            self.clean_up(cleanup)
            raise SandboxFailure(f"the workspace {root} cannot be looked at: {error}") from None
        except SandboxFailure:
            self.clean_up(cleanup)
            raise
        return pid, pipes, cleanup

    def _find_git(self, root: Path, command: Command, cleanup: JailLeftovers) -> GitFolder | None:
        """Find the git folder elsewhere that the workspace has; note what is to be cleaned up."""
        found = find_git_folder(
            str(root), is_writable=command.is_writable, placeholders=self._placeholders
        )
        if found is None:
            return None
        mounts = self._find_mounts()
        source = found.place if mounts is None else mounts.bind(Path(found.place), as_owner=True)
        self._placeholders.add(found.placeholders)
        cleanup.placeholders += found.placeholders
        return replace(found, source=source)

    def _protect(
        self, root: str, command: Command, git: GitFolder | None, cleanup: JailLeftovers
    ) -> list[PathMask]:
        """Return the masks of a writable workspace; note what is to be restored."""
        masks, paths = self._placeholders.reserve(root)
        cleanup.placeholders += paths
        cleanup.prevented = tuple(mask.path for mask in masks if mask.is_missing)
        before = self._restored_paths.snapshot(root, lasts=command.lasts)
        cleanup.snapshot = replace(before, absent=() if git is None else git.absent)
        cleanup.root = root
        return masks

    def spawn_shared(self, command: Command) -> tuple[int, ChildPipes, JailLeftovers]:
        """Do the same at level B, with the reaper's process id.  Raises SandboxFailure."""
        pid, pipes, folder = shared_host.spawn(command, self._abi)
        return pid, pipes, JailLeftovers(folder=folder)

    def limit(self, pid: int, init_pid: int, limits: CommandLimits, cleanup: JailLeftovers) -> None:
        """Put the jail into a control group and write its record.  Raises SandboxFailure."""
        try:
            self._limit((pid, init_pid), limits, cleanup)
        except OSError as error:
            raise SandboxFailure(f"the jail cannot be limited: {error}") from None

    def _limit(self, pids: tuple[int, int], limits: CommandLimits, cleanup: JailLeftovers) -> None:
        if self._groups is not None:
            cleanup.group = self._groups.make(limits)
            cleanup.group.add(
                pids[1:] if cleanup.folder else pids
            )  # the reaper must not meet the limits
        if self._records is not None:
            group = cleanup.group.name if cleanup.group else ""
            cleanup.record = self._records.write(
                pids,
                group,
                cleanup.placeholders,
                folder=cleanup.folder,
                root=cleanup.root,
                state=cleanup.snapshot,
            )

    def clean_up(self, cleanup: JailLeftovers) -> None:
        """Remove the state of a jail that has ended; `cleanup.restored` lists restored paths."""
        if cleanup.root:
            cleanup.restored = self._restored_paths.restore(cleanup.root, cleanup.snapshot)
        self._placeholders.release(cleanup.placeholders)
        if cleanup.folder:
            shared_host.remove_private_folder(cleanup.folder)
        if cleanup.group is not None:
            cleanup.group.remove()
        if cleanup.record is not None:
            with suppress(OSError):
                cleanup.record.unlink(missing_ok=True)

    def _find_sources(self, command: Command) -> Sources:
        """Find the paths at which the jail's user reaches the command's folders."""
        mounts, root = self._find_mounts(), command.workspace
        if mounts is None:
            return Sources(str(root), tuple(str(bind.source) for bind in command.binds))
        return Sources(
            "" if root is None else mounts.bind(root, as_owner=True),
            tuple(mounts.bind(bind.source, as_owner=False) for bind in command.binds),
        )

    def _find_mounts(self) -> IdMappedMounts | None:
        if not self._has_tried_mounts and self._uid is not None:
            with suppress(OSError):  # not allowed in this container: folders are bound as they are
                self._mounts = IdMappedMounts(self.bubblewrap, self._uid)
        self._has_tried_mounts = True
        return self._mounts
