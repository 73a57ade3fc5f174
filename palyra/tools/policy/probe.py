"""The probe: policy text is parsed, validated and evaluated in a process that may die of it.

Cedar's parser is native and recurses with the text.  What the limits of `policy_text` should let
through it survives; should they ever be wrong, a process without privileges, memory or time dies,
and the daemon keeps the rules it had.  This file is run by its path: it imports nothing of the
package and reads nothing but its standard input.
"""

import json
import os
import resource
import subprocess  # noqa: S404 - our own interpreter on our own file
import sys
from functools import lru_cache

MEMORY_BYTES = 1 << 30  # of address space: the interpreter with the engine maps about a third
CPU_S = 5
WALL_S = 10.0
STACK_BYTES = 1 << 20  # an eighth of what the daemon's threads have
OUTPUT_CHARS = 1_000
_PASSED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # where the interpreter's own library may be


@lru_cache(maxsize=8)
def probe(schema: str, texts: tuple[str, ...]) -> str | None:
    """Why these texts must not be parsed here; None when they may.

    Blocks for some tenths of a second; the same texts are not tried twice.
    """
    asked = json.dumps({"schema": schema, "texts": texts})
    try:
        done = subprocess.run(  # noqa: S603 - no shell, nothing of the text is an argument
            [sys.executable, "-I", __file__],
            input=asked,
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
    if done.returncode < 0:
        return f"the parser's process died of signal {-done.returncode}"
    if done.returncode != 0 or done.stdout != "ok":
        said = (done.stdout or done.stderr).strip()[-OUTPUT_CHARS:]
        return said or f"the parser's process ended with {done.returncode}"
    return None


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))


def _use(schema_text: str, texts: list[str]) -> None:
    """Everything the daemon would do with the texts.  Raises ValueError for broken ones."""
    import cedarpy  # noqa: PLC0415 - only the process needs it, and after its limits

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
    asked = json.load(sys.stdin)
    try:
        _use(asked["schema"], asked["texts"])
    except ValueError as error:
        sys.stdout.write(str(error))
    else:
        sys.stdout.write("ok")


if __name__ == "__main__":
    _main()
