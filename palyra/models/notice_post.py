"""One HTTP request that carries a notice.  Importing it imports the HTTP client, which takes time."""

from collections.abc import Mapping

import httpx
import trio

from palyra.core.outbound import Outbound
from palyra.errors import Unavailable
from palyra.models.http_exchange import open_client, read_failure


class NoticePost:
    """A client for one request."""

    def __init__(self, outbound: Outbound, proxy: str) -> None:
        """Open the client.  Blocks for some 20 ms.  Raises InvalidParams."""
        self._client = open_client(None, outbound, proxy)
        self._proxy = proxy

    async def send(self, url: str, headers: Mapping[str, str], content: bytes) -> int:
        """Send the request and return the status of the answer, whose body is not read.

        Redirects are not followed.  Raises Unavailable, without the address.
        Cancellation: the connection is closed; the receiver may have the request.
        """
        async with self._client as client:
            try:
                request = client.build_request("POST", url, headers=headers, content=content)
                answer = await client.send(request, stream=True)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise Unavailable(read_failure(error, self._proxy, "its host").message) from None
            with trio.CancelScope(shield=True):  # closing does not wait for the peer
                await answer.aclose()
            return answer.status_code
