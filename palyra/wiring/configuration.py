"""Check of a configuration by the code that a start runs."""

import errno
import socket
from collections.abc import Callable

from palyra.config.load import Config
from palyra.errors import InvalidParams, PalyraError

# What is no fault of the setting: another program has the port, perhaps this daemon itself.
_TAKEN = frozenset({errno.EADDRINUSE})


def check_config(config: Config, build: Callable[[Config], object]) -> None:
    """Raise InvalidParams for a setting that the loader takes and a start refuses.  Blocks.

    `build` builds a daemon, which is dropped: nothing of it is started, so no file is written.
    """
    _require_address(config)
    try:
        build(config)
    except InvalidParams:
        raise
    except PalyraError as error:
        raise InvalidParams(error.message) from None
    except (OSError, ValueError) as error:
        raise InvalidParams(f"a start with it fails: {error}") from None


def _require_address(config: Config) -> None:
    host, port = config.server.host, config.server.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found:
            with socket.socket(family, kind, protocol) as opened:
                opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                opened.bind(address)
    except (OSError, ValueError) as error:  # also a name that is not one (UnicodeError)
        if isinstance(error, OSError) and error.errno in _TAKEN:
            return
        is_port = isinstance(error, OSError) and error.errno in {errno.EACCES, errno.EPERM}
        field = "server.port" if is_port else "server.host"
        remedy = "choose a port from 1024 on" if is_port else "name an address of this machine"
        raise InvalidParams(
            f"{field}: cannot listen on {host!r}, port {port}: {error}; {remedy}", field=field
        ) from None
