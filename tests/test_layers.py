"""The layout of docs/architecture.md, kept by the machine."""

from pathlib import Path

from tests import layers
from tests.layers import Rule
from tests.rows import every_row

ROOT = Path(__file__).resolve().parent.parent


def test_package_keeps_the_rules() -> None:
    """No module of the package breaks a rule."""
    found, complaints = 0, list[str]()
    for module in layers.read_modules(ROOT / "palyra"):
        found += 1
        complaints += [each for rule in layers.PACKAGE_RULES for each in rule(module)]
    assert found, "the package was not found"
    assert [] == complaints


def test_no_test_sleeps() -> None:
    """No test waits for a fixed time."""
    modules = layers.read_modules(ROOT / "tests")
    complaints = [found for module in modules for found in layers.tests_do_not_sleep(module)]
    assert [] == complaints


HIDDEN_IMPORT = "if TYPE_CHECKING:\n    from palyra.core import ids"

BROKEN = [
    # who imports whom
    (layers.imports_run_one_way, "core/run.py", "import palyra.store.sqlite.journal"),
    (layers.imports_run_one_way, "core/run.py", "from palyra.config import load as config"),
    (layers.imports_run_one_way, "core/run.py", "from ..actors import hub"),
    (layers.imports_run_one_way, "core/run.py", "from .. import actors"),
    (
        layers.imports_run_one_way,
        "store/journal.py",
        "from palyra.tools.files import read as files",
    ),
    (layers.imports_run_one_way, "tools/files.py", "from palyra.models.sse import parse"),
    (layers.imports_run_one_way, "models/sse.py", "from palyra.store.journal import keys"),
    (
        layers.imports_run_one_way,
        "models/sse.py",
        "from palyra.actors.hub import Hub",
    ),
    (layers.imports_run_one_way, "actors/run.py", "from palyra.store.sqlite import journal"),
    (layers.imports_run_one_way, "actors/run.py", "from palyra.tools.files.read import read_file"),
    (layers.imports_run_one_way, "actors/run.py", "from palyra.config.load import Config"),
    (layers.imports_run_one_way, "actors/run.py", "def f():\n    from palyra.models import x"),
    (layers.imports_run_one_way, "net/rpc.py", "from palyra.cli import main"),
    (layers.imports_run_one_way, "net/rpc.py", "from palyra.process import serve"),
    (layers.imports_run_one_way, "net/methods/run.py", "from ...store import journal"),
    (layers.imports_run_one_way, "cli/runs.py", "from palyra.process import serve"),
    (
        layers.imports_run_one_way,
        "cli/runs.py",
        "from palyra.actors.hub import Hub",
    ),
    (layers.imports_run_one_way, "errors.py", "from palyra.core import ids"),
    (layers.imports_run_one_way, "extras/thing.py", ""),
    # purity
    (layers.core_is_pure, "core/run.py", "import time"),
    (layers.core_is_pure, "core/run.py", "import os.path"),
    (layers.core_is_pure, "core/run.py", "from random import choice"),
    (layers.core_is_pure, "core/deep/run.py", "def f():\n    import trio"),
    # thread hops
    (layers.thread_hops_stay_at_home, "actors/run.py", "import threading"),
    (layers.thread_hops_stay_at_home, "actors/run.py", "from trio import to_thread"),
    (layers.thread_hops_stay_at_home, "tools/files.py", "trio.to_thread.run_sync(f)"),
    (layers.thread_hops_stay_at_home, "tools/files.py", "import concurrent.futures"),
    (layers.thread_hops_stay_at_home, "tools/blocking.py", "from concurrent.futures import wait"),
    # nurseries
    (layers.nurseries_belong_to_actors, "tools/shell.py", "n = trio.open_nursery()"),
    (layers.nurseries_belong_to_actors, "daemon.py", "from trio import open_nursery"),
    # catches
    (layers.catches_are_narrow, "actors/run.py", "try: ...\nexcept: ..."),
    (layers.catches_are_narrow, "actors/run.py", "try: ...\nexcept Exception: ..."),
    (layers.catches_are_narrow, "actors/run.py", "try: ...\nexcept* Exception: ..."),
    (layers.catches_are_narrow, "actors/run.py", "try: ...\nexcept (OSError, Exception): ..."),
    (layers.catches_are_narrow, "actors/run.py", "try: ...\nexcept builtins.Exception: ..."),
    (layers.catches_are_narrow, "actors/run.py", "with contextlib.suppress(Exception): ..."),
    (
        layers.catches_are_narrow,
        "actors/kernel/supervisor.py",
        "try: ...\nexcept BaseException: ...",
    ),
    (layers.catches_are_narrow, "net/supervisor.py", "try: ...\nexcept Exception: ..."),
    # rooms
    (layers.rooms_import_one_way, "core/text/excerpt.py", "from palyra.core.run import state"),
    (layers.rooms_import_one_way, "core/run/state.py", "from palyra.core import ports"),
    (layers.rooms_import_one_way, "actors/hub.py", "from palyra.actors.run import actor"),
    (layers.rooms_import_one_way, "net/protocol/jsonrpc.py", "import palyra.net.api.method"),
    (layers.rooms_import_one_way, "core/attic/thing.py", ""),
    (layers.own_code_is_imported_at_run_time, "core/run/state.py", HIDDEN_IMPORT),
    (layers.the_top_is_small, "helpers.py", ""),
    (layers.prose_is_plain, "core/ids.py", '"""Ids that nobody else makes."""'),
    (layers.prose_is_plain, "core/ids.py", "def f():\n    x = 1  # made anew"),
    # decoding
    (
        layers.records_are_decoded_in_one_place,
        "store/sqlite/queries.py",
        "msgspec.json.decode(text, type=list[RunRecord])",
    ),
    (
        layers.records_are_decoded_in_one_place,
        "store/sqlite/queries.py",
        "D = msgspec.json.Decoder(list[RunRecord])",
    ),
    (
        layers.records_are_decoded_in_one_place,
        "store/sqlite/memories.py",
        "[msgspec.convert(each, MemoryRecord) for each in rows]",
    ),
    (
        layers.records_are_decoded_in_one_place,
        "services/tape/pins.py",
        "msgspec.json.decode(row.data, type=RunDone)",
    ),
    # files
    (layers.files_of_a_home_are_regular, "store/files/skills.py", "path.read_bytes()"),
    (layers.files_of_a_home_are_regular, "store/vectors/index.py", 'path.open("rb")'),
    # sleeps
    (layers.tests_do_not_sleep, "test_run.py", "time.sleep(0.1)"),
    (layers.tests_do_not_sleep, "test_run.py", "async def f():\n    await trio.sleep(2)"),
    (layers.tests_do_not_sleep, "test_run.py", "sleep(1 / 100)"),
    (layers.tests_do_not_sleep, "test_run.py", "trio.sleep(seconds=1)"),
]

KEPT = [
    (layers.imports_run_one_way, "core/run.py", "from palyra.core.journal.tape_row import fold"),
    (layers.imports_run_one_way, "core/run.py", "from .tape import fold"),
    (layers.imports_run_one_way, "core/run.py", "from palyra.errors import Rejected"),
    (layers.imports_run_one_way, "core/run.py", "from .. import errors, __version__"),
    (
        layers.imports_run_one_way,
        "net/rpc.py",
        "from palyra.actors.hub import Hub",
    ),
    (layers.imports_run_one_way, "net/rpc.py", "from palyra.config.load import Config"),
    (layers.imports_run_one_way, "cli/runs.py", "from palyra.client import connect"),
    (layers.imports_run_one_way, "cli/host/serve.py", "from palyra.process import serve"),
    (layers.imports_run_one_way, "daemon.py", "from palyra.store.sqlite.journal import Journal"),
    (layers.imports_run_one_way, "net/rpc.py", "import palyrastore"),
    (layers.core_is_pure, "core/run.py", "import json, re2, msgspec"),
    (layers.core_is_pure, "actors/run.py", "import trio, time"),
    (layers.thread_hops_stay_at_home, "actors/kernel/threads.py", "from trio import to_thread"),
    (layers.thread_hops_stay_at_home, "actors/journal/actor.py", "import threading"),
    (layers.thread_hops_stay_at_home, "store/sqlite/journal.py", "import threading"),
    (layers.thread_hops_stay_at_home, "actors/run.py", "import trio\ntrio.sleep_forever()"),
    (layers.nurseries_belong_to_actors, "actors/run.py", "n = trio.open_nursery()"),
    (layers.nurseries_belong_to_actors, "net/listener.py", "n = trio.open_nursery()"),
    (layers.catches_are_narrow, "actors/run.py", "try: ...\nexcept (OSError, KeyError): ..."),
    (layers.catches_are_narrow, "actors/kernel/supervisor.py", "try: ...\nexcept* Exception: ..."),
    (layers.rooms_import_one_way, "core/run/state.py", "from palyra.core.text import excerpt"),
    (layers.rooms_import_one_way, "core/run/state.py", "from palyra.core.run import state"),
    (layers.rooms_import_one_way, "core/__init__.py", ""),
    (layers.own_code_is_imported_at_run_time, "cli/run/run.py", HIDDEN_IMPORT),
    (layers.own_code_is_imported_at_run_time, "core/ids.py", "if TYPE_CHECKING:\n    import re2"),
    (layers.the_top_is_small, "daemon.py", ""),
    (layers.prose_is_plain, "core/ids.py", 'x = "nobody answered in time"'),
    (
        layers.records_are_decoded_in_one_place,
        "store/sqlite/decoding.py",
        "msgspec.json.decode(text, type=list[RunRecord])",
    ),
    (
        layers.records_are_decoded_in_one_place,
        "store/sqlite/purges.py",
        "msgspec.json.encode(lineage).decode()",
    ),
    (
        layers.records_are_decoded_in_one_place,
        "services/tape/pins.py",
        "ev.decode_event(k, row.data)",
    ),
    (layers.files_of_a_home_are_regular, "store/files/skills.py", 'path.open("wb")'),
    (layers.files_of_a_home_are_regular, "cli/host/service.py", "path.read_text()"),
    (layers.tests_do_not_sleep, "test_run.py", "trio.sleep(0)"),
    (layers.tests_do_not_sleep, "test_run.py", "trio.sleep(pause_s)"),
    (layers.tests_do_not_sleep, "test_run.py", "trio.sleep_forever()"),
]


@every_row(("rule", "path", "source"), BROKEN)
def test_rule_finds_the_breach(rule: Rule, path: str, source: str) -> None:
    """A source that breaks the rule draws exactly one complaint, which names the file."""
    complaints = list(rule(layers.parse(path, source)))
    assert [True] == [complaint.startswith(path) for complaint in complaints]


@every_row(("rule", "path", "source"), KEPT)
def test_rule_lets_the_rest_pass(rule: Rule, path: str, source: str) -> None:
    """A source that keeps the rule draws no complaint."""
    assert [] == list(rule(layers.parse(path, source)))


def test_every_rule_can_fail() -> None:
    """Each rule has a breach above that it must find."""
    assert {*layers.PACKAGE_RULES, layers.tests_do_not_sleep} == {rule for rule, _, _ in BROKEN}
