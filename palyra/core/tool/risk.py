"""Risk of a call, and whether its tool can do more than read the workspace."""

from palyra.core.tool.spec import MEMORY_READ, Risk, ToolSpec

_HARMLESS = frozenset({"fs.read", MEMORY_READ})  # reading these changes nothing outside of them
_RISKS: tuple[Risk, ...] = ("low", "medium", "high", "critical")
_LEAST_RISK: dict[str, Risk] = {
    "fs.write": "medium",
    "network": "medium",
    "process": "high",
    "secret": "high",
}


def compute_risk(spec: ToolSpec, *, is_tainted: bool) -> Risk:
    """Return the tool's risk, at least that of its capabilities; a tainted run raises it.

    Taint is one step up for anything beyond reading, and critical with a way out to the network.
    """
    levels = [_LEAST_RISK.get(capability, "low") for capability in spec.capabilities]
    level = max(_RISKS.index(risk) for risk in (spec.risk, *levels))
    if is_tainted and "network" in spec.capabilities:
        return "critical"
    if is_tainted and is_sensitive(spec):
        level = min(level + 1, len(_RISKS) - 1)
    return _RISKS[level]


def is_sensitive(spec: ToolSpec) -> bool:
    """True if the tool does more than read the workspace."""
    return spec.tool_class != "read_only_safe" or not _HARMLESS.issuperset(spec.capabilities)
