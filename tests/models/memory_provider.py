"""Connections in memory: httpx and h11 speak real HTTP, and nothing leaves the process."""

import json
from typing import Any

import httpcore
import trio

from tests.models.provider import Piece, Provider


class MemoryBackend(httpcore.AsyncNetworkBackend):
    """Every connection reaches the provider."""

    def __init__(self, served: Provider) -> None:
        self._served = served

    async def connect_tcp(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        return _Connection(self._served)


class _Connection(httpcore.AsyncNetworkStream):
    """One connection; it stays open after an answer that has a content length."""

    def __init__(self, served: Provider) -> None:
        self._served = served
        self._received = b""
        self._pieces: list[Piece] = []
        self._is_over = False

    async def write(self, buffer: bytes, *_: Any, **__: Any) -> None:
        self._received += buffer
        head, end, body = self._received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0)
        if end and len(body) >= length:
            self._served.heads.append(head.decode().lower())
            self._served.bodies.append(json.loads(body))
            self._pieces = list(reversed(self._served.answers.pop(0)))
            self._received = b""

    async def read(self, max_bytes: int, *_: Any, **__: Any) -> bytes:
        await trio.lowlevel.checkpoint()
        while self._pieces:
            piece = self._pieces.pop()
            if not isinstance(piece, bytes):
                await piece()
            elif piece:
                if len(piece) > max_bytes:
                    self._pieces.append(piece[max_bytes:])
                return piece[:max_bytes]
        self._is_over = True
        return b""

    async def aclose(self) -> None:
        self._served.gone += bool(self._pieces)

    async def start_tls(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        raise NotImplementedError("nothing leaves the process")

    def get_extra_info(self, info: str) -> Any:
        return self._is_over if info == "is_readable" else None
