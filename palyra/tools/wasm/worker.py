"""WASM worker process: compiles or runs one untrusted module on request of the daemon.

`tools.wasm.launch` starts it in the sandbox.  It speaks `tools.wasm.protocol` over its standard
input and output.  Every failure reaches the daemon as a frame or as the end of the process.
Owns: one engine, one loaded module.
Never: holds state that must survive; the daemon may kill the process at any time.
"""

import os
import resource
import signal
from collections.abc import Iterator
from typing import assert_never

import wasmtime

from palyra.tools.wasm import protocol
from palyra.tools.wasm.engine import make_engine
from palyra.tools.wasm.guest import GuestCall, run_guest
from palyra.tools.wasm.limits import WORKER_ADDRESS_SPACE, GuestFailure

CHUNK_BYTES = 1 << 18


class WorkerPipes:
    """Pipes to the daemon; no other code in this process has their descriptors."""

    def __init__(self) -> None:
        """Duplicate standard input and output, and replace them by the null device."""
        self._incoming, self._outgoing = os.dup(0), os.dup(1)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):  # standard error stays connected to the sandbox
            os.dup2(null, descriptor)
        self._deframer = protocol.Deframer()

    def send(self, message: protocol.Message) -> None:
        rest = memoryview(protocol.encode(message))
        while rest:
            rest = rest[os.write(self._outgoing, rest) :]

    def requests(self) -> Iterator[protocol.Request]:
        """Yield requests until the daemon closes the pipe."""
        while True:
            body = self._deframer.next_body()
            if body is not None:
                yield protocol.decode_request(body)
                continue
            data = os.read(self._incoming, CHUNK_BYTES)
            if not data:
                return
            self._deframer.feed(data)


class Worker:
    """The engine and its single loaded module."""

    def __init__(self, pipes: WorkerPipes) -> None:
        self._pipes = pipes
        self._requests = pipes.requests()
        self._engine = make_engine()
        self._module: wasmtime.Module | None = None

    def serve(self) -> None:
        """Answer until the pipe closes."""
        self._pipes.send(protocol.WorkerHello())
        for request in self._requests:
            self._pipes.send(self._answer(request))

    def _answer(self, request: protocol.Request) -> protocol.Answer:
        try:
            return self._do(request)
        except GuestFailure as failure:
            text = failure.message.removeprefix(f"{failure.problem}: ")
            return protocol.Failed(problem=failure.problem, text=text)

    def _do(self, request: protocol.Request) -> protocol.Answer:
        match request:
            case protocol.Compile():
                return self._compile(request)
            case protocol.LoadModule():
                return self._load(request)
            case protocol.RunGuest():
                return self._run(request)
            case protocol.HostReply():
                raise protocol.BadWorkerFrame("a reply to nothing")
            case _:
                assert_never(request)

    def _compile(self, request: protocol.Compile) -> protocol.Answer:
        """Compile the module.  SIGPROF ends the process after `cpu_s` seconds of CPU time."""
        signal.setitimer(signal.ITIMER_PROF, request.cpu_s)
        try:
            compiled = bytes(wasmtime.Module(self._engine, request.module).serialize())
        except wasmtime.WasmtimeError as error:
            raise GuestFailure("invalid_module", " ".join(str(error).split())[:300]) from None
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        return protocol.Compiled(compiled=compiled)

    def _load(self, request: protocol.LoadModule) -> protocol.Answer:
        try:
            self._module = wasmtime.Module.deserialize(self._engine, request.compiled)
        except wasmtime.WasmtimeError as error:
            raise GuestFailure("invalid_module", " ".join(str(error).split())[:300]) from None
        return protocol.Loaded()

    def _run(self, request: protocol.RunGuest) -> protocol.Answer:
        if self._module is None:
            raise GuestFailure("invalid_module", "no module is loaded")
        guest = GuestCall(request.input, frozenset(request.granted), self._ask_host)
        output = run_guest(self._engine, self._module, guest, request.limits)
        return protocol.Done(output=output)

    def _ask_host(self, function: str, argument: bytes) -> bytes:
        self._pipes.send(protocol.HostCall(function=function, argument=argument))
        reply = next(self._requests, None)
        if not isinstance(reply, protocol.HostReply):
            raise SystemExit(1)  # the pipe is closed, or the daemon broke the protocol
        if reply.denied:
            raise GuestFailure("capability_denied", reply.denied)
        return reply.reply


def main() -> None:
    """Serve until the daemon closes the pipe."""
    space = WORKER_ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    Worker(WorkerPipes()).serve()


if __name__ == "__main__":
    main()
