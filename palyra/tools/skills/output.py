"""What a guest gets and what it must give back.

In: `{"tool": NAME, "arguments": {…}}`.  Out: an object with exactly one member, `result` (any JSON)
or `error` (a text for the model: the call failed, the guest did not).
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from palyra.core.tools import ToolOutput
from palyra.tools.wasm.limits import GuestFailure

_SHAPE = 'a JSON object with "result" or "error"'


def render_input(tool: str, arguments: Mapping[str, Any]) -> bytes:
    """The input of one call."""
    return msgspec.json.encode({"tool": tool, "arguments": arguments})


def read_output(output: bytes) -> ToolOutput:
    """The output for the model.  Raises GuestFailure (`bad_output`).  Blocks for a large one."""
    try:
        value = msgspec.json.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GuestFailure("bad_output", f"the output is not {_SHAPE}: {error}") from None
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= {"result", "error"}:
        raise GuestFailure("bad_output", f"the output is not {_SHAPE}")
    if "error" in value:
        if not isinstance(value["error"], str):
            raise GuestFailure("bad_output", "`error` is not a text")
        return ToolOutput(text=value["error"], is_failure=True, trust="external_untrusted")
    return ToolOutput(text=_text(value["result"]), trust="external_untrusted")


def _text(result: object) -> str:
    if isinstance(result, str):
        return result
    try:
        return msgspec.json.encode(result).decode()
    except (RecursionError, ValueError, OverflowError) as error:
        raise GuestFailure("bad_output", f"the result cannot be shown: {error}") from None
