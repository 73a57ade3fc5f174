"""Suggested rules: the narrowest permits that would have given a person's answers.

Pure: evidence to candidates, candidates to Cedar text, and the choice among those that the engine
has tried on every recorded decision.

**Lattice.**  Each answered call has one exact shape, and a chain of wider ones:

| facts of the call | exact shape | choice | folder |
| --- | --- | --- | --- |
| a command | start, number of words, every word at its position | one word is a path of a list | one word below a folder |
| one path that is written | the path | a path of a list | each folder above it, not the workspace |
| several paths | none | none | each folder above all of them |
| a host | host and port | none | none |
| a tool of an MCP server, on request only | the tool, the server and the tool's description | none | none |
| anything else | digest of the arguments | none | none |

The list of a choice has only paths that a person allowed in this place and that no other recorded call
speaks against, so exact shapes and choices allow no path that a person has not seen.  A folder
does: folders take the place of choices on request only.

Principal, agent, tool, class, capabilities and workspace are always exact.  No shape matches a part
of a word.

**Offered calls.**  A model may try to collect answers for a later call.  So equal calls of a run count
once, support has to come from two runs, a choice and a folder need as many runs as answers and no
run may bring more than half of the words, and calls of delegated, background or tainted runs count
for nothing.  Never offered: a call with a secret, network egress other than reading, a path outside
or protected, code in its arguments, a program of `NEVER`, critical risk, or a character outside of
printable ASCII.

**Choice.**  Shapes are tried from the narrowest to the widest; a shape is chosen if enough answers
that no narrower rule gives remain for it (greedy set cover, Chvatal 1979).
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, starmap

import msgspec

from palyra.core.journal.records import DEFAULT_WORKSPACE
from palyra.core.policy.grants import is_server_tool_key, parts_of
from palyra.core.policy.recorded import PolicyEvidence
from palyra.core.policy.request import PolicyRequest
from palyra.core.policy.views import PastCall, Proof, RuleSuggestion
from palyra.core.text.visible import visible
from palyra.core.tool.words import MAX_CHARS, MAX_WORDS, folders_above, folders_of

MIN_ANSWERS = 3  # that a rule has to save, by default
MIN_RUNS = 2
MAX_CANDIDATES = 1_000
MAX_SUGGESTIONS = 20
MAX_CHOICE = 100  # words of one choice; the most frequent are kept
# Of the words of one choice; all suggestions together are then within the limits of policies.
MAX_CHOICE_CHARS = 6_000
SHOWN_CALLS = 50  # past calls listed for one suggestion

# Programs that remove, send, install, or change what is outside the workspace.  A person answers for
# each; a rule that an operator writes can allow them.
NEVER = frozenset({
    "rm", "rmdir", "shred", "truncate", "dd", "mkfs", "mount", "umount", "chmod", "chown", "kill", "pkill",
    "killall", "curl", "wget", "scp", "sftp", "rsync", "ftp", "nc", "ncat", "telnet", "socat", "docker",
    "podman", "kubectl", "helm", "terraform", "ansible", "ansible-playbook", "aws", "gcloud", "az", "gh",
    "glab", "heroku", "fly", "vercel", "systemctl", "service", "crontab", "at", "apt", "apt-get", "dnf",
    "yum", "apk", "brew", "snap", "pip", "gem", "gpg", "openssl", "ssh-keygen", "ssh-add", "passwd",
    "useradd", "twine", "poetry", "conda", "mamba", "bundle", "composer", "pulumi", "serverless", "mysql", "psql", "redis-cli", "mail", "sendmail",
    "unlink", "srm", "wipe", "wipefs", "fdisk", "parted", "losetup", "swapoff", "chattr", "setfacl", "chgrp",
    "rclone", "restic", "borg", "lftp", "aria2c", "http", "https", "xh", "httpie", "websocat", "smbclient", "s3cmd",
    "gsutil", "mutt", "msmtp", "mailx", "ssh-copy-id", "sshfs", "mosh", "svn", "cvs", "docker-compose",
    "podman-compose", "nerdctl", "buildah", "skopeo", "minikube", "kind", "dpkg", "rpm", "pacman", "zypper",
    "emerge", "flatpak", "port", "nix-env", "guix", "code", "open", "xdg-open", "osascript", "dbus-send",
    "shutdown", "reboot", "halt", "poweroff", "init", "modprobe", "insmod", "rmmod", "sysctl", "iptables", "nft",
    "ip", "ifconfig", "batch", "tmux", "screen", "wall", "write", "sqlite3", "mongosh", "mongo", "Rscript", "R",
    "julia", "ghci", "elixir", "erl", "iex", "irb", "scala", "groovy", "jshell", "octave", "osqueryi", "m4",
})  # fmt: skip
# Of these programs only the listed commands are offered.
ONLY = {
    "git": frozenset({"add", "blame", "commit", "diff", "grep", "log", "ls-files", "rev-parse", "show", "status"}),
    "npm": frozenset({"test", "run"}),
    "yarn": frozenset({"test", "run", "lint", "build"}),
    "pnpm": frozenset({"test", "run", "lint", "build"}),
    "cargo": frozenset({"bench", "build", "check", "clippy", "doc", "fmt", "test"}),
    "go": frozenset({"build", "fmt", "test", "vet"}),
}  # fmt: skip
# A word of a command that is one of these, also before or after one of ":", "_" and "-".
_NEVER_TASKS = frozenset({
    "clean", "deploy", "install", "login", "publish", "push", "release", "uninstall", "upload",
})  # fmt: skip
_JOINTS = re.compile(r"[:_.-]|(?<=[a-z0-9])(?=[A-Z])")
_FILE = re.compile(r"/|\.[A-Za-z0-9]{1,5}$")  # a word like this names a file, and no task
# Options and settings whose value a program runs, loads or writes to; also before "=".  Sources: the
# manual pages of git, tar, sort, rg, fd, go, cargo, npm, make, zip and pytest.
_CODE_OPTIONS = frozenset({
    "--exec", "--exec-batch", "--execute", "--open-files-in-pager", "--ext-diff", "--textconv", "--output",
    "--checkpoint-action", "--to-command", "--use-compress-program", "--info-script", "--new-volume-script",
    "--rmt-command", "--rsh-command", "--compress-program", "--pre", "--hostname-bin", "-exec", "-toolexec",
    "-vettool", "-overlay", "--exec-prefix", "--config", "--script-shell", "--eval", "--unzip-command", "--pager",
    "--shell", "--init-file", "--rcfile", "--rsh", "--rsync-path", "--upload-pack", "--receive-pack", "--preload",
    "SHELL", ".SHELLFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS",
})  # fmt: skip
_SHORT_CODE_OPTIONS = {  # prefix of a word, by program
    "git": ("-O",), "tar": ("-I", "-F"), "zip": ("-TT",), "pytest": ("-p",), "fd": ("-x", "-X"),
    "fdfind": ("-x", "-X"), "make": ("-f",),
}  # fmt: skip
_PYTHONS = frozenset({"python", "pypy"})
_NEVER_MODULES = frozenset({
    "code", "ensurepip", "http", "pdb", "pip", "runpy", "timeit", "twine", "webbrowser",
})  # fmt: skip
_WRITES = "fs.write"
# A tool with any other capability, such as writing to the memory or running on the shared host, gets no rule.
_CAPABILITIES = frozenset({"fs.read", _WRITES, "process", "network", "memory.read"})
_VERSION = re.compile(r"[0-9.]+$")


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """A set of calls that one permit can describe."""

    principal: str
    agent: str
    action: str
    tool: str
    tool_class: str
    capabilities: tuple[str, ...]
    argv: tuple[str | None, ...] = ()  # None: the word below `folder`
    cwd: str = ""
    path: str | None = None
    paths: tuple[str, ...] = ()  # that a call of several paths may have; sorted
    folder: str | None = None  # of the word that is None, else of all paths
    is_choice: bool = False
    choice: tuple[str, ...] = ()  # what the word that is None may be, else the path; sorted
    key: str = ""  # of a grant for the same calls
    digest: str = ""
    workspace: str = DEFAULT_WORKSPACE

    @property
    def width(self) -> int:
        """0 for an exact shape; smaller is narrower."""
        if self.folder is None:
            return int(self.is_choice)
        return 1_000 - self.folder.count("/")


class RuleCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A shape with its rule, and the answers that it would have given."""

    shape: Shape
    suggestion_id: str
    title: str
    cedar: str
    calls: tuple[PolicyEvidence, ...]  # with equal calls of a run once


# --- shapes --------------------------------------------------------------------------------------


def is_offered(call: PolicyEvidence) -> bool:
    """True if an answer about this call may become a rule."""
    request, facets = call.request, call.request.facets
    paths = request.paths
    is_ordinary = (
        call.decided == "allowed"
        and call.is_whole
        and not request.is_tainted
        and request.origin == "interactive"
        and request.depth == 0
        and request.risk != "critical"
        and not facets.secrets
        and not paths.marks
    )
    return is_ordinary and _has_offered_kind(request) and _is_printable(request)


def why_not_offered(call: PolicyEvidence) -> str:
    """Return why no rule is offered for this call, and what would work; "" if one is."""
    request = call.request
    answer_once = "answer each such call once"
    if not call.is_whole or request.facets.secrets:
        return f"the call has a secret: {answer_once}"
    if request.is_tainted:
        return (
            "injected text has reached the run, and a rule would not hold there: "
            f"{answer_once}, and propose the call in a new session"
        )
    if request.origin != "interactive" or request.depth > 0:
        return f"the run is not interactive: {answer_once}, or write a rule for these runs"
    if request.paths.marks:
        return "a path of the call is protected or outside of the workspace: use a path inside"
    if is_offered(msgspec.structs.replace(call, decided="allowed")) and shapes_of(request):
        return ""
    return _why_no_tool(request) if _is_of_server(request) else _why_no_words(request)


def _why_no_words(request: PolicyRequest) -> str:
    answer_once = "answer each such call once"
    is_line = "process" in request.capabilities and not request.facets.argv
    return (
        "a rule matches plain words, and this line has shell syntax: propose the program as argv, "
        f"or {answer_once}"
        if is_line
        else "this program, tool or text could do more than its words show, so a rule for it is not "
        f"offered: {answer_once}, or write the rule by hand (docs/operations.md)"
    )


def _is_of_server(request: PolicyRequest) -> bool:
    """True if a rule for the call is one for all arguments of its tool: it needs a person's request."""
    return is_server_tool_key(request.tool, request.facets.grant_key)


def _why_no_tool(request: PolicyRequest) -> str:
    """Return why no rule is offered for any arguments of a tool of an MCP server; "" if one is."""
    is_known = _CAPABILITIES.issuperset(request.capabilities) and _is_printable(request)
    if is_known and request.risk != "critical":
        return ""
    return (
        f"{request.tool} has the risk {request.risk} and the capabilities {', '.join(request.capabilities)}: "
        "answer it for the session, or write the rule by hand (docs/recipes.md)"
    )


def exact_candidate(call: PolicyEvidence) -> RuleCandidate:
    """Return the narrowest rule for one call, for which `why_not_offered` has no reason."""
    shape = shapes_of(call.request)[0]
    if shape.folder is not None:  # several paths: these, not their folder
        paths = tuple(sorted(call.request.paths.inside))
        shape = msgspec.structs.replace(shape, folder=None, paths=paths)
    return _candidate(shape, [call])


def _has_offered_kind(request: PolicyRequest) -> bool:
    capabilities = frozenset(request.capabilities)
    if not capabilities <= _CAPABILITIES or _is_of_server(request):
        return False
    if "network" in capabilities and request.tool_class != "idempotent_network":
        return False
    facets = request.facets
    return "process" not in capabilities or (
        _is_offered_command(facets.command)
        and not any(map(_is_never_task, facets.argv[1:]))
        and not _has_code(facets.command.partition(" ")[0], facets.argv[1:])
    )


def _is_offered_command(command: str) -> bool:
    """True for a command that a rule may be suggested for; "" is none."""
    program, _, task = command.partition(" ")
    name = _VERSION.sub("", program)
    spellings = {program, name, name.partition(".")[0]}  # mkfs.ext4 is mkfs, pip3 is pip
    if not name or spellings & NEVER:
        return False
    if name in _PYTHONS:
        return task.removeprefix("-m ").partition(".")[0] not in _NEVER_MODULES
    return name not in ONLY or task.partition(" ")[0] in ONLY[name]


def _is_never_task(word: str) -> bool:
    parts = [word] if _FILE.search(word) else _JOINTS.split(word)
    return not word.startswith("-") and not _NEVER_TASKS.isdisjoint(map(str.casefold, parts))


def _has_code(program: str, words: Sequence[str]) -> bool:
    """True if an option hands the program a command, code, or a place to write to."""
    short = _SHORT_CODE_OPTIONS.get(program, ())
    return any(
        word.partition("=")[0] in _CODE_OPTIONS or (bool(short) and word.startswith(short))
        for word in words
    )


def _is_printable(request: PolicyRequest) -> bool:
    """True if each text that a rule would hold is printable ASCII, shown as it is."""
    facets = request.facets
    texts = (
        request.principal, request.agent, request.tool, *request.capabilities,
        *facets.argv, facets.cwd, *facets.paths, facets.host, *parts_of(facets.grant_key),
    )  # fmt: skip
    return all(
        text.isascii() and (not text or text.isprintable()) and visible(text) == text
        for text in texts
    )


def shapes_of(request: PolicyRequest) -> list[Shape]:
    """Return the shapes of a call, the narrowest first."""
    facets, paths = request.facets, request.paths
    base = Shape(
        principal=request.principal,
        agent=request.agent,
        action=request.action,
        tool=request.tool,
        tool_class=request.tool_class,
        capabilities=tuple(sorted(request.capabilities)),
        workspace=request.workspace,
    )
    change = msgspec.structs.replace
    if _is_of_server(request):
        return [change(base, key=facets.grant_key)]
    if "process" in request.capabilities:
        argv = facets.argv
        if not 0 < len(argv) <= MAX_WORDS or sum(map(len, argv)) > MAX_CHARS:
            return []
        exact = change(base, argv=argv, cwd=facets.cwd)
        first = 1 + facets.command.count(" ")  # the words that name what runs are never widened
        widened = [
            (change(exact, argv=(*argv[:at], None, *argv[at + 1 :])), folders_above(word))
            for at, word in enumerate(argv)
            if at >= first
        ]
        wider = [change(shape, is_choice=True) for shape, folders in widened if folders]
        wider += [change(shape, folder=each) for shape, folders in widened for each in folders]
        return [exact, *sorted(wider, key=lambda shape: shape.width)]
    if _WRITES in request.capabilities:
        one = paths.single
        exact_path = [change(base, path=one), change(base, is_choice=True)] if one else []
        return [*exact_path, *(change(base, folder=folder) for folder in folders_of(paths.inside))]
    if facets.host:
        return [change(base, key=facets.grant_key)] if facets.grant_key else []
    return [change(base, digest=request.digest)] if request.digest else []


# --- candidates ----------------------------------------------------------------------------------


def find_candidates(
    evidence: Sequence[PolicyEvidence], *, min_answers: int, with_folders: bool = False
) -> list[RuleCandidate]:
    """Return the supported shapes, narrowest first; at most `MAX_CANDIDATES`.

    Beyond exact shapes these are choices, or folders instead of them.
    """
    found: dict[Shape, list[PolicyEvidence]] = defaultdict(list)
    known: set[tuple[str, str, str]] = set()
    for call in evidence:
        same = (call.run_id, call.request.tool, call.request.digest)
        if not is_offered(call) or same in known:
            continue
        known.add(same)
        for shape in shapes_of(call.request):
            if not shape.width or with_folders != shape.is_choice:
                found[shape].append(call)
    spoiled = _spoiled(evidence)
    denied = [call.request for call in evidence if call.decided == "denied"]
    kept = [
        (shape, calls)
        for shape, calls in (_with_choice(*pair, spoiled, denied) for pair in found.items())
        if is_supported(shape, calls, min_answers) and not _is_narrower(shape, denied)
    ]
    kept.sort(key=lambda pair: (pair[0].width, -len(pair[1]), title_of(pair[0])))
    return list(starmap(_candidate, kept[:MAX_CANDIDATES]))


def _spoiled(evidence: Iterable[PolicyEvidence]) -> set[tuple[Shape, str]]:
    """Return the words that no choice may have, each with its shape of any principal and agent."""
    return {
        (_of_anyone(shape), _word(shape, call.request))
        for call in evidence
        if call.decided not in {"allowed", "covered"} or call.request.is_tainted
        for shape in shapes_of(call.request)
        if shape.is_choice
    }


def _of_anyone(shape: Shape) -> Shape:
    """Return the shape for any principal, agent, class and workspace."""
    return msgspec.structs.replace(
        shape, principal="", agent="", action="", tool_class="", capabilities=(), workspace=""
    )


def _with_choice(
    shape: Shape,
    calls: list[PolicyEvidence],
    spoiled: set[tuple[Shape, str]],
    denied: Sequence[PolicyRequest],
) -> tuple[Shape, list[PolicyEvidence]]:
    """Return a choice with its list, and the calls that it has; any other shape as it is."""
    if not shape.is_choice:
        return shape, calls
    anyone = _of_anyone(shape)
    counts = Counter(_word(shape, call.request) for call in calls)
    words = [
        word
        for word, _ in counts.most_common()
        if (anyone, word) not in spoiled and _is_free(shape, word, denied)
    ]
    ends = accumulate(map(len, words))
    room = sum(end <= MAX_CHOICE_CHARS for end in ends)
    choice = tuple(sorted(words[: min(room, MAX_CHOICE)]))
    inside = [call for call in calls if _word(shape, call.request) in choice]
    return msgspec.structs.replace(shape, choice=choice), inside


def is_supported(shape: Shape, calls: Sequence[PolicyEvidence], min_answers: int) -> bool:
    """True if the answers are enough, come from two runs, and show that more than one word is meant.

    A choice and a folder need that many runs, and no run that brought more than half of their words:
    otherwise one run could bring all.
    """
    runs = {call.run_id for call in calls}
    if len(calls) < min_answers or len(runs) < MIN_RUNS:
        return False
    if not shape.width:
        return True
    brought: dict[str, set[str]] = {run: set() for run in runs}
    for call in calls:
        brought[call.run_id].add(_word(shape, call.request))
    every = set().union(*brought.values())
    return (
        len(runs) >= min_answers
        and len(every) > 1
        and max(map(len, brought.values())) * 2 <= len(every)
    )


def _word(shape: Shape, request: PolicyRequest) -> str:
    if shape.argv:
        return request.facets.argv[shape.argv.index(None)]
    return request.paths.single or "\0".join(request.paths.inside)


def _is_narrower(shape: Shape, denied: Iterable[PolicyRequest]) -> bool:
    """True if the shape has a call that adds words to a denied command, or writes a denied path.

    The tool that was denied need not be that of the shape.
    """
    if shape.argv:
        return any(_adds_words(shape, request.facets.argv) for request in denied)
    paths = {
        path
        for request in denied
        if _WRITES in request.capabilities
        for path in request.paths.inside
    }
    return any(
        path == shape.path
        or path in {*shape.choice, *shape.paths}
        or shape.folder in folders_of([path])
        for path in paths
    )


def _adds_words(shape: Shape, denied: tuple[str, ...]) -> bool:
    words = {word for word in shape.argv if word is not None} | set(shape.choice)
    return denied[:1] == shape.argv[:1] and all(
        word in words or shape.folder in folders_above(word) for word in denied
    )


def _is_free(shape: Shape, word: str, denied: Iterable[PolicyRequest]) -> bool:
    """True if the choice may have this word, as far as denied calls are concerned."""
    argv = tuple(word if each is None else each for each in shape.argv)
    path = None if argv else word
    return not _is_narrower(msgspec.structs.replace(shape, argv=argv, path=path), denied)


def _candidate(shape: Shape, calls: Sequence[PolicyEvidence]) -> RuleCandidate:
    body = _conditions(shape)
    name = f"sug_{hashlib.sha256(f'{_scope(shape)}{body}'.encode()).hexdigest()[:16]}"
    return RuleCandidate(
        shape=shape,
        suggestion_id=name,
        title=title_of(shape),
        cedar=render_rule(shape, name),
        calls=tuple(calls),
    )


def choose(
    candidates: Sequence[RuleCandidate], is_safe: Callable[[str], bool], *, min_answers: int
) -> list[RuleCandidate]:
    """Return the rules to suggest, by the number of answers that they save.

    `is_safe` says of a suggestion id if the rule passed the proof.
    """
    given: set[tuple[str, str]] = set()
    chosen: list[RuleCandidate] = []
    for candidate in candidates:
        left = [call for call in candidate.calls if (call.run_id, call.call_id) not in given]
        if not is_supported(candidate.shape, left, min_answers) or not is_safe(
            candidate.suggestion_id
        ):
            continue
        given.update((call.run_id, call.call_id) for call in candidate.calls)
        chosen.append(candidate)
    chosen.sort(key=lambda each: (-len(each.calls), each.title))
    return chosen[:MAX_SUGGESTIONS]


# --- Cedar ---------------------------------------------------------------------------------------


def quote(text: str) -> str:
    """Return a text as a Cedar string literal.

    Every character but printable ASCII, and each that has a meaning in a literal, is written by its
    number (Cedar grammar, STR).
    """
    return '"' + "".join(_quoted(char) for char in text) + '"'


def _quoted(char: str) -> str:
    plain = char.isascii() and char.isprintable() and char not in '"\\*'
    return char if plain else f"\\u{{{ord(char):x}}}"


def _entity(kind: str, name: str) -> str:
    return f"{kind}::{quote(name)}"


def _set(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quote, texts))}]"


def render_rule(shape: Shape, name: str) -> str:
    """Return the permit; `name` becomes its id."""
    return f"@id({quote(name)})\n{_scope(shape)}\nwhen {{\n  {_conditions(shape)}\n}};\n"


def _scope(shape: Shape) -> str:
    return (
        f"permit (\n  principal == {_entity('Principal', shape.principal)},\n"
        f"  action == {_entity('Action', shape.action)},\n"
        f"  resource == {_entity('Tool', shape.tool)}\n)"
    )


def _conditions(shape: Shape) -> str:
    parts = [
        f"resource.class == {quote(shape.tool_class)}",
        f"resource.capabilities == {_set(shape.capabilities)}"
        if shape.capabilities
        else "resource.capabilities.isEmpty()",
        f"context.agent == {_entity('Agent', shape.agent)}",
        f"context.workspace == {quote(shape.workspace)}",
        'context.run.origin == "interactive"',
        "context.run.depth == 0",
        "!context.run.taint",
        "context.path_marks.isEmpty()",
        "context.secrets.isEmpty()",
    ]
    if shape.argv:
        words = [f"{at}:{word}" for at, word in enumerate(shape.argv) if word is not None]
        parts += [
            f"context.cwd == {quote(shape.cwd)}",
            f"context.argc == {len(shape.argv)}",
            f"context.argv.containsAll({_set(words)})",
        ]
        if shape.is_choice:
            at = shape.argv.index(None)
            parts.append(
                f"context.argv.containsAny({_set(f'{at}:{word}' for word in shape.choice)})"
            )
        if shape.folder is not None:
            below = f"{shape.argv.index(None)}:{shape.folder}"
            parts.append(f"context.argv_under.contains({quote(below)})")
    elif shape.path is not None:
        parts += ["context has path", f"context.path == {quote(shape.path)}"]
    elif shape.paths:
        parts += ["!context.paths.isEmpty()", f"{_set(shape.paths)}.containsAll(context.paths)"]
    elif shape.is_choice:
        parts += ["context has path", f"{_set(shape.choice)}.contains(context.path)"]
    elif shape.folder is not None:
        parts.append(f"context.folders.contains({quote(shape.folder)})")
    elif shape.key:
        parts.append(f"context.grant_key == {quote(shape.key)}")
    else:
        parts.append(f"context.arguments == {quote(shape.digest)}")
    return " &&\n  ".join(parts)


def title_of(shape: Shape) -> str:
    """Return the shape in words, on one line and safe to show."""
    is_elsewhere = shape.workspace != DEFAULT_WORKSPACE
    place = f", in the workspace {shape.workspace}" if is_elsewhere else ""
    return visible(f"{shape.tool}: {_calls_of(shape)}{place}")


def _calls_of(shape: Shape) -> str:
    several = f"one of {len(shape.choice)} paths"
    if shape.argv:
        below = several if shape.is_choice else f"{shape.folder}/…"
        words = (below if word is None else _shown(word) for word in shape.argv)
        place = f" in {shape.cwd}" if shape.cwd else ""
        return f"{' '.join(words)}{place}"
    if shape.paths:
        return ", ".join(shape.paths)
    if shape.is_choice:
        return several
    if shape.path is not None:
        return shape.path
    if shape.folder is not None:
        return f"files below {shape.folder}/"
    return shape.key.removeprefix(f"{shape.tool} ") or "exactly these arguments"


def _shown(word: str) -> str:
    return json.dumps(word) if " " in word or not word else word


# --- proof ---------------------------------------------------------------------------------------


def as_suggestion(candidate: RuleCandidate) -> RuleSuggestion:
    """Return the candidate as it is shown."""
    calls = candidate.calls
    return RuleSuggestion(
        suggestion_id=candidate.suggestion_id,
        title=candidate.title,
        principal=candidate.shape.principal,
        agent=candidate.shape.agent,
        tool=candidate.shape.tool,
        answers=len(calls),
        runs=len({call.run_id for call in calls}),
        cedar=candidate.cedar,
        calls=tuple(
            PastCall(
                run_id=call.run_id, call_id=call.call_id, summary=call.summary, at_ms=call.at_ms
            )
            for call in calls[:SHOWN_CALLS]
        ),
    )


def as_proof(evidence: Iterable[PolicyEvidence], **more: int) -> Proof:
    """Count the recorded decisions by their outcome; `more` has the other counts."""
    counts: dict[str, int] = defaultdict(int)
    for call in evidence:
        counts["decisions"] += 1
        counts[call.decided] += 1
        counts["tainted"] += call.request.is_tainted
    return msgspec.convert({**counts, **more}, Proof)


def trials(
    evidence: Iterable[PolicyEvidence], candidates: Sequence[RuleCandidate]
) -> Mapping[PolicyRequest, bool]:
    """Return the requests to evaluate each candidate on, with True for those that none may allow.

    A denied or tainted call is evaluated as a call of every principal, agent and workspace of the
    candidates, in an untainted interactive run: a rule with one more condition must not allow it
    either.  Facts that no candidate reads are left out, so that calls that differ in nothing else
    are evaluated once.
    """
    shapes = [each.shape for each in candidates]
    wholes = {(shape.principal, shape.agent, shape.workspace) for shape in shapes}
    exact = {each.shape.tool for each in candidates if each.shape.digest}
    change = msgspec.structs.replace
    found: dict[PolicyRequest, bool] = {}
    for call in evidence:
        request = change(
            call.request, session_id="", run_id="", now_ms=0, agent_labels=(), approval="none",
            size_bytes=0, digest=call.request.digest if call.request.tool in exact else "",
        )  # fmt: skip
        is_wrong = call.decided not in {"allowed", "covered"}
        found[request] = found.get(request, False) or is_wrong
        if call.decided == "denied" or request.is_tainted:
            for principal, agent, workspace in wholes:
                bare = change(
                    request, principal=principal, owner=principal, agent=agent, origin="interactive",
                    is_tainted=False, depth=0, in_scope=True, workspace=workspace,
                )  # fmt: skip
                found[bare] = True
    return found
