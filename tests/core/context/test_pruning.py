"""Stubs in place of old outputs, and when the place moves up to which they are made."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from palyra.core.context.history import NO_HISTORY
from palyra.core.context.pruning import (
    LEAST_SAVING,
    LONG_BYTES,
    STEP,
    WHOLE_TURNS,
    count_saving,
    find_stubs,
    plan_pruning,
)
from palyra.core.context.rendering import PromptCache
from palyra.core.model.messages import (
    AssistantMessage,
    Message,
    ProposedCall,
    ToolMessage,
    UserMessage,
    message_tokens,
)
from tests.core.run.run_world import World

LONG = "word " * LONG_BYTES


def turn(
    call_id: str, tool: str, arguments: object, output: str, artifact: str | None = None
) -> list[Message]:
    """A call with its result."""
    call = ProposedCall(call_id=call_id, tool=tool, arguments=arguments)
    result = ToolMessage(call_id, tool, "succeeded", output, "workspace", (), artifact)
    return [AssistantMessage("", (call,)), result]


def stub_of(messages: list[Message], place: int) -> str | None:
    """The stub of one output, if it is pruned."""
    found = find_stubs(messages).get(place)
    return None if found is None else found.output


def test_a_file_read_again_is_superseded() -> None:
    """The same reading call later: the older output goes, the newer one stays."""
    old, new = "old " * 100, "new " * 100
    said = [
        *turn("a", "read_file", {"path": "x", "offset": 1}, old),
        *turn("b", "read_file", {"offset": 1, "path": "x"}, new),
    ]
    assert "[400 bytes left out: a later read_file reads the same again]" == stub_of(said, 1)
    assert stub_of(said, 3) is None


def test_another_page_or_tool_supersedes_nothing() -> None:
    """Other arguments, a failed call, a call that acts, equal ids of other turns."""
    text = "x" * 300
    other = [
        *turn("a", "read_file", {"path": "x"}, text),
        *turn("b", "read_file", {"path": "y"}, ""),
    ]
    acts = [*turn("a", "run", {"c": 1}, text), *turn("b", "run", {"c": 1}, "z")]
    again = [
        *turn("a", "read_file", {"path": "x"}, text),
        *turn("a", "read_file", {"path": "y"}, ""),
    ]
    failed = [
        *turn("a", "read_file", {"path": "x"}, text),
        AssistantMessage(
            "", (ProposedCall(call_id="b", tool="read_file", arguments={"path": "x"}),)
        ),
        ToolMessage("b", "read_file", "failed", "gone"),
    ]
    for said in (other, acts, again, failed):
        assert {} == find_stubs(said)


def test_an_output_given_again_is_repeated() -> None:
    """The same text of the same tool, whatever the arguments; the last one stays."""
    text = "line\n" * 100
    said = [*turn("a", "run", {"n": 1}, text), *turn("b", "run", {"n": 2}, text)]
    assert "[500 bytes left out: a later run gave the same output]" == stub_of(said, 1)
    assert stub_of(said, 3) is None


def test_a_long_output_names_its_artifact() -> None:
    """The beginning, the size, and where the rest is."""
    stub = stub_of(turn("a", "run", {}, LONG, "abc123"), 1)
    assert stub is not None
    assert stub.startswith("word word")
    assert stub.endswith("the rest is left out; the whole output is the artifact abc123]")
    bare = stub_of(turn("a", "run", {}, LONG), 1)
    assert bare is not None
    assert "call run again if it is needed" in bare


def test_short_outputs_stay() -> None:
    """A stub would hardly be shorter."""
    said = [*turn("a", "read_file", {"p": 1}, "short"), *turn("b", "read_file", {"p": 1}, "short")]
    assert {} == find_stubs(said)


def test_the_place_moves_in_steps_and_spares_the_newest() -> None:
    """Not for little, not for what the model has just seen; then for all that was answered."""
    said: list[Message] = []
    for number in range(STEP // 2 + WHOLE_TURNS - 1):
        said += turn(f"c{number}", "run", {"n": number}, f"{number}{LONG}")
    assert 0 == plan_pruning(said, 0, 0)
    said += turn("last", "run", {}, "ok")
    assert STEP == plan_pruning(said, 0, 0)
    assert STEP == plan_pruning(said, STEP, 0)
    assert 0 == plan_pruning(said, 0, 10**7), "too little of a large prompt"


def test_only_outputs_before_the_place_count() -> None:
    """A long output at the place itself stays whole, so it is no reason to move the place."""
    short = [
        each for number in range(20) for each in turn(f"c{number}", "run", {"n": number}, "ok")
    ]
    said = [UserMessage("go"), *short]
    for at, place in ((2 * STEP, 0), (2 * STEP - 2, 2 * STEP)):
        output = said[at]
        assert isinstance(output, ToolMessage)
        long = msgspec.structs.replace(output, output=f"{LONG}{LONG}")
        assert place == plan_pruning([*said[:at], long, *said[at + 1 :]], 0, 0)


OUTPUTS = st.lists(
    st.tuples(st.sampled_from(["read_file", "run"]), st.integers(0, 2), st.integers(0, 5_000)),
    max_size=40,
)


@given(OUTPUTS)
def test_stubs_never_change_and_places_only_move_on(outputs: list[tuple[str, int, int]]) -> None:
    """Turn by turn: the place grows, each move saves enough, and between moves nothing changes."""
    said: list[Message] = [UserMessage("go")]
    place = 0
    cache = PromptCache(World().run, NO_HISTORY, b"")
    for number, (tool, argument, size) in enumerate(outputs):
        said += turn(f"c{number}", tool, {"n": argument}, f"{argument} " * size)
        moved = plan_pruning(said, place, 0)
        assert moved == cache.plan_pruning(said, place, 0), "a cache changes nothing"
        assert place <= moved <= len(said)
        before, after = find_stubs(said[:place]), find_stubs(said[:moved])
        assert before == find_stubs(said[:place])
        if moved != place:
            shown = dict(enumerate(said)) | dict(before)
            saved = sum(message_tokens(shown[at]) - message_tokens(after[at]) for at in after)
            assert saved >= LEAST_SAVING
        for at, stub in after.items():
            original = said[at]
            assert isinstance(original, ToolMessage)
            assert (original.call_id, original.status) == (stub.call_id, stub.status)
            assert len(stub.output) < len(original.output)
        place = moved


def test_an_unchanged_stub_saves_nothing() -> None:
    """Only outputs that become shorter count."""
    whole = ToolMessage("c", "t", "succeeded", "word " * 400)
    stub = ToolMessage("c", "t", "succeeded", "[left out]")
    saved = message_tokens(whole) - message_tokens(stub)
    assert saved == count_saving([whole, whole], {}, {0: stub})
    assert saved == count_saving([whole, whole], {0: stub}, {0: stub, 1: stub})
    assert 0 == count_saving([whole, whole], {0: stub}, {0: stub})
