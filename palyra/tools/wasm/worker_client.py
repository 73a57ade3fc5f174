"""Client of one WASM worker: sends requests, awaits answers, serves host calls of the guest.

Owns: the pipes of one worker.
Never: trusts the content of a frame; output stays bytes until it is validated.
"""

from collections.abc import Awaitable, Callable

import trio

from palyra.tools.wasm import protocol
from palyra.tools.wasm.launch import WorkerProcess
from palyra.tools.wasm.limits import (
    COMPILE_CPU_S,
    COMPILE_WALL_S,
    HOST_CALLS,
    MAX_COMPILED_BYTES,
    MAX_OUTPUT_BYTES,
    GuestFailure,
)

CHUNK_BYTES = 1 << 18
HELLO_S = 30.0  # start of interpreter and wasmtime on a loaded machine
GRACE_S = 0.5  # from the guest's deadline to the end of the wait for its worker

ServeHost = Callable[[protocol.HostCall], Awaitable[protocol.HostReply]]


class WorkerGone(Exception):
    """The worker ended or violated the protocol."""


class WorkerClient:
    """Client of one worker process."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._deframer = protocol.Deframer()
        self.loaded = ""  # digest of the loaded module, "" for none

    async def greet(self) -> None:
        """Wait until the worker is ready.  Raises WorkerGone, after at most HELLO_S."""
        with trio.move_on_after(HELLO_S):
            answer = await self._receive()
            if not isinstance(answer, protocol.WorkerHello):
                raise WorkerGone("the worker did not say hello")
            return
        raise WorkerGone(f"the worker was not ready within {HELLO_S:g} s")

    async def compile(self, module: bytes) -> bytes:
        """Compile the module and return its machine code.  Raises GuestFailure.

        Cancellation: the worker may still be compiling; the caller must end it.
        """
        with trio.move_on_after(COMPILE_WALL_S):
            try:
                await self._send(protocol.Compile(module=module, cpu_s=COMPILE_CPU_S))
                answer = await self._receive()
            except WorkerGone:
                answer = protocol.Failed(
                    problem="quota_exceeded",
                    text=f"compiling the module took more than {COMPILE_CPU_S:g} s or too much "
                    "memory",
                )
            compiled = self._expect(answer, protocol.Compiled).compiled
            if len(compiled) > MAX_COMPILED_BYTES:
                raise GuestFailure("quota_exceeded", f"{len(compiled)} bytes of machine code")
            return compiled
        raise GuestFailure("quota_exceeded", f"compiling took more than {COMPILE_WALL_S:g} s")

    async def load(self, digest: str, compiled: bytes) -> None:
        """Load machine code into the worker.  Raises GuestFailure, WorkerGone."""
        await self._send(protocol.LoadModule(compiled=compiled))
        self._expect(await self._receive(), protocol.Loaded)
        self.loaded = digest

    async def run(self, request: protocol.RunGuest, serve_host: ServeHost) -> bytes:
        """Run the guest and return its output, not validated.  Raises GuestFailure.

        After a failure the worker is unusable and the caller must end it.
        Cancellation: the same.
        """
        with trio.move_on_after(request.limits.deadline_s + GRACE_S):
            try:
                return await self._run(request, serve_host)
            except WorkerGone as error:
                raise GuestFailure("trapped", f"the worker broke down: {error}") from None
        raise GuestFailure(
            "timed_out", f"the guest ran longer than {request.limits.deadline_s:g} s"
        )

    async def _run(self, request: protocol.RunGuest, serve_host: ServeHost) -> bytes:
        await self._send(request)
        for _ in range(HOST_CALLS + 1):
            answer = await self._receive()
            if not isinstance(answer, protocol.HostCall):
                output = self._expect(answer, protocol.Done).output
                if len(output) > MAX_OUTPUT_BYTES:
                    raise GuestFailure("quota_exceeded", f"an output of {len(output)} bytes")
                return output
            await self._send(await serve_host(answer))
        raise GuestFailure("quota_exceeded", f"more than {HOST_CALLS} calls of the host")

    @staticmethod
    def _expect(answer: protocol.Answer, kind: type[protocol.T]) -> protocol.T:
        """Return an answer of that kind.  Raises GuestFailure for `Failed`, WorkerGone for others."""
        if isinstance(answer, protocol.Failed):
            raise GuestFailure(answer.problem, answer.text)
        if not isinstance(answer, kind):
            raise WorkerGone(f"an unexpected {type(answer).__name__}")
        return answer

    async def _send(self, message: protocol.Message) -> None:
        if self._process.stdin is None:
            raise WorkerGone("it has no input")
        try:
            await self._process.stdin.send_all(protocol.encode(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise WorkerGone("it ended") from error

    async def _receive(self) -> protocol.Answer:
        try:
            while (body := self._deframer.next_body()) is None:
                data = await self._process.stdout.receive_some(CHUNK_BYTES)
                if not data:
                    raise WorkerGone("it ended")
                self._deframer.feed(bytes(data))
            return protocol.decode_answer(body)
        except (
            trio.BrokenResourceError,
            trio.ClosedResourceError,
            protocol.BadWorkerFrame,
        ) as error:
            raise WorkerGone(str(error) or "its pipe broke") from error
