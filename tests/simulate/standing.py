"""Constants of every world: configuration, keys and redactor, each made once."""

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from palyra.config.load import Config
from palyra.config.paths import Paths
from palyra.config.sections import (
    BudgetConfig,
    HealingConfig,
    LearningConfig,
    MemoryConfig,
    Models,
    PolicyConfig,
    RunsConfig,
    TasksConfig,
    ToolsConfig,
    UsageConfig,
)
from palyra.core.redaction.redactor import Redactor
from palyra.store.journal.keys import KeyRing
from tests.simulate.rules import SETS

KEYS = KeyRing(bytes(range(32)))
SPARE = "spare"  # the model that takes over from the scripted one
OPERATOR_TOKEN = "pal_" + "operator" * 5 + "abc"


@cache
def config(
    budgets: tuple[BudgetConfig, ...],
    runs: RunsConfig = RunsConfig(),  # noqa: B008 - frozen
    healing: HealingConfig = HealingConfig(),  # noqa: B008 - frozen
    learning: LearningConfig = LearningConfig(),  # noqa: B008 - frozen
    tasks: TasksConfig = TasksConfig(),  # noqa: B008 - frozen
) -> Config:
    """The configuration of a simulated daemon; its directories stay empty."""
    nowhere = Path(tempfile.gettempdir()) / "palyra-simulated"
    (nowhere / "work").mkdir(parents=True, exist_ok=True)
    paths = Paths(config_file=nowhere / "palyra.toml", data_dir=nowhere / "data")
    return Config(
        paths=paths,
        policy=PolicyConfig(dir=str(SETS / "usual")),
        tools=ToolsConfig(workspace=str(nowhere / "work")),
        models=Models(failover=(SPARE,)),
        memory=MemoryConfig(embedder="hashed"),
        runs=runs,
        healing=healing,
        learning=learning,
        tasks=tasks,
        usage=UsageConfig(budgets=budgets),
    )


@cache
def _compiled_redactor(secrets: tuple[str, ...]) -> Redactor:
    return Redactor(secrets)


def redactor(secrets: Sequence[str]) -> Redactor:
    """The redactor, compiled once likewise."""
    return _compiled_redactor(tuple(secrets))
