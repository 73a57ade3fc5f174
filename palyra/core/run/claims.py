"""Claims of effects in an answer, and what the run's results say about them.

A claim is one sentence in which the model says of itself that it has written a file, run a program or
acted outside, that tests passed, or what the digest of something is.  The rules prefer to miss a claim:
a sentence with a negation, a condition, a plan or a doubt is none, nor is text in code blocks and quotes,
an echo of the user's own words, or a text that the user asked to be composed.  Sentences are English;
digests have no language (docs/decisions/0012-final-answer-checks.md).

A claim is contradicted if no result of the run can stand behind it:

- `wrote`: no program ran, and no file tool that succeeded names the file;
- `ran`: no program ran;  `acted`: no other effect ran either;
- `passed`: no program that tests ran, or the last one failed;
- a digest: nothing that the model was shown has it, and it is of no word in the conversation.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

from palyra.core.model.messages import AssistantMessage, Message, ToolMessage, UserMessage
from palyra.core.model.summary import Summary
from palyra.core.run.state import Run
from palyra.core.tool.spec import ToolSpec

MAX_CHARS = 4_000  # of an answer, a request or an output that are searched: both ends
MAX_SENTENCE_CHARS = 200
MAX_SENTENCES = 12  # with a verb of a claim
MAX_WORDS = 100  # whose digests are computed
Kind = Literal["wrote", "ran", "acted", "passed"]


class Claim(NamedTuple):
    """One claimed effect."""

    kind: Kind
    sentence: str
    names: tuple[str, ...] = ()  # files that it names


# --- claims --------------------------------------------------------------------------------------

_ASIDE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)|^[ \t]*>.*$", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^(?:```|~~~)[^\n]*\n[^\n]*\n", re.MULTILINE)
_QUOTE = re.compile(r"[\"\u201c][^\"\u201c\u201d\s]{0,40}\s[^\"\u201c\u201d\n]{0,200}[\"\u201d]")
_SENTENCE = re.compile(r"\n+|(?<=[.!?])[\s)]+|;\s|\s—\s")
_DRAFT = re.compile(
    r"\b(draft|message|e-?mail|letter|example|template|translation|commit|changelog|reply|post|"
    r"story|sentence|wording|text)s?\b[^\n]{0,80}:[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_COMPOSES = re.compile(
    r"\b(translate|rephrase|rewrite|paraphrase|proofread|correct my|grammar|pretend|imagine|role-?play|"
    r"draft|compose|diary|story|poem|essay|song|letter|e-?mail|tweet|commit message|changelog|"
    r"release notes?|cover letter|example (sentence|answer|output)|what would you say)\b",
    re.IGNORECASE,
)
# A sentence with one of these says that something did not happen, may happen, or is of another person.
_UNSURE = re.compile(
    r"\?\s*$|n[\u2019']t\b|\b(not|never|no|nothing|none|neither|nor|without|cannot|unable|fail\w*|denied|"
    r"den(?:y|ies)|refus\w*|reject\w*|block\w*|error\w*|would|could|should|can|will|shall|might|may|must|"
    r"if|unless|once|until|before|whether|unknown|unsure|tried|try|attempt\w*|pretend\w*|imagin\w*|"
    r"suppos\w*|assum\w*|plan\w*|going to|about|instead|almost|simulat\w*|"
    r"hypothetical\w*|except|yesterday|last (?:week|month|year|time)|ago|earlier|previously|someone|"
    r"you (?:have|had|wrote|created|ran|can)|you[\u2019']ve|let me|[\u2019']ll|[\u2019']d)\b",
    re.IGNORECASE,
)
_ME = r"(?:\bI|\bwe)(?:[\u2019']ve| have)?(?: (?:just|now|also|then|already|successfully|both|first|finally|even|and))*"
_AND = r"(?:\b(?:and|then|,)(?: (?:I|then|also|have))*)"
# A sentence, bullet or clause that begins with its verb: the subject is the model.
_BARE = r"(?:^\W*(?:(?:done|ok|okay|sure|success|finished|all set|complete[d]?)\W+)?(?:successfully |also )?)"
_WROTE = (
    r"(?:wrote|written|created|saved|updated|modified|edited|added|changed|deleted|removed|renamed|moved|"
    r"generated|produced|appended|overwrote|overwritten|patched|fixed|refactored|replaced|copied|stored|"
    r"recorded|implemented|placed|put|corrected|exported|dumped|made)"
)
_ACTED = (
    r"(?:sent (?:the|an?|your|it|this|that|\d+)|e-?mailed|committed|pushed|deployed|installed|uninstalled|restarted|uploaded|downloaded|"
    r"posted|scheduled|published|merged|rebooted|started|stopped|killed|migrated)"
)
_PROGRAMS = (
    r"(?:pytest|unittest|tox|nox|make|npm|pnpm|yarn|npx|cargo|go|git|ruff|mypy|eslint|tsc|jest|vitest|gradle|"
    r"mvn|docker|python3?|bash|sh|curl|pip|uv|black|flake8|cmake|ctest|rspec|rake|phpunit|dotnet)"
)
_RUN_OF = (
    rf"(?:`[^`]+`|(?:(?:the|all|its|your|our|this|that|full|whole|unit|integration|existing|complete|entire|"
    rf"new|a|an) )*(?:tests?|test suite|suite|commands?|scripts?|programs?|build|linters?|type checker|"
    rf"benchmarks?|migrations?|{_PROGRAMS})\b)"
)
_WHO = rf"(?:{_ME}|{_BARE}|{_AND}) ?"
_I_WROTE = re.compile(rf"{_WHO}{_WROTE}\b", re.IGNORECASE)
_I_RAN = re.compile(
    rf"(?:{_WHO}(?:re-?)?(?:ran|executed|invoked|launched)|{_ME} (?:re-?)?run) {_RUN_OF}",
    re.IGNORECASE,
)
_I_ACTED = re.compile(rf"{_ME} {_ACTED}\b", re.IGNORECASE)
_IS_WRITTEN = re.compile(
    rf"\b(?:has|have) (?:now |just |successfully |also )*been (?:successfully )?{_WROTE}\b|"
    rf"\b(?:is|are) now (?:{_WROTE}|in place|on disk)\b|"
    rf"\b(?:was|were) successfully {_WROTE}\b",
    re.IGNORECASE,
)
_A_FILE = re.compile(
    r"\b(?:the|that|this|a|your|new|all|both|two|three|\d+)(?: \w+)? (?:files?|director(?:y|ies)|folders?)\b"
    r"|\bto disk\b|\b(?:in|to|into) (?:the|your) workspace\b",
    re.IGNORECASE,
)
_END = (
    r"(?=\s*(?:$|[.,:!)✅✓]|in\b|now\b|again\b|locally\b|success|with\b|\(|and\b|afterwards\b|\d))"
)
_PASSED = re.compile(
    rf"\b(?:tests?|specs?|suite|checks?)(?: (?:suite|cases?|files?))?(?: (?:have|has|are|is|all|now|still|also|both))*"
    rf" (?:pass(?:ed|es|ing)?|green|succeed(?:ed|s)?|ok){_END}|"
    rf"\b\d+(?: (?:unit |integration )?tests?)? (?:passed|passing){_END}|\bexit (?:status|code) (?:is |was )?0\b",
    re.IGNORECASE,
)
_EXTENSIONS = (
    "py|pyi|txt|md|rst|json|jsonl|toml|ya?ml|[cm]?js|tsx?|jsx|css|html?|cc?|h|cpp|hpp|rs|go|java|kt|swift|cs|sh|"
    "csv|tsv|log|cfg|ini|xml|sql|rb|php|lock|svg|png|jpe?g|gif|pdf|docx?|xlsx?|env|conf|diff|patch|ipynb|tex|vue|"
    "db|sqlite|zip|gz|tar|bin|dat|out|bak|mk|bat|ps1|lua|r|scala|ex|exs|hs|ml|proto|tf"
)
_FILE = re.compile(
    rf"`([^`\s]*(?:[./][^`\s]*|file))`|(?<![\w/.@:-])((?:[\w.~-]+/)*[\w~-][\w.~-]*\.(?:{_EXTENSIONS}))(?![\w/-])"
    rf"|(?<![\w/.:-])((?:\.{{0,2}}/)?(?:[\w.-]+/)+[\w.-]*)|\b(Makefile|Dockerfile|LICENSE|README|CHANGELOG)\b",
    re.IGNORECASE,
)
_NO_FILES = re.compile(
    r"(?:node|vue|next|nuxt|three|d3|express)\.js|(?:and|or|he|w|n|i|tcp|read|yes)/\w+",
    re.IGNORECASE,
)


_LETTERS = re.compile(r"[a-z]+")
_VERBS = frozenset(_LETTERS.findall(f"{_WROTE}{_ACTED}")) | {
    *("run", "ran", "executed", "invoked", "launched"),
    *("test", "tests", "spec", "specs", "suite", "check", "checks", "passed", "passing", "exit"),
    *("place", "disk"),
}  # fmt: skip


def find_claims(answer: str, asked: Iterable[str] = ()) -> list[Claim]:
    """Return the claims of an answer of at most `MAX_CHARS`; `asked` are the texts of the user."""
    if draft := _DRAFT.search(answer):
        answer = answer[: draft.start()]
    has_block = bool(_BLOCK.search(answer))
    found: list[Claim] = []
    sentences = _SENTENCE.split(_QUOTE.sub('""', _ASIDE.sub("\n", answer)))
    for sentence in islice(filter(_may_claim, sentences), MAX_SENTENCES):
        text = sentence.strip("*_ \t")
        if (
            not _UNSURE.search(text)
            and (claim := _read(text)) is not None
            and not (has_block and claim.kind == "wrote")
        ):
            found.append(claim)
    return found and _not_asked_for(found, list(asked))


def _not_asked_for(claims: list[Claim], said: Sequence[str]) -> list[Claim]:
    """Return the claims that are no echo of the user's words; none of a text that was to be composed."""
    if any(_COMPOSES.search(_ends(text)) for text in said):
        return []
    return [each for each in claims if not any(each.sentence in text for text in said)]


def _ends(answer: str) -> str:
    half = MAX_CHARS // 2 - 1
    return answer if len(answer) <= MAX_CHARS else f"{answer[:half]}\n{answer[-half:]}"


def _may_claim(sentence: str) -> bool:
    return len(sentence) <= MAX_SENTENCE_CHARS and _has_verb(sentence)


def _has_verb(text: str) -> bool:
    return not _VERBS.isdisjoint(_LETTERS.findall(text.lower()))


def _read(text: str) -> Claim | None:
    plain = re.sub(r"^(?:[-*+•✅✓]|\d+[.)])\s*", "", text)
    if _PASSED.search(plain):
        return Claim("passed", text)
    if _I_RAN.search(plain):
        return Claim("ran", text)
    names = tuple(
        name
        for match in _FILE.finditer(plain)
        if not _NO_FILES.fullmatch(name := next(filter(None, match.groups())))
    )
    is_written = _I_WROTE.search(plain) or (names and _IS_WRITTEN.search(plain))
    if is_written and (names or _A_FILE.search(plain)):
        return Claim("wrote", text, names)
    return Claim("acted", text) if _I_ACTED.search(plain) else None


# --- results -------------------------------------------------------------------------------------

_DID_NOT_RUN = frozenset({"denied", "rejected"})
_KINDS = {"read_only_safe": "read", "idempotent_network": "fetch", "path_scoped": "file"}
_TESTS = ("test", "spec", "check", "tox", "nox", "jest", "make", "build", "cargo", "pass")
_OK = re.compile(r"\bok\b")


class _Result(NamedTuple):
    """A call that ran, with its arguments and output as text."""

    kind: str  # read, fetch, file, other
    status: str
    text: str

    @property
    def is_of_tests(self) -> bool:
        """True if its beginning or its end may be about tests."""
        text = _ends(self.text).lower()
        return any(word in text for word in _TESTS) or bool(_OK.search(text))


def _read_results(messages: Iterable[Message], specs: Mapping[str, ToolSpec]) -> list[_Result]:
    """Return the calls that ran, in order."""
    arguments: dict[str, str] = {}
    found = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            for call in message.calls:
                arguments[call.call_id] = _encode(call.arguments)
        elif isinstance(message, ToolMessage) and message.status not in _DID_NOT_RUN:
            spec = specs.get(message.tool)
            kind = "other" if spec is None else _KINDS.get(spec.tool_class, "other")
            text = f"{arguments.get(message.call_id, '')}\n{message.output}"
            found.append(_Result(kind, message.status, text))
    return found


class ShownBefore(NamedTuple):
    """Texts that the model was shown besides the messages of the run."""

    instructions: str = ""
    earlier: Sequence[Message] = ()  # of the session
    summary: Summary | None = None  # of what came before these


def find_unfounded(
    run: Run, answer: str, specs: Mapping[str, ToolSpec], background: ShownBefore
) -> Claim | None:
    """Return a claim that no result of the run, or of earlier ones of the session, can stand behind."""
    answer = _ends(answer)
    if not _has_verb(answer):
        return None
    claims = find_claims(answer, _said(run))
    if not claims:
        return None
    results = _read_results([*background.earlier, *run.transcript], specs)
    summaries = _encode([background.summary, run.summary])
    return next((each for each in claims if not _is_founded(each, results, summaries)), None)


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _said(run: Run) -> Iterable[str]:
    return (message.text for message in run.transcript if isinstance(message, UserMessage))


def _is_founded(claim: Claim, results: list[_Result], summaries: str) -> bool:
    programs = [each for each in results if each.kind == "other"]
    if claim.kind == "passed":
        last = next((each for each in reversed(programs) if each.is_of_tests), None)
        if last is not None:
            return last.status == "succeeded"
        return any(each.is_of_tests for each in results) or "pass" in summaries
    if programs or any(claim.kind == "acted" and each.kind == "fetch" for each in results):
        return True
    if claim.kind != "wrote":
        return False
    written = "\n".join(e.text for e in results if e.kind == "file" and e.status == "succeeded")
    if not claim.names:
        return bool(written)
    names = [re.split(r"[/\\]", name.rstrip("/\\"))[-1] for name in claim.names]
    return any(name in written or name in summaries for name in names)


# --- digests -------------------------------------------------------------------------------------

# MD5, SHA-1, SHA-224, SHA-256, SHA-384, SHA-512: with a letter and a digit, as whole words.
DIGEST = re.compile(
    r"(?<![0-9A-Za-z@/])(?=[a-f]*[0-9])(?=[0-9]*[a-f])"
    r"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})"
    r"(?![0-9A-Za-z])",
    re.IGNORECASE,
)
_DIGEST_WORD = re.compile(
    r"sha-?\d|md5|checksum|digest|hash|prüfsumme|empreinte|suma de", re.IGNORECASE
)
_ALGORITHMS = {32: "md5", 40: "sha1", 56: "sha224", 64: "sha256", 96: "sha384", 128: "sha512"}
_WORDS = re.compile(r"[^\s\"'`\u201c\u201d\u2018\u2019(),;:]+")
_QUOTED = re.compile(
    r"[\"'`\u201c\u2018]([^\"'`\u201c\u201d\u2018\u2019\n]{1,200})[\"'`\u201d\u2019]"
)


def find_invented(run: Run, answer: str, background: ShownBefore) -> str | None:
    """Return a digest of the answer that nothing shown to the model has, and that is of no word.

    If effects were tried and none succeeded, any digest counts; else one whose line, outside of code
    blocks, says that it is a digest or names a file.
    """
    answer = _ends(answer)
    if not DIGEST.search(answer):
        return None
    if not run.progress.missed or run.progress.succeeded:
        lines = _ASIDE.sub("\n", answer).splitlines()
        answer = "\n".join(
            line
            for line in lines
            if len(line) <= MAX_SENTENCE_CHARS
            if DIGEST.search(line) and (_DIGEST_WORD.search(line) or _names_file(line))
        )
    named = {match.lower(): match for match in DIGEST.findall(answer)}
    if not named:
        return None
    before = [background.earlier, background.summary, run.summary, run.sources]
    shown = "\n".join([background.instructions, _encode(before), *_shown(run)]).lower()
    texts = "\n".join([answer, *map(_ends, _said(run))])
    return next(
        (named[each] for each in named if each not in shown and not _is_of_word(each, texts)), None
    )


def _names_file(line: str) -> bool:
    return any(not DIGEST.search(match[0]) for match in _FILE.finditer(line))


def _is_of_word(digest: str, texts: str) -> bool:
    """True if the digest is that of the empty text or of a word or quoted text of the conversation."""
    words = ["", *_QUOTED.findall(texts), *_WORDS.findall(texts)][:MAX_WORDS]
    name = _ALGORITHMS[len(digest)]
    return any(
        hashlib.new(name, form.encode(), usedforsecurity=False).hexdigest() == digest
        for word in dict.fromkeys(words)
        for form in (word, f"{word}\n")
    )


def _shown(run: Run) -> Iterable[str]:
    """Yield the user messages, tool outputs and call arguments of the run.

    The model's texts, and guidance that repeats them, prove nothing.
    """
    for message in run.transcript:
        match message:
            case UserMessage():
                yield message.text
            case ToolMessage():
                yield message.output
            case AssistantMessage():
                yield from (_encode(call.arguments) for call in message.calls)
            case _:
                pass
