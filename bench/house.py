"""The package in figures: size, weight, prose, names used twice, helpers used once, imports.

Prints a table and one JSON line; `--list` also prints the entries of the figures that should be
small; `--check` prints only those over their limit, and exits with 1 if there are any.  Everything
is read from the source; nothing is imported or run.
"""

import argparse
import ast
import io
import itertools
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PALYRA = Path(__file__).resolve().parents[1] / "palyra"
QUESTION = re.compile(r"(What|How|Who|Which|Why|Where)\b")
LIMITS = {  # of entries, for `--check`
    "class_names_shared": 15,
    "import_circles": 0,
    "import_circles_with_types": 0,
    "docstrings_opening_with_a_question_word": 5,
    "avoided_words": 0,
}
WORDS = re.compile(r"\b(nobody|whoever|somebody|anew|told|stands)\b", re.IGNORECASE)
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file with its dotted name."""

    name: str
    text: str
    tree: ast.Module
    is_package: bool = False

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        """Classes on the level of the module."""
        return [node for node in self.tree.body if isinstance(node, ast.ClassDef)]

    def docstrings(self) -> Iterator[ast.Constant]:
        """Yield the docstrings of the module, its classes and its functions."""
        for node in ast.walk(self.tree):
            if isinstance(node, Documented) and ast.get_docstring(node, clean=False) is not None:
                statement = node.body[0]
                assert isinstance(statement, ast.Expr)
                assert isinstance(statement.value, ast.Constant)
                yield statement.value

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.text).readline))

    def comments(self) -> list[str]:
        return [token.string for token in self.tokens if token.type == tokenize.COMMENT]


def read_package(root: Path) -> list[Module]:
    """Return all modules of the package at `root`."""
    modules = []
    for path in sorted(root.rglob("*.py")):
        parts = (root.name, *path.relative_to(root).with_suffix("").parts)
        text = path.read_text(encoding="utf-8")
        name = ".".join(parts).removesuffix(".__init__")
        modules.append(Module(name, text, ast.parse(text), path.stem == "__init__"))
    return modules


# --- size and prose ------------------------------------------------------------------------------


def count_lines(module: Module) -> Counter[str]:
    """Count lines: all, of code, of docstrings, with a comment, and with a comment alone."""
    docs = {
        line
        for text in module.docstrings()
        for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)
    }
    code: set[int] = set()
    silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    for token in module.tokens:
        if token.type not in silent | {tokenize.ENDMARKER}:
            code.update(range(token.start[0], token.end[0] + 1))
    return Counter(
        files=1,
        lines=module.text.count("\n"),
        code_lines=len(code - docs),
        docstring_lines=len(docs),
        comment_lines=len(module.comments()),
        comment_lines_alone=sum(line.lstrip().startswith("#") for line in module.text.split("\n")),
    )


def find_questions(module: Module) -> list[str]:
    """Return docstrings that start with a question word."""
    return [
        f"{module.name}:{text.lineno}"
        for text in module.docstrings()
        if QUESTION.match(str(text.value))
    ]


def find_words(module: Module) -> list[str]:
    """Return the words in docstrings and comments that the style avoids."""
    prose = [*(str(text.value) for text in module.docstrings()), *module.comments()]
    return [f"{module.name}: {word.lower()}" for text in prose for word in WORDS.findall(text)]


# --- names ---------------------------------------------------------------------------------------


def find_shared_names(modules: list[Module]) -> list[str]:
    """Return public class names that more than one module defines."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module.name)
    return [f"{name}: {', '.join(found)}" for name, found in sorted(homes.items()) if found[1:]]


def private_uses(module: Module) -> dict[str, int]:
    """Count the uses of each private function and method in its module."""
    defined = {
        node.name
        for node in ast.walk(module.tree)
        if isinstance(node, FunctionNode)
        and node.name.startswith("_")
        and not node.name.startswith("__")
        and node.name != "_"
    }
    mentioned: Counter[str] = Counter()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name):
            mentioned[node.id] += 1
        elif isinstance(node, ast.Attribute):
            mentioned[node.attr] += 1
    return {f"{module.name}: {name}": mentioned[name] for name in defined}


# --- weight: one fact said more than once ---------------------------------------------------------

# Sizes below which a likeness is chance: fields that two structs share, and that one call copies.
MIN_SHARED = 4
MIN_COPIED = 3
LIKE = 0.7  # share of the smaller struct's fields


def count_rooms(modules: list[Module]) -> dict[str, int]:
    """Count the lines of each floor, and of each of its folders."""
    lines: Counter[str] = Counter()
    for module in modules:
        _, floor, *rest = *module.name.split("."), ""
        lines[floor] += module.text.count("\n")
        if rest[1:-1] or (rest[:-1] and module.is_package):
            lines[f"{floor}/{rest[0]}"] += module.text.count("\n")
    return dict(sorted(lines.items()))


def find_like_structs(modules: list[Module]) -> list[str]:
    """Return pairs of structs that share most fields, with the count and the smaller one's size."""
    fields: dict[str, frozenset[str]] = {}
    for module in modules:
        for node in module.classes:
            names = frozenset(
                each.target.id
                for each in node.body
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
            )
            if len(names) >= MIN_SHARED:
                fields[f"{module.name}.{node.name}"] = names
    found = []
    for (one, ones), (other, others) in itertools.combinations(fields.items(), 2):
        shared, smaller = len(ones & others), min(len(ones), len(others))
        if shared >= max(MIN_SHARED, LIKE * smaller):
            found.append(f"{one} ~ {other}: {shared} of {smaller}")
    return found


def find_field_copies(module: Module) -> list[str]:
    """Return calls that take fields of one object under their own names."""
    found = []
    for node in ast.walk(module.tree):
        keywords = node.keywords if isinstance(node, ast.Call) else []
        copied = Counter(
            ast.unparse(each.value.value)
            for each in keywords
            if isinstance(each.value, ast.Attribute) and each.value.attr == each.arg
        )
        found += [
            f"{module.name}:{node.lineno}: {ast.unparse(node.func)} from {source}: {count}"
            for source, count in copied.items()
            if isinstance(node, ast.Call) and count >= MIN_COPIED
        ]
    return found


def find_mirrors(modules: list[Module]) -> tuple[list[str], list[str]]:
    """Return all protocols, and those of which at most one class has all methods."""
    methods: dict[str, frozenset[str]] = {}
    protocols: dict[str, frozenset[str]] = {}
    for module in modules:
        for node in module.classes:
            names = frozenset(
                each.name
                for each in node.body
                if isinstance(each, FunctionNode)
                and (each.name == "__call__" or not each.name.startswith("_"))
            )
            is_protocol = any(ast.unparse(base).startswith("Protocol") for base in node.bases)
            (protocols if is_protocol else methods)[f"{module.name}.{node.name}"] = names
    lonely = [
        name
        for name, wanted in protocols.items()
        if wanted and sum(wanted <= names for names in methods.values()) <= 1
    ]
    return [*protocols], lonely


def find_forwards(module: Module) -> list[str]:
    """Return functions whose body only passes their parameters on, in order."""
    found = []
    for node in ast.walk(module.tree):
        if not isinstance(node, FunctionNode) or node.decorator_list:
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
            continue
        value = body[0].value
        call = value.value if isinstance(value, ast.Await) else value
        if not isinstance(call, ast.Call):
            continue
        names = [each.arg for each in node.args.posonlyargs + node.args.args]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        names += [each.arg for each in node.args.kwonlyargs]
        passed = [*call.args, *(each.value for each in call.keywords)]
        if names and names == [ast.unparse(each) for each in passed]:
            found.append(f"{module.name}:{node.lineno}: {node.name}")
    return found


def find_shared_functions(modules: list[Module]) -> list[str]:
    """Return public function names that more than one module defines."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, FunctionNode) and not node.name.startswith("_"):
                homes[node.name].append(module.name)
    return [f"{name}: {', '.join(found)}" for name, found in sorted(homes.items()) if found[1:]]


# --- imports -------------------------------------------------------------------------------------


def imports(module: Module, known: frozenset[str]) -> tuple[set[str], set[str]]:
    """Return the package's modules that a module imports at run time, and for types only."""
    guarded = {
        id(node)
        for test in ast.walk(module.tree)
        if isinstance(test, ast.If) and "TYPE_CHECKING" in ast.unparse(test.test)
        for node in ast.walk(test)
    }
    found: tuple[set[str], set[str]] = set(), set()
    for node in ast.walk(module.tree):
        for name in imported_names(node):
            target = name if name in known else name.rpartition(".")[0]
            if target in known and target != module.name:
                found[id(node) in guarded].add(target)
    return found


def imported_names(node: ast.AST) -> list[str]:
    """Return the dotted names of an import statement; the package has no relative imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def find_circles(graph: Mapping[str, set[str]]) -> list[str]:
    """Return cycles of imports; one edge of each is removed before the search for the next."""
    left = {name: set(targets) for name, targets in graph.items()}
    circles = []
    while True:
        try:
            TopologicalSorter(left).prepare()
        except CycleError as error:
            circle: list[str] = error.args[1]
            circles.append(" <- ".join(circle))
            left[circle[1]].discard(circle[0])
        else:
            return circles


# --- the table -----------------------------------------------------------------------------------


def measure(modules: list[Module]) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Return the figures, and the entries of those that should be small."""
    known = frozenset(module.name for module in modules)
    imported = {module.name: imports(module, known) for module in modules}
    uses = {name: count for module in modules for name, count in private_uses(module).items()}
    protocols, lonely = find_mirrors(modules)
    behind = {
        "struct_pairs": find_like_structs(modules),
        "field_copies": [place for module in modules for place in find_field_copies(module)],
        "protocols": protocols,
        "protocols_of_one_class": lonely,
        "forwards": [place for module in modules for place in find_forwards(module)],
        "function_names_shared": find_shared_functions(modules),
        "class_names_shared": find_shared_names(modules),
        "private_functions_used_once": sorted(name for name, count in uses.items() if count == 1),
        "import_circles": find_circles({name: run for name, (run, _) in imported.items()}),
        "import_circles_with_types": find_circles(
            {name: run | typed for name, (run, typed) in imported.items()}
        ),
        "type_checking_imports": [
            f"{name}: {target}" for name, (_, typed) in imported.items() for target in sorted(typed)
        ],
        "docstrings_opening_with_a_question_word": [
            place for module in modules for place in find_questions(module)
        ],
        "avoided_words": [place for module in modules for place in find_words(module)],
    }
    figures: dict[str, float] = dict(sum((count_lines(module) for module in modules), Counter()))
    figures |= {"private_functions": len(uses)}
    figures |= {name: len(found) for name, found in behind.items()}
    once = len(behind["private_functions_used_once"])
    figures["private_functions_used_once_percent"] = round(100 * once / max(1, len(uses)), 1)
    return figures, behind


def print_excess(behind: Mapping[str, list[str]]) -> int:
    """Print the entries of the figures over their limit; return the number of these figures."""
    over = [name for name, limit in LIMITS.items() if len(behind[name]) > limit]
    for name in over:
        print(f"{name.replace('_', ' ')}: {len(behind[name])}, and {LIMITS[name]} are allowed")
        print(*(f"    {place}" for place in behind[name]), sep="\n")
    return len(over)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="name what the figures count")
    parser.add_argument("--check", action="store_true", help="print what is over its limit")
    arguments = parser.parse_args()
    modules = read_package(PALYRA)
    figures, behind = measure(modules)
    if arguments.check:
        sys.exit(1 if print_excess(behind) else 0)
    for name, figure in figures.items():
        print(f"{name.replace('_', ' '):44} {figure:>10,}")
        if arguments.list:
            print(*(f"    {place}" for place in behind.get(name, [])), sep="\n")
    rooms = count_rooms(modules)
    print(*(f"{'lines of ' + room:44} {lines:>10,}" for room, lines in rooms.items()), sep="\n")
    print(json.dumps({"bench": "house", **figures, "rooms": rooms}))


if __name__ == "__main__":
    main()
