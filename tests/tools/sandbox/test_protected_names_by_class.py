"""Each class of the table of protected names, in real jails and with the daemon's own tools.

The cases are generated from the table: one jail for each class and way of making a file.
"""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from palyra.core.tool.paths import (
    INSTRUCTION_NAMES,
    PLACEHOLDER_NAMES,
    is_configuration,
    is_private,
    read_paths,
)
from palyra.core.tool.protected_names import TABLE, Class, ProtectedNames
from palyra.core.tool.spec import ToolFailure
from palyra.tools.files.changes import Changes
from palyra.tools.files.workspace import Workspace
from palyra.tools.sandbox.command import Command
from tests.examples import one_of_three
from tests.rows import every_row
from tests.tools.sandbox.jails import needs_bubblewrap, open_sandbox, run

CLASSES: tuple[Class, ...] = get_args(Class)


def _full_width(name: str) -> str:
    """Full-width letters, which some file systems take for the plain ones."""
    return "".join(chr(ord(char) + 0xFEE0) if char.isalpha() else char for char in name)


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as written": str,
    "upper": str.upper,
    "full width": _full_width,
}
MAKE = 'for path do case "$path" in */*) mkdir -p "${path%/*}";; esac; '
WAYS = {
    "created": MAKE + 'echo evil > "$path"; done',
    "as a folder": MAKE + 'mkdir -p "$path" && echo evil > "$path/inside"; done',
    "renamed": MAKE + 'echo evil > new; mv new "$path"; done',
    "linked": "echo evil > target; " + MAKE + 'ln -s target "$path"; done',
    "hard-linked": "echo evil > target; " + MAKE + 'ln target "$path"; done',
}
OTHER_WAYS = tuple(way for way in WAYS if way != "created")

# Files of one tool, read when a person runs that tool's task; by hand, in the classes of the table.
PROJECT_FILES = (
    "Makefile", "package.json", "setup.py", "conftest.py", "Dockerfile", "webpack.config.js",
    "pyproject.toml", "justfile", "build.gradle", "Cargo.toml", "compile_commands.json",
    "flake.nix", "shell.nix", "devenv.nix", "devbox.json", "pixi.toml", "global.json",
    "uv.toml", "poetry.toml", ".config/dotnet-tools.json", "profiles.clj", "cabal.project.local",
    "gradle.properties", "gradle/wrapper/gradle-wrapper.properties", ".bazelrc", ".bazelversion",
    "Directory.Build.props", "ansible.cfg", "prod.auto.tfvars", "latexmkrc",
    "eslint.config.js", ".eslintrc.json", ".prettierrc", "stylelint.config.mjs", ".flake8",
    "mypy.ini", ".pylintrc", ".rubocop.yml", ".golangci.yml", "phpstan.neon", ".clang-tidy",
    "compile_flags.txt", "compose.override.yml", ".lando.yml", "gradlew",
    "local.properties", "go.work", "docker-bake.override.hcl", "override.tf", ".ddev/config.yaml",
    "public/.htaccess", ".user.ini", ".kamal/hooks/pre-build", ".mega-linter.yml", "codecov.yml",
    ".sops.yaml", ".yardopts", "startup.m", "data/org.app.desktop", "fixtures/mcp.json",
    "docs/style.instructions.md", ".envelope", ".env.dist", ".env-example", ".env.ci.example",
    ".env_sample", ".env.local.template",
)  # fmt: skip


def rows_of(kind: Class) -> list[ProtectedNames]:
    return [row for row in TABLE if row.kind == kind]


def names_of(kind: Class) -> list[str]:
    """One path for each name, patterns filled in."""
    return [name.replace("*", "some") for row in rows_of(kind) for name in row.names]


def writes(root: Path, line: str, *paths: str) -> Command:
    argv = ("/bin/sh", "-c", line, "sh", *(f"./{path}" for path in paths))
    return Command(argv=argv, workspace=root, is_writable=True, cwd=str(root))


def there(root: Path, names: list[str]) -> list[str]:
    return [name for name in names if (root / name).exists() or (root / name).is_symlink()]


def in_turn(*variants: object) -> list[Any]:
    """Each class with one of the variants in turn; the others are slow: each costs a jail."""
    return [
        pytest.param(
            kind, variant, marks=() if place == number % len(variants) else pytest.mark.slow
        )
        for number, kind in enumerate(CLASSES)
        for place, variant in enumerate(variants)
    ]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    tmp_path.chmod(0o777)
    return tmp_path


def test_every_class_and_row_is_complete() -> None:
    """Each row names its class, its reader and the reader's own documentation, and no name twice."""
    assert set(CLASSES) == {row.kind for row in TABLE}
    assert all(row.names and row.read_by and row.source.startswith("http") for row in TABLE)
    names = [name.lower() for row in TABLE for name in row.names]
    assert len(names) == len(set(names))
    assert {row.kind for row in TABLE if row.needs_placeholder} <= {
        "version control", "editors", "agents", "secrets",
    }  # fmt: skip


@every_row("spelling", SPELLINGS)
@every_row("kind", CLASSES)
def test_the_rules_know_every_name_at_every_depth(kind: Class, spelling: str) -> None:
    """In every spelling that a file system could take for the name, and for what lies below it."""
    mark = "private" if kind == "secrets" else "configuration"
    in_capitals = {name.replace("*", "some") for name in INSTRUCTION_NAMES}
    for name in names_of(kind):
        path = SPELLINGS[spelling](name)
        if spelling == "upper" and name in in_capitals:
            assert mark in read_paths((path,)).marks  # below the top, only as agents ask for it
            continue
        for each in (path, f"deep/er/{path}", f"{path}/inside"):
            assert mark in read_paths((each,)).marks, each


@pytest.mark.parametrize("kind", CLASSES)
def test_the_daemons_own_tools_write_none_of_them(tmp_path: Path, kind: Class) -> None:
    """`write_file` and `apply_patch` refuse each path before any file access."""
    changes = Changes(Workspace(tmp_path))
    for name in names_of(kind):
        for path in (name, f"part/{name}"):
            with pytest.raises(ToolFailure, match="may not be used"):
                changes.look(path)
    assert changes.look("part/my.txt") is None


@every_row("folder", ["", "part/"])
@every_row("name", PROJECT_FILES)
def test_project_files_are_for_policy_to_decide(tmp_path: Path, name: str, folder: str) -> None:
    """A file that one tool reads when a person runs that tool's task is not refused by the table."""
    assert read_paths((folder + name,)).marks == read_paths((f"{folder}a/plain.txt",)).marks
    assert Changes(Workspace(tmp_path)).look(folder + name) is None


@every_row("name", ["agents.md", "agent.md", "gemini.md", "Grok.md", "warp.md"])
def test_pages_about_agents_are_ordinary_below_the_top(name: str) -> None:
    """A page in lower case is no instruction, except at the top, where file systems may fold case."""
    assert not is_configuration(f"docs/{name}")
    assert is_configuration(name)
    assert is_configuration(f"docs/{name.partition('.')[0].upper()}.md")


@every_row(
    "name",
    [".env.example.local", ".env.examples", ".env-prod", ".env_ci", ".envs/prod/.django", ".env"],
)
def test_only_the_ending_makes_an_example(name: str) -> None:
    """A file for secrets whose name continues after the word, or lacks it, stays private."""
    assert is_private(name)


@every_row("kind", CLASSES)
def test_ordinary_names_like_them_are_left_alone(kind: Class) -> None:
    """The control: a prefix or suffix makes an ordinary name of every literal one."""
    for row in rows_of(kind):
        for name in row.names:
            last = name.rpartition("/")[2]
            if "*" not in name:
                near = f"my-{last.lstrip('.')}"
                found = (near, is_configuration(near), is_private(near))
                assert found[1:] == (False, False) or any("*" in other for other in _globs(near))


def _globs(near: str) -> list[str]:
    """Names with an open beginning that match as well, such as `*.desktop`."""
    names = [name for row in TABLE for name in row.names if name.startswith("*")]
    return [name for name in names if near.lower().endswith(name[1:].lower())]


@pytest.mark.real
@needs_bubblewrap
@pytest.mark.parametrize(("kind", "ways"), in_turn(("created",), OTHER_WAYS))
async def test_nothing_of_a_class_is_left_by_a_program(
    workspace: Path, kind: Class, ways: tuple[str, ...]
) -> None:
    """Whichever way it was made: every name created, and every way tried on names in turn."""
    names = names_of(kind)
    line = "".join(
        f"set -- {shlex.join(f'./{name}' for name in names[index :: len(ways)])}; {WAYS[way]}; "
        for index, way in enumerate(ways)
    )
    async with open_sandbox() as sandbox, sandbox.open(writes(workspace, line)) as child:
        await child.wait()
    assert [] == there(workspace, names)
    restored = {path.casefold() for path in child.restored}
    for name in names:
        above = {name.casefold()[:end] for end in range(1, len(name) + 1)}
        assert above & restored or name.split("/")[0] in PLACEHOLDER_NAMES, name


@pytest.mark.real
@needs_bubblewrap
@pytest.mark.parametrize("kind", one_of_three(CLASSES))
async def test_other_spellings_are_set_aside_too(workspace: Path, kind: Class) -> None:
    """Also for prevented names, because a file system may not distinguish them."""
    names = [row.names[0].replace("*", "some").upper() for row in rows_of(kind)]
    async with open_sandbox() as sandbox:
        await run(sandbox, writes(workspace, WAYS["created"], *names))
    kept = [name for name in there(workspace, names) if name not in PLACEHOLDER_NAMES]
    assert [] == kept


@pytest.mark.real
@needs_bubblewrap
@pytest.mark.parametrize(("kind", "folder"), in_turn("", "part/deep/"))
async def test_existing_configuration_cannot_be_changed(
    workspace: Path, kind: Class, folder: str
) -> None:
    """It is not written, replaced, renamed, removed or moved with its folder; secrets look empty."""
    if folder:
        (workspace / folder / ".git").mkdir(parents=True)  # where CI is obeyed
    paths: list[str] = []
    for row in rows_of(kind):
        path = f"{folder}{row.names[0].replace('*', 'some')}"
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        if (workspace / path).exists():  # .git
            continue
        (workspace / path).write_text("mine", "utf-8")
        (workspace / path).chmod(0o666)
        paths.append(path)
    line = (
        'for path do cat "$path"; echo evil >> "$path"; echo x > new; mv new "$path"; rm -f "$path";'
        ' mv "$path" away; ln -sf new "$path"; ln "$path" other && echo evil >> other;'
        " mv part gone; done 2>/dev/null"
    )
    async with open_sandbox() as sandbox:
        output, _ = await run(sandbox, writes(workspace, line, *paths))
    assert {"mine"} <= {(workspace / path).read_text("utf-8") for path in paths}
    assert output == ("" if kind == "secrets" else "mine" * len(paths))


@pytest.mark.real
@needs_bubblewrap
async def test_control_ordinary_files_stay_as_the_program_made_them(workspace: Path) -> None:
    """The project's source is not in the table, nor are examples of files for secrets."""
    names = [
        *PROJECT_FILES, ".gitignore", ".env.example", "README.md", "docs/agents.txt", "my.npmrc",
        ".github/ISSUE_TEMPLATE/bug.md", "tools/run.sh", "src/head", ".config/app/settings.json",
    ]  # fmt: skip
    async with (
        open_sandbox() as sandbox,
        sandbox.open(writes(workspace, WAYS["created"], *names)) as child,
    ):
        await child.wait()
    assert names == there(workspace, names)
    assert () == child.restored
