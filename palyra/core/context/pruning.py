"""Pruning: stubs in place of old tool outputs that the model does not need in full any more.

Three kinds of outputs are pruned, once the model has answered to them:

- superseded: a reading call that was made again later, with the same arguments;
- repeated: an output that a later call of the same tool gave as well;
- long: an output over `LONG_BYTES`, which becomes its beginning and the name of its artifact.

The tape keeps everything, and the model can read an artifact or make a call again.

A stub changes the middle of a prompt, and everything after the change misses the provider's cache.
So pruning advances in steps: all outputs before `Run.pruned` are pruned, all later ones are whole, and
the place moves only when that saves at least `LEAST_SAVING` tokens and an eighth of the prompt.
Between two moves the prompt only grows at its end.  Which outputs are pruned depends on the messages
before the place only, so a stub never changes afterwards.
"""

from collections.abc import Iterator, Sequence

import msgspec

from palyra.core.model.messages import (
    AssistantMessage,
    Message,
    ProposedCall,
    ToolMessage,
    message_tokens,
)

WHOLE_TURNS = 3  # newest answers of the model whose calls keep their outputs
LONG_BYTES = 2_048  # of an output; a shorter one stays
STUB_CHARS = 400  # shown of a long output
SHORT_CHARS = 200  # an output that a stub would not make much shorter
LEAST_SAVING = 2_000  # tokens
SAVING_PART = 8  # of the prompt
READING = frozenset({"read_file", "list_dir", "glob", "search_text", "artifact_read"})


def find_stubs(messages: Sequence[Message]) -> dict[int, ToolMessage]:
    """Return the stubs for these messages, by place."""
    return dict(_stubs(messages))


def plan_pruning(messages: Sequence[Message], before: int, prompt_tokens: int) -> int:
    """Return the place up to which outputs are pruned from now on; `before` if nothing is gained."""
    place = _answered(messages)
    if place <= before:
        return before
    least = max(LEAST_SAVING, prompt_tokens // SAVING_PART)
    outputs = [each for each in messages[before:place] if isinstance(each, ToolMessage)]
    if sum(map(message_tokens, outputs)) < least:
        return before
    shown = dict(enumerate(messages[:place])) | dict(_stubs(messages[:before]))
    stubs = find_stubs(messages[:place])
    saved = sum(message_tokens(shown[at]) - message_tokens(stub) for at, stub in stubs.items())
    return place if saved >= least else before


def _answered(messages: Sequence[Message]) -> int:
    """Return the place of the oldest answer of the model whose calls keep their outputs."""
    answers = 0
    for place in range(len(messages) - 1, -1, -1):
        answers += isinstance(messages[place], AssistantMessage)
        if answers == WHOLE_TURNS:
            return place
    return 0


def _stubs(messages: Sequence[Message]) -> Iterator[tuple[int, ToolMessage]]:
    """Yield place and stub of each output that is pruned, the newest first."""
    keys = _call_keys(messages)
    called: set[tuple[str, bytes]] = set()
    seen: set[tuple[str, str]] = set()
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if not isinstance(message, ToolMessage):
            continue
        key, output = keys.get(place), (message.tool, message.output)
        stub = None
        if len(message.output) > SHORT_CHARS:
            is_superseded = message.tool in READING and key in called
            stub = _stub(message, is_superseded=is_superseded, is_repeated=output in seen)
        if key is not None and message.status == "succeeded":
            called.add(key)
        seen.add(output)
        if stub is not None:
            yield place, msgspec.structs.replace(message, output=stub)


def _stub(message: ToolMessage, *, is_superseded: bool, is_repeated: bool) -> str | None:
    size_bytes = len(message.output.encode("utf-8", "surrogatepass"))
    if is_superseded:
        return f"[{size_bytes} bytes left out: a later {message.tool} reads the same again]"
    if is_repeated:
        return f"[{size_bytes} bytes left out: a later {message.tool} gave the same output]"
    if size_bytes <= LONG_BYTES:
        return None
    whole = (
        f"the whole output is the artifact {message.artifact}"
        if message.artifact
        else f"call {message.tool} again if it is needed"
    )
    shown = message.output[:STUB_CHARS]
    return f"{shown}\n[… {size_bytes} bytes in all, the rest is left out; {whole}]"


def _call_keys(messages: Sequence[Message]) -> dict[int, tuple[str, bytes]]:
    """Return tool and arguments of the call of each output, by the place of the output.

    The ids of calls are unique within one answer of the model only.
    """
    keys: dict[int, tuple[str, bytes]] = {}
    calls: dict[str, ProposedCall] = {}
    for place, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            calls = {call.call_id: call for call in message.calls}
        elif isinstance(message, ToolMessage) and message.call_id in calls:
            call = calls[message.call_id]
            keys[place] = call.tool, msgspec.json.encode(call.arguments, order="sorted")
    return keys
