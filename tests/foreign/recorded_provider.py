"""A provider that plays recorded turns over two APIs, and is as strict about a history as the originals.

A conversation of `recordings.json` is chosen by its mark in the newest text of the person, and its turn by
the answers that followed; a request without a mark, such as for a title, gets a short text.  What one of
the originals answers with 400 is answered so here: a result without its call, a call without its result,
reasoning that does not come back.
"""

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RECORDINGS = Path(__file__).parent / "recordings.json"
SHORT = {"text": "ok"}


@dataclass
class Played:
    """What was asked and refused so far."""

    project: str
    url: str = ""
    refused: list[str] = field(default_factory=list)
    turns: list[tuple[str, int]] = field(default_factory=list)  # mark, index

    def choose(self, texts: list[str], after: int) -> dict[str, Any]:
        """The turn that follows `after` answers to the newest of the texts."""
        known = json.loads(RECORDINGS.read_text(encoding="utf-8"))
        newest = texts[-1] if texts else ""
        mark = next((name for name in known if f"[{name}]" in newest), None)
        if mark is None or after >= len(known[mark]):
            return SHORT
        self.turns.append((mark, after))
        turn: dict[str, Any] = json.loads(
            json.dumps(known[mark][after]).replace("{project}", self.project)
        )
        return turn


def blocks_of(message: Any) -> list[Any]:
    """The blocks of a message of the Anthropic API."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def read_messages(body: Any) -> tuple[list[str], int]:
    """Texts of the person, and the answers after the newest.  Raises ValueError as the original refuses."""
    texts, after, open_calls, thought, lost = list[str](), 0, set[str](), True, ""
    for message in body["messages"]:
        blocks = blocks_of(message)
        if message["role"] == "assistant":
            if open_calls:
                raise ValueError(f"tool_use ids without tool_result: {sorted(open_calls)}")
            open_calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
            thought = any(
                block["type"] == "thinking" and block.get("signature") for block in blocks
            )
            after += 1
            continue
        given = {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}
        if given != open_calls:
            raise ValueError(f"tool_result of {sorted(given)} for tool_use of {sorted(open_calls)}")
        if given and not thought:
            lost = "a turn that calls a tool lost its signed thinking block"
        open_calls = set()
        said = "".join(block["text"] for block in blocks if block["type"] == "text")
        if "[" in said and not given:
            texts.append(said)
            after, lost = 0, ""  # that of earlier answers may be left out
    if lost:
        raise ValueError(lost)
    return texts, after


def write_messages(turn: dict[str, Any]) -> Iterator[Any]:
    """The events of a turn."""
    usage = {"input_tokens": 900, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 600}
    head = {
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message",
        "role": "assistant",
        "model": "big",
    }
    yield {"type": "message_start", "message": {**head, "content": [], "stop_reason": None,
                                                "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}}  # fmt: skip
    parts: list[tuple[Any, list[Any]]] = [
        ({"type": "thinking", "thinking": "", "signature": ""},
         [{"type": "thinking_delta", "thinking": turn.get("thought", "I look.")},
          {"type": "signature_delta", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk="}]),
        ({"type": "text", "text": ""},
         [{"type": "text_delta", "text": piece} for piece in pieces(turn.get("text", "I will."))]),
    ]  # fmt: skip
    for call in turn.get("calls", ()):
        opened = {
            "type": "tool_use",
            "id": f"toolu_{call['id']}",
            "name": call["name"],
            "input": {},
        }
        fragments = pieces(json.dumps(call["arguments"]))
        parts.append(
            (opened, [{"type": "input_json_delta", "partial_json": one} for one in fragments])
        )
    for index, (opened, deltas) in enumerate(parts):
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = "tool_use" if turn.get("calls") else "end_turn"
    yield {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
           "usage": {**usage, "output_tokens": 60}}  # fmt: skip
    yield {"type": "message_stop"}


def read_items(body: Any) -> tuple[list[str], int]:
    """Texts of the person, and the answers after the newest.  Raises ValueError as the original refuses."""
    texts, after, calls, results, was_call, thoughts = (
        list[str](),
        0,
        set[str](),
        set[str](),
        False,
        0,
    )
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            calls.add(item["call_id"])
            after += not was_call
        elif kind == "function_call_output":
            results.add(item["call_id"])
        elif kind == "reasoning" and item.get("encrypted_content"):
            thoughts += 1
        elif kind == "message" and item["role"] == "user":
            content = item["content"]
            said = (
                content
                if isinstance(content, str)
                else "".join(part.get("text", "") for part in content)
            )
            if "[" in said:
                texts.append(said)
                after, thoughts = 0, 0
        was_call = kind == "function_call"
    if calls != results:
        raise ValueError(f"No tool output found for function call {sorted(calls ^ results)}")
    if after > thoughts:
        raise ValueError("function_call was provided without its required reasoning item")
    return texts, after


def write_items(turn: dict[str, Any]) -> Iterator[Any]:
    """The events of a turn."""
    items: list[Any] = [{"type": "reasoning", "id": "rs_68af4030baa48193b0b43b4c2a176a1a", "summary": [],
                         "encrypted_content": "gAAAAABor0AwyWyOXUPGeC8Vn"}]  # fmt: skip
    items += [
        {"type": "function_call", "id": f"fc_{call['id']}", "call_id": f"call_{call['id']}",
         "name": call["name"], "arguments": json.dumps(call["arguments"]), "status": "completed"}
        for call in turn.get("calls", ())
    ]  # fmt: skip
    if not turn.get("calls"):
        part = {"type": "output_text", "text": turn["text"], "annotations": [], "logprobs": []}
        items.append({"type": "message", "id": "msg_68af", "role": "assistant", "status": "completed", "content": [part]})  # fmt: skip
    answer: dict[str, Any] = {"id": "resp_68af4030592c8193", "object": "response", "status": "in_progress",
                              "model": "big", "output": [], "usage": None}  # fmt: skip
    yield {"type": "response.created", "response": answer}
    for index, item in enumerate(items):
        at = {"output_index": index, "item_id": item["id"]}
        yield {"type": "response.output_item.added", "output_index": index,
               "item": {**item, **({"arguments": ""} if "arguments" in item else {}),
                        **({"content": []} if "content" in item else {})}}  # fmt: skip
        for piece in pieces(item.get("arguments", "")):
            yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
        if "arguments" in item:
            yield {
                "type": "response.function_call_arguments.done",
                **at,
                "arguments": item["arguments"],
            }
        if "content" in item:
            for piece in pieces(turn["text"]):
                yield {
                    "type": "response.output_text.delta",
                    **at,
                    "content_index": 0,
                    "delta": piece,
                }
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    usage = {"input_tokens": 900, "output_tokens": 60, "total_tokens": 960,
             "input_tokens_details": {"cached_tokens": 600}, "output_tokens_details": {"reasoning_tokens": 20}}  # fmt: skip
    yield {"type": "response.completed",
           "response": {**answer, "status": "completed", "output": items, "usage": usage}}  # fmt: skip


def pieces(text: str, size: int = 7) -> list[str]:
    """A text as a provider streams it."""
    return [text[at : at + size] for at in range(0, len(text), size)]


APIS = {"/messages": (read_messages, write_messages), "/responses": (read_items, write_items)}


@contextmanager
def recorded_provider(project: Path) -> Generator[Played]:
    """A provider on a port of its own, for the length of the block."""
    played = Played(str(project))

    class Handler(BaseHTTPRequestHandler):
        """One request."""

        def do_POST(self) -> None:
            """Play the turn, or refuse the history."""
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            read, write = next(pair for path, pair in APIS.items() if self.path.endswith(path))
            try:
                events = list(write(played.choose(*read(body))))
            except ValueError as error:
                played.refused.append(str(error))
                refusal = {
                    "type": "error",
                    "error": {"type": "invalid_request_error", "message": str(error)},
                }
                self._send(400, "application/json", json.dumps(refusal))
            else:
                lines = (
                    f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events
                )
                self._send(200, "text/event-stream", "".join(lines))

        def _send(self, status: int, kind: str, text: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    played.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield played
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
