"""Configured credentials: the host, header and secret reference of each, without the secret value.

A model names a credential and the daemon adds the header to the request.  The header is sent only
to the credential's own host and only over https; plain http is allowed for hosts that the
configuration opened.  A redirect to another origin drops the header.
"""

from collections.abc import Mapping

import msgspec

from palyra.errors import NotFound
from palyra.tools.web.egress_policy import EgressRefused, ReachRules
from palyra.tools.web.urls import Url


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """One configured credential."""

    name: str
    secret: str  # a reference, see `core.redaction.secret_references`
    host: str  # normalized, see `core.tool.hosts`
    header: str = "authorization"
    prefix: str = "Bearer "


def find_credential(
    name: str, url: Url, known: Mapping[str, Credential], rules: ReachRules
) -> Credential:
    """Return the named credential if it may be sent to this URL.  Raises NotFound, EgressRefused."""
    found = known.get(name)
    if found is None:
        listed = ", ".join(sorted(known)) or "none"
        raise NotFound(f"there is no credential {name[:64]!r}; configured: {listed}")
    if url.host != found.host:
        raise EgressRefused(f"the credential {name} is for {found.host}, not for {url.host}")
    if url.scheme != "https" and not rules.is_opened(url.host, url.port):
        raise EgressRefused(f"the credential {name} is sent over https only")
    return found
