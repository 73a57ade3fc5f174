"""The files of the console, read without a browser: imports, sizes, and what may run in a page."""

import posixpath
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from palyra.core.journal.records import (
    BudgetAction,
    BudgetScope,
    IncidentDomain,
    MemoryKind,
    Role,
    TaskState,
)
from palyra.net.http.console import FOLDER

CLIENT = "client.js"
CLIENTS = Path(__file__).parents[2] / "clients/typescript"
BUDGET_BYTES = 160_000  # JavaScript of the frame and one screen, without the client
MAX_LINES = 300
IMPORT = re.compile(
    r"""(?m)^(?:import|export)\b[^;"'`]*?\bfrom\s*["']([^"']+)["']|^import\s*["']([^"']+)["']"""
)
LAZY = re.compile(r"""\bimport\(\s*(["'`]?)([^"'`)]*)""")
PRELOAD = re.compile(r'<link rel="modulepreload" href="console/VERSION/([^"]+)">')
ADDRESS = re.compile(r"""(?:src|href)=["']([^"']*)["']""")
MAIN = 'src="console/VERSION/main.js"'
COMMENT = re.compile(r"(?m)^\s*(?://|\*|/\*).*$")
# What turns text into a program or a document; `style=` and `on…=` are refused by the policy anyway.
FORBIDDEN = re.compile(
    r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|srcdoc|document\.write\w*|setHTMLUnsafe"
    r"|createContextualFragment|DOMParser|parseFromString|eval|new Function|createPolicy)\b"
    r"|\bset(?:Timeout|Interval)\(\s*[\"'`]|\s(?:style|on[a-z]+)=[\"'$]|javascript:"
)
ELSEWHERE = re.compile(r"""["'`(]\s*(?:https?:|wss?:)?//[A-Za-z0-9$]""")


def texts(pattern: str) -> dict[str, str]:
    """The files of that pattern by their path below the folder."""
    return {
        path.relative_to(FOLDER).as_posix(): path.read_text("utf-8")
        for path in sorted(FOLDER.rglob(pattern))
    }


def imports(name: str, text: str) -> set[str]:
    """The modules that a module names in static imports, as paths below the folder."""
    named = {first or second for first, second in IMPORT.findall(text)}
    faults = {each for each in named if not each.startswith(("./", "../"))}
    assert not faults, f"{name} imports {faults}, which are not relative"
    return {posixpath.normpath(posixpath.join(posixpath.dirname(name), each)) for each in named}


def graph(root: str, modules: dict[str, str]) -> set[str]:
    """The modules that are loaded with that one, itself included."""
    found: set[str] = set()
    waiting = {root}
    while waiting:
        name = waiting.pop()
        found.add(name)
        waiting |= imports(name, modules[name]) - found
    return found


def find_unsafe(text: str) -> list[str]:
    """What a module does that only view.js may do, outside comments."""
    code = COMMENT.sub("", text)
    return [match[0] for pattern in (FORBIDDEN, ELSEWHERE) for match in pattern.finditer(code)]


def test_every_import_exists_and_is_relative() -> None:
    """No module names a file that is not there, or one of a third party."""
    modules = texts("*.js")
    for name, text in modules.items():
        assert imports(name, text) <= set(modules), name
        for quote, target in LAZY.findall(text):
            assert quote, f"{name}: import({target}) is computed"
            assert posixpath.normpath(posixpath.join(posixpath.dirname(name), target)) in modules


def test_the_preload_list_is_the_module_graph() -> None:
    """The page names all modules that it loads, so that none waits for another."""
    page = (FOLDER / "index.html").read_text("utf-8")
    assert MAIN in page
    listed = PRELOAD.findall(page)
    assert sorted(graph("main.js", texts("*.js")) - {"main.js"}) == sorted(listed)


def test_the_page_names_only_files_of_its_release() -> None:
    """Every address in the page is relative and below the release's folder."""
    named = ADDRESS.findall((FOLDER / "index.html").read_text("utf-8"))
    assert named
    for address in named:
        assert address.startswith("console/VERSION/"), address
        assert (FOLDER / address.removeprefix("console/VERSION/")).is_file(), address


def test_the_page_has_no_program_or_style_of_its_own() -> None:
    """The policy would refuse both, silently for a person."""
    page = (FOLDER / "index.html").read_text("utf-8")
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", page)


def test_the_files_stay_small() -> None:
    """What a page loads for the frame and any one screen keeps its budget, and a file its length."""
    modules = texts("*.js")
    own = {name: text for name, text in modules.items() if name != CLIENT}
    frame = graph("main.js", modules)
    for screen in (name for name in own if name.startswith("screens/")):
        loaded = (frame | graph(screen, modules)) - {CLIENT}
        assert sum(len(own[name].encode()) for name in loaded) <= BUDGET_BYTES, screen
    assert [] == [name for name, text in own.items() if text.count("\n") > MAX_LINES]


def test_only_the_view_makes_documents_from_text() -> None:
    """No module but view.js compiles markup, and none runs text or asks another origin."""
    faults = {name: find_unsafe(text) for name, text in texts("*.js").items() if name != "view.js"}
    assert {} == {name: found for name, found in faults.items() if found and name != CLIENT}


def test_the_search_for_unsafe_code_finds_it() -> None:
    """Negative control: each way is found, and ordinary code is not."""
    for code in (
        "node.innerHTML = text;",
        "eval(text)",
        "new Function(text)",
        "setTimeout('go()', 1)",
        'html`<p style="color:red">`',
        "html`<p onclick=${go}>`",
        'fetch("https://cdn.example/x.js")',
        'import("//cdn.example/x.js")',
        'a.href = "javascript:go()"',
    ):
        assert find_unsafe(code), code
    assert [] == find_unsafe(
        "node.textContent = text; // eval(text)\nsetTimeout(go, 1); html`<p @click=${go}>`".replace(
            "// eval(text)", ""
        )
    )


def test_the_client_is_that_of_the_package_for_node() -> None:
    """The page and the npm package use one client: a link here, a file there."""
    assert (CLIENTS / CLIENT).samefile(FOLDER / CLIENT)


@pytest.mark.parametrize(
    ("name", "constant", "literal"),
    [
        ("fold/health.js", "DOMAINS", IncidentDomain),
        ("parts/accounts.js", "ACTIONS", BudgetAction),
        ("parts/accounts.js", "SCOPES", BudgetScope),
        ("parts/tokens.js", "ROLES", Role),
        ("screens/memory.js", "KINDS", MemoryKind),
        ("screens/tasks.js", "SIGNS", TaskState),
    ],
)
def test_a_list_has_what_the_daemon_knows(name: str, constant: str, literal: Any) -> None:
    """A word that the daemon gains is missed in no list of the console that repeats its words."""
    found = re.search(rf"const {constant} = [\[{{](.+)[\]}}];", (FOLDER / name).read_text("utf-8"))
    assert found
    words = re.findall(r"(\w+): \[", found[1]) or re.findall(r'"(\w+)"', found[1])
    assert set(get_args(literal)) == set(words)
