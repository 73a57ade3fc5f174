"""Skills over a real store in a temporary directory, with a runtime that compiles nothing."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import trio
import wasmtime

from palyra.core.access import Caller
from palyra.core.redaction.redactor import Redactor
from palyra.core.skill.manifest import InstallSkill, SkillRecord
from palyra.core.text.canonical_json import sha256_hex
from palyra.store.files.skills import SkillStore
from palyra.store.journal.keys import is_signed
from palyra.tools.skills.installed import Skills
from palyra.tools.wasm import protocol
from palyra.tools.wasm.pool import WorkerPool
from palyra.tools.wasm.runtime import Guest, Runtime
from palyra.tools.wasm.worker_client import ServeHost
from tests.tools.wasm import guests
from tests.tools.wasm.fake_worker import FakeLaunch
from tests.tools.wasm.kit import MemoryCache

if TYPE_CHECKING:
    from palyra.tools.wasm.limits import GuestFailure


OPERATOR = Caller(principal="root", role="operator", token_id="t")
HELLO = bytes(wasmtime.wat2wasm(guests.HELLO))
LOGS = bytes(wasmtime.wat2wasm(guests.LOGS))

T = TypeVar("T")
Args = TypeVarTuple("Args")


async def run_inline(fn: Callable[[*Args], T], *args: *Args) -> T:
    """`run_blocking` on virtual time."""
    await trio.lowlevel.checkpoint()
    return fn(*args)


class FakeRuntime(Runtime):
    """Returns given answers."""

    def __init__(self) -> None:
        super().__init__(WorkerPool(FakeLaunch()), MemoryCache(), run_inline)
        self.refusal: GuestFailure | None = None
        self.output = b'{"result":"hello"}'
        self.ran: list[Guest] = []
        self.asks: protocol.HostCall | None = None
        self.reply: protocol.HostReply | None = None

    async def compile(self, digest: str, read_module: Callable[[], bytes]) -> bytes:
        await trio.lowlevel.checkpoint()
        assert sha256_hex(read_module()) == digest
        if self.refusal is not None:
            raise self.refusal
        return b"code"

    async def run(self, guest: Guest, serve_host: ServeHost) -> bytes:
        await trio.lowlevel.checkpoint()
        assert sha256_hex(guest.read_module()) == guest.module_sha256
        self.ran.append(guest)
        if self.asks is not None:
            self.reply = await serve_host(self.asks)
        return self.output


class World:
    """Skills with their surroundings."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runtime = FakeRuntime()
        self.changes = 0
        self.skills = self.new_skills()

    def new_skills(self) -> Skills:
        return Skills(
            SkillStore(self.directory),
            self.runtime,
            is_signed,
            redact=Redactor([]).redact_text,
            now_ms=lambda: 1_000,
            run_blocking=run_inline,
            on_change=self._note,
        )

    def _note(self) -> None:
        self.changes += 1

    async def install(
        self, data: bytes, granted: tuple[str, ...] = (), trust_key: str | None = None
    ) -> SkillRecord:
        """As an operator does it."""
        sha256 = sha256_hex(data)
        self.skills.upload(OPERATOR, sha256, 0, data)
        wanted = InstallSkill(sha256=sha256, granted=granted, trust_key=trust_key)
        return await self.skills.install(OPERATOR, wanted)

    @property
    def package_file(self) -> Path:
        (path,) = (self.directory / "packages").glob("*.zip")
        return path


@asynccontextmanager
async def open_world(directory: Path) -> AsyncGenerator[World]:
    """A world that serves."""
    world = World(directory)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.skills.serve)
        try:
            yield world
        finally:
            nursery.cancel_scope.cancel()
