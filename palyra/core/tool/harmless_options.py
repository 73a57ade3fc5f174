"""Programs whose calls a wider answer can cover by more than their exact words: data, with sources.

An entry lists what was found harmless in the manual it names: no listed option starts a program,
names a file to write, loads code or reads options from elsewhere.  Everything that is not listed is not
harmless, so a new option of a newer version asks.  An entry without options says that options
of the program can do such things: a call with one of them is allowed once only.

`words` says what else a covered call may have:

- `any`: any words that do not begin with "-", "+" or "@".  Programs that only read.
- `same`: exactly the words that were shown, in their order.  Programs that run code of the workspace.
- `exact`: the words that were shown and no option at all.

A call of a reader (`any`) whose options are all listed only reads, so rules see it as one (`is_reader`).
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

_COUNT = re.compile(r"[-+][0-9]+")
_LETTERS = re.compile(r"(.*?)((?:[-+]?[0-9]+)?)", re.DOTALL)


class Form(NamedTuple):
    """Options of a program that a covered call may add or leave out."""

    words: Literal["any", "same", "exact"]
    source: str  # manual and version
    flags: str = ""  # letters of short options without a value, which may be bundled
    numbers: str = ""  # letters of short options with a number, in the same word or the next
    options: tuple[
        str, ...
    ] = ()  # whole words; one that ends with "=" takes any value; "*": any word
    counts: bool = False  # -5 and +5 are options
    values: str = ""  # letters of short options with any value, in the same word or the next
    most_words: int | None = None  # besides options: a further one would be written to
    first: str = ""  # pattern of the first word that is no option, where that word is a program


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_DIFF = _split(
    "-- -p -u -s -M -C --stat --shortstat --numstat --name-only --name-status --summary --cached --staged --patch "
    "--no-patch --no-color --color --color= --word-diff --word-diff= --minimal --patience --histogram --unified= "
    "--ignore-all-space --ignore-space-change --ignore-blank-lines -w -b --find-renames --no-renames --no-ext-diff "
    "--no-textconv --diff-filter= --raw --check --exit-code --quiet"
)
_LOG = _split(
    "--oneline --graph --decorate --decorate= --no-decorate --all --branches --tags --reverse --no-merges --merges "
    "--first-parent --follow --max-count= --skip= --since= --until= --after= --before= --author= --grep= "
    "--pretty=oneline --pretty=short --pretty=medium --pretty=full --pretty=fuller --pretty=reference --date= --abbrev-commit --left-right --cherry-pick --topo-order --date-order -i -n -G -S -L"
)
# Commands of sed: print, number, leave out or stop at lines, or replace text; not w, r, e, i and their flags.
_AT = r"(?:[0-9]+|\$|/[^/\\\n]+/)"
_AT_LINES = rf"{_AT}(?:,\+?{_AT})?"
_REPLACE = "|".join(
    rf"s{at}[^{at}\\\n]*{at}[^{at}\\\n]*{at}[gpI0-9]*" for at in ("/", r"\|", ",", "#")
)
_SED = rf"{_AT_LINES}!?[pdq=](?:; ?{_AT_LINES}!?[pdq=])*|(?:{_AT_LINES})?(?:{_REPLACE})"
_EXACT = "options that run, load or write: see the manual of the program"

FORMS: dict[str, Form] = {
    # --- git, 2.39 to 2.50
    "git": Form("exact", "git(1): -c, -C, --exec-path; options of each command"),
    "git status": Form("any", "git-status(1)", flags="sbvuz", options=_split(
        "-- --short --branch --porcelain --porcelain= --long --show-stash --ignored --untracked-files= --no-renames")),
    "git diff": Form("any", "git-diff(1): not --output, --ext-diff, --textconv", numbers="U", options=_DIFF),
    "git log": Form("any", "git-log(1): not --output, --ext-diff, --textconv", numbers="nU",
                    options=_DIFF + _LOG, counts=True),
    "git show": Form("any", "git-show(1): not --output, --ext-diff, --textconv", numbers="nU",
                     options=_DIFF + _LOG, counts=True),
    "git blame": Form("any", "git-blame(1)", flags="wsecfn",
                      options=_split("-- -L -M -C --porcelain --line-porcelain --show-email --date= --since=")),
    "git grep": Form("any", "git-grep(1): not -O, --open-files-in-pager, --textconv, --ext-grep",
                     flags="ainwvhHEGPFnlLzcopW", numbers="ABCm", options=_split(
        "-- -e --and --or --not --all-match --cached --untracked --ignore-case --word-regexp --invert-match "
        "--line-number --column --files-with-matches --name-only --count --show-function --function-context "
        "--heading --break --color= --no-color --max-depth= --max-count= --context= --after-context= "
        "--before-context= --fixed-strings --extended-regexp --perl-regexp")),
    "git ls-files": Form("any", "git-ls-files(1)", flags="cdmoistuz", options=_split(
        "-- --cached --deleted --modified --others --ignored --stage --unmerged --exclude-standard --full-name "
        "--error-unmatch")),
    "git rev-parse": Form("any", "git-rev-parse(1)", options=_split(
        "-- --verify --short --short= --abbrev-ref --symbolic-full-name --show-toplevel --git-dir --is-inside-work-tree "
        "--show-prefix -q --quiet")),
    "git ls-tree": Form("any", "git-ls-tree(1)", flags="rdtlz", options=_split("-- --name-only --full-tree --long")),
    "git branch": Form("any", "git-branch(1): a name would be created", flags="arv", most_words=0, options=_split(
        "--all --remotes --list --show-current -vv --no-color")),
    "git remote": Form("any", "git-remote(1): a word would be a command", flags="v", most_words=0),
    "git describe": Form("any", "git-describe(1): not --dirty", options=_split("--tags --always --long --all")),
    # --- readers: POSIX.1-2017, GNU coreutils 9, grep 3, diffutils 3
    "cat": Form("any", "cat(1)", flags="AbeEnstTuv", options=_split("-- --number --show-all")),
    "head": Form("any", "head(1)", flags="qvz", numbers="nc", options=_split("-- --lines= --bytes= --quiet"), counts=True),
    "tail": Form("any", "tail(1)", flags="qvz", numbers="nc", options=_split("-- --lines= --bytes= --quiet"), counts=True),
    "wc": Form("any", "wc(1): not --files0-from", flags="clmLw", options=_split("-- --lines --words --bytes --chars")),
    "ls": Form("any", "ls(1)", flags="1aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ", options=_split(
        "-- --all --almost-all --color --color= --human-readable --recursive --reverse --time-style= --sort=")),
    "nl": Form("any", "nl(1)", options=_split("-- -ba -bt")),
    "cut": Form("any", "cut(1)", flags="sz", values="dcbf", options=_split("-- --delimiter= --fields=")),
    "grep": Form("any", "grep(1)", flags="EFGPivwxcLlqsbHhnoarRIUzZTy", numbers="ABCm", values="e", options=_split(
        "-- --ignore-case --invert-match --word-regexp --count --color= --files-with-matches "
        "--files-without-match --max-count= --only-matching --line-number --recursive --include= --exclude= "
        "--exclude-dir= --context= --after-context= --before-context= --extended-regexp --fixed-strings "
        "--perl-regexp")),
    "rg": Form("any", "rg(1) 14: not --pre, --hostname-bin, --search-zip, --ignore-file",
               flags="nNiSswvxlcoFPUHI.uLap", numbers="ABCmdj", values="egtT", options=_split(
        "-- --glob= --iglob= --type= --type-not= --ignore-case --smart-case --case-sensitive --fixed-strings "
        "--files --files-with-matches --files-without-match --count --count-matches --hidden --no-ignore --no-heading "
        "--heading --line-number --no-line-number --column --json --max-count= --max-depth= --context= --after-context= "
        "--before-context= --sort= --color= --multiline --word-regexp --only-matching --invert-match --stats "
        "--type-list")),
    "sort": Form("any", "sort(1): not -o, -T, --compress-program, --files0-from", flags="bdfghinMRrVuzcCs",
                 values="tk", options=_split("-- --numeric-sort --reverse --unique --key= --field-separator= --version-sort")),
    "diff": Form("any", "diff(1): not -l, --to-file, --from-file", flags="abBdeEinNpqrsStTuwyZ", numbers="UC",
                 options=_split("-- --unified --unified= --brief --recursive --new-file --color= --ignore-all-space")),
    "cmp": Form("any", "cmp(1)", flags="bls", options=("--",)),
    "comm": Form("any", "comm(1)", flags="123z", options=("--",)),
    "stat": Form("any", "stat(1)", flags="Lft", options=_split("-- -c --format= --printf=")),
    "du": Form("any", "du(1): not --files0-from, -X", flags="0abchHkLlmsSx", numbers="d",
               options=_split("-- --max-depth= --human-readable --summarize --apparent-size")),
    "df": Form("any", "df(1)", flags="ahHiklPTv", options=("--",)),
    "file": Form("any", "file(1): not -C, -m, -f, -z", flags="bhiLv", options=_split("-- --mime-type --mime --brief")),
    "sha256sum": Form("any", "sha256sum(1)", flags="bctz", options=("--",)),
    "md5sum": Form("any", "md5sum(1)", flags="bctz", options=("--",)),
    "realpath": Form("any", "realpath(1)", flags="emLPqsz", options=("--",)),
    "readlink": Form("any", "readlink(1)", flags="femnqsvz", options=("--",)),
    "basename": Form("any", "basename(1)", flags="az", options=("--",)),
    "dirname": Form("any", "dirname(1)", flags="z", options=("--",)),
    "tree": Form("any", "tree(1) 2: not -o, --fromfile, -R", flags="adfhpst", numbers="L",
                 options=_split("-- -I -P --noreport --dirsfirst")),
    "uniq": Form("any", "uniq(1): a second word would be written to", flags="cdDiuz", most_words=1,
                 options=("--count", "--repeated", "--unique", "--ignore-case")),
    "tr": Form("any", "tr(1)", flags="cCdst", options=_split("-- --delete --squeeze-repeats")),
    "tac": Form("any", "tac(1)", options=("--",)),
    "echo": Form("any", "echo(1p), dash(1), bash(1): prints its words", options=("*",)),
    "pwd": Form("any", "pwd(1)", flags="LP"),
    "true": Form("any", "true(1)"),
    "test": Form("any", "test(1)", flags="fdesrwxznLh", options=_split("-eq -ne -lt -le -gt -ge -nt -ot")),
    "find": Form("any", "find(1) 4.9: not -exec, -ok, -delete, -fprint, -fls, -files0-from and their kind", options=_split(
        "-name -iname -path -ipath -wholename -regex -iregex -regextype -type -maxdepth -mindepth -size -empty -newer -newermt -mtime -mmin "
        "-perm -user -not -a -and -o -or -prune -print -print0 -printf -ls -depth -xdev -mount -quit")),
    "sed": Form("any", "sed(1) 4: not -i, -f, -e, commands that write, read or run", flags="nEr", first=_SED,
                options=("--quiet", "--regexp-extended")),
    "jq": Form("any", "jq(1) 1.7: not -f, -L", flags="rcneSsaMj", options=_split("--raw-output --compact-output --sort-keys --slurp")),
    "which": Form("any", "which(1)", flags="as"),
    # --- runners of the project's own code: the same targets, shown otherwise
    "pytest": Form("same", "pytest 8, `pytest --help`: not -p, -c, -o, --rootdir, --junitxml, --log-file",
                   flags="qvxsl", options=_split(
        "-ra -rA -rf --lf --last-failed --ff --failed-first --tb= --maxfail= --durations= --no-header --no-summary "
        "--disable-warnings --collect-only --color=")),
    "mypy": Form("same", "mypy 1, `mypy --help`: not --config-file, --*-report, --install-types, --python-executable",
                 options=_split("--strict --pretty --no-color-output --no-error-summary --show-error-codes")),
    "ruff": Form("exact", "ruff 0, `ruff help check`: --fix, --config, --output-file"),
    "ruff check": Form("same", "ruff 0, `ruff help check`: not --fix, --config, --output-file, --add-noqa",
                       flags="q", options=_split("--quiet --statistics --no-fix --diff")),
    "cargo": Form("exact", "cargo(1): --config, --manifest-path, -Z"),
    "cargo test": Form("same", "cargo-test(1)", flags="qv", options=_split("--quiet --verbose --no-fail-fast")),
    "cargo check": Form("same", "cargo-check(1)", flags="qv", options=_split("--quiet --verbose")),
    "cargo build": Form("same", "cargo-build(1)", flags="qv", options=_split("--quiet --verbose")),
    "go": Form("exact", "`go help build`: -exec, -toolexec, -overlay, -o; C"),
    "go test": Form("same", "`go help testflag`", options=_split("-v -short -failfast -race")),
    "go vet": Form("same", "`go help vet`", options=("-v",)),
    "make": Form("same", "make(1) 4: not -f, -C, -I, --eval, variables", flags="ks", numbers="j"),
    # --- known to run, load or write by an option, or to take options from a file
    **{name: Form("exact", _EXACT) for name in _split(
        "npm yarn pnpm pip docker podman tar zip unzip gzip xz zstd cpio rsync scp sftp curl wget less more man vi gcc cc "
        "clang g++ ld ar tox nox just cmake ninja meson mvn gradle dotnet yq fd fdfind ctags split patch "
        "tcpdump dd install date openssl gpg sqlite3 psql mysql bat delta gh hg svn black flake8 pyright pylint "
        "eslint prettier tsc jest vitest mocha node-gyp twine poetry hatch pre-commit ansible terraform kubectl"
    )},
}  # fmt: skip


def find_form(program: str, subcommand: str) -> tuple[Form, int] | None:
    """Return the form of a program by its name without folder, and how many words name it; None if unlisted."""
    form = FORMS.get(f"{program} {subcommand}")
    if form is not None:
        return form, 2
    form = FORMS.get(program)
    return None if form is None else (form, 1)


def is_listed(form: Form, word: str) -> bool:
    """True for a listed option.  An abbreviated option is not listed, nor is one behind "--"."""
    name, equals, _ = word.partition("=")
    if form.options == ("*",) or word in form.options or (equals and f"{name}=" in form.options):
        return True
    if f"{word}=" in form.options:  # the value is the next word
        return form.words == "any"
    if form.counts and _COUNT.fullmatch(word):
        return True
    is_short = word.startswith("-") and not word.startswith("--") and word != "-"
    return is_short and _is_short_listed(form, word[1:])


def _is_short_listed(form: Form, word: str) -> bool:
    if word[0] in form.values:
        return len(word) > 1 or form.words == "any"  # a letter alone takes the next word
    if set(word) <= set(form.flags):
        return True
    letters, number = _LETTERS.fullmatch(word).groups()  # type: ignore[union-attr]  # it matches any text
    if not letters:
        return False
    flags, last = letters[:-1], letters[-1]
    # A number in the next word is one more word, so it is no part of a form that fixes the words.
    takes = last in form.numbers and (bool(number) or form.words == "any")
    return set(flags) <= set(form.flags) and (takes or (last in form.flags and not number))


def fits_words(form: Form, words: Sequence[str]) -> bool:
    """True if these words, without options, are as many as the form allows, and the first is of its pattern."""
    if form.most_words is not None and len(words) > form.most_words:
        return False
    return not form.first or (bool(words) and re.fullmatch(form.first, words[0]) is not None)


def is_option(word: str) -> bool:
    """True for a word that a program may take for an option, or for a file of options."""
    return word.startswith(("-", "+", "@")) and word != "-"
