"""The OpenAPI 3.1 document of all HTTP routes, made from the routes and their structs.

Pure.  Pages without structs (health, metrics, the WebSocket) have a media type only.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from werkzeug.routing import Rule

Json = dict[str, Any]
REF_TEMPLATE = "#/components/schemas/{name}"
JSON_TYPE, SSE_TYPE, TEXT_TYPE = "application/json", "text/event-stream", "text/plain"


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Description of an error: its family, its typed code, the member of the request at fault."""

    message: str
    type: str
    code: str
    param: str | None
    palyra: dict[str, str] = {}
    details: dict[str, Any] = {}  # in Anthropic's shape: what its SDK acts on


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An error in OpenAI's shape."""

    error: ErrorDetail


class MessageErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An error in Anthropic's shape."""

    error: ErrorDetail
    type: Literal["error"]


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a typed event; what else it has depends on its type."""

    type: str


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """One method of one path, with the structs of its request and answers."""

    method: str
    path: str
    handler: Callable[[Any], Awaitable[None]]
    summary: str
    request: type[msgspec.Struct] | None = None
    answer: type[msgspec.Struct] | None = None
    stream: type[msgspec.Struct] | None = None  # the data of one event
    error: type[msgspec.Struct] = ErrorAnswer

    @property
    def rule(self) -> Rule:
        """The route in the table of the web app; an id of a model may have slashes."""
        id_pattern = "<path:id>" if self.path.startswith("/v1/models") else "<id>"
        path = self.path.replace("{id}", id_pattern)
        return Rule(path, endpoint=self, methods=[self.method])

    def is_literal_in(self, raw_path: bytes) -> bool:
        """True if only the id is percent-encoded: `%2F` does not separate (RFC 3986 section 2.2)."""
        before, _, after = self.path.encode().partition(b"{id}")
        return raw_path.startswith(before) and raw_path.endswith(after)

    @property
    def structs(self) -> list[type[msgspec.Struct]]:
        """All structs of the route."""
        return [kind for kind in (self.request, self.answer, self.stream, self.error) if kind]


# Pages that are served without structs: path, media type, status, whether a token is needed.
PAGES = (
    ("/", TEXT_TYPE, "Index of this address", False),
    ("/healthz", TEXT_TYPE, "Liveness of the process", False),
    ("/readyz", TEXT_TYPE, "Readiness (503: not ready)", False),
    ("/metrics", TEXT_TYPE, "Metrics for Prometheus", True),
    ("/v1/asyncapi.json", JSON_TYPE, "The WebSocket protocol", True),
    ("/v1/ws", TEXT_TYPE, "The WebSocket endpoint; a plain request gets 426", True),
)


def render_openapi(routes: Sequence[HttpRoute], *, version: str) -> Json:
    """Return the document."""
    kinds = list(dict.fromkeys(kind for route in routes for kind in route.structs))
    refs, schemas = msgspec.json.schema_components(kinds, ref_template=REF_TEMPLATE)
    schema_of = dict(zip(kinds, refs, strict=True))
    paths: Json = {
        path: {"get": _page(media_type, summary, needs_token=needs_token)}
        for path, media_type, summary, needs_token in PAGES
    }
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Palyra over HTTP",
            "version": version,
            "description": "The APIs that the SDKs of OpenAI and Anthropic use, and a few pages.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: HttpRoute, schema_of: dict[type[msgspec.Struct], Json]) -> Json:
    content: Json = {JSON_TYPE: _media(route.answer, schema_of)}
    if route.stream is not None:
        content[SSE_TYPE] = {"schema": {"type": "string"}, "x-palyra-data": schema_of[route.stream]}
    operation: Json = {
        "summary": route.summary,
        "operationId": _operation_id(route),
        "responses": {
            "200": {"description": "The answer", "content": content},
            "default": {
                "description": "A typed error",
                "content": {JSON_TYPE: {"schema": schema_of[route.error]}},
            },
        },
    }
    if route.request is not None:
        body = {JSON_TYPE: {"schema": schema_of[route.request]}}
        operation["requestBody"] = {"required": True, "content": body}
    if "{id}" in route.path:
        name = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
        operation["parameters"] = [name]
    return operation


def _media(kind: type[msgspec.Struct] | None, schema_of: dict[type[msgspec.Struct], Json]) -> Json:
    return {} if kind is None else {"schema": schema_of[kind]}


def _operation_id(route: HttpRoute) -> str:
    words = re.findall(r"[a-z]+", route.path.removeprefix("/v1/"))
    return "_".join([route.method.lower(), *words])


def _page(media_type: str, summary: str, *, needs_token: bool) -> Json:
    page: Json = {
        "summary": summary,
        "responses": {"200": {"description": "The page", "content": {media_type: {}}}},
    }
    return page if needs_token else {**page, "security": []}
