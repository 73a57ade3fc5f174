"""The daemon's end of one worker: questions, answers, and what the guest asks of the host.

Owns: the pipes of one worker.  Never: believes a frame's content; output is bytes until checked.
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
    GuestLimits,
)

CHUNK_BYTES = 1 << 18
HELLO_S = 30.0  # interpreter and wasmtime, on a machine with other things to do
GRACE_S = 0.5  # between the guest's own deadline and the end of its worker

ServeHost = Callable[[protocol.HostCall], Awaitable[protocol.HostReply]]


class WorkerGone(Exception):
    """The worker ended, or said something that is not the protocol."""


class WorkerClient:
    """One worker."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._deframer = protocol.Deframer()
        self.loaded = ""  # the digest of the module it has

    async def greet(self) -> None:
        """Wait until the worker can serve.  Raises WorkerGone."""
        with trio.move_on_after(HELLO_S):
            answer = await self._receive()
            if not isinstance(answer, protocol.WorkerHello):
                raise WorkerGone("the worker did not say hello")
            return
        raise WorkerGone(f"the worker was not ready within {HELLO_S:g} s")

    async def compile(self, module: bytes) -> bytes:
        """Machine code of the module.  Raises GuestFailure.

        Cancellation: the worker is in the middle of it; end it.
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
        """Give the worker its module.  Raises GuestFailure, WorkerGone."""
        await self._send(protocol.LoadModule(compiled=compiled))
        self._expect(await self._receive(), protocol.Loaded)
        self.loaded = digest

    async def run(self, request: protocol.RunGuest, serve_host: ServeHost) -> bytes:
        """The guest's output, unchecked JSON.  Raises GuestFailure.

        After a failure, and after a cancellation, the worker is of no more use; end it.
        """
        with trio.move_on_after(request.limits.deadline_s + GRACE_S):
            try:
                return await self._run(request, serve_host)
            except WorkerGone as error:
                raise GuestFailure("trapped", f"the worker broke down: {error}") from None
        raise GuestFailure("timed_out", _too_long(request.limits))

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
        """The answer, if it is of that kind.  Raises GuestFailure for `Failed`, else WorkerGone."""
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


def _too_long(limits: GuestLimits) -> str:
    return f"the guest ran longer than {limits.deadline_s:g} s"
