"""Which requests a client sends again after a lost connection."""

import re
from pathlib import Path

from palyra.client.reads import READS
from palyra.net.api.methods.table import METHODS
from palyra.net.protocol.params import Params

CLIENT_JS = Path(__file__).parents[2] / "clients/typescript/client.js"


def test_the_clients_know_the_methods_without_effects() -> None:
    """Python and TypeScript have the list of the protocol's table, in its order."""
    wanted = [name for name, method in METHODS.items() if method.is_repeatable]
    listed = re.search(
        r"const READS = new Set\(\[\n(.*?)\]\);", CLIENT_JS.read_text("utf-8"), re.DOTALL
    )
    assert listed is not None
    assert "".join(f'  "{name}",\n' for name in wanted) == listed[1]
    assert frozenset(wanted) == READS


def test_no_method_that_changes_something_is_a_read() -> None:
    """Negative control: a method with a key, one that subscribes, one that sets are not repeated."""
    assert not {name for name in READS if METHODS[name].is_mutating}
    assert not READS & {
        "tape.subscribe",
        "secret.set",
        "healing.mode",
        "memory.rebuild",
        "system.drain",
    }
    assert {"run.list", "run.get", "approval.list", "system.status", "run.wait"} <= READS
    assert all(issubclass(METHODS[name].params, Params) for name in READS)
