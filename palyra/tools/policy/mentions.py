"""What of a call the rules look at, read from the rules themselves.

A decision is a function of the rules, of the entities, and of those attributes of the context that
some rule mentions; two calls that are alike in these are decided alike.  So the answer to the
first holds for the second, and the engine need not be asked again.  A rule that hands the context
on as a whole mentions everything, and then no two calls are alike.
"""

from collections.abc import Mapping
from typing import Any

from palyra.tools.policy.request_mapping import Context

Mentions = frozenset[str] | None  # "size_bytes", "run.owner", …; None: everything

_CONTEXT = {"Var": "context"}
_ACCESSES = (".", "has")


def find_mentions(policies: Mapping[str, Any]) -> Mentions:
    """What these policies, as Cedar's JSON has them, mention of the context."""
    found: set[str] = set()
    for policy in policies.values():
        for condition in policy.get("conditions", ()):
            if not _note(condition["body"], found):
                return None
    return frozenset(found)


def _note(node: object, found: set[str]) -> bool:
    """Add what the expression mentions; False when it takes the context as a whole."""
    if isinstance(node, list):
        return all(_note(each, found) for each in node)
    if not isinstance(node, dict):
        return True
    if node == _CONTEXT:
        return False
    path = _path(node)
    if path is not None:
        found.add(path)
        return True
    return all(_note(each, found) for each in node.values())


def _path(node: Mapping[str, Any]) -> str | None:
    """`size_bytes` for `context.size_bytes`, `run.owner` for `context.run.owner`, else None."""
    access = next((node[name] for name in _ACCESSES if name in node), None)
    if not isinstance(access, dict) or not isinstance(access.get("attr"), str):
        return None
    left, attribute = access.get("left"), access["attr"]
    if left == _CONTEXT:
        return str(attribute)
    if isinstance(left, dict) and _path(left) == "run":
        return f"run.{attribute}"
    return None


def mentions_paths(mentions: Mentions) -> bool:
    """Whether some rule looks at the list of paths."""
    return mentions is None or "paths" in mentions


def values_of(context: Context, mentions: frozenset[str]) -> tuple[object, ...]:
    """What the rules look at, in one order; equal values, equal decisions."""
    return tuple(_value(context, name) for name in sorted(mentions))


def _value(context: Context, path: str) -> object:
    value: object = context
    for name in path.split("."):
        value = getattr(value, name)
    return tuple(value) if isinstance(value, list) else value
