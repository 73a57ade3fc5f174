"""Every way a text gets into a daemon, with a canary of its own; and the strangers that bring some.

A canary has the shape of a token that the rules know and a middle that tells which one it is, so that
half of one is found, too.
"""

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.models.provider import STREAM, Piece, refusal, sse

_WANTED = re.compile(r"@(\w+)")


class Canaries(dict[str, str]):  # noqa: FURB189 - names and canaries, made when they are asked for
    """By name."""

    def __missing__(self, name: str) -> str:
        made = self[name] = "ghp_" + hashlib.sha256(name.encode()).hexdigest()[:36]
        return made

    def fill(self, value: Any) -> Any:
        """The JSON value with a canary in the place of each `@name`."""
        told = value if isinstance(value, str) else json.dumps(value)
        filled = _WANTED.sub(lambda match: self[match[1]], told)
        return filled if isinstance(value, str) else json.loads(filled)

    def found_in(self, haystack: bytes) -> set[str]:
        """The canaries of which at least half is in the text."""
        return {name for name, canary in self.items() if canary[4:24].encode() in haystack}


# --- what the model does -------------------------------------------------------------------------

CALLS: list[tuple[str, Any]] = [
    ("echo", {"text": "@argument"}),
    ("@tool_name", {"x": 1}),
    ("echo", {"@argument_name": 1}),
    ("read_file", {"path": "note.txt"}),
    ("read_file", {"path": "@missing_path"}),
    ("list_dir", {"path": "."}),
    ("glob", {"pattern": "**/*"}),
    ("search_text", {"pattern": "needle"}),
    ("search_text", {"pattern": "@pattern"}),
    ("write_file", {"path": "@folder/@name.txt", "content": "x @content"}),
    ("apply_patch", {"patch": "--- /dev/null\n+++ b/@patched.txt\n@@ -0,0 +1 @@\n+@patch_line\n"}),
    ("apply_patch", {"patch": "--- a/note.txt\n+++ b/note.txt\n@@ -1 +1 @@\n-@no_such_line\n+x\n"}),
    ("shell", {"command": "echo @output; echo @stderr >&2; exit 3"}),
    ("shell", {"argv": ["@program", "x"]}),
    ("process_start", {"argv": ["/bin/sh", "-c", "echo one two three four five six; : @process"]}),
    ("process_status", {}),
    ("http_fetch", {"url": "http://127.0.0.1:1/@fetch_path?q=@fetch_query"}),
    ("http_fetch", {"url": "http://@fetch_host.example/x"}),
    ("mcp:srv.say", {"x": "a"}),
    ("mcp:srv.fail", {}),
]  # fmt: skip


def script(canaries: Canaries) -> dict[str, Any]:
    """One turn for each call, with thoughts and words that come in pieces."""
    said = canaries["said"]
    turns: list[Any] = [
        {"text": [said[:9], said[9:], "\n"], "reasoning": canaries["thought"],
         "calls": [{"tool": tool, "arguments": arguments}]}
        for tool, arguments in canaries.fill(CALLS)
    ]  # fmt: skip
    return {"scripts": [{"contains": "everything", "turns": [*turns, {"text": ["done"]}]}]}


# --- strangers -----------------------------------------------------------------------------------

_TOOLS = [
    {"name": "say", "description": "Say it.", "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}}},
    {"name": "fail", "description": "Fail.", "inputSchema": {"type": "object"}},
    {"name": "leaky", "description": "It is @mcp_description", "inputSchema": {"type": "object"}},
    {"name": "@mcp_tool", "description": "x", "inputSchema": {"type": "object"}},
    {"name": "choosy", "description": "x", "inputSchema": {"type": "object", "properties": {"x": {"type": "string", "enum": ["@mcp_choice"]}}}},
]  # fmt: skip
MCP = """
import json, sys
sys.stderr.write("@mcp_stderr\\n")
for line in sys.stdin:
    heard = json.loads(line)
    if "id" not in heard:
        continue
    answer = {"jsonrpc": "2.0", "id": heard["id"]}
    if heard["method"] == "initialize":
        version = heard["params"]["protocolVersion"]
        answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}},
            "serverInfo": {"name": "@mcp_server", "version": "1"}, "instructions": "@mcp_instructions"}
    elif heard["method"] == "tools/list":
        answer["result"] = {"tools": TOOLS}
    elif heard["params"]["name"] == "say":
        answer["result"] = {"content": [{"type": "text", "text": "@mcp_result"}]}
    else:
        answer["error"] = {"code": -1, "message": "@mcp_error"}
    print(json.dumps(answer), flush=True)
"""


def mcp_program(folder: Path, canaries: Canaries) -> str:
    """The server's program, and its table in the configuration."""
    program = folder / "server.py"
    program.write_text(canaries.fill(MCP.replace("TOOLS}", f"{_TOOLS}}}")), "utf-8")
    command = json.dumps([sys.executable, str(program)])
    return f'{{ name = "srv", command = {command}, sandbox = "none", risk = "low" }}'


def provider_answers(canaries: Canaries) -> list[list[Piece]]:
    """A good answer, then refusals."""
    told = {"error": canaries.fill({"message": "no: @refused", "type": "@kind", "code": "@code"})}
    good = [
        {"id": "@trace", "choices": [{"index": 0, "delta": {"reasoning_content": "@provider_thought"}}]},
        {"id": "@trace", "choices": [{"index": 0, "delta": {"content": "it is @provider_text"}}]},
    ]  # fmt: skip
    no: list[Piece] = [refusal(400, told)]
    return [
        [STREAM, sse(*canaries.fill(good), "[DONE]")],
        [refusal(401, told, f"x-request-id: {canaries['provider_header']}")],
        *[no] * 9,
    ]


# --- what clients say ----------------------------------------------------------------------------

# Frames whose replies do not matter: refused or redacted, either will do.
REQUESTS: list[tuple[str, Any]] = [
    ("run.start", {"text": "x", "session_key": "@session_key"}),
    ("session.resolve", {"session_key": "@other_session_key"}),
    ("run.start", {"text": "x", "idempotency_key": "@idempotency_key"}),
    ("run.start", {"text": "x", "model": "opal/@model"}),
    ("run.start", {"text": "x", "model": "@bare_model"}),
    ("channel.set", {"channel": "irc"}),
    ("channel.set", {"channel": "irc", "conversation_id": "@channel_conversation"}),
    ("run.start", {"text": "x", "channel": "irc", "conversation_id": "@conversation", "sender": "@sender"}),
    ("agent.create", {"name": "a", "instructions": "You are @instructions"}),
    ("agent.create", {"name": "b", "instructions": "x", "labels": ["@label"]}),
    ("agent.create", {"name": "c", "instructions": "x", "model": "@agent_model"}),
    ("agent.create", {"name": "d", "instructions": "x", "tools": ["@agent_tool"]}),
    ("agent.create", {"name": "@agent_name", "instructions": "x"}),
    ("agent.list", {}),
    ("token.create", {"principal": "@principal", "role": "client", "name": "n"}),
    ("token.create", {"principal": "p", "role": "client", "name": "@token_name"}),
    ("budget.set", {"budget_id": "@budget", "hard": 10_000_000, "action": "warn"}),
    ("budget.set", {"budget_id": "b", "scope": "session", "subject": "@subject", "hard": 10_000_000}),
    ("budget.list", {}),
    ("policy.explain", {"tool": "@explained", "arguments": {}}),
    ("policy.explain", {"tool": "write_file", "arguments": {"path": "@explained_path/y", "content": "x"}}),
    ("policy.explain", {"tool": "http_fetch", "arguments": {"url": "http://@explained_host.example/"}}),
    ("policy.suggest", {}),
    ("skill.list", {}),
    ("checkpoint.list", {}),
    ("approval.list", {}),
    ("approval.grants", {}),
    ("tool.list", {}),
    ("model.list", {}),
    ("system.status", {}),
    ("usage.summary", {"by": "model"}),
    ("artifact.read", {"session_id": "@session_id", "artifact": "@artifact"}),
    ("run.list", {"cursor": "@cursor"}),
    ("@method", {}),
]  # fmt: skip

_WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "@v1_tool",
        "parameters": {"type": "object", "properties": {"x": {"description": "@v1_property"}}},
    },
}
_CHAT = "/v1/chat/completions"
BODIES: list[tuple[str, Any]] = [
    (_CHAT, {"tools": [_WEATHER], "messages": [
        {"role": "system", "content": "@v1_system"}, {"role": "user", "content": "@v1_old"},
        {"role": "assistant", "content": "@v1_answer"},
        {"role": "user", "content": '/say @v1_say\n/call weather {"x": "@v1_call"}'}]}),
    (_CHAT, {"tools": [_WEATHER], "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {
            "name": "weather", "arguments": '{"x": "@v1_old_call"}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "@v1_result"}]}),
    (_CHAT, {"user": "@v1_user", "messages": [{"role": "user", "content": "x"}]}),
    (_CHAT, {"messages": [{"role": "@v1_role", "content": "x"}]}),
    (_CHAT, {"messages": [{"role": "user", "content": "x"}], "@v1_unknown": 1}),
    (_CHAT, {"messages": [{"role": "user", "content": "x"}], "palyra": {"session_key": "@v1_key"}}),
    (_CHAT, {"model": "opal/m", "messages": [{"role": "user", "content": "x"}]}),
    (_CHAT, {"model": "@v1_model", "messages": [{"role": "user", "content": "x"}]}),
    ("/v1/responses", {"instructions": "@v1_instructions", "input": "/say @v1_input",
                       "metadata": {"a": "@v1_metadata"}}),
    ("/v1/messages", {"max_tokens": 100, "system": "@v1_messages_system",
                      "messages": [{"role": "user", "content": "/say @v1_messages"}]}),
    ("/v1/embeddings", {"model": "@v1_embedding", "input": "x"}),
]  # fmt: skip
HEADS = [
    "GET /metrics HTTP/1.1\r\nHost: HOST\r\nOrigin: http://@origin\r\n",
    "GET / HTTP/1.1\r\nHost: @host\r\n",
    "GET /@bad_line NONSENSE\r\n",
    "GET /v1/@path?q=@query HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n",
    "GET /v1/responses/@response HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n",
    "GET /v1/models HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer @bearer\r\n",
    (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer TOKEN\r\n"
        "Idempotency-Key: @v1_idempotency\r\nUser-Agent: @agent\r\nCookie: a=@cookie\r\n"
        "X-Request-Id: @request\r\nConnection: close\r\nContent-Length: 69\r\n\r\n"
        '{"model": "scripted", "messages": [{"role": "user", "content": "x"}]}'
    ),
]
COMMANDS: list[list[str]] = [
    ["run", "/say @cli_message"], ["tape", "show", "@cli_run"], ["tape", "show", "RUN"],
    ["checkpoints", "list"], ["status"],
]  # fmt: skip

# A canary that nobody repeats cannot leak: refused without being quoted, or dropped unread.
NEVER_REPEATED = {
    "session_id",
    "agent", "cookie", "request", "bearer", "query", "path", "cursor", "conversation", "sender", "code",
    "kind", "provider_header", "mcp_server", "mcp_instructions",
    "mcp_stderr", "v1_embedding",
}  # fmt: skip
