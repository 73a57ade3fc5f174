"""Marks: what a path or a host named by a call is to the rules, as a few words."""

from collections.abc import Iterable
from ipaddress import ip_address
from posixpath import normpath
from typing import Literal

from palyra.core.addresses import find_range
from palyra.core.hosts import normal_host
from palyra.core.paths import PathMark, is_private, path_marks
from palyra.errors import InvalidParams

CallPathMark = PathMark | Literal["state"]
HostMark = Literal["metadata", "internal", "odd"]

# Names under which the clouds answer for their metadata services, whatever address they have.
_METADATA_NAMES = frozenset(
    {
        "metadata", "metadata.google.internal", "metadata.goog", "instance-data",
        "instance-data.ec2.internal", "metadata.azure.internal", "metadata.tencentyun.com",
        "metadata.platformequinix.com",
    }
)  # fmt: skip


def call_path_marks(paths: Iterable[str], state: Iterable[str] = ()) -> frozenset[CallPathMark]:
    """The marks of all paths together; `state` are the daemon's own places, absolute."""
    own = [normpath(place) for place in state]
    return frozenset(mark for path in paths for mark in _marks(path, own))


def _marks(path: str, own: list[str]) -> frozenset[CallPathMark]:
    marks: frozenset[CallPathMark] = path_marks(path)
    if "outside" not in marks:
        return marks
    lexical = normpath(path)
    if is_private(lexical):
        marks |= {"private"}
    if any(lexical == place or lexical.startswith(f"{place}/") for place in own):
        marks |= {"state"}
    return marks


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
