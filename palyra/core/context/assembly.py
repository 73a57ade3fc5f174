"""Context assembly: instructions, the session's history, then the whole conversation of the run.

Assembly is deterministic: the same run and agent give the same request, byte for byte.  The stable
prefix (instructions and tools) does not change between turns, so the provider's prompt cache hits.
Tool results are fenced (`core.trust.fences`), in this run's conversation and in an inherited one.
Earlier runs of the session come first (`core.context.history`), within a token budget of their own.
References, memory and a common budget of all layers are not implemented yet.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from palyra.core.context.compaction import remaining, shortened
from palyra.core.context.history import NO_HISTORY, History, uncovered
from palyra.core.context.session_window import render
from palyra.core.journal.records import AgentRecord
from palyra.core.model.messages import (
    DEFAULT_SAMPLING,
    GuidanceMessage,
    Message,
    ModelRequest,
    ToolMessage,
    message_tokens,
)
from palyra.core.model.request_options import RequestOptions, add_instructions, client_spec
from palyra.core.model.summary import Summary
from palyra.core.model.tool_results import pair_results
from palyra.core.run.state import Run, transcript_with_results
from palyra.core.tape.events import ContextAssembled
from palyra.core.text.tokens import estimate_tokens
from palyra.core.tool.spec import Catalogue, build_catalogue
from palyra.core.trust.fences import FENCE_NOTE, fence, make_nonce
from palyra.core.trust.labels import Trust, lowest

CONTINUE = GuidanceMessage(
    "Your last turn was cut off at the output limit. Go on exactly where it stopped: repeat "
    "nothing and begin with the very next character."
)


class Prefix(msgspec.Struct, frozen=True, kw_only=True):
    """Stable part of every request of an agent with one catalogue, computed once for both."""

    agent: AgentRecord
    catalogue: Catalogue
    instructions: str  # the agent's, and the explanation of fences
    tools: tuple[dict[str, Any], ...]
    hash: str
    tokens: int


def stable_prefix(agent: AgentRecord, catalogue: Catalogue) -> Prefix:
    """Return instructions and tool descriptions, with their hash and size."""
    tools = tuple(
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in catalogue.tools.values()
    )
    return _measured(agent, catalogue, f"{agent.instructions}\n\n{FENCE_NOTE}".lstrip(), tools)


def _measured(
    agent: AgentRecord,
    catalogue: Catalogue,
    instructions: str,
    tools: tuple[dict[str, Any], ...],
) -> Prefix:
    text = msgspec.json.encode([instructions, tools], order="sorted")
    return Prefix(
        agent=agent,
        catalogue=catalogue,
        instructions=instructions,
        tools=tools,
        hash=hashlib.sha256(text).hexdigest(),
        tokens=estimate_tokens(text.decode()),
    )


def brief_prefix(prefix: Prefix, brief: RequestOptions | None) -> Prefix:
    """Return the prefix of a run with request options; a client's tool hides one of the same name.

    If the options require a call of a client's tool, all other tools are hidden.
    """
    if brief is None or brief.is_blank:
        return prefix
    own = {tool.name: tool for tool in brief.shown}
    hidden = prefix.catalogue.tools.keys() if brief.must_call else own.keys()
    specs = [spec for name, spec in prefix.catalogue.tools.items() if name not in hidden]
    specs += map(client_spec, own.values())
    catalogue = build_catalogue(specs) if own else prefix.catalogue
    tools = (
        *(tool for tool in prefix.tools if tool["name"] not in hidden),
        *(
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
            for tool in own.values()
        ),
    )
    instructions = add_instructions(prefix.instructions, brief)
    return _measured(prefix.agent, catalogue, instructions, tools)


def assemble(
    run: Run,
    prefix: Prefix,
    turn: int,
    attempt: int,
    fence_key: bytes,
    *,
    history: History = NO_HISTORY,
) -> tuple[ContextAssembled, ModelRequest]:
    """Return the request of one turn and the event that explains it.

    A retry sees the same conversation as the first attempt: messages that arrive between them wait
    for the next turn.  A turn that continues a text that was cut off gets a note about it; the note
    is part of this request only, so later turns see the text as one.  Parts removed by
    `core.context.compaction` stay removed.
    """
    said = transcript_with_results(run) if attempt == 1 else run.transcript
    cut = run.compacted
    if run.summary is not None:
        history = history.summarised(run.summary)
    skipped = max(0 if cut is None else cut.inherited_messages, uncovered(run, said))
    messages = _fenced(shortened(said, cut), run.run_id, fence_key)[skipped:]
    if run.continues(attempt):
        messages = (*messages, CONTINUE)
    is_whole = cut is None or not (skipped or cut.output_bytes)
    conversation = _conversation_layer(said[skipped:], messages, is_whole=is_whole)
    summary, summary_layer = _summary(history.summary, fence_key)
    past, past_layer = _past(remaining(history, cut), fence_key)
    event = ContextAssembled(
        turn=turn,
        segments=(
            {"layer": "instructions", "tokens": prefix.tokens, "kept": True},
            *summary_layer,
            *past_layer,
            conversation,
        ),
        input_tokens=prefix.tokens
        + sum(layer["tokens"] for layer in (conversation, *past_layer, *summary_layer)),
        prefix_hash=prefix.hash,
        catalogue_hash=prefix.catalogue.hash,
    )
    brief = run.accepted.brief
    request = ModelRequest(
        run_id=run.run_id,
        turn=turn,
        attempt=attempt,
        model=run.model,
        agent=prefix.agent.name,
        instructions=prefix.instructions,
        messages=pair_results((*summary, *past, *messages)),
        tools=prefix.tools,
        json_mode=run.accepted.json_mode,
        is_background=run.accepted.origin == "background",
        sampling=DEFAULT_SAMPLING if brief is None else brief.sampling,
        must_call=brief is not None and bool(brief.must_call),
        one_call=brief is not None and brief.one_call,
    )
    return event, request


def _conversation_layer(
    said: Sequence[Message], messages: Sequence[Message], *, is_whole: bool
) -> dict[str, Any]:
    """Return the conversation's layer: trust of `said`, size of the `messages` sent."""
    return {
        "layer": "conversation",
        "tokens": sum(map(message_tokens, messages)),
        "kept": is_whole,
        "messages": len(messages),
        "trust": lowest(_trust(message) for message in said),
    }


def _summary(
    summary: Summary | None, fence_key: bytes
) -> tuple[tuple[Message, ...], tuple[dict[str, Any], ...]]:
    """Return the summary as a message, and the layer that describes it."""
    if summary is None:
        return (), ()
    message = GuidanceMessage(render(summary, fence_key))
    layer = {
        "layer": "summary",
        "tokens": message_tokens(message),
        "kept": True,
        "messages": sum(each.last - each.first + 1 for each in summary.covers),
        "trust": lowest(entry.trust for entry in summary.ledger.entries),
    }
    return (message,), (layer,)


def _past(
    history: History, fence_key: bytes
) -> tuple[tuple[Message, ...], tuple[dict[str, Any], ...]]:
    """Return the messages of the history and the layer that describes them."""
    if not history.runs and not history.is_cut:
        return (), ()
    shown = [_fenced(run.messages, run.run_id, fence_key) for run in history.runs]
    messages = tuple(message for each in shown for message in each)
    layer = {
        "layer": "history",
        "tokens": sum(map(message_tokens, messages)),
        "kept": not history.is_cut,
        "runs": len(history.runs),
        "messages": len(messages),
        "trust": lowest(_trust(message) for run in history.runs for message in run.messages),
    }
    return messages, (layer,)


def _fenced(messages: Sequence[Message], run_id: str, key: bytes) -> tuple[Message, ...]:
    """Return the conversation with all tool results fenced."""
    return tuple(
        _fence_output(message, f"{run_id} {index}", key)
        if isinstance(message, ToolMessage)
        else message
        for index, message in enumerate(messages)
    )


def _fence_output(message: ToolMessage, place: str, key: bytes) -> ToolMessage:
    output = fence(
        message.output,
        nonce=make_nonce(key, place, message.output),
        trust=message.trust,
        source=message.tool,
    )
    return msgspec.structs.replace(message, output=output)


def _trust(message: Message) -> Trust:
    """Label of a message; the model's own text needs none, as the labels of its input count."""
    return message.trust if isinstance(message, ToolMessage) else "trusted_local"
