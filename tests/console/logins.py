"""Logins at a real daemon, as a browser makes them, without a browser."""

import http.client
import json
from dataclasses import dataclass
from typing import Any

from tests.e2e.daemon_process import DaemonProcess


@dataclass(frozen=True)
class Reply:
    """The answer to one request."""

    status: int
    headers: dict[str, str]
    body: str

    @property
    def fields(self) -> dict[str, Any]:
        """Its JSON object."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def cookie(self) -> str:
        """The value that it sets."""
        return self.headers["set-cookie"].partition("=")[2].partition(";")[0]


def ask(
    daemon: DaemonProcess, method: str, path: str, body: str | None = None, **headers: str | None
) -> Reply:
    """Send one request; names of headers have underscores, and None leaves one out."""
    given = {"Host": f"127.0.0.1:{daemon.port}", **headers}
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in given.items():
            if value is not None:
                connection.putheader(name.replace("_", "-"), value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body.encode())))
        connection.endheaders(None if body is None else body.encode())
        answer = connection.getresponse()
        text = answer.read().decode()
        return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)
    finally:
        connection.close()


def log_in(daemon: DaemonProcess, code: str, **headers: str | None) -> Reply:
    """Trade the code as the console's page does, but for the given headers."""
    own: dict[str, str | None] = {
        "Origin": f"http://127.0.0.1:{daemon.port}",
        "Content_Type": "application/json",
        "Sec_Fetch_Site": "same-origin",
    }
    return ask(daemon, "POST", "/v1/console/login", json.dumps({"code": code}), **own | headers)
