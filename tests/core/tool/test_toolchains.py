"""Toolchains: the folder that shows a program, and folders that no program may see."""

import pytest

from palyra.core.tool.toolchains import (
    Toolchain,
    choose_newest,
    find_folder_problem,
    find_shimmed,
    find_toolchain,
)
from tests.rows import every_row

HOME = "/home/ada"
SYSTEM = ("/usr", "/bin", "/lib")


@every_row(
    ("program", "real", "folders"),
    [
        ("~/.pyenv/shims/python3", "~/.pyenv/shims/python3", ["~/.pyenv"]),
        ("~/.pyenv/versions/3.12.1/bin/python", "~/.pyenv/versions/3.12.1/bin/python3.12", ["~/.pyenv"]),
        ("~/.local/share/uv/python/cpython-3.13/bin/python3", "~/.local/share/uv/python/cpython-3.13.2/bin/python3.13", ["~/.local/share/uv"]),
        ("~/.local/bin/python3.12", "~/.local/share/uv/python/x/bin/python3.12", ["~/.local/bin", "~/.local/share/uv"]),
        ("~/.local/bin/black", "~/.local/share/pipx/venvs/black/bin/black", ["~/.local/bin", "~/.local/share/pipx"]),
        ("~/miniconda3/bin/python", "~/miniconda3/bin/python3.11", ["~/miniconda3"]),
        ("~/miniforge3/envs/x/bin/mamba", "~/miniforge3/envs/x/bin/mamba", ["~/miniforge3"]),
        ("~/.nvm/versions/node/v22.1.0/bin/node", "~/.nvm/versions/node/v22.1.0/bin/node", ["~/.nvm"]),
        ("~/.nvm/versions/node/v22.1.0/bin/npm", "~/.nvm/versions/node/v22.1.0/lib/npm.js", ["~/.nvm"]),
        ("~/.asdf/installs/ruby/3.3.0/bin/ruby", "~/.asdf/installs/ruby/3.3.0/bin/ruby", ["~/.asdf"]),
        ("~/.local/share/mise/installs/go/1.24/bin/go", "~/.local/share/mise/installs/go/1.24.1/bin/go", ["~/.local/share/mise"]),
        ("~/.rustup/toolchains/stable-x/bin/cargo", "~/.rustup/toolchains/stable-x/bin/cargo", ["~/.rustup/toolchains"]),
        ("~/.cargo/bin/rg", "~/.cargo/bin/rg", ["~/.cargo/bin"]),
        ("/home/linuxbrew/.linuxbrew/bin/jq", "/home/linuxbrew/.linuxbrew/Cellar/jq/1.7/bin/jq", ["/home/linuxbrew/.linuxbrew"]),
        ("/opt/node/bin/node", "/opt/node/bin/node", ["/opt/node"]),
        ("/usr/local/bin/node", "/opt/node-22/bin/node", ["/opt/node-22"]),
        ("~/.sdkman/candidates/java/current/bin/java", "~/.sdkman/candidates/java/21/bin/java", ["~/.sdkman/candidates"]),
        ("/data/toolchains/zig/zig", "/data/toolchains/zig/zig", ["/data/toolchains/zig"]),
        ("/data/py/bin/python", "/data/py/bin/python3", ["/data/py"]),
        ("~/bin/tool", "~/bin/tool", ["~/bin"]),
    ],
)  # fmt: skip
def test_a_program_names_its_toolchain(program: str, real: str, folders: list[str]) -> None:
    """The folder is that of the version manager, or the program's prefix, and it may be shown."""
    program, real, *wanted = (each.replace("~", HOME) for each in (program, real, *folders))
    found = find_toolchain(program, real, HOME, SYSTEM)
    assert Toolchain(tuple(wanted), program.rpartition("/")[0]) == found
    assert [""] * len(wanted) == [find_folder_problem(each, HOME) for each in wanted]


@every_row(
    ("folder", "why"),
    [
        ("relative", "absolute path"),
        ("/opt/../root", "absolute path"),
        ("/opt/x/", "absolute path"),
        ("/", "a home or holds one"),
        ("/home", "a home or holds one"),
        ("/home/ada", "a home or holds one"),
        ("/home/bob", "a home or holds one"),
        ("/root", "a home or holds one"),
        ("/etc", "of the machine"),
        ("/etc/ssl", "of the machine"),
        ("/var", "of the machine"),
        ("/run/user/1000", "of the machine"),
        ("/proc/1/root", "of the machine"),
        ("/home/ada/.ssh", "place for secrets"),
        ("/home/ada/.ssh/keys", "place for secrets"),
        ("/data/.aws", "place for secrets"),
        ("/home/bob/.gnupg/x", "place for secrets"),
        ("/home/ada/.config", ".config, a place for secrets"),
        ("/home/ada/.local", ".local/share/gem/credentials, a place"),
        ("/home/ada/.local/share", "a place for secrets"),
        ("/home/ada/.cargo", "credentials, a place for secrets"),
        ("/home/ada/.m2", "a place for secrets"),
        ("/srv/palyra", "overlaps /srv/palyra/home"),
        ("/srv/palyra/home/artifacts", "overlaps /srv/palyra/home"),
        ("/srv/work", "overlaps /srv/work/project"),
    ],
)  # fmt: skip
def test_a_folder_with_more_than_programs_is_refused(folder: str, why: str) -> None:
    """Homes, places for secrets, the machine's own folders, the daemon's and workspaces are not shown."""
    apart = ("/srv/palyra/home", "/srv/work/project")
    assert why in find_folder_problem(folder, HOME, apart=apart)


@pytest.mark.parametrize("name", [".ssh", ".env", ".netrc", ".aws"])
def test_a_folder_that_holds_a_place_for_secrets_is_refused(name: str) -> None:
    """The entries of the folder decide too, wherever it lies; ordinary entries do not."""
    assert name in find_folder_problem("/data/tools", HOME, names=["bin", name])
    assert not find_folder_problem("/data/tools", HOME, names=["bin", "lib", ".git", "env"])


def test_shims_stand_for_the_programs_of_their_toolchains() -> None:
    """A shim that depends on the home names the places of its programs; the newest is meant."""
    assert f"{HOME}/.asdf/installs/*/*/bin/node" == find_shimmed(f"{HOME}/.asdf/shims/node", HOME)
    assert find_shimmed(f"{HOME}/.pyenv/shims/python", HOME) is None
    assert choose_newest(["/x/3.9.1/bin/p", "/x/3.10.0/bin/p"]) == "/x/3.10.0/bin/p"
    assert choose_newest(["/t/stable-x/bin/c", "/t/1.70-x/bin/c"]) == "/t/stable-x/bin/c"
    assert choose_newest([]) is None
