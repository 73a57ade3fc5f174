"""Answers as the providers' own documents show them, whole enough for their SDKs."""

from typing import Any

ARGUMENTS = '{"path": "b"}'


def _chat_chunk(delta: Any, finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
    return {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "big",
        "choices": [choice], **more,
    }  # fmt: skip


def _chat_call(index: int, **function: str) -> dict[str, Any]:
    call: dict[str, Any] = {"index": index, "function": function}
    return {**call, "id": f"call_{index}", "type": "function"} if "name" in function else call


def chat_answer(finish_reason: str = "tool_calls") -> list[Any]:
    """Text, then two calls whose arguments come interleaved, then usage."""
    return [
        _chat_chunk({"role": "assistant", "content": ""}),
        _chat_chunk({"content": "Let me "}),
        _chat_chunk({"content": "see\u2028…"}),
        _chat_chunk({"tool_calls": [_chat_call(0, name="read_file", arguments="")]}),
        _chat_chunk({"tool_calls": [_chat_call(1, name="read_file", arguments="{")]}),
        _chat_chunk({"tool_calls": [_chat_call(0, arguments=ARGUMENTS[:5])]}),
        _chat_chunk({"tool_calls": [_chat_call(1, arguments="}")]}),
        _chat_chunk({"tool_calls": [_chat_call(0, arguments=ARGUMENTS[5:])]}),
        _chat_chunk({}, finish_reason),
        {
            **_chat_chunk({}), "choices": [],
            "usage": {"prompt_tokens": 17, "completion_tokens": 5, "total_tokens": 22,
                      "prompt_tokens_details": {"cached_tokens": 4},
                      "completion_tokens_details": {"reasoning_tokens": 1}},
        },
        "[DONE]",
    ]  # fmt: skip


def anthropic_answer(stop_reason: str = "tool_use") -> list[Any]:
    """Thinking, text, two calls; counts are running totals."""
    usage = {"input_tokens": 10, "cache_creation_input_tokens": 3, "cache_read_input_tokens": 4}
    message: dict[str, Any] = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "big", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1},
    }  # fmt: skip
    blocks: list[tuple[Any, list[Any]]] = [
        ({"type": "thinking", "thinking": "", "signature": ""},
         [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta",
                                                         "signature": "zz"}]),
        ({"type": "text", "text": ""},
         [{"type": "text_delta", "text": "Let me "}, {"type": "text_delta", "text": "see\u2028…"}]),
        *(({"type": "tool_use", "id": f"toolu_{at}", "name": "read_file", "input": {}},
           [{"type": "input_json_delta", "partial_json": piece} for piece in pieces])
          for at, pieces in enumerate((["", ARGUMENTS[:5], ARGUMENTS[5:]], ["{", "}"]))),
    ]  # fmt: skip
    events: list[Any] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for at, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": at, "content_block": block})
        events += [{"type": "content_block_delta", "index": at, "delta": each} for each in deltas]
        events.append({"type": "content_block_stop", "index": at})
    return [
        *events,
        {"type": "message_delta", "delta": {"stop_reason": stop_reason, "stop_sequence": None},
         "usage": {"output_tokens": 5, "output_tokens_details": {"thinking_tokens": 1}}},
        {"type": "message_stop"},
    ]  # fmt: skip


def responses_answer(status: str = "completed") -> list[Any]:
    """A reasoning summary, a message, two calls; the last event holds all of it."""
    text = "Let me see\u2028…"
    content = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
               "content": [content]}  # fmt: skip
    calls = [
        {"type": "function_call", "id": f"fc_{at}", "call_id": f"call_{at}", "name": "read_file",
         "arguments": arguments, "status": "completed"}
        for at, arguments in enumerate((ARGUMENTS, "{}"))
    ]  # fmt: skip
    response = {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "big", "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "instructions": None, "metadata": {}, "parallel_tool_calls": True, "temperature": 1.0,
        "top_p": 1.0, "tool_choice": "auto", "tools": [],
    }  # fmt: skip
    usage = {
        "input_tokens": 17, "output_tokens": 5, "total_tokens": 22,
        "input_tokens_details": {"cached_tokens": 4}, "output_tokens_details": {
            "reasoning_tokens": 1},
    }  # fmt: skip
    events: list[Any] = [
        {"type": "response.created", "response": {**response, "status": "in_progress",
                                                  "output": []}},
        {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "output_index": 0,
         "summary_index": 0, "delta": "hm"},
        {"type": "response.output_item.added", "output_index": 1,
         "item": {**message, "content": [], "status": "in_progress"}},
        *({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 1,
           "content_index": 0, "delta": piece, "logprobs": []} for piece in (text[:7], text[7:])),
        {"type": "response.output_item.done", "output_index": 1, "item": message},
    ]  # fmt: skip
    for at, call in enumerate(calls, 2):
        named = {"item_id": call["id"], "output_index": at}
        events += [
            {"type": "response.output_item.added", "output_index": at,
             "item": {**call, "arguments": "", "status": "in_progress"}},
            {"type": "response.function_call_arguments.delta", **named, "delta": "{"},
            {"type": "response.function_call_arguments.delta", **named,
             "delta": call["arguments"][1:]},
            {"type": "response.function_call_arguments.done", **named,
             "arguments": call["arguments"]},
            {"type": "response.output_item.done", "output_index": at, "item": call},
        ]  # fmt: skip
    whole = {**response, "status": status, "output": [message, *calls], "usage": usage}
    events.append({"type": f"response.{status}", "response": whole})
    return [{**event, "sequence_number": at} for at, event in enumerate(events)]
