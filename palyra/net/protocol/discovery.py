"""How a client on the same machine finds the daemon: `daemon.json` and the operator token.

The daemon writes `daemon.json` into its data directory when it is ready and removes it when it
stops; the file holds no secret.  The token lies beside it in `keys/`, readable by the owner only.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from palyra.config.load import find_paths
from palyra.errors import InvalidParams, Unauthenticated, Unreachable

TOKEN_VARIABLE = "PALYRA_TOKEN"  # noqa: S105 - the name of a variable, not a token
DISCOVERY_NAME = "daemon.json"
TOKEN_PATH = Path("keys", "operator.token")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """Where a running daemon listens, and which process it is."""

    url: str  # http://127.0.0.1:7467
    ws_url: str  # ws://127.0.0.1:7467/v1/ws
    pid: int
    instance_id: str
    version: str

    @property
    def is_alive(self) -> bool:
        """Whether a process with that pid exists; a reused pid cannot be told apart."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect and with which token."""

    ws_url: str
    token: str = field(repr=False)


def find_home(home: Path | str | None = None) -> Path:
    """The data directory: `home`, else $PALYRA_HOME, else the platform's place for user data.

    Raises InvalidParams for one that is empty.
    """
    if home is not None and not str(home).strip():
        raise InvalidParams("home is empty: name a directory, or leave it out", field="home")
    return find_paths(None if home is None else Path(home)).data_dir


def write_discovery(home: Path, discovery: Discovery) -> None:
    """Publish `daemon.json` at once (rename), so that a reader never sees half of it.

    Raises OSError.
    """
    draft = home / f".{DISCOVERY_NAME}.{discovery.pid}"
    try:
        draft.touch(mode=0o600)  # no secret, but nothing in there is for others
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(discovery)) + b"\n")
        draft.replace(home / DISCOVERY_NAME)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def find_discovery(home: Path) -> Discovery | None:
    """What `daemon.json` says; None when there is none or it is not readable as such."""
    try:
        return msgspec.json.decode((home / DISCOVERY_NAME).read_bytes(), type=Discovery)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def get_discovery(home: Path) -> Discovery:
    """The running daemon of this home.  Raises Unavailable with what to do about it."""
    found = find_discovery(home)
    if found is None:
        raise Unreachable(f"no daemon has announced itself in {home}: start one with `palyra up`")
    if not found.is_alive:
        raise Unreachable(
            f"the daemon announced in {home} (pid {found.pid}) is gone: start one with `palyra up`"
        )
    return found


def read_token(home: Path) -> str:
    """$PALYRA_TOKEN, else the operator's token file.  Raises Unauthenticated when neither is."""
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
    """Address and token, each as given or else as announced in the home directory.

    Raises Unavailable (no daemon announced) or Unauthenticated (no token found, or only the
    operator's while `url` is another machine: that token never leaves this one by itself),
    or InvalidParams for an address that is none.
    """
    directory = find_home(home)
    ws_url = _websocket_url(url) if url else get_discovery(directory).ws_url
    if token is None and url and not _is_loopback(ws_url) and TOKEN_VARIABLE not in os.environ:
        raise Unauthenticated(f"{url} is another machine: name its token in {TOKEN_VARIABLE}")
    return Endpoint(ws_url=ws_url, token=token or read_token(directory))


def _is_loopback(ws_url: str) -> bool:
    return urlsplit(ws_url).hostname in LOOPBACK


def http_address(ws_url: str) -> str:
    """The address of the HTTP API that is served beside that endpoint, without a slash at its end."""
    parts = urlsplit(ws_url)
    scheme = {"ws": "http", "wss": "https"}[parts.scheme]
    return f"{scheme}://{parts.netloc}{parts.path.removesuffix('/').removesuffix('/v1/ws')}"


def _websocket_url(url: str) -> str:
    """`url` as a WebSocket address; http becomes ws, a bare host gets the endpoint's path."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "ws", url
    scheme = {"http": "ws", "https": "wss"}.get(scheme, scheme)
    host, _, path = rest.partition("/")
    address = f"{scheme}://{host}/{path or 'v1/ws'}"
    if scheme not in {"ws", "wss"} or urlsplit(address).hostname is None:
        raise InvalidParams(f"{url!r} is no WebSocket address (ws://host:port/v1/ws)")
    return address
