"""The table of all methods."""

from palyra.net.api.method import AnyMethod
from palyra.net.api.methods import (
    agent,
    approval,
    artifact,
    backup,
    channel,
    checkpoint,
    config,
    connect,
    context,
    document,
    healing,
    incident,
    learning,
    mcp,
    memory,
    model,
    policy,
    retention,
    run,
    session,
    skill,
    system,
    tape,
    task,
    token,
    tool,
    usage,
)

_GROUPS = (
    connect,
    system,
    run,
    tape,
    context,
    approval,
    artifact,
    checkpoint,
    document,
    session,
    agent,
    channel,
    tool,
    policy,
    model,
    skill,
    mcp,
    token,
    usage,
    incident,
    healing,
    memory,
    learning,
    backup,
    retention,
    task,
    config,
)

METHODS: dict[str, AnyMethod] = {
    method.name: method for group in _GROUPS for method in group.METHODS
}
METHODS["system.describe"] = system.make_describe(METHODS)
