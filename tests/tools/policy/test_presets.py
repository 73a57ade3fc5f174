"""Presets: what each lets run without a question, what it does not, and its file."""

from pathlib import Path
from typing import Any

import pytest

from palyra.errors import Conflict, NotFound, Rejected, Unavailable
from palyra.tools.policy.cases import CaseTable, Outcome, PolicyCase, run_cases
from palyra.tools.policy.presets import PRESETS, PresetName, remove_preset, write_preset


def decide(folder: Path, arguments: dict[str, Any], **more: Any) -> Outcome:
    """The decision about one call of `shell`, or of another tool."""
    given: dict[str, Any] = {"tool": "shell", **more}
    case = PolicyCase(name="x", expect="ask", arguments=arguments, **given)
    return run_cases(folder, CaseTable(case=(case,)))[0]


@pytest.fixture(scope="module")
def coding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy folder with the preset `coding`."""
    folder = tmp_path_factory.mktemp("policies")
    write_preset(folder, "coding")
    return folder


ALLOWED = [
    "pytest", "pytest -q tests/test_a.py", "pytest -x tests/test_a.py::test_b", "pytest -k name",
    "python3 -m pytest -q", "python -m unittest -v", "pytest --maxfail=1",
    "ruff check", "ruff check palyra tests", "ruff format --check .", "mypy --strict palyra",
    "make test", "npm test", "npm run lint", "cargo test", "go test ./...",
    "git status", "git diff --stat", "git log --oneline -5", "git show --stat", "git diff -- a.py",
    "git status -sb", "git branch", "git branch -a", "git ls-files", "git rev-parse HEAD", "git --no-pager log -3",
    "ls -la", "cat a.py", "head -50 a.py", "tail -n +20 a.py", "wc -l a.py", "rg -n name src", "grep -rn name src",
    "find . -name test_a.py -type f", "sed -n 1,40p a.py", "stat a.py", "file a.py", "tree -L 2", "du -sh src",
    "cat AGENTS.md", "cut -d: -f1 a.txt", "diff -u a.py b.py", "uniq -c a.txt",
]  # fmt: skip


@pytest.mark.parametrize("line", ALLOWED)
def test_the_coding_preset_lets_ordinary_commands_run(coding: Path, line: str) -> None:
    """A named command runs without a question, as words and as a plain line."""
    for arguments in ({"argv": line.split()}, {"command": line}):
        found = decide(coding, arguments)
        assert ("allow", True) == (found.found, found.policies[0].startswith("user/preset-coding/"))


# What models that were trained on other agents write in every second turn.
USUAL: list[tuple[str, str]] = [
    ("python3 -m pytest -q", "allow"), ("python -m pytest tests/test_a.py -x", "allow"),
    ("pytest -k name", "allow"), ("python3 -m unittest -v", "allow"), ("ruff check .", "allow"),
    ("mypy src", "allow"), ("npm test", "allow"), ("cargo test", "allow"), ("go test ./...", "allow"),
    ("git status", "allow"), ("git log --oneline -10", "allow"), ("git diff", "allow"),
    ("git show HEAD", "allow"), ("git diff HEAD~1 -- src/a.py", "allow"), ("ls -la", "allow"), ("ls -R src", "allow"),
    ("cat src/a.py", "allow"), ("head -50 src/a.py", "allow"), ("grep -rn 'def add' src", "allow"),
    ("find . -name '*.py' -not -path './.git/*'", "allow"), ("wc -l src/a.py src/b.py", "allow"),
    ("sed -n 1,40p src/a.py", "allow"), ("sed -n '1,40p' src/a.py", "allow"),
    ("python3 -m pytest -q 2>&1 | tail -20", "allow"), ("cd tests && pytest", "allow"),
    ("git status && git diff --stat", "allow"), ("grep -rn add src 2>/dev/null | head -20", "allow"),
    ("make", "ask"), ("pip install -e .", "ask"),
]  # fmt: skip


def test_the_coding_preset_on_usual_calls(coding: Path) -> None:
    """Readers and lines of allowed commands pass; what builds or installs asks."""
    found = [(line, decide(coding, {"command": line}).found) for line, _ in USUAL]
    assert USUAL == found


ASKED: list[list[str]] = [
    ["git", "-c", "core.pager=sh", "log"], ["git", "-c", "alias.status=!sh", "status"],
    ["git", "--exec-path=/tmp", "status"], ["git", "--exec-path", "status"],
    ["git", "-C", "sub", "status"], ["git", "diff", "--ext-diff"], ["git", "diff", "--output=x"],
    ["git", "diff", "--no-index", "a", "b"], ["git", "branch", "x"], ["git", "branch", "-D", "x"], ["git", "remote", "add", "x"], ["git", "commit", "-m", "x"],
    ["git", "push"], ["git", "status", "/etc"], ["git", "grep", "-O", "x"], ["git"],
    ["pytest", "-p", "evil"], ["pytest", "-pevil"], ["pytest", "--rootdir=/tmp"], ["pytest", "-qp", "evil"],
    ["pytest", "--rootdir", "sub"], ["pytest", "-c", "evil.ini"], ["pytest", "--confcutdir=x"],
    ["pytest", "../other"], ["pytest", "/opt/conftest.py"], ["pytest", "@args"], ["pytest", "-k", "a or b"],
    ["pytest", "-o", "addopts=-pevil"], ["pytest", "--pyargs", "evil"], ["pytest", "--pdb"],
    ["pytest-evil"], ["pytest; rm"], ["pytest", ";rm"], ["./pytest"], ["bin/pytest"], ["/opt/pytest"], ["/usr/bin/pytest"],
    ["/usr/../tmp/pytest"], [".venv/bin/pytest"], ["PYTEST_ADDOPTS=-pevil", "pytest"],
    ["env", "PYTEST_ADDOPTS=-pevil", "pytest"], ["python3", "-c", "import pytest"], ["python3", "a.py"],
    ["python3", "-m", "pytest", "-p", "evil"], ["python3", "-I", "-m", "pytest"], ["python3", "-m", "pip"],
    ["python3", "-m", "unittest", "-p", "evil"],
    ["make"], ["make", "test", "CC=evil"], ["make", "CC=evil", "test"], ["make", "-f", "evil.mk", "test"],
    ["make", "test", "deploy"], ["make", "deploy"], ["make", "test", "-C", "x"], ["make", "-j8", "test"],
    ["npm", "run", "deploy"], ["npm", "run", "test:evil"], ["npm", "run", "test", "--", "x"], ["npm", "exec", "x"],
    ["npm", "--prefix", "x", "test"], ["npm", "install"], ["npx", "jest"], ["npm", "run"],
    ["cargo", "test", "--config", "x"], ["cargo", "+nightly", "test"], ["cargo", "run"], ["cargo", "install", "x"],
    ["go", "test", "-exec", "sh"], ["go", "test", "-toolexec=x", "./..."], ["go", "run", "x"],
    ["go", "test", "evil.com/x"],
    ["ruff", "check", "--fix"], ["ruff", "check", "--config=x"], ["ruff", "--config", "x", "check"],
    ["ruff", "format", "."], ["ruff", "format"], ["black", "."], ["mypy", "--python-executable=x"],
    ["mypy", "--config-file=x", "a"], ["mypy", "-c", "x"], ["ruff", "clean", "check"],
    ["sh", "-c", "pytest"], ["bash", "-c", "pytest"], ["xargs", "pytest"], ["find", ".", "-exec", "sh", ";"], ["find", ".", "-delete"], ["find", ".", "-name", "x", "-fprint", "y"],
    ["sed", "-i", "s/a/b/", "x"], ["sed", "-n", "1,4w out", "x"], ["sed", "s/a/b/e", "x"], ["sed", "-ni", "1p", "x"],
    ["sed", "-f", "x"], ["sed", "1e touch x", "x"], ["sed"], ["uniq", "a", "b"], ["sort", "-o", "a", "b"], ["sort", "-oa", "b"],
    ["tree", "-o", "x"], ["rg", "--pre", "sh", "x"], ["cat", "/etc/passwd"], ["cat", "../x"], ["grep", "-rn", "x", "/"],
    ["awk", "1", "x"], ["tee", "x"], ["./cat", "x"], ["bin/ls"], ["git", "--no-pager", "-c", "x=y", "log"], ["timeout", "9", "pytest"], ["sudo", "pytest"], ["rm", "-r", "x"],
    ["pytest", *["a"] * 70], ["pytest", "--rootdir=/tmp", *["a"] * 70], ["pytest", "a" * 9_000], ["pytest", ""],
]  # fmt: skip


@pytest.mark.parametrize("argv", ASKED, ids=lambda argv: " ".join(argv)[:40])
def test_the_coding_preset_allows_nothing_else(coding: Path, argv: list[str]) -> None:
    """Another option, program, place or word asks, as without the preset."""
    assert "ask" == decide(coding, {"argv": argv}).found


@pytest.mark.parametrize(
    "line",
    [
        "pytest; rm -r x", "pytest && rm x", "pytest | sh", "pytest > x", "pytest >> x", "pytest < x",
        "pytest $(rm x)", "pytest `rm x`", "PYTEST_ADDOPTS=-pevil pytest", "pytest &", "pytest $X",
        "pytest *", "pytest\nrm x", "pytest {a,b}", "(pytest)", "! pytest", "eval pytest", "exec pytest",
        ". pytest", "pytest # x", "pytest ~", "pytest '-pevil'", "pytest \\x", "cat ~/x", "cat a > b", "cat < a", "echo $HOME", "cat `ls`",
        "ls | xargs rm", "cat a | tee b", "cat a 2> b", "ls; rm x", "ls & rm x", "cd .. && ls", "cd /etc && cat passwd", "sort *", "git status;sh", "make test A=b",
    ],
)  # fmt: skip
def test_shell_syntax_asks(coding: Path, line: str) -> None:
    """A line in which a shell finds more than words is never taken for its first words."""
    assert "ask" == decide(coding, {"command": line}).found


@pytest.mark.parametrize(
    "more",
    [
        {"tainted": True}, {"origin": "background"}, {"origin": "compat"}, {"depth": 1},
    ],
)  # fmt: skip
def test_other_runs_ask(coding: Path, more: dict[str, Any]) -> None:
    """The preset holds for interactive runs that no injected text has reached."""
    assert "allow" == decide(coding, {"argv": ["pytest"]}).found
    assert "allow" != decide(coding, {"argv": ["pytest"]}, **more).found


def test_places_outside_of_the_workspace_ask(coding: Path) -> None:
    """A folder to run in that is not in the workspace asks."""
    for cwd in ("/opt", "..", "../x"):
        assert "allow" != decide(coding, {"argv": ["pytest"], "cwd": cwd}).found
    assert "allow" == decide(coding, {"argv": ["pytest"], "cwd": "sub"}).found


def test_writes_ask_under_the_coding_preset(coding: Path) -> None:
    """A change of a file is a person's decision."""
    given = {"path": "a.py", "content": "x"}
    assert "ask" == decide(coding, given, tool="write_file").found


def test_a_jail_with_network_or_without_namespaces_asks(coding: Path) -> None:
    """The capabilities must be those of a jail without network; others are facts of the case."""
    from palyra.core.model.messages import ProposedCall  # noqa: PLC0415
    from palyra.core.policy.gate import CheckedCall, GateContext, policy_request, validate  # noqa: PLC0415
    from palyra.core.tool.spec import SHARED_HOST, build_catalogue  # noqa: PLC0415
    from palyra.tools.policy.cedar import CedarPolicy  # noqa: PLC0415
    from palyra.tools.programs import command_line, shell  # noqa: PLC0415

    policy = CedarPolicy(coding)

    def answer(capabilities: tuple[str, ...]) -> str:
        spec = shell.shell_spec("x", 60.0, capabilities)
        proposed = ProposedCall(call_id="c", tool="shell", arguments={"argv": ["pytest"]})
        checked = validate(
            proposed, build_catalogue([spec]), lambda _, given: command_line.find_facets(given)
        )
        assert isinstance(checked, CheckedCall)
        context = GateContext(
            run_id="r", session_id="s", principal="p", role="operator", agent="a", now_ms=0
        )
        return policy.decide(policy_request(checked, context)).answer

    assert "allow" == answer(("process",))
    assert ["ask", "ask"] == [answer(("process", each)) for each in ("network", SHARED_HOST)]


def test_the_research_preset_reads_listed_hosts_only(tmp_path: Path) -> None:
    """A listed host is read, another asks, and programs and sending are denied."""
    write_preset(tmp_path, "research")

    def fetch(url: str, **more: Any) -> str:
        return decide(tmp_path, {"url": url}, tool="http_fetch", **more).found

    assert "allow" == fetch("https://docs.python.org/3/")
    for url in (
        "https://docs.python.org.evil.com/", "https://evil.com/docs.python.org",
        "https://docs.python.org@evil.com/", "https://docs.python.org:8443/", "https://xdocs.python.org/",
    ):  # fmt: skip
        assert "allow" != fetch(url)
    assert "ask" == fetch("https://docs.python.org/3/", tainted=True)
    assert "deny" == decide(tmp_path, {"argv": ["pytest"]}).found
    sent = {"url": "https://docs.python.org/", "body": "x"}
    assert "deny" == decide(tmp_path, sent, tool="http_send").found


def test_the_locked_preset_only_reads(tmp_path: Path) -> None:
    """Reading is as before; writing, programs and the network are denied, also under another permit."""
    (tmp_path / "mine.cedar").write_text("permit (principal, action, resource);", "utf-8")
    write_preset(tmp_path, "locked")
    assert "allow" == decide(tmp_path, {"path": "a"}, tool="read_file").found
    denied: list[tuple[str, dict[str, Any]]] = [
        ("write_file", {"path": "a", "content": "x"}),
        ("shell", {"argv": ["pytest"]}),
        ("http_fetch", {"url": "https://example.com/"}),
    ]
    assert ["deny"] * 3 == [decide(tmp_path, given, tool=tool).found for tool, given in denied]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_written_once_and_removed(tmp_path: Path, name: PresetName) -> None:
    """An existing file is never changed, an undo removes exactly what was written."""
    folder = tmp_path / "policies"
    preset = write_preset(folder, name)
    assert preset.rules
    with pytest.raises(Conflict):
        write_preset(folder, name)
    assert preset == remove_preset(folder, name)
    assert [] == list(folder.iterdir())
    with pytest.raises(NotFound):
        remove_preset(folder, name)


def test_an_edited_preset_is_kept(tmp_path: Path) -> None:
    """Neither an undo nor a second init touches a file that its owner edited."""
    path = Path(write_preset(tmp_path, "coding").file)
    edited = path.read_text("utf-8") + "// mine\n"
    path.write_text(edited, "utf-8")
    for act in (remove_preset, write_preset):
        with pytest.raises(Conflict):
            act(tmp_path, "coding")
    assert edited == path.read_text("utf-8")


def test_a_broken_folder_gets_no_preset(tmp_path: Path) -> None:
    """A preset beside a broken file would not be in force, so it is not written."""
    (tmp_path / "mine.cedar").write_text("permit (", "utf-8")
    with pytest.raises(Rejected):
        write_preset(tmp_path, "coding")
    assert ["mine.cedar"] == [path.name for path in tmp_path.iterdir()]


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    """The error is about the folder, not about a preset that exists."""
    folder = tmp_path / "policies"
    folder.write_text("")
    with pytest.raises(Unavailable, match="could not be written"):
        write_preset(folder, "coding")
    assert folder.is_file()
