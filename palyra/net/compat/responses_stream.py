"""A run as the typed events of `/v1/responses`."""

from typing import Any

import msgspec

from palyra.errors import PalyraError
from palyra.net.compat import sse
from palyra.net.compat.asking import Answer
from palyra.net.compat.errors import RunEnded, code_of, error_body
from palyra.net.compat.reading import Ended, Part, Reasoning, ServerCall, Text
from palyra.net.compat.responses import build_response, item_name, with_request
from palyra.net.compat.responses_schema import (
    OutputCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputRefusal,
    OutputText,
    Response,
    ResponsesRequest,
)


class ResponseStream:
    """An answer as typed events, each with its place in the sequence."""

    def __init__(self, request: ResponsesRequest, answer: Answer) -> None:
        self._request = request
        self._answer = answer
        self._sequence = 0
        self._open: dict[str, int] = {}  # items that are being written, with their index

    def begin(self) -> bytes:
        """The response without an answer yet."""
        empty = self._response(None)
        return self._event("response.created", response=empty) + self._event(
            "response.in_progress", response=empty
        )

    def take(self, part: Part) -> bytes:
        """What one part becomes."""
        match part:
            case Text():
                return self._say(part.delta)
            case Reasoning():
                return self._think(part.delta)
            case ServerCall():
                return self._event("palyra.tool_call", tool_call=part)
            case Ended():
                return self._end(part)

    def fail(self, error: PalyraError) -> bytes:
        """A run that failed is a failed response; anything else is an error of the stream."""
        ended = self._answer.reading.ended
        if isinstance(error, RunEnded) and ended is not None:
            return self._event("response.failed", response=self._response(ended))
        told = error_body(error)
        return self._event(
            "error", code=code_of(error), message=told["message"], param=told["param"]
        )

    def _say(self, delta: str) -> bytes:
        item_id = item_name("msg", self._answer.run_id)
        begun = b""
        if item_id not in self._open:
            empty = OutputMessage(id=item_id, content=[], status="in_progress")
            begun = self._add(item_id, empty) + self._event(
                "response.content_part.added",
                **self._place(item_id),
                content_index=0,
                part=OutputText(text=""),
            )
        return begun + self._event(
            "response.output_text.delta",
            **self._place(item_id),
            content_index=0,
            delta=delta,
            logprobs=[],
        )

    def _think(self, delta: str) -> bytes:
        item_id = item_name("rs", self._answer.run_id)
        begun = b""
        if item_id not in self._open:
            begun = self._add(
                item_id, OutputReasoning(id=item_id, content=[], status="in_progress")
            )
        return begun + self._event(
            "response.reasoning_text.delta", **self._place(item_id), content_index=0, delta=delta
        )

    def _end(self, ended: Ended) -> bytes:
        """What is open is closed, calls follow, then the whole response."""
        answer, pieces = self._answer, []
        if ended.refusal:
            pieces.append(self._refuse(ended.refusal))
        elif not ended.calls and item_name("msg", answer.run_id) not in self._open:
            pieces.append(self._say(""))
        response = self._response(ended)
        for item in response.output:
            if isinstance(item, OutputCall):
                pieces.append(self._call(item))
            elif isinstance(item, OutputMessage):
                pieces.append(self._close_message(item))
            pieces.append(
                self._event(
                    "response.output_item.done", output_index=self._open[item.id], item=item
                )
            )
        name = "response.incomplete" if response.status == "incomplete" else "response.completed"
        return b"".join([*pieces, self._event(name, response=response)])

    def _refuse(self, reason: str) -> bytes:
        """Behind what was said already, if anything was."""
        item_id = item_name("msg", self._answer.run_id)
        begun, index = b"", int(item_id in self._open)
        if not index:
            begun = self._add(item_id, OutputMessage(id=item_id, content=[], status="in_progress"))
        place = {**self._place(item_id), "content_index": index}
        added = self._event("response.content_part.added", **place, part=OutputRefusal(refusal=""))
        return begun + added + self._event("response.refusal.delta", **place, delta=reason)

    def _close_message(self, item: OutputMessage) -> bytes:
        pieces: list[bytes] = []
        for index, part in enumerate(item.content):
            place = {**self._place(item.id), "content_index": index}
            if isinstance(part, OutputText):
                name, told = "output_text", {"text": part.text, "logprobs": []}
            else:
                name, told = "refusal", {"refusal": part.refusal}
            said = self._event(f"response.{name}.done", **place, **told)
            pieces.append(said + self._event("response.content_part.done", **place, part=part))
        return b"".join(pieces)

    def _call(self, item: OutputCall) -> bytes:
        empty = msgspec.structs.replace(item, arguments="", status="in_progress")
        added = self._add(item.id, empty)
        place = self._place(item.id)
        delta = self._event("response.function_call_arguments.delta", **place, delta=item.arguments)
        done = self._event(
            "response.function_call_arguments.done",
            **place,
            arguments=item.arguments,
            name=item.name,
        )
        return added + delta + done

    def _add(self, item_id: str, item: OutputItem) -> bytes:
        self._open[item_id] = len(self._open)
        return self._event(
            "response.output_item.added", output_index=self._open[item_id], item=item
        )

    def _place(self, item_id: str) -> dict[str, Any]:
        return {"item_id": item_id, "output_index": self._open[item_id]}

    def _response(self, ended: Ended | None) -> Response:
        """The response; its items in the order in which they were begun."""
        made = build_response(self._request.model, self._answer, ended)
        order = self._open
        output = sorted(made.output, key=lambda item: order.get(item.id, len(order)))
        shown = [] if ended is None else output
        return with_request(msgspec.structs.replace(made, output=shown), self._request)

    def _event(self, kind: str, /, **members: Any) -> bytes:  # noqa: ANN401 - what the event has
        body = {"type": kind, "sequence_number": self._sequence, **members}
        self._sequence += 1
        return sse.event(body, kind)
