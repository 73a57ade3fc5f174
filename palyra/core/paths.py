"""Paths as text: the one spelling of a workspace path, and the names nobody may touch.

A path argument is relative to the workspace root, in POSIX form, without `..` and NUL; absolute
paths are refused even when they point inside, so that rules, conflict keys and prompts all see one
spelling of a file.  This is for deciding; what confines a call is how it opens the file
(`tools.confine`).
"""

import re
import unicodedata

MAX_PATH_BYTES = 4096  # PATH_MAX
MAX_NAME_BYTES = 255  # NAME_MAX


# Where keys, tokens and browser sessions are kept: never read, never written.
PRIVATE_NAMES = (
    ".ssh", ".aws", ".gnupg", ".netrc", ".git-credentials", ".pgpass", ".kube", ".azure",
    ".password-store", ".mozilla", ".thunderbird", ".librewolf", ".config/gcloud", ".config/gh",
    ".env", ".env.local", ".envrc",
)  # fmt: skip
_PRIVATE = (
    r"\.config/(?:google-chrome|chromium|bravesoftware|microsoft-edge|vivaldi|opera)[^/]*",
    r"\.env(?!\.(?:example|sample|template)(?:/|$))[^/]*",  # examples are made to be shared
)
# Changing these makes another program run something later, outside of any sandbox: never written.
# Spelled as they are looked for; where names are listed and not patterns, a jail can hold them
# before they are there (`tools.sandbox.masks`).
CONFIGURATION_NAMES = (
    ".git", ".gitconfig", ".gitmodules", ".gitattributes", ".hg", ".svn", ".husky",
    ".pre-commit-config.yaml", ".pre-commit-config.yml", ".github/workflows", ".gitlab-ci.yml",
    ".circleci", ".vscode", ".idea", ".devcontainer", ".editorconfig", ".zed", ".windsurf",
    ".windsurfrules", ".clinerules", ".roo", ".continue", ".kiro", ".aider.conf.yml",
    ".github/copilot-instructions.md", ".cursor", ".cursorrules", ".claude", ".codex", ".gemini",
    ".mcp.json", "AGENTS.md", "CLAUDE.md", "GEMINI.md", "PALYRA.md",  # taken for the owner's word
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv",
    ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".profile", ".npmrc", ".yarnrc", ".yarnrc.yml",
    ".pnpmfile.cjs", ".direnv",
)  # fmt: skip
_CONFIGURATION = (r"[^/]*\.code-workspace", r"\.(?:bash|zsh|ksh)[a-z_]*")
BARE_REPOSITORY = "HEAD"  # with it at the top, git takes the root itself for a repository


def _whole_names(names: tuple[str, ...], patterns: tuple[str, ...]) -> re.Pattern[str]:
    either = "|".join((*(re.escape(name.lower()) for name in names), *patterns))
    return re.compile(rf"(?:^|/)(?:{either})(?:/|$)")


_IS_PRIVATE = _whole_names(PRIVATE_NAMES, _PRIVATE)
_IS_CONFIGURATION = _whole_names(CONFIGURATION_NAMES, _CONFIGURATION)


def normal_path(path: str) -> str | None:
    """The one spelling of a path below the root ("" for the root); None when it is none."""
    try:
        size_bytes = len(path.encode())
    except UnicodeEncodeError:  # a lone surrogate: bytes that no honest argument holds
        return None
    if path.startswith("/") or "\0" in path or size_bytes > MAX_PATH_BYTES:
        return None
    names = [name for name in path.split("/") if name not in {"", "."}]
    if ".." in names or any(len(name.encode()) > MAX_NAME_BYTES for name in names):
        return None
    return "/".join(names)


def is_private(path: str) -> bool:
    """Whether a normal path is, or lies in, a place for secrets."""
    if path.isascii() and not path.startswith(".") and "/." not in path:
        return False  # every pattern begins with a dot, and a walk asks for every name
    return _IS_PRIVATE.search(_folded(path)) is not None


def is_configuration(path: str) -> bool:
    """Whether a normal path is, or lies in, what other programs take their orders from."""
    folded = _folded(path)
    return folded == BARE_REPOSITORY.lower() or _IS_CONFIGURATION.search(folded) is not None


def may_be_marked(folder: str, name: str) -> bool:
    """Whether an entry can be private or configuration at all, in a folder that is neither.

    `folder` is the name of the folder alone.  Cheap, for walks that ask about every entry: every
    pattern has a name that begins with a dot, or ends as below, and at most one name after it.
    """
    if name.startswith(".") or folder.startswith(".") or not (folder + name).isascii():
        return True
    return name.lower().endswith((".md", ".code-workspace", BARE_REPOSITORY.lower()))


def _folded(path: str) -> str:
    """The path as a file system that folds case or Unicode forms would take it."""
    if path.isascii():  # the same, five times faster: a walk asks for every name
        return path.lower()
    return unicodedata.normalize("NFKC", path).casefold()
