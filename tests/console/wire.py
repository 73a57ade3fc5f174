"""The socket of a page with a hand on it: messages of the daemon held back or changed."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Page, WebSocketRoute

Change = Callable[[dict[str, Any]], dict[str, Any]]


class Wire:
    """Between page and daemon: pass it as `prepare` of `open_page`."""

    def __init__(self, script: str = "") -> None:
        self._script = script  # runs before those of the page
        self.asked: list[tuple[str, dict[str, Any]]] = []  # requests of the page, in order
        self.change_request: dict[str, Change] = {}  # by method: the params that are sent on
        self.change_result: dict[str, Change] = {}  # by method: the reply that comes back
        self._methods: dict[int, str] = {}
        self._held: list[str] | None = None
        self._page: WebSocketRoute | None = None
        self._server: WebSocketRoute | None = None

    def __call__(self, page: "Page") -> None:
        """Stand between this page and its daemon."""
        if self._script:
            page.add_init_script(self._script)
        page.route_web_socket("**/v1/ws", self._connect)

    def hold(self) -> None:
        """Keep what the daemon says until `release`."""
        self._held = []

    def release(self) -> None:
        """Pass on what was kept."""
        kept, self._held = self._held or [], None
        assert self._page is not None
        for text in kept:
            self._page.send(text)

    def drop(self) -> None:
        """End the connection on both sides, as a network does."""
        assert self._page is not None
        assert self._server is not None
        self._server.close()
        self._page.close()

    def params_of(self, method: str) -> list[dict[str, Any]]:
        """Params of the page's requests of that method."""
        return [params for name, params in self.asked if name == method]

    def _connect(self, page: "WebSocketRoute") -> None:
        self._page = page
        self._server = server = page.connect_to_server()

        def to_server(text: str | bytes) -> None:
            request = json.loads(text)
            method, params = request["method"], request.get("params", {})
            self.asked.append((method, params))
            self._methods[request["id"]] = method
            if method in self.change_request:
                request["params"] = self.change_request[method](params)
            server.send(json.dumps(request))

        def to_page(text: str | bytes) -> None:
            changed = json.dumps(self._change(json.loads(text)))
            if self._held is not None:
                self._held.append(changed)
            else:
                page.send(changed)

        page.on_message(to_server)
        server.on_message(to_page)

    def _change(self, message: Any) -> Any:
        if isinstance(message, list):
            return [self._change(each) for each in message]
        change = self.change_result.get(self._methods.get(message.get("id"), ""))
        return message if change is None else change(message)
