"""The files of the web console: read once, served from memory, open to everyone.

The console is a client of the protocol like any other; its files are public code and hold no secret.
`index.html` is never cached and names all other files by the release in their address, a digest of
their contents: those may be cached for ever, and no page mixes files of two releases.

Every address in the files is relative, so the console also works below a path of a proxy.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from quart import Response, request
from werkzeug.exceptions import NotFound

import palyra

FOLDER = Path(palyra.__file__).parent / "console"
INDEX = "index.html"
WORKER = "worker.js"  # has an address of its own at the root: it may act for what is below that
RELEASE_MARK = b"/VERSION/"  # in the addresses of index.html
DIGEST_CHARS = 12
TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
}

# `connect-src 'self'` covers ws: and wss: of the own origin.  `palyra-view` is the policy of view.js.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types palyra-view"
)
UNUSED_FEATURES = (
    "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media",
    "fullscreen", "gamepad", "geolocation", "gyroscope", "hid", "idle-detection", "local-fonts",
    "magnetometer", "microphone", "midi", "payment", "picture-in-picture",
    "publickey-credentials-get", "screen-wake-lock", "serial", "storage-access", "usb",
    "xr-spatial-tracking",
)  # fmt: skip
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": ", ".join(f"{name}=()" for name in UNUSED_FEATURES),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class ConsoleFile:
    """A file of the console as it is sent."""

    body: bytes
    content_type: str

    @property
    def etag(self) -> str:
        """Strong validator (RFC 9110 section 8.8.3), without quotes."""
        return hashlib.sha256(self.body).hexdigest()


def read_files(folder: Path) -> dict[str, ConsoleFile]:
    """Return the files below the folder by their path in it; others than those of a page are left out."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in TYPES and path.is_file())
    return {
        path.relative_to(folder).as_posix(): ConsoleFile(
            path.read_bytes(), f"{TYPES[path.suffix]}; charset=utf-8"
        )
        for path in paths
    }


def name_release(version: str, files: dict[str, ConsoleFile]) -> str:
    """Return the version with a digest of all files: equal only if every file is equal."""
    digest = hashlib.sha256()
    for name, file in files.items():
        digest.update(f"{name}\n{file.etag}\n".encode())
    return f"{version}-{digest.hexdigest()[:DIGEST_CHARS]}"


FILES = read_files(FOLDER)  # this module is imported in a thread, with the rest of the HTTP stack


class ConsoleFiles:
    """The routes of the files."""

    def __init__(self, version: str, files: dict[str, ConsoleFile] = FILES) -> None:
        self._files = files
        self.release = name_release(version, files)
        index = files[INDEX].body.replace(RELEASE_MARK, f"/{self.release}/".encode())
        self._index = ConsoleFile(index, files[INDEX].content_type)

    def index(self) -> Response:
        """Answer with the page; a browser checks each time whether it changed."""
        return _send(self._index, "no-cache")

    async def worker(self) -> Response:
        """Answer with the service worker, which a browser looks for again by itself."""
        return _send(self._files[WORKER], "no-cache")

    async def file(self, release: str, name: str) -> Response:
        """Answer with a file of this release; the files of another one are gone."""
        file = self._files.get(name)
        if release != self.release or file is None or name == INDEX:
            raise NotFound
        return _send(file, FOR_EVER)


def wants_page() -> bool:
    """True if the request prefers HTML to plain text: browsers do, programs that take all do not."""
    return request.accept_mimetypes.best_match(["text/plain", "text/html"]) == "text/html"


def _send(file: ConsoleFile, caching: str) -> Response:
    response = Response(file.body, headers=HEADERS, content_type=file.content_type)
    response.headers["Cache-Control"] = caching
    response.set_etag(file.etag)
    if request.if_none_match.contains(file.etag):
        response.status_code = 304
        response.set_data(b"")
    return response
