"""Refused items: which item of a prompt is left out, and when a failure may mean its size."""

from hypothesis import given
from hypothesis import strategies as st

from palyra.core.model.images import Picture
from palyra.core.model.messages import FAILURE_CLASSES, UserMessage
from palyra.core.run.refused_items import (
    MAX_ATTEMPTS,
    Suspects,
    find_refused,
    may_be_overflow,
    oddity,
    without_refused,
)
from palyra.core.tape import events as ev
from tests.core.run.run_world import World
from tests.core.run.test_decide import begun, broke, finished
from tests.rows import every_row

PLAIN = {"name": "read", "parameters": {"type": "object", "properties": {"p": {"type": "string"}}}}
ODD = {
    "name": "mcp:x.find",
    "parameters": {"type": "object", "properties": {"q": {"type": "array"}}},
}
PICTURES = Suspects(pictures=("new", "old"), tools=(PLAIN, ODD), has_thoughts=True)


@every_row(
    ("detail", "expected"),
    [
        ("HTTP 400: Could not process image", ("picture", "new")),
        ("HTTP 400: messages.0.content.1.image.source.base64: invalid", ("picture", "new")),
        ("HTTP 400: Unable to process input media", ("picture", "new")),
        ("HTTP 400: messages.1.content.0: Invalid `signature` in `thinking` block",
         ("reasoning", "reasoning")),
        ("HTTP 400: The encrypted content could not be verified", ("reasoning", "reasoning")),
        ("HTTP 400: property 'reasoning_content' is unsupported", ("reasoning", "reasoning")),
        ("HTTP 400: Invalid schema for function 'mcp_x_find': array schema missing items",
         ("tool", "mcp:x.find")),
        ("HTTP 400: tools.1.custom.input_schema: JSON schema is invalid", ("tool", "mcp:x.find")),
        ("HTTP 400: GenerateContentRequest.tools[0].function_declarations[1].parameters: missing field",
         ("tool", "mcp:x.find")),
        ("HTTP 400: request to the tools failed: bad schema", ("tool", "mcp:x.find")),
        ("HTTP 400: failed to read the tools: bad schema", ("tool", "mcp:x.find")),  # `read` is a word
        ("HTTP 400: Bad Request", ("picture", "new")),
        ("HTTP 404: the model does not exist", None),
        ("HTTP 400: unknown parameter: top_k", None),
    ],
)  # fmt: skip
def test_the_words_of_a_refusal_name_the_item(
    detail: str, expected: tuple[str, str] | None
) -> None:
    """The item named is left out; without a name it is the newest picture, or none."""
    found = find_refused(1, "invalid_request", detail, PICTURES)
    assert expected == (found and (found.item, found.name))


def test_missing_reasoning_is_no_reason_to_leave_it_out() -> None:
    """A provider that wants reasoning back must not get less of it."""
    suspects = Suspects(has_thoughts=True)
    said = "reasoning_content is missing in assistant tool call message"
    assert find_refused(1, "invalid_request", said, suspects) is None


@given(st.sampled_from(FAILURE_CLASSES), st.text(max_size=40), st.integers(1, 20))
def test_a_suspect_is_an_item_of_the_prompt(failure: object, detail: str, attempt: int) -> None:
    """Whatever the words, only items of the prompt are left out, and only so often."""
    found = find_refused(1, failure, detail, PICTURES, attempt=attempt)  # type: ignore[arg-type]  # one of them
    known = {
        ("picture", "new"),
        ("tool", "read"),
        ("tool", "mcp:x.find"),
        ("reasoning", "reasoning"),
    }
    assert found is None or ((found.item, found.name) in known and attempt <= MAX_ATTEMPTS)
    if failure not in {"invalid_request", "content_policy"}:
        assert found is None


def test_schemas_that_all_providers_take_are_not_odd() -> None:
    """References, arrays without items and empty lists of values are."""
    assert 0 == oddity(PLAIN["parameters"])
    inner: tuple[object, ...] = (
        {"$ref": "#/x"},
        {"type": "array"},
        {"enum": []},
        {"type": ["string", "null"]},
    )
    odd = [oddity({"type": "object", "properties": {"p": each}}) for each in inner]
    assert all(odd)
    assert oddity({"anyOf": [PLAIN["parameters"]]})


def test_a_refused_picture_becomes_a_line_of_text() -> None:
    """The other pictures stay, and so does a message without the picture."""
    one, two = (
        Picture(artifact=name, session_id="s", media_type="image/png", size_bytes=9)
        for name in "ab"
    )
    message = UserMessage("look", (one, two))
    left = without_refused(message, ("picture:a", "tool:b"))
    assert isinstance(left, UserMessage)
    assert (two,) == left.pictures
    assert "the provider refused it" in left.text
    assert without_refused(message, ("tool:a",)) is message


@every_row(
    ("failure", "detail", "tokens", "good", "expected"),
    [
        ("invalid_request", "HTTP 400: bad request", 15_000, 0, True),
        ("invalid_request", "HTTP 422: bad request", 4_000, 1_500, True),
        ("invalid_request", "HTTP 400: bad request", 4_000, 3_900, False),
        ("transient", "HTTP 500 without an explanation", 15_000, 14_000, True),
        ("invalid_request", "HTTP 404: model not found", 15_000, 0, False),
        ("auth", "HTTP 401", 15_000, 0, False),
    ],
)
def test_an_unexplained_failure_of_a_large_prompt_may_be_its_size(
    failure: str, detail: str, tokens: int, good: int, *, expected: bool
) -> None:
    """Large by itself, or much larger than the last one that was answered."""
    assert expected == may_be_overflow(failure, detail, tokens, good)  # type: ignore[arg-type]  # one of them


def _refusing() -> World:
    world = begun()
    refused = ev.ItemRefused(turn=1, item="picture", name="a", detail="no")
    world.env = world.env.__class__(
        **{name: getattr(world.env, name) for name in world.env.__struct_fields__}
        | {"find_refused": lambda run, _class, _detail, may_retry: None if run.refused else refused}  # noqa: ARG005 - the port's
    )
    return world


def test_a_refused_item_is_recorded_and_the_turn_tried_again() -> None:
    """The event stands between the failure and the next attempt, and the run remembers it."""
    world = _refusing()
    said = broke(world, "invalid_request")
    assert ["turn.failed", "item.refused"] == said[:2]
    assert "turn.started" == said[-1]
    assert ("picture:a",) == world.run.refused
    assert "run.failed" == broke(world, "invalid_request")[-1]


def test_text_that_was_streamed_blocks_no_retry() -> None:
    """A connection that broke is tried again, as often as one that was silent."""
    world = begun()
    assert "turn.started" == broke(world, "transient")[-1]
    assert "run.done" == finished(world, text="whole")[-1]
