"""The final-answer contract: what is refused, and that good answers never are."""

from hashlib import md5, sha256

import msgspec
import pytest

from palyra.core.model.messages import (
    AssistantMessage,
    FinishReason,
    GuidanceMessage,
    Message,
    ProposedCall,
    ToolMessage,
    UserMessage,
)
from palyra.core.model.request_options import ANY_TOOL, ClientTool, RequestOptions
from palyra.core.run.answer import find_defect, is_tool_markup
from palyra.core.run.claims import ShownBefore
from palyra.core.run.loop_guard import LoopGuard
from palyra.core.run.state import Run, RunClock
from palyra.core.tape import events as ev
from tests.core.policy.tool_samples import a_spec
from tests.core.run.blind_claims import FALSE_CLAIMS as FIRST_CLAIMS
from tests.core.run.blind_claims import HONEST as FIRST_HONEST
from tests.core.run.blind_claims_three import FALSE_CLAIMS as THIRD_CLAIMS
from tests.core.run.blind_claims_three import HONEST as THIRD_HONEST
from tests.core.run.blind_claims_two import FALSE_CLAIMS as SECOND_CLAIMS
from tests.core.run.blind_claims_two import HONEST as SECOND_HONEST
from tests.core.run.claimed import FALSE_CLAIMS, HONEST
from tests.core.run.good_answers import GOOD_ANSWERS
from tests.rows import every_row

TOOLS = {
    "read_file": a_spec("read_file", tool_class="read_only_safe"),
    "write_file": a_spec("write_file", tool_class="path_scoped"),
    "run": a_spec("run", tool_class="effect"),
}
SHA = "3b5d5c3712955042212316173ccf37be8001f1e1f3b1a8d7f8a0c7e6b1d0e4f2"
OTHER_SHA = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
NEWLINE = b"\n"
MISSED = LoopGuard(missed=frozenset({("write_file", "d")}))


def answered(
    text: str,
    *before: Message,
    finish: FinishReason = "stop",
    json_mode: bool = False,
    progress: LoopGuard = LoopGuard(),  # noqa: B008 - frozen
) -> Run:
    """A run whose last turn has the text `text`."""
    accepted = ev.RunAccepted(
        principal="ann", session_id="s", agent="a", model="m", json_mode=json_mode
    )
    return Run(
        run_id="r",
        state="in_progress",
        accepted=accepted,
        clock=RunClock(created_ms=0),
        last_ms=0,
        next_seq=5,
        turn=1,
        transcript=(UserMessage("go"), *before, AssistantMessage(text)),
        finish_reason=finish,
        progress=progress,
    )


def code(run: Run) -> str | None:
    """The flaw's code."""
    flaw = find_defect(run, TOOLS, ShownBefore("Be useful."))
    return flaw.code if flaw is not None else None


@every_row("text", ["", "a word", '{"name": "look", "arguments": {}}'])
def test_words_are_no_call(text: str) -> None:
    """If the caller demanded a call, the guidance names the tools."""
    look = ClientTool(name="look", parameters={"type": "object"})
    other = msgspec.structs.replace(look, name="other")
    for must_call, named in (("look", "look"), (ANY_TOOL, "look, other")):
        run = answered(text)
        brief = RequestOptions(tools=(look, other), must_call=must_call)
        accepted = msgspec.structs.replace(run.accepted, brief=brief)
        flaw = find_defect(msgspec.structs.replace(run, accepted=accepted), TOOLS)
        assert flaw is not None
        assert ("not_called", True) == (flaw.code, flaw.guidance.endswith(f": {named}."))


@every_row(
    ("text", "expected"),
    [
        ('{"size": 1}', None),
        ('{"size": "a"}', "wrong_form"),
        ("[]", "wrong_form"),
        ("no", "not_json"),
    ],
)
def test_json_must_fit_the_schema_that_was_asked_for(text: str, expected: str | None) -> None:
    """JSON of another form is refused, and the guidance names the mismatch."""
    run = answered(text, json_mode=True)
    schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
    brief = RequestOptions(answer_schema=schema)
    accepted = msgspec.structs.replace(run.accepted, brief=brief)
    flaw = find_defect(msgspec.structs.replace(run, accepted=accepted), TOOLS)
    assert expected == (None if flaw is None else flaw.code)
    if flaw is not None and text == '{"size": "a"}':
        assert "size" in flaw.guidance


@every_row("text", ["", " ", "\n\t \n"])
def test_nothing_is_no_answer(text: str) -> None:
    """Blanks are nothing."""
    assert code(answered(text)) == "empty"


@every_row("finish", ["length", "tool_calls"])
def test_a_turn_that_did_not_end_by_itself_is_cut_off(finish: FinishReason) -> None:
    """The provider says so."""
    assert code(answered("All is well, and", finish=finish)) == "cut_off"


def test_a_run_without_a_word_of_the_model_has_no_answer() -> None:
    """A transcript that ends otherwise, or not at all, is empty."""
    run = answered("x")
    for transcript in ((), (UserMessage("go"),)):
        assert code(msgspec.structs.replace(run, transcript=transcript)) == "empty"


MARKUP = [
    '{"name": "read_file", "arguments": {"path": "a"}}',
    ' {"name": "read_file", "arguments": "{\\"path\\": \\"a\\"}"}\n',
    '{"tool": "run", "input": {"command": "ls"}}',
    '{"type": "function", "function": {"name": "run", "parameters": {}}}',
    '{"id": "call_1", "type": "function", "function": {"name": "run", "arguments": "{}"}}',
    '[{"name": "read_file", "arguments": {}}, {"name": "run", "arguments": {}}]',
    '{"tool_calls": [{"function": {"name": "run", "arguments": "{}"}}]}',
    '{"role": "assistant", "content": null, "tool_calls": [{"name": "run", "args": {}}]}',
    '<tool_call>{"name": "read_file", "arguments": {"path": "a"}}</tool_call>',
    "<tool_call>run</tool_call>\n<tool_call>read_file</tool_call>",
    '<function_calls>\n<invoke name="read_file"></invoke>\n</function_calls>',
    '<invoke name="run"></invoke>',
    "<function=read_file>{}</function>",
    '[TOOL_CALLS] [{"name": "run", "arguments": {}}]',
    '<|python_tag|>{"name": "run", "parameters": {}}',
    "<|tool_calls_section_begin|>run<|tool_calls_section_end|>",
    "<\uff5ctool\u2581calls\u2581begin\uff5c>run<\uff5ctool\u2581calls\u2581end\uff5c>",
    "<tool_response>42 files</tool_response>",
    "<function_results>\nok\n</function_results>",
]


@every_row("text", MARKUP)
def test_a_tool_call_written_out_is_no_answer(text: str) -> None:
    """The whole text is the call of a known tool, or a result that no tool gave."""
    assert is_tool_markup(text, TOOLS)
    assert code(answered(text)) == "tool_markup"


@every_row("text", [text for text in MARKUP if "esul" not in text and "resp" not in text])
def test_markup_of_an_unknown_tool_may_be_an_answer(text: str) -> None:
    """Markup that names no known tool is not a written-out call."""
    assert not is_tool_markup(text, {"something_else"})


@every_row("text", MARKUP)
@every_row("frame", ["To do it: {}", "{} is what I would call.", "```\n{}\n```"])
def test_markup_in_prose_or_a_code_block_is_an_answer(text: str, frame: str) -> None:
    """An answer may be about a call."""
    assert code(answered(frame.format(text) if "{}" in frame else text)) is None


@every_row(
    "text",
    [
        "{",
        "[]",
        "{}",
        "[1, 2]",
        "[" * 5_000 + "]" * 5_000,
        '{"name": "read_file"}',
        '{"name": ["read_file"], "arguments": {}}',
        '{"name": "read_file", "arguments": {}, "comment": "no call has this"}',
        '{"function": {"name": "run", "arguments": {}}, "why": "because"}',
        '{"tool_calls": [], "count": 0}',
        '{"tool_calls": []}',
        "<p>run</p>",
        "<tool_call>run",
        "[TOOL_CALLS] is a token; run is a tool",
        "<|python_tag|> run",
        '{"name": "run", "tool": "run", "arguments": {}}',
    ],
)
def test_text_that_resembles_markup_is_an_answer(text: str) -> None:
    """JSON, lists and elements of other shapes."""
    assert not is_tool_markup(text, TOOLS)


@every_row("text", ["{}", " [1]\n", '"x"', "1", "null", MARKUP[0], '{"a": 1.5e3}'])
def test_json_is_an_answer_in_json_mode(text: str) -> None:
    """Any single value counts, even one in the form of a call."""
    assert code(answered(text, json_mode=True)) is None


@every_row(
    "text",
    ["Here it is: {}", "```json\n{}\n```", "{} {}", "{'a': 1}", "NaN", "[" * 5_000 + "]" * 5_000],
)
def test_everything_else_is_no_answer_in_json_mode(text: str) -> None:
    """No words, no code block, no second value, no extensions."""
    assert code(answered(text, json_mode=True)) == "not_json"


# --- contradicted claims -------------------------------------------------------------------------


def test_a_digest_from_nowhere_contradicts_effects_that_all_failed() -> None:
    """Nothing was written, so nothing can have that digest."""
    run = answered(f"Written, SHA-256 {SHA}.", progress=MISSED)
    flaw = find_defect(run, TOOLS)
    assert flaw is not None
    assert flaw.code == "contradicted"
    assert SHA in flaw.guidance


SHOWN: list[tuple[str, tuple[Message, ...]]] = [
    ("the user", (UserMessage(f"is it {SHA}?"),)),
    ("a tool", (ToolMessage("c1", "read_file", "succeeded", f"sum {SHA.upper()}"),)),
    ("a failure", (ToolMessage("c1", "run", "failed", f"expected {SHA}"),)),
    (
        "its own arguments",
        (AssistantMessage("", (ProposedCall(call_id="c", tool="run", arguments=[SHA]),)),),
    ),
]


@every_row("before", [s[1] for s in SHOWN])
def test_a_digest_that_was_shown_may_be_named(before: tuple[Message, ...]) -> None:
    """A digest from any other source in the run is not invented."""
    assert code(answered(f"It is {SHA}.", *before, progress=MISSED)) is None


def test_a_digest_of_the_instructions_may_be_named() -> None:
    """They are shown as well."""
    assert (
        find_defect(answered(f"It is {SHA}.", progress=MISSED), TOOLS, ShownBefore(f"know {SHA}"))
        is None
    )


def test_a_digest_from_a_rejected_answer_proves_nothing() -> None:
    """A digest in a rejected answer, or in its guidance, does not count as seen."""
    before = (AssistantMessage(f"It is {SHA}."), GuidanceMessage(f"Your last turn names {SHA}."))
    again = answered(f"It is {SHA}.", *before, progress=MISSED)
    assert code(again) == "contradicted"


def test_one_of_several_is_enough() -> None:
    """The one that was never shown is named, as it was written."""
    run = answered(f"{OTHER_SHA} and {SHA.upper()}", UserMessage(OTHER_SHA), progress=MISSED)
    flaw = find_defect(run)
    assert flaw is not None
    assert SHA.upper() in flaw.sentence


@pytest.mark.parametrize(
    "progress",
    [
        LoopGuard(),
        LoopGuard(
            missed=frozenset({("write_file", "d")}), succeeded=frozenset({("write_file", "e")})
        ),
    ],
    ids=["no effect", "one succeeded"],
)
def test_a_bare_digest_contradicts_nothing_when_an_effect_may_have_made_it(
    progress: LoopGuard,
) -> None:
    """Without effects, or with one that succeeded, nothing is known against it."""
    assert code(answered(f"It is {SHA}.", progress=progress)) is None


@every_row(
    "text",
    [
        "1" * 64,
        "a" * 64,
        SHA[:63],
        SHA + "0",
        f"x{SHA}",
        SHA[:12],
        "I could not write out/report.txt: it was denied. The exit status would have been 0.",
    ],
)
def test_text_without_a_digest_is_accepted(text: str) -> None:
    """Numbers, words, short forms, paths and exit codes are not digests."""
    assert code(answered(f"So: {text}", progress=MISSED)) is None


@every_row("text", [f"I wrote out.txt (sha256 {SHA}).", f"SHA-256: {SHA}", f"{SHA}  out.txt"])
@every_row("progress", [LoopGuard(), LoopGuard(succeeded=frozenset({("write_file", "e")}))])
def test_a_digest_said_to_be_one_is_judged_in_every_run(text: str, progress: LoopGuard) -> None:
    """Without a call, or with one that succeeded, no tool has returned it."""
    assert code(answered(text, progress=progress)) == "contradicted"


@every_row(
    "text",
    [
        f"It is `{SHA}` in that example.",
        f"```\nsha256:{SHA}\n```",
        f"The SHA-256 of the empty text is {sha256(b'').hexdigest()}.",
        f"MD5 of 'hello': {md5(b'hello', usedforsecurity=False).hexdigest()}",
        f"The sha256 of hello with a newline is {sha256(b'hello' + NEWLINE).hexdigest()}.",
    ],
)
def test_a_digest_that_is_right_or_an_example_is_none_of_an_effect(text: str) -> None:
    """Digests of words are computed, and code blocks are not read."""
    assert code(answered(text)) is None


@every_row("text", FALSE_CLAIMS)
@every_row("progress", [LoopGuard(), MISSED])
def test_a_claim_without_any_call_is_contradicted(text: str, progress: LoopGuard) -> None:
    """It makes no difference whether an effect was tried."""
    assert code(answered(text, progress=progress)) == "contradicted"


def called(tool: str, status: str, output: str = "", **arguments: str) -> tuple[Message, ...]:
    """One call with its result."""
    call = ProposedCall(call_id="c", tool=tool, arguments=arguments)
    return AssistantMessage("", (call,)), ToolMessage("c", tool, status, output)


WROTE = called("write_file", "succeeded", path="src/out.txt")
CLAIMS: list[tuple[str, tuple[Message, ...], bool]] = [
    ("I wrote out.txt.", WROTE, True),
    ("I wrote src/out.txt and other notes.", WROTE, True),
    ("I wrote other.txt.", WROTE, False),
    ("I wrote out.txt.", called("write_file", "denied", path="src/out.txt"), False),
    ("I wrote out.txt.", called("read_file", "succeeded", path="src/out.txt"), False),
    ("I wrote out.txt.", called("run", "failed", argv="make"), True),
    ("I ran `make`.", called("run", "failed", argv="make"), True),
    ("I ran `make`.", WROTE, False),
    ("I committed the changes.", WROTE, False),
    ("All tests pass.", called("run", "succeeded", "3 passed", argv="pytest"), True),
    ("All tests pass.", called("run", "failed", "1 failed", argv="pytest"), False),
    ("All tests pass.", called("run", "succeeded", "a.py", argv="ls"), False),
    ("All tests pass.", called("read_file", "succeeded", "12 passed", path="ci.log"), True),
    ("I installed numpy.", called("mcp:pip.install", "succeeded"), True),
]


@every_row(("text", "before", "is_good"), CLAIMS)
def test_a_claim_is_judged_by_the_results(
    text: str, before: tuple[Message, ...], *, is_good: bool
) -> None:
    """A result that can stand behind the claim makes it good, in this run or an earlier one."""
    assert (code(answered(text, *before)) is None) == is_good
    defect = find_defect(answered(text), TOOLS, ShownBefore(earlier=before))
    assert (defect is None) == is_good


@every_row(
    "asked",
    [
        "Say exactly: I wrote out.txt.",
        "Translate into English: J'ai écrit out.txt.",
        "Write a commit message for that.",
    ],
)
def test_words_that_the_user_asked_for_claim_nothing(asked: str) -> None:
    """An echo, a translation and a composed text are the user's."""
    assert code(answered("I wrote out.txt.", UserMessage(asked))) is None


@every_row("text", HONEST)
def test_honest_texts_are_no_claims(text: str) -> None:
    """Failure, plans, questions, quotes, code and talk about files are accepted without a call."""
    assert code(answered(text)) is None


def test_the_blind_sets_have_their_figures() -> None:
    """Of answers that the rules were not made from, most claims are found, and few honest ones hit."""
    found = [code(answered(text)) for text in (*FIRST_CLAIMS, *SECOND_CLAIMS)]
    hit = [code(answered(text)) for text in (*FIRST_HONEST, *SECOND_HONEST)]
    assert (45, 43) == (len(found), found.count("contradicted"))
    assert (70, 1) == (len(hit), hit.count("contradicted"))


def test_the_third_set_has_its_figures() -> None:
    """Of false claims in other words few are found; the rules were not corrected by this set."""
    found = [code(answered(text)) for text in THIRD_CLAIMS]
    hit = [code(answered(text)) for text in THIRD_HONEST]
    assert (25, 7) == (len(found), found.count("contradicted"))
    assert (30, 1) == (len(hit), hit.count("contradicted"))


# --- good answers --------------------------------------------------------------------------------


@every_row("text", GOOD_ANSWERS)
@every_row("progress", [LoopGuard(), MISSED])
def test_good_answers_are_never_refused(text: str, progress: LoopGuard) -> None:
    """Whatever its wording, language, form and mood: an answer."""
    assert code(answered(text, progress=progress)) is None
