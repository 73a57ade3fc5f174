"""Marks: what a path or a host named by a call is to the rules, as a few words."""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from posixpath import normpath
from typing import Literal

import msgspec

from palyra.core.tool.addresses import find_range
from palyra.core.tool.hosts import normal_host
from palyra.core.tool.paths import is_configuration, is_private, normal_path
from palyra.errors import InvalidParams

PathFlag = Literal["outside", "private", "configuration"]
CallPathMark = PathFlag | Literal["state"]
HostMark = Literal["metadata", "internal", "odd"]

# Names under which the clouds answer for their metadata services, whatever address they have.
_METADATA_NAMES = frozenset(
    {
        "metadata", "metadata.google.internal", "metadata.goog", "instance-data",
        "instance-data.ec2.internal", "metadata.azure.internal", "metadata.tencentyun.com",
        "metadata.platformequinix.com",
    }
)  # fmt: skip


class PathFacts(msgspec.Struct, frozen=True, gc=False):
    """What the rules may know of the paths that a call names."""

    of: tuple[str, ...] = ()  # as the call names them
    inside: tuple[str, ...] = ()  # the normal ones, sorted, each once
    single: str | None = None  # the one path, if it is the only one and inside
    marks: frozenset[PathFlag] = frozenset()  # of all paths together
    outside: str = "\0"  # the others, each between two NUL: looked through in one go

    def lead_to(self, places: Iterable[str]) -> bool:
        """Whether a path is, or lies in, one of these absolute places."""
        return any(f"\0{normpath(place)}{end}" in self.outside for place in places for end in "\0/")


NO_PATHS = PathFacts()


def read_paths(paths: tuple[str, ...]) -> PathFacts:
    """The facts; up to ten microseconds a path, so thousands of them are for a thread."""
    if not paths:
        return NO_PATHS
    normal = {path: normal_path(path) for path in paths}
    inside = tuple(sorted({path for path in normal.values() if path is not None}))
    outside = [_lexical(path) for path, known in normal.items() if known is None]
    marks: dict[PathFlag, bool] = {
        "outside": bool(outside),
        "private": any(map(is_private, (*inside, *outside))),
        "configuration": any(map(is_configuration, inside)),
    }
    return PathFacts(
        of=paths,
        inside=inside,
        single=normal[paths[0]] if len(paths) == 1 else None,
        marks=frozenset(mark for mark, is_found in marks.items() if is_found),
        outside="".join(f"\0{path}" for path in outside) + "\0",
    )


def _lexical(path: str) -> str:
    """The path without detours; to the kernel two slashes at its beginning are one."""
    return re.sub(r"^//", "/", normpath(path))


def call_path_marks(facts: PathFacts, state: Iterable[str] = ()) -> frozenset[CallPathMark]:
    """The marks of all paths together; `state` are the daemon's own places, absolute."""
    return facts.marks | {"state"} if facts.lead_to(state) else facts.marks


def host_marks(host: str) -> frozenset[HostMark]:
    """What a host is by its spelling alone; none for "" and for names that only a resolver knows."""
    if not host:
        return frozenset()
    try:
        name = normal_host(host if ":" not in host or host.startswith("[") else f"[{host}]")
    except InvalidParams:
        return frozenset({"odd"})
    if name in _METADATA_NAMES:
        return frozenset({"metadata"})
    try:
        found = find_range(ip_address(name.strip("[]")))
    except ValueError:  # a name
        return frozenset()
    if found is None:
        return frozenset()
    return frozenset({"metadata" if found.name == "metadata service" else "internal"})
