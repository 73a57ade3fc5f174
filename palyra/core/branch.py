"""A branch: the conversation that a forked run goes on from, and where it comes from."""

from collections.abc import Iterator

import msgspec

from palyra.core.events import ConversationInherited
from palyra.core.prompt import Message
from palyra.core.tape import MAX_PAYLOAD_BYTES

CHUNK_BYTES = MAX_PAYLOAD_BYTES * 3 // 4  # of messages in one event, unless one alone is larger


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation to go on from, and where it comes from."""

    run_id: str  # "": from the caller, who says that it was said
    at_seq: int
    link: str  # of that event in the journal's chain, hex
    messages: tuple[Message, ...]
    session_id: str = ""  # of that run
    artifacts: tuple[str, ...] = ()  # that hold whole outputs of calls in the messages

    @property
    def is_given(self) -> bool:
        """Whether it is the caller's word and no tape's."""
        return not self.run_id

    def events(self) -> Iterator[ConversationInherited]:
        """The branch as the new tape holds it, in as many events as its size takes."""
        for messages in _chunks(self.messages):
            yield ConversationInherited(
                run_id=self.run_id, at_seq=self.at_seq, link=self.link, messages=messages
            )


def given(messages: tuple[Message, ...]) -> Branch:
    """A conversation as the caller tells it."""
    return Branch(run_id="", at_seq=-1, link="", messages=messages)


def _chunks(messages: tuple[Message, ...]) -> Iterator[tuple[Message, ...]]:
    """The messages in order, cut into pieces that an event can hold."""
    chunk: list[Message] = []
    size = 0
    for message in messages:
        more = len(msgspec.json.encode(message))
        if chunk and size + more > CHUNK_BYTES:
            yield tuple(chunk)
            chunk, size = [], 0
        chunk.append(message)
        size += more
    yield tuple(chunk)
