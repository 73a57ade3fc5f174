"""Policy facts about the paths and hosts in a tool call."""

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

# Names of the metadata services of clouds, at any address.
_METADATA_NAMES = frozenset(
    {
        "metadata", "metadata.google.internal", "metadata.goog", "instance-data",
        "instance-data.ec2.internal", "metadata.azure.internal", "metadata.tencentyun.com",
        "metadata.platformequinix.com",
    }
)  # fmt: skip


class PathFacts(msgspec.Struct, frozen=True, gc=False):
    """Facts about the paths of a call, for the rules."""

    of: tuple[str, ...] = ()  # as written in the call
    inside: tuple[str, ...] = ()  # normal paths, sorted, without duplicates
    single: str | None = None  # the only path, if it is inside
    marks: frozenset[PathFlag] = frozenset()  # of all paths together
    outside: str = "\0"  # other paths, each between two NUL, for one search over all

    def lead_to(self, places: Iterable[str]) -> bool:
        """True if a path is, or lies in, one of these absolute places."""
        return any(f"\0{normpath(place)}{end}" in self.outside for place in places for end in "\0/")


NO_PATHS = PathFacts()


def read_paths(paths: tuple[str, ...]) -> PathFacts:
    """Return the facts; up to ten microseconds a path, so thousands of paths belong in a thread."""
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
    """Normalize the path; two leading slashes are one to the kernel."""
    return re.sub(r"^//", "/", normpath(path))


def call_path_marks(facts: PathFacts, state: Iterable[str] = ()) -> frozenset[CallPathMark]:
    """Return the marks of all paths; `state`: absolute places of the daemon's own."""
    return facts.marks | {"state"} if facts.lead_to(state) else facts.marks


def host_marks(host: str) -> frozenset[HostMark]:
    """Return the marks of a host by its spelling; none for "" and for names that need a resolver."""
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
