"""Names in the documents exist: files, links, methods, notifications, event kinds, codes."""

import functools
import json
import re
from pathlib import Path

from palyra.client.frames import ERRORS
from palyra.config.load import schema
from palyra.core.tape.events import KINDS
from palyra.core.tool.arguments import Refused, check_arguments
from palyra.net.api.methods.table import METHODS
from palyra.net.protocol import close_codes
from palyra.net.protocol.notifications import NOTIFICATIONS
from palyra.tools.delegation import DELEGATION
from palyra.tools.demo_tools import ECHO
from palyra.tools.files.read import read_file_spec
from palyra.tools.files.search import search_text_spec
from palyra.tools.files.write import write_file_spec
from palyra.tools.memory import RETAIN, SEARCH
from palyra.tools.programs.shell import shell_spec
from tests.docs_blocks import ROOT
from tests.rows import every_row

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
]
# A path as the documents write one: in backticks, from the root of the checkout.
NAMED = re.compile(
    r"`((?:palyra|tests|bench|docs)/[\w/.*-]*|(?:core|actors|net|store|tools|models)/[\w/.]+\.py)(?:::[\w\[\]., -]+)?`"
)
# A module, or a name of one, as docstrings and comments write it: dotted, from the package on.
NAMED_MODULE = re.compile(
    r"`(?:palyra\.)?((?:actors|cli|client|core|net|services|store|wiring)(?:\.\w+)+)`"
)
# A file of tests that is named without its folder, after another one of the same paragraph.
NAMED_FILE = re.compile(r"`(test_\w+\.py)`")
# A test as the documents write one; parameters in brackets are left out.
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)")
# A setting: section and key.  Files of the journal, attributes of rules and an instruction of WebAssembly
# are written alike.
NAMED_KEY = re.compile(
    r"`(?!journal\.|context\.|memory\.grow`)([a-z_]+)\.([a-z_0-9]+)(?:\.[a-z_]+)*`"
)
# A call as a reader would type it; those inside other JSON are left out.
CALL = re.compile(r"'/call (\w+) (\{.*\})'")
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)")


def find_named(page: Path) -> list[str]:
    return NAMED.findall(page.read_text(encoding="utf-8"))


def find_missing_modules(page: Path) -> list[str]:
    """Dotted names of the file that are neither a package, a module nor a word of a module."""
    named = NAMED_MODULE.findall(page.read_text(encoding="utf-8"))
    return [name for name in named if not is_in_package(name)]


@functools.cache
def is_in_package(name: str) -> bool:
    """True if the longest part of the name that is a module or package has the word after it."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        place = (ROOT / "palyra").joinpath(*parts[:count])
        rest = parts[count : count + 1]
        if place.with_suffix(".py").is_file():
            text = place.with_suffix(".py").read_text(encoding="utf-8")
            return not rest or re.search(rf"\b{rest[0]}\b", text) is not None
        if (place / "__init__.py").is_file():
            return not rest
    return False


def find_missing_test_files(page: Path) -> list[str]:
    """Files of tests that the page names without a folder and that no folder has."""
    named = NAMED_FILE.findall(page.read_text(encoding="utf-8"))
    return [name for name in named if not any((ROOT / "tests").rglob(name))]


def find_missing_tests(page: Path) -> list[str]:
    """Tests that the page names and that do not exist."""
    named = NAMED_TEST.findall(page.read_text(encoding="utf-8"))
    return [f"{file}::{test}" for file, test in named if test not in list_tests(ROOT / file)]


@functools.cache
def list_tests(file: Path) -> frozenset[str]:
    return frozenset(
        re.findall(r"(?m)^(?:async )?def (test_\w+)", file.read_text(encoding="utf-8"))
    )


@functools.cache
def list_keys() -> dict[str, list[str]]:
    """The keys of each section of the configuration."""
    found = schema()
    return {
        name: list(found["$defs"][section["$ref"].rpartition("/")[2]]["properties"])
        for name, section in found["properties"].items()
    }


def find_missing_keys(text: str) -> list[str]:
    known, others = list_keys(), {*METHODS, *NOTIFICATIONS, *KINDS}
    return [
        f"{section}.{key}"
        for section, key in NAMED_KEY.findall(text)
        if section in known and key not in known[section] and f"{section}.{key}" not in others
    ]


def find_wrong_calls(page: Path) -> list[str]:
    """Example calls of the page that their tool would refuse."""
    files = (read_file_spec(""), search_text_spec(""), write_file_spec(""))
    specs = (*files, shell_spec("", 600), ECHO, SEARCH, RETAIN, DELEGATION)
    known = {spec.name: spec for spec in specs}
    found = CALL.findall(page.read_text(encoding="utf-8"))
    return [
        f"{tool} {text}"
        for tool, text in found
        if tool not in known or isinstance(check_arguments(known[tool], json.loads(text)), Refused)
    ]


def does_exist(name: str) -> bool:
    """True if the name is a file or folder; `core/run.py` is short for one in palyra/."""
    return any(True for base in (ROOT, ROOT / "palyra") for _ in base.glob(name.rstrip("/")))


@every_row("page", PAGES)
def test_named_files_exist(page: Path) -> None:
    """Every file, folder and pattern of the checkout that a page names exists."""
    assert [] == [name for name in find_named(page) if not does_exist(name)]


def test_named_modules_exist() -> None:
    """Every module that a docstring or comment names by its dotted name exists."""
    files = [*(ROOT / "palyra").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    found = {file.name: find_missing_modules(file) for file in files if file != Path(__file__)}
    assert {} == {file: names for file, names in found.items() if names}


def test_missing_modules_are_noticed(tmp_path: Path) -> None:
    """A dotted name is found if its module, or the name in the module, does not exist."""
    page = tmp_path / "page.py"
    page.write_text(
        "`core.run.state`, `core.run.state.Run`, `core.runs`, `core.run.state.Nothing`",
        encoding="utf-8",
    )
    assert ["core.runs", "core.run.state.Nothing"] == find_missing_modules(page)


@every_row("page", PAGES)
def test_named_test_files_exist(page: Path) -> None:
    """Every file of tests that a page names without its folder exists."""
    assert [] == find_missing_test_files(page)


@every_row("page", PAGES)
def test_named_tests_exist(page: Path) -> None:
    """Every test that a page names exists."""
    assert [] == find_missing_tests(page)


@every_row("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of a page leads to a file."""
    links = LINK.findall(page.read_text(encoding="utf-8"))
    assert [] == [link for link in links if not (page.parent / link).exists()]


def test_missing_files_are_noticed(tmp_path: Path) -> None:
    """A page that names a file which does not exist is found."""
    page = tmp_path / "page.md"
    page.write_text(
        "`core/run/state.py`, `tests/core/run/test_decide.py`, `core/runs.py`", encoding="utf-8"
    )
    found = [name for name in find_named(page) if not does_exist(name)]
    assert ["core/runs.py"] == found


@every_row("page", PAGES)
def test_named_settings_exist(page: Path) -> None:
    """Every setting that a document names is a key of the configuration."""
    assert [] == find_missing_keys(page.read_text(encoding="utf-8"))


def test_missing_settings_are_noticed() -> None:
    """A key that a section lacks is found, a method or an event of the same form is not."""
    text = "`models.scripts`, `models.scripted.scripts`, `memory.add`, `run.done`, `palyra.toml`"
    assert ["models.scripted"] == find_missing_keys(text)


def test_missing_tests_are_noticed(tmp_path: Path) -> None:
    """A page that names a test, or a file of tests, that does not exist is found."""
    page = tmp_path / "page.md"
    page.write_text("`test_docs_facts.py`, `test_docs_fiction.py`", encoding="utf-8")
    assert ["test_docs_fiction.py"] == find_missing_test_files(page)
    there = "tests/test_docs_facts.py::test_missing_tests_are_noticed"
    page.write_text(f"`{there}`, `{there}_not`", encoding="utf-8")
    assert [f"{there}_not"] == find_missing_tests(page)


@every_row("page", PAGES)
def test_example_calls_fit_their_tools(page: Path) -> None:
    """Every call that a page shows has arguments that its tool accepts, also in blocks that are not run."""
    assert [] == find_wrong_calls(page)


def test_wrong_example_calls_are_noticed(tmp_path: Path) -> None:
    """A page that shows a call with a field that its tool lacks, or of an unknown tool, is found."""
    page = tmp_path / "page.md"
    right = 'search_text {"query": "TODO"}'
    wrong = ['search_text {"pattern": "TODO"}', 'search {"query": "TODO"}']
    lines = [f"$ palyra run '/call {call}'\n" for call in (right, *wrong)]
    page.write_text("".join(lines), encoding="utf-8")
    assert wrong == find_wrong_calls(page)


def test_protocol_page_names_everything_there_is() -> None:
    """Each method, notification, event kind, error code and close code is on the page."""
    page = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    codes = [
        str(code)
        for name, code in vars(close_codes).items()
        if name.isupper() and "_BYTES" not in name
    ]
    names = [
        *METHODS,
        *NOTIFICATIONS,
        *KINDS,
        *(code for code in ERRORS if code != "protocol_error"),
    ]
    missing = [name for name in names if f"`{name}`" not in page]
    assert [] == missing + [code for code in codes if f"| {code} |" not in page]


def test_every_promise_names_its_tests() -> None:
    """Each numbered sentence of the contract is followed by a test file, or says there is none."""
    page = (ROOT / "docs/semantics.md").read_text(encoding="utf-8")
    promises = re.split(r"(?m)^(?=\d+\. \*\*)", page.partition("## Not promised")[0])[1:]
    assert list(range(1, len(promises) + 1)) == [int(text.split(".")[0]) for text in promises]
    assert [] == [
        text[:40] for text in promises if "`tests/" not in text and "*no test yet*" not in text
    ]


def test_decisions_are_numbered_without_gaps() -> None:
    """The pages of docs/decisions/ count from 0001 on, and each has the three headings."""
    pages = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
    assert list(range(1, len(pages) + 1)) == [int(page.name[:4]) for page in pages]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert ["Context", "Choice", "Cost"] == re.findall(r"(?m)^## (.*)$", text)
