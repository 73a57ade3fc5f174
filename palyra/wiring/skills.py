"""Wiring of skills: their store, the worker pool, and the tools in the catalogue."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from palyra.actors.kernel.child import ChildSpec
from palyra.config.load import Config
from palyra.config.parts import find_missing
from palyra.core.trust.external_descriptions import RedactText
from palyra.store.files.compiled import CompiledCache
from palyra.store.files.skills import SkillStore
from palyra.store.journal.keys import is_signed
from palyra.tools.sandbox.sandbox import Sandbox
from palyra.tools.skills.host_functions import HostFunctions
from palyra.tools.skills.installed import Skills
from palyra.tools.skills.tools import SkillTools
from palyra.tools.toolbox import Toolbox
from palyra.tools.wasm.launch import JailedWorkers, Launch, no_workers
from palyra.tools.wasm.pool import WorkerPool
from palyra.tools.wasm.runtime import Runtime
from palyra.wiring.host import Host

SOURCE = "skills"


class Skillset(NamedTuple):
    """Skills, the services that they need, and the problems that prevent their calls."""

    skills: Skills
    services: Sequence[ChildSpec]
    problems: Callable[[], tuple[str, ...]] = tuple


def build_skillset(
    config: Config,
    host: Host,
    toolbox: Toolbox,
    sandbox: Sandbox | None,
    doors: HostFunctions,
    *,
    redact: RedactText,
) -> Skillset:
    """Build the skills of the data directory.

    Without a sandbox or wasmtime, or if `wasm.enabled` is false, skills are listed but cannot be
    called: their tools are not in the catalogue.
    """
    launch: Launch = no_workers if sandbox is None else JailedWorkers(sandbox)
    missing = find_missing("wasm")
    obstacle = missing if config.wasm.enabled else "wasm.enabled is false in the configuration"
    pool = WorkerPool(
        launch,
        lambda: refresh(),  # noqa: PLW0108 - made below
        obstacle=obstacle,
        find_leak=lambda: "" if sandbox is None else sandbox.closed_for,
    )
    directory = config.paths.data_dir / "skills"
    cache = CompiledCache(directory / "compiled", config.paths.data_dir / "keys")
    runtime = Runtime(pool, cache, host.run_blocking)
    skills = Skills(
        SkillStore(directory),
        runtime,
        is_signed,
        redact=redact,
        now_ms=host.now_ms,
        run_blocking=host.run_blocking,
        on_change=lambda: refresh(),  # noqa: PLW0108 - made below
    )
    tools = SkillTools(runtime, doors, host.run_blocking, skills.find_package, skills.report_damage)

    def refresh() -> None:
        toolbox.put(SOURCE, tools.make(skills.enabled) if pool.is_available else ())

    def problems() -> tuple[str, ...]:
        is_asked = config.wasm.enabled and (skills.enabled or not missing)
        found = skills.find_obstacle() if is_asked else ""
        return (f"skills: {found}",) if found else ()

    if host.is_closed:
        return Skillset(skills, ())
    count = 0 if obstacle else config.wasm.workers
    workers = [ChildSpec(f"wasm-worker-{each + 1}", pool.keep_worker) for each in range(count)]
    return Skillset(skills, [ChildSpec("skills", skills.serve), *workers], problems)
