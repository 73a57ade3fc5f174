"""An MCP server that gives the answers of its argument: a JSON object by method.

`null` is no answer, `{"error": TEXT}` an error; `repeat` multiplies the items of a list, with `{n}`
replaced.  From its second time on the list of tools is `tools/list again`, if there is one.  A call
of a tool answers with the number of tool lists so far, after `flood` notifications.  With
`restless` each list is followed by the notification that it has changed.
"""

import json
import sys
from typing import Any

answers: dict[str, Any] = json.loads(sys.argv[1])
lists = 0


def send(**message: Any) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def repeated(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the answer with its items repeated."""
    count = answer.pop("repeat", None)
    if count is None:
        return answer
    return {
        key: [{k: v.replace("{n}", str(n)) for k, v in value[0].items()} for n in range(count)]
        for key, value in answer.items()
    }


def answer_to(method: str, request: dict[str, Any]) -> Any:
    """Return the result of a method, or None."""
    if method == "initialize":
        offered: dict[str, Any] = {"resources": {}, "prompts": {}, "logging": {}}
        return {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": offered if "no tools" in answers else {"tools": {}, **offered},
            "serverInfo": {"name": "scripted", "version": "1"},
        }
    if method == "tools/call":
        for _ in range(answers.get("flood", 0)):
            send(method="notifications/tools/list_changed")
        if "tools/call" in answers:
            return answers["tools/call"]
        return {"content": [{"type": "text", "text": str(lists)}]}
    if method == "tools/list" and lists > 1 and "tools/list again" in answers:
        return answers["tools/list again"]
    empty: dict[str, Any] = {
        "ping": {},
        "logging/setLevel": {},
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": []},
        "prompts/list": {"prompts": []},
    }
    return answers.get(method, empty.get(method, {"error": "unknown"}))


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    lists += request["method"] == "tools/list"
    answer = answer_to(request["method"], request)
    if answer is None:
        continue
    if "error" in answer:
        send(
            id=request["id"], error={"code": answer.get("code", -32000), "message": answer["error"]}
        )
    else:
        send(id=request["id"], result=repeated(dict(answer)))
    if request["method"] == "tools/list" and "restless" in answers:
        send(method="notifications/tools/list_changed")
