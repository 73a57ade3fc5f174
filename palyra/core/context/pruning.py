"""Pruning: stubs in place of old tool outputs that the model does not need in full any more.

Three kinds of outputs are pruned, once the model has answered to them:

- superseded: a reading call that was made again later, with the same arguments;
- repeated: an output that a later call of the same tool gave as well;
- long: an output over `LONG_BYTES`, which becomes its beginning and the name of its artifact;
- pictures: of any output; its text names their artifacts.

The tape keeps everything, and the model can read an artifact or make a call again.

A stub changes the middle of a prompt, and everything after the change misses the provider's cache.
So pruning advances in steps: all outputs before `Run.pruned` are pruned, all later ones are whole, and
the place moves, by `STEP` messages at least, only when that saves at least `LEAST_SAVING` tokens
and an eighth of the prompt.  Between two moves the prompt only grows at its end.  Which outputs are
pruned depends on the messages before the place only, so a stub never changes afterwards.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from palyra.core.model.messages import (
    AssistantMessage,
    Message,
    ProposedCall,
    ToolMessage,
    message_tokens,
    without_pictures,
)

WHOLE_TURNS = 3  # newest answers of the model whose calls keep their outputs
LONG_BYTES = 2_048  # of an output; a shorter one stays
STUB_CHARS = 400  # shown of a long output
SHORT_CHARS = 200  # an output that a stub would not make much shorter
LEAST_SAVING = 2_000  # tokens
STEP = 16  # messages
SAVING_PART = 8  # of the prompt
READING = frozenset({"read_file", "list_dir", "glob", "search_text", "artifact_read"})


CallKey = tuple[str, bytes]  # tool and arguments


class CallKeys:
    """Keys of the calls whose results are in a conversation, by the place of the result.

    The ids of calls are unique within one answer of the model only, so a result belongs to the answer
    before it.  A conversation grows at its end, so only new messages are read.
    """

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._keys: list[CallKey | None] = []
        self._calls: dict[str, ProposedCall] = {}  # of the last answer

    def of(self, messages: Sequence[Message]) -> Sequence[CallKey | None]:
        """Return a key for each message; None for one that is no result."""
        known = len(self._messages)
        if known > len(messages) or self._messages != list(messages[:known]):
            self._messages, self._keys, self._calls = [], [], {}
            known = 0
        for message in messages[known:]:
            key = None
            if isinstance(message, AssistantMessage):
                self._calls = {call.call_id: call for call in message.calls}
            elif isinstance(message, ToolMessage) and message.call_id in self._calls:
                call = self._calls[message.call_id]
                key = call.tool, msgspec.json.encode(call.arguments, order="sorted")
            self._messages.append(message)
            self._keys.append(key)
        return self._keys


def find_stubs(
    messages: Sequence[Message], keys: Sequence[CallKey | None] | None = None
) -> dict[int, ToolMessage]:
    """Return the stubs for these messages, by place; `keys` are those of `CallKeys`."""
    return dict(_stubs(messages, CallKeys().of(messages) if keys is None else keys))


def next_place(messages: Sequence[Message], before: int) -> int:
    """Return the next place up to which outputs may be pruned; `before` if there is none yet.

    Places are `STEP` messages apart, so a decision is considered once and not in every turn.
    """
    answers, place = 0, len(messages)
    while place > before and answers < WHOLE_TURNS:
        place -= 1
        answers += isinstance(messages[place], AssistantMessage)
    place -= place % STEP
    return max(before, place if answers == WHOLE_TURNS else 0)


def is_worth_it(saved_tokens: int, prompt_tokens: int) -> bool:
    """True if pruning saves enough to change the middle of a prompt."""
    return saved_tokens >= max(LEAST_SAVING, prompt_tokens // SAVING_PART)


def plan_pruning(messages: Sequence[Message], before: int, prompt_tokens: int) -> int:
    """Return the place up to which outputs are pruned from now on; `before` if nothing is gained."""
    place = next_place(messages, before)
    if place == before:
        return before
    saved = count_saving(messages, find_stubs(messages[:before]), find_stubs(messages[:place]))
    return place if is_worth_it(saved, prompt_tokens) else before


def count_saving(
    messages: Sequence[Message], old: Mapping[int, ToolMessage], new: Mapping[int, ToolMessage]
) -> int:
    """Return the tokens that the new stubs save; an old stub stays or becomes shorter."""
    saved = 0
    for place, stub in new.items():
        shown = old.get(place, messages[place])
        if shown != stub:
            saved += message_tokens(shown) - message_tokens(stub)
    return saved


def _stubs(
    messages: Sequence[Message], keys: Sequence[CallKey | None]
) -> Iterator[tuple[int, ToolMessage]]:
    """Yield place and stub of each output that is pruned, the newest first."""
    called: set[CallKey] = set()
    seen: set[tuple[str, str]] = set()
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if not isinstance(message, ToolMessage):
            continue
        key, output = keys[place], (message.tool, message.output)
        stub = None
        if len(message.output) > SHORT_CHARS:
            is_superseded = message.tool in READING and key in called
            stub = _stub(message, is_superseded=is_superseded, is_repeated=output in seen)
        if key is not None and message.status == "succeeded":
            called.add(key)
        seen.add(output)
        if stub is not None:
            yield place, msgspec.structs.replace(message, output=stub, pictures=())
        elif message.pictures:
            yield place, _without_pictures(message)


def _without_pictures(message: ToolMessage) -> ToolMessage:
    bare = without_pictures(message, "left out to save room; artifact_read shows it again")
    assert isinstance(bare, ToolMessage)  # noqa: S101 - of the same kind
    return bare


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
