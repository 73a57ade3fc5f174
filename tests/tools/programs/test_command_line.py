"""The facts of a shell call: program, sub-command, grant key."""

from typing import Any, ClassVar

import pytest

from palyra.core.tool.arguments import Refused, check_arguments
from palyra.core.tool.spec import ToolFailure
from palyra.tools.programs.command_line import (
    MAX_LINE_CALLS,
    CommandLine,
    find_facets,
    find_scripts,
    read_command,
    split_line,
)
from palyra.tools.programs.shell import shell_spec
from tests.rows import every_row


@every_row(
    "arguments",
    [
        {},
        {"argv": ["ls"], "command": "ls"},
        {"argv": [""]},
        {"argv": ["ls", "a\0b"]},
        {"command": "  "},
        {"command": "a\0b"},
    ],
)
def test_exactly_one_of_argv_and_command(arguments: dict[str, object]) -> None:
    """Neither, both, and what no program can be given are refused; the rules see nothing."""
    with pytest.raises(ToolFailure):
        read_command(arguments)
    assert not find_facets(arguments).executable


@every_row(
    ("argv", "key"),
    [
        (["make", "test"], "make test [listed options]"),
        (["/usr/bin/make"], "/usr/bin/make [listed options]"),
        (["git", "status"], "git status [any words, listed options]"),
        (["git", "push", "origin", "main"], "git push origin main"),
        (["git", "push", "--force"], ""),  # an option that is not listed
        (["npm", "install"], "npm install"),
        (["npm", "run", "test"], "npm run test"),
        (["rm", "-rf", "a b"], "rm -rf 'a b'"),
        (["git", "-c", "core.pager=sh", "log"], ""),  # an option before it may run anything
        (["git", "grep", "-O/bin/sh", "x"], ""),
        (["git", "grep", "--open-files-in-pager=sh", "x"], ""),
        (["git", "grep", "--op=sh", "x"], ""),  # abbreviated
        (["git", "grep", "-nO/bin/sh", "x"], ""),  # bundled
        (["git", "grep", "-e", "--", "-O/bin/sh"], ""),  # "--" is the value of -e
        (["git", "grep", "-nI", "x"], ""),
        (["git", "grep", "-ni", "x", "--", "src"], "git grep [any words, listed options]"),
        (["git", "log", "--max-count=3", "-5", "-n2"], "git log [any words, listed options]"),
        (["git", "branch"], "git branch [any words, listed options]"),
        (["git", "branch", "-D", "feature"], ""),
        (["rg", "--pre", "sh", "x"], ""),
        (["rg", "--pre=sh", "x"], ""),
        (["sort", "-o", "x", "y"], ""),
        (["sort", "-rnox", "y"], ""),
        (["sort", "--compress-program=sh", "y"], ""),
        (["sort", "-rn", "-k2", "y"], "sort [any words, listed options]"),
        (["tar", "-I", "sh", "-cf", "x", "y"], ""),
        (["pytest", "-q", "tests"], "pytest tests [listed options]"),
        (["pytest", "tests", "--tb=short"], "pytest tests [listed options]"),
        (["pytest", "-p", "evil"], ""),
        (["pytest", "@args"], ""),
        (["curl", "-K", "x"], ""),
        (["ssh-add", "x\ny"], ""),  # a line of a key is a part
        (["git"], "git"),
        (["./run.sh"], ""),  # anybody may have changed it by then
        (["bin/tool"], ""),
        (["python3", "-c", "1"], ""),  # runs what it is told
        (["/usr/bin/python3", "x.py"], ""),
        (["env", "rm"], ""),
        (["xargs", "rm"], ""),
        (["/usr/bin/python3.11", "x.py"], ""),  # by any of its names
        (["perl5.36-x86_64-linux-gnu"], ""),
        (["mawk", "1"], ""),
        (["/usr/bin/ld.so", "/bin/sh"], ""),
        (["pip3.11", "install"], "pip3.11 install"),
        (["pip3.11", "--python=x", "install"], ""),
        (["/usr/../home/alice/work/run.sh"], ""),  # begins like a system folder, lies anywhere
        (["/usr/bin/../../home/alice/work/run.sh"], ""),
        (["/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "/bin/sh"], ""),
        (["/usr/bin/bash/"], ""),
        (["/usr/bin/./make"], ""),
    ],
)
def test_grants_are_narrow(argv: list[str], key: str) -> None:
    """A key is the words shown, and what the list adds; none for what can run any program at all."""
    assert key == find_facets({"argv": argv}).grant_key


READS = "[any words, listed options]"


@every_row(
    ("line", "key", "parts"),
    [
        ("git status; rm -rf .", f"git status {READS}\nrm -rf .", 2),
        ("cd sub && git status&&git diff", f"sub/: git diff {READS}\nsub/: git status {READS}", 2),
        ("pytest -q 2>&1 | tail -20", f"pytest [listed options]\ntail {READS}", 2),
        ("git grep 'a b' > /dev/null || ls", f"git grep {READS}\nls {READS}", 2),
        ("cat a.patch | git apply", "cat a.patch | git apply", 0),  # what it is given was shown
        ("cat a | sh", "", 0),
        ("pytest -q 2>&1 | tee /dev/null", "pytest [listed options]", 1),
        (
            "pytest | tee /dev/null | tail; ls",
            f"ls {READS}\npytest [listed options]\ntail {READS}",
            3,
        ),
        ("pytest | tee out", "pytest | tee out", 0),  # writes a file
        ("pytest | tee /dev/null out", "pytest | tee /dev/null out", 0),
        ("cat a | tee /dev/null | sh", "", 0),
        ("git status &", "", 0),
        ("git status $(id)", "", 0),
        ('git grep "$(id)"', "", 0),
        ("git status > x", "", 0),
        ("ls x2>/dev/nullx", "", 0),
        ("ls x2>/dev/null", "", 0),
        ("cd x && a; b", "", 0),  # b runs elsewhere if there is no x
        ("cd .. && ls", "", 0),
        ("PAGER=sh git log", "", 0),
        ("ls;;ls", "", 0),
        ("ls\nid", "", 0),
        ("eval ls; ls", "", 0),
        ("git status; ./x", "", 2),
        (" ; ".join(["ls"] * 20), "", 0),
    ],
)
def test_a_line_of_plain_calls_is_a_list_of_calls(line: str, key: str, parts: int) -> None:
    """Each has its key, and the line has none if one of them has none or a shell finds more than words."""
    facets = find_facets({"command": line})
    assert ("sh", key, parts) == (facets.executable, facets.grant_key, len(facets.parts))


def test_paths_are_shown_to_the_rules() -> None:
    """Words, values behind an equals sign, and words of a line; not options."""
    facets = find_facets({"argv": ["tool", "--key=.ssh/id", "a/b", "-v", "/etc/x"], "cwd": "part"})
    assert ("part", "tool", ".ssh/id", "a/b", "/etc/x") == facets.paths[:5]
    assert ".env" in find_facets({"command": "cat <.env|wc"}).paths


@every_row(
    "arguments",
    [
        {"argv": ["bash", "-c", "cat .env"]},
        {"argv": ["env", "/bin/sh", "-ec", "cat <.env"]},
        {"command": "bash -lc 'cat .env'"},
        {"argv": ["cat", *(f"f{n}" for n in range(200)), ".env"]},
        {"command": "echo a#b; cat .env"},  # no comment to a shell
        {"command": "true # cat .env"},
        {"command": "echo `cat .env` $(true)"},
        {"command": "echo $(cat .env)"},
        {"command": "cat .e''nv"},
        {"command": 'cat ".e"n\\v'},
        {"command": "cat .en\\\nv"},
        {"command": 'cat \'it\' "is" .env "open'},
        {"command": "f=.env; cat $f"},
    ],
)
def test_no_path_is_out_of_the_rules_sight(arguments: dict[str, object]) -> None:
    """Neither in a line for a shell among the words, nor behind many others."""
    assert ".env" in find_facets(arguments).paths


@every_row(
    ("arguments", "scripts"),
    [
        ({"argv": ["./run.sh", "x"]}, ("./run.sh",)),
        ({"argv": ["python3", "-u", "tool.py", "x"]}, ("tool.py",)),
        ({"argv": ["/usr/bin/bash", "x.sh"]}, ("/usr/bin/bash", "x.sh")),
        ({"command": "cd part && sh x.sh > out; . ./env.sh"}, ("x.sh", "./env.sh")),
        ({"argv": ["/usr/bin/python3.11", "x.py"]}, ("/usr/bin/python3.11", "x.py")),
        ({"argv": ["make", "all"]}, ()),
    ],
)
def test_scripts_are_found(arguments: dict[str, object], scripts: tuple[str, ...]) -> None:
    """The words that name a program text."""
    assert scripts == find_scripts(read_command(arguments))


class Word(str):  # noqa: FURB189 - it is handed to regular expressions
    """A word that counts calls of its startswith."""

    __slots__ = ()
    asked: ClassVar[int] = 0

    def startswith(self, *args: Any) -> bool:
        type(self).asked += 1
        return super().startswith(*args)


def test_scripts_are_found_in_one_pass() -> None:
    """However many interpreters a line names; and a script is named once, or it is read as often."""
    words = (*["sh"] * 1_000, *["-x"] * 1_000, "a.sh", "sh", "a.sh")
    call = CommandLine(("sh",), tuple(map(Word, words)), is_line=True, cwd="")
    assert ("sh", "a.sh") == find_scripts(call)
    assert Word.asked <= 2 * len(words)


@every_row(
    ("line", "words"),
    [
        ('a \'b c\' "d \\" e" f\\ g', ("a", "b c", 'd " e', "f g")),
        ("a>b<c|d&&e;f", ("a", ">", "b", "<", "c", "|", "d", "&&", "e", ";", "f")),
        ("", ()),
        ("'", ("'",)),
        ("a\\", ("a\\",)),
        ("\n\ta \n", ("a",)),
    ],
)
def test_a_line_is_split_as_a_shell_would(line: str, words: tuple[str, ...]) -> None:
    """As far as words go: what is expanded, only the shell knows."""
    assert words == tuple(split_line(line))


@every_row(
    "arguments",
    [
        {"argv": ["cat", "prod.yml"], "cwd": "conf"},
        {"argv": ["cat", "./../conf/prod.yml"], "cwd": "src"},
        {"command": "cd conf && cat prod.yml"},
        {"command": "cd src; cd ../conf; cat --in=prod.yml"},
        {"argv": ["git", "-C", "conf", "add", "prod.yml"]},
    ],
)
def test_a_path_is_shown_from_where_it_is_used(arguments: dict[str, object]) -> None:
    """A rule about a file holds from whatever folder it is named."""
    assert "conf/prod.yml" in find_facets(arguments).paths


def test_the_number_of_inspected_files_is_limited() -> None:
    """A line that names more files, from more folders, is refused before an approval."""
    line = " ".join(f"{number}" for number in range(3_000))
    assert len(find_facets({"command": line}).paths) == 3_001
    with pytest.raises(ToolFailure, match="a script file"):
        read_command({"command": f"cd a; cd b; {line}"})


def test_there_is_a_most_of_characters_that_are_looked_at() -> None:
    """Few long words from many folders cost as much: refused too, before the folders are built."""
    word = "y/" * 80
    honest = {"command": f"cd {word}; cat " + "x " * 1_000}
    assert f"{word}/x".replace("//", "/") in find_facets(honest).paths
    folders = " ".join(f"cd {word}" for _ in range(45))
    with pytest.raises(ToolFailure, match="262144 characters, counted from each folder"):
        read_command({"command": f"{folders} cat " + "x/../" * 400})


def test_lines_within_are_bounded() -> None:
    """As the one of `command` is."""
    with pytest.raises(ToolFailure, match="16384 characters"):
        read_command({"argv": ["bash", *["-c", "x" * 9_000] * 2]})


def test_an_open_quote_is_no_error_here() -> None:
    """The shell will say so; until then the words are what they look like."""
    assert ("echo", '"a') == read_command({"command": 'echo "a'}).words


@every_row(
    ("arguments", "hint"),
    [({"command": " "}, 'such as "ls -l"'), ({}, "give either argv"), ({"argv": [""]}, "argv: ")],
)
def test_an_empty_call_is_refused_with_an_example(arguments: dict[str, Any], hint: str) -> None:
    """The refusal shows a valid call."""
    with pytest.raises(ToolFailure) as refused:
        read_command(arguments)
    assert hint in refused.value.message
    empty = check_arguments(shell_spec("", 60), {"command": ""})
    assert isinstance(empty, Refused)
    assert "at least 1 characters" in empty.repair_hint or "1 to" in empty.repair_hint


def test_a_line_of_plain_calls_has_at_most_eight() -> None:
    """A longer one is text for a shell, which nothing but its own approval covers."""
    eight = " && ".join(["git status"] * MAX_LINE_CALLS)
    assert MAX_LINE_CALLS == len(find_facets({"command": eight}).parts)
    assert () == find_facets({"command": f"{eight} && git status"}).parts


@pytest.mark.parametrize(
    "line", ["chdir sub && rm a.txt", "pushd sub && rm a.txt", "builtin cd sub && rm a.txt",
             "printf -v PATH . && rm a.txt", "enable -f x.so x; rm a.txt"],
)  # fmt: skip
def test_a_shell_that_changes_itself_is_no_list_of_calls(line: str) -> None:
    """What follows would run elsewhere or be another program than its words say."""
    facts = find_facets({"command": line})
    assert ("", ()) == (facts.grant_key, facts.parts)
    assert "sub/: rm a.txt" == find_facets({"command": "cd sub && rm a.txt"}).grant_key
