"""The rules that keep the layout: each a small function from a parsed module to complaints.

`test_layers.py` applies them to the package and proves on small sources that each can fail.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

# Floors.  A floor is a folder of palyra/ or a module at its top.  A module may import its own
# floor, the floors listed here, palyra.errors and the bare package (for its version).
MAY_IMPORT = {
    "errors": frozenset[str](),
    "core": frozenset[str](),
    "config": frozenset({"core"}),
    "logs": frozenset({"core", "config"}),
    "store": frozenset({"core"}),
    "tools": frozenset({"core"}),
    "models": frozenset({"core", "config"}),
    "secrets": frozenset({"core", "store"}),
    "services": frozenset({"core"}),
    "actors": frozenset({"core", "services"}),
    "operations": frozenset({"core", "services", "actors"}),
    "net": frozenset({"core", "services", "actors", "operations", "config"}),
    "client": frozenset({"core", "net"}),
    "harness": frozenset({"core", "client", "net"}),
    "cli": frozenset(
        {"core", "client", "harness", "net", "config", "secrets", "store", "tools", "models"}
    ),
    "wiring": frozenset(
        {
            "core",
            "config",
            "store",
            "tools",
            "models",
            "secrets",
            "services",
            "actors",
            "operations",
            "net",
        }
    ),
    "daemon": frozenset(
        {
            "core",
            "config",
            "store",
            "tools",
            "models",
            "services",
            "actors",
            "operations",
            "net",
            "wiring",
        }
    ),
    "process": frozenset({"core", "config", "logs", "store", "actors", "net", "daemon"}),
    "__main__": frozenset({"cli"}),
    "": frozenset[str](),
}

# One module of another floor is all these floors may see of it: prefix of the dotted name.
ONLY = {
    ("secrets", "store"): ("palyra.store.files.private_files",),
    ("client", "net"): ("palyra.net.protocol",),
    ("harness", "net"): ("palyra.net.protocol",),
    ("cli", "net"): ("palyra.net.protocol", "palyra.net.api"),  # `palyra schema` renders methods
    ("cli", "models"): (
        "palyra.models.minilm.files",
        "palyra.models.presets",
        "palyra.models.table",
        "palyra.models.trial",
    ),  # weights are installed, public models listed, and providers tried, without a daemon
    ("cli", "store"): ("palyra.store.backup",),  # backups are restored without a daemon
    ("cli", "tools"): (
        "palyra.tools.files.workspace",
        "palyra.tools.policy.cases",
        "palyra.tools.policy.presets",
        "palyra.tools.sandbox.toolchains",
    ),  # own commands are opened as tools open files, policies are tried without a daemon, and the
    # caller's PATH is compared with the sandbox's
}

# Rooms of one floor, lowest first: a module imports from its own room and from rooms above it in
# this list.  A room is a folder, or a module directly on the floor.
ROOMS = {
    "core": (
        "ids",
        "backoff",
        "supervision",
        "outbound",
        "redaction",
        "text",
        "trust",
        "journal",
        "access",
        "audience",
        "incident",
        "healing",
        "tool",
        "agent",
        "skill",
        "model",
        "tape",
        "policy",
        "run",
        "session",
        "approval",
        "notice",
        "push",
        "preview",
        "usage",
        "channel",
        "memory",
        "context",
        "learning",
        "replay",
        "task",
        "configuration",
        "log_lines",
        "suspension",
        "ports",
    ),
    "services": (
        "tape",
        "usage",
        "registry",
        "upkeep",
        "policy",
        "session",
        "context",
        "memory",
        "learning",
        "task",
    ),
    "actors": (
        "kernel",
        "egress",
        "hub",
        "incident_writer",
        "journal",
        "run",
        "session",
        "notices",
        "devices",
        "config_watch",
        "memory",
        "watchdog",
        "task_queue",
        "housekeeping",
    ),
    "operations": (
        "runs",
        "approvals",
        "delegation",
        "checkpoints",
        "purge",
        "backup",
        "retention",
        "task_handlers",
    ),
    "store": ("files", "journal", "sqlite", "vectors", "backup"),
    "tools": (
        "toolbox",
        "files",
        "demo_tools",
        "artifacts",
        "memory",
        "delegation",
        "plan",
        "todos",
        "questions",
        "procedures",
        "web",
        "sandbox",
        "mcp",
        "programs",
        "wasm",
        "skills",
        "policy",
    ),
    "net": ("protocol", "delivery", "server", "api", "connection", "http"),
    "cli": (
        "command",
        "view",
        "agents",
        "artifacts",
        "channels",
        "checkpoints",
        "config",
        "console",
        "context",
        "healing",
        "incidents",
        "learn",
        "mcp",
        "notify",
        "policy",
        "retention",
        "secrets",
        "suspend",
        "tasks",
        "tokens",
        "tools",
        "model_setup",
        "export",
        "run",
        "tape",
        "models",
        "approvals",
        "documents",
        "runs",
        "sessions",
        "usage",
        "backup",
        "host",
        "skills",
        "bench",
        "chat",
        "memory",
        "main",
    ),
}
TOP = frozenset({"__init__.py", "__main__.py", "daemon.py", "process.py", "errors.py", "logs.py"})

FREE_FOR_ALL = frozenset({"errors", ""})

# Commands that run a daemon in their own process, or build one to check its configuration; all others
# are clients.
DAEMON_STARTERS = frozenset(
    {"cli/host/serve.py", "cli/host/up.py", "cli/host/demo.py", "cli/config.py"}
)

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
    "actors/kernel/threads.py",
    "actors/journal/actor.py",
    "store/sqlite/journal.py",
    "store/sqlite/integrity.py",
    "client/blocking.py",  # the event loop of a program that has none
    "tools/wasm/guest.py",  # in a worker, which is a program of its own
    "cli/chat/lines.py",
    "cli/command/typed_line.py",  # standard input may be a file, which trio cannot wait for
    "cli/chat/terminal.py",  # the line editor has a loop of its own
)

NURSERY_FLOORS = frozenset({"actors", "operations", "client", "harness", "net"})

BROAD_CATCH_FILE = "actors/kernel/supervisor.py"


@dataclass(frozen=True)
class Module:
    """One source file; `path` is relative to the root the rules know it by."""

    path: PurePosixPath
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        """Parsed for the first rule that reads it."""
        return ast.parse(self.source, filename=str(self.path))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, collected once for all rules."""
        return tuple(ast.walk(self.tree))

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
    return Module(PurePosixPath(path), source)


def read_modules(root: Path) -> Iterator[Module]:
    """Every Python file below `root`, in a stable order.

    One after another: all trees at once are millions of objects, which every collection visits.
    """
    for path in sorted(root.rglob("*.py")):
        yield parse(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


def imports(module: Module, tree: ast.AST | None = None) -> Iterator[tuple[int, str]]:
    """Each imported dotted name with its line, in a part of it; `from a import b` yields `a.b`."""
    for node in module.nodes if tree is None else ast.walk(tree):
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
        allowed |= {"process", "daemon"}
    for line, name in imports(module):
        target = _target_layer(name)
        if target is None:
            continue
        only = ONLY.get((module.layer, target))
        if target not in allowed or (only and not name.startswith(only)):
            yield f"{module.path}:{line}: {module.layer} must not import {name}"


def rooms_import_one_way(module: Module) -> Iterator[str]:
    order = ROOMS.get(module.layer)
    own = _room(["palyra", *module.path.with_suffix("").parts])
    if order is None or own == "__init__":
        return
    if own not in order:
        yield f"{module.path}: {module.layer} has no room {own!r}; add it to ROOMS"
        return
    for line, name in imports(module):
        target = _room(name.split("."))
        if _target_layer(name) != module.layer or target == own:
            continue
        if target not in order or order.index(target) > order.index(own):
            yield f"{module.path}:{line}: room {own} must not import {name}"


def _room(parts: list[str]) -> str:
    return parts[2] if len(parts) > 2 else ""


def own_code_is_imported_at_run_time(module: Module) -> Iterator[str]:
    """A TYPE_CHECKING import hides a circle.  The command line may: it must start fast."""
    if module.layer == "cli":
        return
    hidden = [
        statement
        for node in module.nodes
        if isinstance(node, ast.If) and _last_part(node.test) == "TYPE_CHECKING"
        for statement in node.body
    ]
    for line, name in imports(module, ast.Module(hidden, [])):
        if _target_layer(name) is not None:
            yield f"{module.path}:{line}: {name} is imported for the type checker only"


def the_top_is_small(module: Module) -> Iterator[str]:
    if len(module.path.parts) == 1 and module.path.name not in TOP:
        yield f"{module.path}: a module at the top of the package; give it a room"


def core_is_pure(module: Module) -> Iterator[str]:
    if module.layer != "core":
        return
    for line, name in imports(module):
        if name.split(".")[0] in IMPURE:
            yield f"{module.path}:{line}: core must not import {name}"


def thread_hops_stay_at_home(module: Module) -> Iterator[str]:
    if any(module.path.match(pattern) for pattern in HOP_FILES):
        return
    used = [*imports(module), *_attributes(module)]
    for line, name in used:
        if any(name == hop or name.startswith(f"{hop}.") for hop in HOPS):
            yield f"{module.path}:{line}: {name} outside {', '.join(HOP_FILES)}"


def _attributes(module: Module) -> Iterator[tuple[int, str]]:
    """Each two-part `name.attribute` with its line."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, f"{node.value.id}.{node.attr}"


# The actor of an MCP server reads the standard error of its process for as long as that lives.
# A conversation at a terminal reads what is typed while it follows the run, and so does `watch`.
NURSERY_FILES = frozenset({"tools/mcp/stdio_server.py", "cli/chat/desk.py", "cli/host/watch.py"})


def nurseries_belong_to_actors(module: Module) -> Iterator[str]:
    if module.layer in NURSERY_FLOORS or str(module.path) in NURSERY_FILES:
        return
    used = [*imports(module), *_attributes(module)]
    for line, name in used:
        if name.endswith(".open_nursery"):
            yield f"{module.path}:{line}: open_nursery outside {', '.join(sorted(NURSERY_FLOORS))}"


def catches_are_narrow(module: Module) -> Iterator[str]:
    for line, name in _caught(module):
        if not name:
            yield f"{module.path}:{line}: bare except"
        elif name == "BaseException":
            yield f"{module.path}:{line}: catches BaseException"
        elif name == "Exception" and str(module.path) != BROAD_CATCH_FILE:
            yield f"{module.path}:{line}: catches Exception outside {BROAD_CATCH_FILE}"


def _caught(module: Module) -> Iterator[tuple[int, str]]:
    """What each except clause and each `suppress(...)` catches; '' for a bare except."""
    for node in module.nodes:
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


def tests_do_not_sleep(module: Module) -> Iterator[str]:
    """A wait of fixed length is a race; sleep(0), a computed time or for ever is not one."""
    if "sleep" not in module.source:
        return
    for node in module.nodes:
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


# Words that are never right in a technical text.  The list is short on purpose: a longer one is
# answered with synonyms, and a reader judges the rest (CONTRIBUTING.md).
_PRIVATE_WORDS = re.compile(r"\b(?:nobody|whoever|somebody|anew|come what may)\b", re.IGNORECASE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def prose_is_plain(module: Module) -> Iterator[str]:
    """Docstrings and comments only: messages that are on tapes cannot change any more."""
    if _PRIVATE_WORDS.search(module.source) is None:
        return
    texts = [
        (getattr(node, "lineno", 1), ast.get_docstring(node, clean=False) or "")
        for node in module.nodes
        if isinstance(node, _DOCUMENTED)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(module.source).readline)
    texts += [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    for line, text in texts:
        for found in _PRIVATE_WORDS.findall(text):
            yield f"{module.path}:{line}: {found!r} in a docstring or comment"


# The modules of the store on SQLite that decode: each has a test on damaged rows.
DECODING_FILES = {"store/sqlite/decoding.py", "store/sqlite/tapes.py"}
EVENTS_ROOM = "core/tape/"
_DECODING = frozenset({"decode", "convert", "Decoder", "loads"})


def records_are_decoded_in_one_place(module: Module) -> Iterator[str]:
    """Queries get records from `store.sqlite.decoding`, readers of tapes events from `core.tape`.

    Any other decoding would raise for a damaged row, and cost all the others of its list.
    """
    path = str(module.path)
    is_store = path.startswith("store/sqlite/") and path not in DECODING_FILES
    for node in module.nodes:
        match node:
            case ast.Attribute(value=value, attr=name) if is_store and name in _DECODING:
                if ast.unparse(value) in {"msgspec", "msgspec.json", "json"}:
                    yield f"{path}:{node.lineno}: decodes what is stored: see store/sqlite/decoding.py"
            case ast.Call(args=[given, *_]) if _called(node) in _DECODING:
                if ast.unparse(given).endswith("row.data") and not path.startswith(EVENTS_ROOM):
                    yield f"{path}:{node.lineno}: decodes an event: see core/tape/events.py"


def files_of_a_home_are_regular(module: Module) -> Iterator[str]:
    """The store reads files by `store.files.private_files`: a pipe in a file's place blocks any other read."""
    path = str(module.path)
    if not path.startswith("store/") or path.startswith("store/backup/"):
        return
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr="read_bytes" | "read_text")):
                yield f"{path}:{node.lineno}: reads by a path: see store/files/private_files.py"
            case ast.Call(
                func=ast.Attribute(attr="open"), args=[ast.Constant(value=str(mode))]
            ) if mode.startswith("r"):
                yield f"{path}:{node.lineno}: opens by a path: see store/files/private_files.py"


PACKAGE_RULES: tuple[Rule, ...] = (
    files_of_a_home_are_regular,
    records_are_decoded_in_one_place,
    prose_is_plain,
    imports_run_one_way,
    core_is_pure,
    thread_hops_stay_at_home,
    nurseries_belong_to_actors,
    catches_are_narrow,
    rooms_import_one_way,
    own_code_is_imported_at_run_time,
    the_top_is_small,
)
