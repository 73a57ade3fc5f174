"""The rules that keep the layout: each a small function from a parsed module to complaints.

`test_layers.py` applies them to the package and proves on small sources that each can fail.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

FILE_LIMIT_LINES = 400
FUNCTION_LIMIT_LINES = 50  # docstring excluded

# Who may import whom.  A layer is a folder of palyra/ or the name of a file at its top; every
# layer may also import itself, palyra.errors and the bare package (for its version).
MAY_IMPORT = {
    "core": frozenset[str](),
    "store": frozenset({"core"}),
    "tools": frozenset({"core"}),
    "models": frozenset({"core", "sections"}),
    "actors": frozenset({"core"}),
    "net": frozenset({"core", "actors", "config"}),
    "harness": frozenset({"core", "net"}),
    "secrets": frozenset({"core", "store"}),
    "cli": frozenset({"core", "net", "harness", "config", "sections", "secrets", "policy_cases"}),
    "policy_cases": frozenset({"core", "tools"}),
    "sections": frozenset({"core"}),
    "config": frozenset({"core", "sections"}),
    "parts": frozenset({"core", "store", "tools", "models", "actors", "config"}),
    "webset": frozenset(
        {"core", "store", "tools", "actors", "config", "sections", "parts", "secrets"}
    ),
    "processset": frozenset({"core", "tools", "actors", "config", "sections", "parts"}),
    "skillset": frozenset({"core", "store", "tools", "actors", "config", "parts"}),
    "mcpset": frozenset(
        {"core", "tools", "actors", "config", "sections", "parts", "processset", "secrets"}
    ),
    "modelset": frozenset({"core", "models", "actors", "config", "parts", "secrets"}),
    "budgetset": frozenset({"core", "actors", "config", "parts"}),
    "toolset": frozenset(
        {
            "core",
            "secrets",
            "store",
            "tools",
            "actors",
            "config",
            "parts",
            "processset",
            "skillset",
            "webset",
            "mcpset",
        }
    ),
    "daemon": frozenset(
        {
            "core",
            "store",
            "tools",
            "models",
            "actors",
            "net",
            "cli",
            "config",
            "parts",
            "toolset",
            "modelset",
            "budgetset",
        }
    ),
    "logs": frozenset({"core", "sections"}),
    "serve": frozenset({"core", "store", "actors", "net", "config", "logs", "daemon"}),
    "__main__": frozenset({"cli"}),
    "errors": frozenset[str](),
    "": frozenset[str](),
}
FREE_FOR_ALL = frozenset({"errors", ""})

# Commands that run a daemon in their own process; all others are clients.
DAEMON_STARTERS = frozenset({"cli/serve.py", "cli/up.py", "cli/demo.py"})

# Clock, chance, files, sockets, processes, tasks and log lines have no place in a decision.
IMPURE = frozenset(
    {
        "apsw",
        "asyncio",
        "concurrent",
        "logging",
        "os",
        "random",
        "secrets",
        "socket",
        "structlog",
        "subprocess",
        "threading",
        "time",
        "trio",
    }
)

HOPS = ("trio.to_thread", "threading", "concurrent.futures")
HOP_FILES = (
    "actors/blocking.py",
    "actors/journal*.py",
    "store/journal*.py",
    "tools/wasm/guest.py",  # in a worker, which is a program of its own
)

BROAD_CATCH_FILE = "actors/supervisor.py"


@dataclass(frozen=True, slots=True)
class Module:
    """One source file; `path` is relative to the root the rules know it by."""

    path: PurePosixPath
    source: str
    tree: ast.Module

    @property
    def layer(self) -> str:
        """The folder below palyra/, or the file's own name at the top, or '' for the package."""
        first = self.path.parts[0]
        return "" if first == "__init__.py" else first.removesuffix(".py")

    @property
    def package(self) -> list[str]:
        """Dotted name of the package the file is in, as parts: what a relative import starts at."""
        return ["palyra", *self.path.parts[:-1]]


Rule = Callable[[Module], Iterator[str]]


def parse(path: str, source: str) -> Module:
    return Module(PurePosixPath(path), source, ast.parse(source, filename=path))


@cache
def read_modules(root: Path) -> list[Module]:
    """Every Python file below `root`, in a stable order."""
    paths = sorted(root.rglob("*.py"))
    return [
        parse(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")) for path in paths
    ]


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """Each imported dotted name with its line; `from a import b` yields `a.b`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute_base(module, node)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def _absolute_base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    above = module.package[: len(module.package) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def _target_layer(name: str) -> str | None:
    """The layer an imported name belongs to; None for code that is not ours."""
    parts = name.split(".")
    if parts[0] != "palyra":
        return None
    second = parts[1] if len(parts) > 1 else ""
    return second if second in MAY_IMPORT else ""


def imports_run_one_way(module: Module) -> Iterator[str]:
    if module.layer not in MAY_IMPORT:
        yield f"{module.path}: no layer is called {module.layer!r}; add it to MAY_IMPORT"
        return
    allowed = MAY_IMPORT[module.layer] | FREE_FOR_ALL | {module.layer}
    if str(module.path) in DAEMON_STARTERS:
        allowed |= {"serve"}
    for line, name in imports(module):
        target = _target_layer(name)
        if target is not None and target not in allowed:
            yield f"{module.path}:{line}: {module.layer} must not import {name}"


def core_is_pure(module: Module) -> Iterator[str]:
    if module.layer != "core":
        return
    for line, name in imports(module):
        if name.split(".")[0] in IMPURE:
            yield f"{module.path}:{line}: core must not import {name}"


def thread_hops_stay_at_home(module: Module) -> Iterator[str]:
    if any(module.path.match(pattern) for pattern in HOP_FILES):
        return
    used = [*imports(module), *_attributes(module.tree)]
    for line, name in used:
        if any(name == hop or name.startswith(f"{hop}.") for hop in HOPS):
            yield f"{module.path}:{line}: {name} outside {', '.join(HOP_FILES)}"


def _attributes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Each two-part `name.attribute` with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"


# The actor of an MCP server reads the standard error of its process for as long as that lives.
NURSERY_FILES = frozenset({"tools/mcp/process.py"})


def nurseries_belong_to_actors(module: Module) -> Iterator[str]:
    if module.layer in {"actors", "net", "harness"} or str(module.path) in NURSERY_FILES:
        return
    used = [*imports(module), *_attributes(module.tree)]
    for line, name in used:
        if name.endswith(".open_nursery"):
            yield f"{module.path}:{line}: open_nursery outside actors, net and harness"


def catches_are_narrow(module: Module) -> Iterator[str]:
    for line, name in _caught(module.tree):
        if not name:
            yield f"{module.path}:{line}: bare except"
        elif name == "BaseException":
            yield f"{module.path}:{line}: catches BaseException"
        elif name == "Exception" and str(module.path) != BROAD_CATCH_FILE:
            yield f"{module.path}:{line}: catches Exception outside {BROAD_CATCH_FILE}"


def _caught(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What each except clause and each `suppress(...)` catches; '' for a bare except."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            kinds = [node.type] if node.type else []
            yield from ((node.lineno, name) for name in _names(kinds) or [""])
        elif isinstance(node, ast.Call) and _called(node) == "suppress":
            yield from ((node.lineno, name) for name in _names(node.args))


def _names(nodes: list[ast.expr]) -> list[str]:
    """Last parts of the names in expressions that may be tuples: `(a.B, C)` gives B and C."""
    flat = [
        leaf for node in nodes for leaf in (node.elts if isinstance(node, ast.Tuple) else [node])
    ]
    return [_last_part(leaf) for leaf in flat]


def _last_part(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ast.unparse(node)


def _called(call: ast.Call) -> str:
    return _last_part(call.func)


def files_are_short(module: Module) -> Iterator[str]:
    lines = len(module.source.splitlines())
    if lines > FILE_LIMIT_LINES:
        yield f"{module.path}: {lines} lines, limit {FILE_LIMIT_LINES}"


def functions_are_short(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = _lines(node) - _docstring_lines(node)
            if lines > FUNCTION_LIMIT_LINES:
                yield (
                    f"{module.path}:{node.lineno}: {node.name} has {lines} lines, "
                    f"limit {FUNCTION_LIMIT_LINES}"
                )


def _lines(node: ast.stmt | ast.expr) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return 0 if ast.get_docstring(node, clean=False) is None else _lines(node.body[0])


def tests_do_not_sleep(module: Module) -> Iterator[str]:
    """A wait of fixed length is a race; sleep(0), a computed time or for ever is not one."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and _called(node) == "sleep":
            durations = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(_is_positive_constant(duration) for duration in durations):
                yield f"{module.path}:{node.lineno}: {ast.unparse(node)}"


def _is_positive_constant(node: ast.expr) -> bool:
    """True for a number or arithmetic on numbers, unless it is written as zero or below."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and node.value > 0
    return isinstance(node, ast.BinOp) and all(
        isinstance(leaf, ast.Constant | ast.BinOp | ast.operator) for leaf in ast.walk(node)
    )


PACKAGE_RULES: tuple[Rule, ...] = (
    imports_run_one_way,
    core_is_pure,
    thread_hops_stay_at_home,
    nurseries_belong_to_actors,
    catches_are_narrow,
    files_are_short,
    functions_are_short,
)
