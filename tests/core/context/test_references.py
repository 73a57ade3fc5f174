"""Bounds of references, and what a quoted conversation shows."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.context.references import (
    MAX_NAMED,
    MAX_REFERENCES,
    TOTAL_CHARS,
    cut_all,
    cut_text,
    find_folders,
    list_references,
    nearest_first,
    render_talk,
)
from palyra.core.context.views import explain_context, preview_references
from palyra.core.model.messages import (
    AssistantMessage,
    GuidanceMessage,
    Message,
    ToolMessage,
    UserMessage,
)
from palyra.core.model.sources import ContextSource
from palyra.core.tape.events import ContextAssembled, TurnStarted
from palyra.core.text.references import parse_references


def source(text: str, **fields: str) -> ContextSource:
    """A text."""
    return ContextSource(name="@file:a", kind="file", text=text, **fields)  # type: ignore[arg-type]


def test_each_reference_counts_once_and_the_rest_is_refused() -> None:
    """In the order of the text; refusals are bounded, too."""
    text = " ".join(f"@file:f{number} @file:f0" for number in range(60))
    wanted, refused = list_references(text)
    assert [f"@file:f{number}" for number in range(MAX_REFERENCES)] == [
        each.name for each in wanted
    ]
    assert refused[0].name == f"@file:f{MAX_REFERENCES}"
    assert len(refused) <= MAX_NAMED


def test_a_cut_adds_to_the_note() -> None:
    """Two reasons are two parts of one line."""
    found = cut_text(source("x" * 20, note="6 of 9 files"), 5)
    assert ("xxxxx", "6 of 9 files; cut: the first 5 of 20 characters") == (found.text, found.note)
    assert source("x") == cut_text(source("x"), 1)


@given(st.lists(st.integers(0, 3_000), max_size=12), st.integers(0, 9_000))
def test_all_texts_together_are_bounded(sizes: list[int], total: int) -> None:
    """The first ones whole, one cut, the others an error; none gets text that was not there."""
    found = cut_all([source("x" * size) for size in sizes], total)
    assert min(total, sum(sizes)) == sum(len(each.text) for each in found)
    assert len(sizes) == len(found)
    for size, each in zip(sizes, found, strict=True):
        assert len(each.text) in {0, size} or each.note
        assert bool(each.error) == (size > 0 and not each.text)
    assert TOTAL_CHARS == len(cut_all([source("x" * 99_999)])[0].text)


def test_folders_of_references_and_the_way_up() -> None:
    """Files lead to their folder, folders to themselves, pages nowhere."""
    found = find_folders(parse_references("@file:a/b/c.py @folder:d/ @url:https://x/y @file:e.py"))
    assert ("a/b", "d", "") == found
    assert ["a/b", "a", ""] == nearest_first("a/b")
    assert [""] == nearest_first("")


def test_a_talk_has_what_people_and_models_wrote() -> None:
    """Without tool outputs, guidance and empty turns."""
    said: list[Message] = [
        UserMessage("q"), AssistantMessage(""), ToolMessage("c", "t", "succeeded", "out"),
        GuidanceMessage("g"), AssistantMessage("a"), UserMessage(""),
    ]  # fmt: skip
    assert "user: q\n\nassistant: a" == render_talk(said)


def test_views_of_prompts_and_messages() -> None:
    """A layer of a later version is shown without a rank; a turn that was not asked has no model."""
    event = ContextAssembled(
        turn=3,
        segments=({"layer": "future", "tokens": 1, "kept": True, "extra": 2},),
        input_tokens=1,
        prefix_hash="p",
        catalogue_hash="c",
    )
    bare = explain_context("run_1", event, None)
    assert (0, "", 0, False) == (
        bare.attempt, bare.model, bare.segments[0].priority, bare.segments[0].protected,
    )  # fmt: skip
    started = TurnStarted(turn=3, attempt=2, provider="p", model="m")
    assert (2, "m") == (
        explain_context("run_1", event, started).attempt,
        explain_context("run_1", event, started).model,
    )
    shown = preview_references("hi", [source("x"), ContextSource(name="@run:x", error="no")], [])
    assert shown.tokens > shown.message_tokens > 0
    assert ["workspace", ""] == [each.trust for each in shown.references]
