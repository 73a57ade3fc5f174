"""Probe: parse, validate and evaluate policy text in a child process that may crash.

Cedar's parser is native code and recurses with the text.  It survives all text within the limits
of `palyra.tools.policy.text`.  If the limits are wrong, only a child process with bounded memory
and time dies, and the daemon keeps its current rules.
This file is executed by its path: it imports no other module of the package and reads only
standard input.
"""

import json
import os
import resource
import subprocess  # noqa: S404 - our own interpreter on our own file
import sys
from functools import lru_cache

MEMORY_BYTES = 1 << 30  # address space; interpreter and engine map about a third
CPU_S = 5
WALL_S = 10.0
STACK_BYTES = 1 << 20  # an eighth of the stack of the daemon's threads
OUTPUT_CHARS = 1_000
_PASSED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # search paths for the interpreter's own library


@lru_cache(maxsize=8)
def probe(schema: str, texts: tuple[str, ...]) -> str | None:
    """Return why the texts are not safe to parse in the daemon, None if they are.

    Blocks for some tenths of a second; results are cached.
    """
    given = json.dumps({"schema": schema, "texts": texts})
    try:
        child = subprocess.run(  # noqa: S603 - no shell, the text is no argument
            [sys.executable, "-I", __file__],
            input=given,
            capture_output=True,
            text=True,
            timeout=WALL_S,
            check=False,
            env={name: os.environ[name] for name in _PASSED if name in os.environ},
        )
    except subprocess.TimeoutExpired:
        return f"parsing took longer than {WALL_S:g} s"
    except (OSError, ValueError) as error:
        return f"the parser's process could not be started: {error}"
    if child.returncode < 0:
        return f"the parser's process died of signal {-child.returncode}"
    if child.returncode != 0 or child.stdout != "ok":
        output = (child.stdout or child.stderr).strip()[-OUTPUT_CHARS:]
        return output or f"the parser's process ended with {child.returncode}"
    return None


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))


def _exercise(schema_text: str, texts: list[str]) -> None:
    """Do everything the daemon does with policy texts.  Raises ValueError for invalid ones."""
    import cedarpy  # noqa: PLC0415 - in the child only, after `_limit`

    schema = cedarpy.Schema.from_str(schema_text)
    for text in texts:
        cedarpy.policies_to_json_str(text)
        cedarpy.validate_policies(text, schema)
    policies = cedarpy.PolicySet.from_str("\n".join(texts))
    one = {"type": "Principal", "id": "p"}
    action = {"type": "Action", "id": "tool.execute"}
    request = {"principal": one, "action": action, "resource": {"type": "Tool", "id": "t"}}
    cedarpy.is_authorized(request, policies, [])


def _main() -> None:
    _limit()
    given = json.load(sys.stdin)
    try:
        _exercise(given["schema"], given["texts"])
    except ValueError as error:
        sys.stdout.write(str(error))
    else:
        sys.stdout.write("ok")


if __name__ == "__main__":
    _main()
