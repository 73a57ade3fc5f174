"""The code blocks of README.md and docs/*.md run; how, says `docs_blocks.py`."""

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import docs_blocks
from tests.docs_blocks import ROOT, BadBlock, Block, Desk, Step, find_blocks
from tests.optional import needs, reason_without
from tests.rows import every_row

DOCUMENTS = ["README.md", *sorted(f"docs/{path.name}" for path in ROOT.glob("docs/*.md"))]


def read_blocks(document: str) -> list[Block]:
    return find_blocks(document, (ROOT / document).read_text(encoding="utf-8"))


@pytest.mark.real
@pytest.mark.parametrize("document", DOCUMENTS)
def test_document_runs(document: str, tmp_path: Path) -> None:
    """Every runnable block of the document does, from top to bottom, what the document says."""
    desk = Desk(tmp_path)
    is_serving = False
    with ExitStack() as stack:
        for block in filter(lambda block: block.is_runnable, read_blocks(document)):
            if "daemon" in block.words and not is_serving:
                stack.enter_context(desk.daemon())
                is_serving = True
            desk.run_block(block)
    for missing in (each for block in read_blocks(document) for each in block.missing_programs):
        pytest.skip(reason_without(missing))


@every_row("document", DOCUMENTS)
def test_skipped_blocks_say_why(document: str) -> None:
    """A block marked no-run has an HTML comment above that gives the reason."""
    assert [] == [block.place for block in read_blocks(document) if block.is_unjustified]


# --- The machinery itself, on made-up documents ------------------------------------------------

TWO_BLOCKS = """\
# Title

```python daemon
print(1)
```

1. In a list:

   ~~~sh
   $ palyra x
     indented
   ~~~
"""

UUID = "01890a5d-ac96-774b-bcce-b302099a8051"

# Stands for the palyra program: echoes its arguments, except where a test needs more.
FAKE_PALYRA = """\
import json, os, pathlib, signal, sys

command, *rest = sys.argv[1:]
if command == "fail":
    print("it broke", file=sys.stderr)
    sys.exit(3)
if command == "env":
    print(f"export PALYRA_URL='http://h; {rest[0]}'")
    sys.exit()
if command == "hang":
    signal.pause()
if command == "serve":
    home = pathlib.Path.home() / ".local/share/palyra"
    home.mkdir(parents=True)
    (home / "daemon.json").write_text(json.dumps({"pid": os.getpid()}))
    signal.pause()
print(*sys.argv[1:], sep="\\n")
"""


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    program = tmp_path / "fake.py"
    program.write_text(FAKE_PALYRA, encoding="utf-8")
    return Desk(tmp_path / "desk", palyra=(sys.executable, str(program)))


def only_block(markdown: str) -> Block:
    (block,) = find_blocks("page.md", markdown)
    return block


def fenced(info: str, text: str) -> Block:
    return only_block(f"```{info}\n{text}\n```\n")


def test_blocks_are_found_with_place_words_and_text() -> None:
    """Language, words, line and dedented text are read from fences of either kind."""
    expected = [
        Block("page.md", 3, "python", frozenset({"daemon"}), "print(1)\n", ""),
        Block("page.md", 9, "sh", frozenset(), "$ palyra x\n  indented\n", ""),
    ]
    assert expected == find_blocks("page.md", TWO_BLOCKS)


def test_longer_fence_holds_a_shorter_one() -> None:
    """A fence inside a longer fence is text, not a block."""
    assert "```sh\n```\n" == only_block("````markdown\n```sh\n```\n````\n").text


@every_row(
    ("above", "is_unjustified"),
    [
        ("", True),
        ("Some text.\n", True),
        ("<!-- needs a paid key -->\nSome text.\n", True),
        ("<!-- -->\n", True),
        ("<!-- needs a paid key -->\n", False),
        ("<!-- needs\na paid key -->\n\n", False),
    ],
)
def test_only_a_comment_directly_above_justifies(above: str, *, is_unjustified: bool) -> None:
    """no-run counts as justified only by text in a comment with nothing but blanks between."""
    block = only_block(f"{above}```sh no-run\n$ palyra models add\n```\n")
    assert (False, is_unjustified) == (block.is_runnable, block.is_unjustified)


def test_other_languages_need_no_reason() -> None:
    """A block in a language that is never run is neither runnable nor unjustified."""
    block = only_block("```json no-run\n{}\n```\n")
    assert (False, False) == (block.is_runnable, block.is_unjustified)


def test_steps_pair_commands_with_their_output() -> None:
    """Comments and blanks are dropped, continued lines joined, output kept per command."""
    block = fenced("console", "# first\n$ palyra a \\\n    b\none\n\n# then\n  two\n$ palyra c\n")
    assert [Step("palyra a b", ("one", "two")), Step("palyra c", ())] == docs_blocks.parse_steps(
        block
    )


@every_row("text", ["$ curl example.org", "palyra up", "", "$ palyra a\n$ make"])
def test_untested_command_is_refused(text: str) -> None:
    """A shell block that would be run in part or not at all is an error, not a pass."""
    with pytest.raises(BadBlock, match=r"page\.md:1: .*mark it no-run"):
        docs_blocks.parse_steps(fenced("sh", text))


@every_row(
    ("expected", "missing"),
    [
        (["a", "c"], None),
        (["b"], "b"),  # a whole line, not a part of one
        (["c", "a"], "a"),
        (["a", "a"], "a"),
        (["b...b"], None),
        (["...", "c"], None),
        (["a...c"], "a...c"),  # the wildcard ends with its line
        (["x.z"], "x.z"),  # a dot is a dot
        ([], None),
    ],
)
def test_expected_lines_must_appear_in_order(expected: list[str], missing: str | None) -> None:
    """Each shown line matches one whole line of output after the one before it."""
    assert missing == docs_blocks.find_missing(expected, "a\n  bxb  \nxyz\nc\n")


def test_python_block_runs_where_a_reader_is(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A script can import the package and read the checkout; of Palyra no variable is set."""
    monkeypatch.setenv("PALYRA_HOME", "/of/the/tester")
    monkeypatch.setenv("XDG_DATA_HOME", "/of/the/tester")
    desk.run_block(
        fenced(
            "python",
            "import os, palyra, pathlib\n"
            "assert [] == [name for name in os.environ if name.startswith(('PALYRA', 'XDG'))]\n"
            f"assert os.environ['HOME'] == {str(tmp_path / 'desk')!r}\n"
            "assert open('README.md').read()",
        )
    )


def test_evaluated_variables_hold_for_the_blocks_below(desk: Desk) -> None:
    """As in a reader's shell: set from that line on, with their quotes undone."""
    probe = "import os; assert os.environ['PALYRA_URL'] == 'http://h; x'"
    with pytest.raises(BadBlock, match="KeyError"):
        desk.run_block(fenced("python", probe))
    desk.run_block(fenced("sh", '$ eval "$(palyra env x)"   # for this shell'))
    desk.run_block(fenced("python", probe))


def test_variables_that_are_not_set_are_reported(desk: Desk) -> None:
    """A command that fails inside `$( )` leaves the shell content, but not the test."""
    with pytest.raises(BadBlock, match=r"(?s)sets no variable.*it broke"):
        desk.run_block(fenced("sh", '$ eval "$(palyra fail)"'))


@every_row(
    ("wanted", "line", "is_shown"),
    [
        ("... events, ... signed roots", "12 events, 1 signed root", True),
        ("... events, ... signed roots", "1 event, 22 signed roots", True),
        ("... events of run_...", "1 event of run_1", True),
        ("... events", "1 eventss", False),
        ("signed roots", "signed root", False),  # no number stands before it
        ("...: two signed roots", "x: two signed root", False),
    ],
)
def test_one_of_a_counted_thing_is_enough(wanted: str, line: str, *, is_shown: bool) -> None:
    """How many roots are signed by now depends on the machine: one is no other line."""
    assert is_shown == (docs_blocks.find_missing([wanted], line) is None)


def test_python_block_that_raises_is_reported(desk: Desk) -> None:
    """The report names the place and carries the traceback."""
    with pytest.raises(BadBlock, match=r"(?s)page\.md:1.*exit status 1.*ZeroDivisionError"):
        desk.run_block(fenced("python", "1 / 0"))


@pytest.mark.real
@needs("node")
def test_js_block_runs_as_a_module(desk: Desk) -> None:
    """It can await and import our package; one that throws is reported with its place."""
    desk.run_block(
        fenced("js", 'const { connect } = await import("palyra-client");\nconnect.name;')
    )
    with pytest.raises(BadBlock, match=r"(?s)page\.md:1.*exit status 1.*ReferenceError"):
        desk.run_block(fenced("js", "nothing;"))


def test_shell_block_runs_each_command(desk: Desk) -> None:
    """Quoting reaches the program as a shell would pass it, and shown output is checked."""
    desk.run_block(fenced("sh", """$ palyra run "/call x {\\"a\\": 1}"\nrun\n/call x {...}\n"""))


@pytest.mark.parametrize(
    ("text", "report"),
    [
        ("$ palyra fail", r"(?s)palyra fail.*exit status 3.*it broke"),
        ("$ palyra say yes\nno", r"(?s)palyra say yes.*no line 'no' in.*yes"),
        ("$ palyra say yes\n$ palyra fail", r"exit status 3"),
    ],
)
def test_shell_block_that_lies_is_reported(desk: Desk, text: str, report: str) -> None:
    """A failing command and a missing line are errors that show command and output."""
    with pytest.raises(BadBlock, match=report):
        desk.run_block(fenced("sh", text))


def test_id_of_a_kind_is_the_newest_printed_one(desk: Desk) -> None:
    """A reader copies the id from the listing above; without one the page is wrong."""
    first, second = f"run_{UUID}", f"run_{UUID[:-1]}2"
    desk.run_block(
        fenced("sh", f"$ palyra {first} apr_{UUID} {second}\n$ palyra is run_…\n{second}")
    )
    desk.run_block(fenced("sh", f"$ palyra is apr_…\napr_{UUID}"))
    with pytest.raises(BadBlock, match=r"no command above prints an id of \['tsk'\]"):
        desk.run_block(fenced("sh", "$ palyra show tsk_…"))


def test_command_may_end_with_the_status_it_names(desk: Desk) -> None:
    """A documented failure is expected, and its absence is an error."""
    desk.run_block(fenced("sh", "$ palyra fail   # exit code 3\nit broke"))
    with pytest.raises(BadBlock, match="exit status 0"):
        desk.run_block(fenced("sh", "$ palyra works   # exit code 3"))


def test_curl_is_run_only_in_a_block_that_asks_for_it() -> None:
    """Its word makes the block optional on a machine without curl."""
    block = fenced("console curl", "$ curl -s http://h\nok\n")
    assert [Step("curl -s http://h", ("ok",))] == docs_blocks.parse_steps(block)


@pytest.mark.parametrize(
    ("info", "program"),
    [("console curl", "curl"), ("console bubblewrap", "bubblewrap"), ("js", "node")],
)
def test_block_without_its_program_is_not_runnable(
    info: str, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The missing one is named, so that the page can say what it left out."""
    monkeypatch.setenv("PATH", "/nowhere")
    block = fenced(f"{info} daemon", "$ palyra x")
    assert ([program], False) == (block.missing_programs, block.is_runnable)


@pytest.mark.real
def test_hanging_command_is_killed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command over its limit is killed with its children and reported."""
    monkeypatch.setattr(docs_blocks, "COMMAND_LIMIT_S", 0.5)
    with pytest.raises(BadBlock, match=r"not done after 0\.5 s"):
        desk.run_block(fenced("sh", "$ palyra hang; true"))


@pytest.mark.real
def test_daemon_is_ready_inside_and_gone_after(desk: Desk) -> None:
    """Blocks find a written discovery file; afterwards the process does not exist."""
    probe = (
        "import json, os, pathlib\n"
        "home = pathlib.Path.home() / '.local/share/palyra'\n"
        "os.kill(json.loads((home / 'daemon.json').read_text())['pid'], 0)"
    )
    with desk.daemon():
        desk.run_block(fenced("python daemon", probe))
    with pytest.raises(BadBlock, match="ProcessLookupError"):
        desk.run_block(fenced("python daemon", probe))


@pytest.mark.real
def test_daemon_that_dies_is_reported_with_its_log(tmp_path: Path) -> None:
    """A daemon that ends before it is ready fails at once and shows what it said."""
    desk = Desk(tmp_path / "desk", palyra=("/bin/sh", "-c", "echo no disk; exit 1"))
    with pytest.raises(BadBlock, match=r"(?s)did not start.*no disk"), desk.daemon():
        pytest.fail("entered without a daemon")
