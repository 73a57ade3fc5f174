"""Discovery of the daemon on the same machine: `daemon.json` and the operator token.

The daemon writes `daemon.json` into its data directory when it is ready and removes it when it
stops; the file holds no secret.  The token is in `keys/` of the same directory, readable by the
owner only.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from palyra.config.paths import find_paths
from palyra.errors import InvalidParams, Unauthenticated, Unreachable

TOKEN_VARIABLE = "PALYRA_TOKEN"  # noqa: S105 - the name of a variable, not a token
DISCOVERY_NAME = "daemon.json"
TOKEN_PATH = Path("keys", "operator.token")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """Address and process of a running daemon."""

    url: str  # http://127.0.0.1:7467
    ws_url: str  # ws://127.0.0.1:7467/v1/ws
    pid: int
    instance_id: str
    version: str

    @property
    def is_alive(self) -> bool:
        """True if a process with that pid exists, which may be another one after reuse of the pid."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address and token of a daemon."""

    ws_url: str
    token: str = field(repr=False)


def find_home(home: Path | str | None = None) -> Path:
    """Return the data directory: `home`, else $PALYRA_HOME, else the platform's user data directory.

    Raises InvalidParams for an empty `home`.
    """
    if home is not None and not str(home).strip():
        raise InvalidParams("home is empty: name a directory, or omit it", field="home")
    return find_paths(None if home is None else Path(home)).data_dir


def write_discovery(home: Path, discovery: Discovery) -> None:
    """Publish `daemon.json` by a rename, so that a reader never sees a partial file.

    Raises OSError.
    """
    draft = home / f".{DISCOVERY_NAME}.{discovery.pid}"
    try:
        draft.touch(mode=0o600)  # no secret, but of no use to other users
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(discovery)) + b"\n")
        draft.replace(home / DISCOVERY_NAME)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def find_discovery(home: Path) -> Discovery | None:
    """Read `daemon.json`; None if it is missing or malformed."""
    try:
        return msgspec.json.decode((home / DISCOVERY_NAME).read_bytes(), type=Discovery)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def get_discovery(home: Path) -> Discovery:
    """Return the running daemon of this home.  Raises Unavailable with the remedy."""
    found = find_discovery(home)
    if found is None and home.exists() and not home.is_dir():
        raise InvalidParams(
            f"{home} is a file: name the daemon's directory with --home", field="home"
        )
    if found is None:
        raise Unreachable(f"no daemon is running in {home}: start one with `palyra up`")
    if not found.is_alive:
        raise Unreachable(
            f"the daemon announced in {home} (pid {found.pid}) is no longer running: start one with `palyra up`"
        )
    return found


def read_token(home: Path) -> str:
    """Read $PALYRA_TOKEN, else the operator's token file.  Raises Unauthenticated without either."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given:
        return given.strip()
    path = home / TOKEN_PATH
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Unauthenticated(
            f"no token: {path} is not readable ({type(error).__name__}); "
            f"set {TOKEN_VARIABLE} or use --home to name the daemon's directory"
        ) from None


def find_endpoint(
    url: str | None = None, token: str | None = None, home: Path | str | None = None
) -> Endpoint:
    """Return address and token, each as given or else from the home directory.

    Raises Unavailable (no daemon announced) or Unauthenticated (no token found, or only the
    operator's while `url` is another machine: that token is sent to this machine only),
    or InvalidParams for a malformed address.
    """
    directory = find_home(home)
    ws_url = _websocket_url(url) if url else get_discovery(directory).ws_url
    if token is None and url and not _is_loopback(ws_url) and TOKEN_VARIABLE not in os.environ:
        raise Unauthenticated(f"{url} is on another machine: set its token in {TOKEN_VARIABLE}")
    return Endpoint(ws_url=ws_url, token=token or read_token(directory))


def _is_loopback(ws_url: str) -> bool:
    return urlsplit(ws_url).hostname in LOOPBACK


def http_address(ws_url: str) -> str:
    """Return the address of the HTTP API on the same port, without a trailing slash."""
    parts = urlsplit(ws_url)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    return f"{scheme}://{parts.netloc}{parts.path.removesuffix('/').removesuffix('/v1/ws')}"


def _websocket_url(url: str) -> str:
    """Convert `url` to a WebSocket address; http becomes ws, a bare host gets the default path."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "ws", url
    scheme = {"http": "ws", "https": "wss"}.get(scheme, scheme)
    host, _, path = rest.partition("/")
    address = f"{scheme}://{host}/{path or 'v1/ws'}"
    is_word = not separator and ":" not in host
    if is_word or scheme not in {"ws", "wss"} or not _has_host_and_port(address):
        raise InvalidParams(f"{url!r} is no WebSocket address (ws://host:port/v1/ws)")
    return address


def _has_host_and_port(address: str) -> bool:
    """True if there is a host, and the port, if there is one, is a number up to 65535."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return False
    return parts.hostname is not None and port != 0
