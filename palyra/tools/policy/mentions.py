"""Static analysis of rules: the context attributes that a decision depends on.

A decision is a function of the rules, of the entities, and of the context attributes that some
rule reads.  Two calls with equal entities and equal values of these attributes have the same
decision, so the decision can be cached.  A rule that uses `context` as a whole depends on every
attribute; decisions are then not cached.
"""

from collections.abc import Mapping
from typing import Any

from palyra.tools.policy.request_mapping import Context

Mentions = frozenset[str] | None  # "size_bytes", "run.owner", …; None: the whole context

_CONTEXT = {"Var": "context"}
_ACCESSES = (".", "has")


def find_mentions(policies: Mapping[str, Any]) -> Mentions:
    """Return the context attributes read by policies, given in Cedar's JSON format."""
    found: set[str] = set()
    for policy in policies.values():
        for condition in policy.get("conditions", ()):
            if not _collect(condition["body"], found):
                return None
    return frozenset(found)


def _collect(node: object, found: set[str]) -> bool:
    """Add the attributes read by an expression; False if it uses the context as a whole."""
    if isinstance(node, list):
        return all(_collect(each, found) for each in node)
    if not isinstance(node, dict):
        return True
    if node == _CONTEXT:
        return False
    path = _path(node)
    if path is not None:
        found.add(path)
        return True
    return all(_collect(each, found) for each in node.values())


def _path(node: Mapping[str, Any]) -> str | None:
    """Return the attribute path of a context access, None for other expressions.

    Examples: `size_bytes` for `context.size_bytes`, `run.owner` for `context.run.owner`.
    """
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
    """True if some rule reads the list of paths."""
    return mentions is None or "paths" in mentions


_OF_WORDS = frozenset({"argv", "argv_under", "flags", "folders", "odd_words"})


def mentions_words(mentions: Mentions) -> bool:
    """True if some rule reads the words of a command or the folders of a call."""
    return mentions is None or not _OF_WORDS.isdisjoint(mentions)


def values_of(context: Context, mentions: frozenset[str]) -> tuple[object, ...]:
    """Return the values of the read attributes in a fixed order, as part of the cache key."""
    return tuple(_value(context, name) for name in sorted(mentions))


def _value(context: Context, path: str) -> object:
    value: object = context
    for name in path.split("."):
        value = getattr(value, name)
    return tuple(value) if isinstance(value, list) else value
