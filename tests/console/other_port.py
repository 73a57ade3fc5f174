"""A server of another port of the same host: whoever runs it is no friend of the daemon."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class OtherPort(BaseHTTPRequestHandler):
    """Serves one empty page, without any policy."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>other</title><p>other")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def other_port() -> Generator[int]:
    """The port of such a server, for the length of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), OtherPort)
    serving = threading.Thread(target=server.serve_forever, name="other port")
    serving.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
