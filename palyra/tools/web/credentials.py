"""Credentials for hosts: which secret goes where, in which header.  Never the secret itself.

A model names a credential; the daemon adds the header on its way out, to the credential's own host
only, over https (http is for hosts the configuration opened), and never after a redirect to
another origin.
"""

from collections.abc import Mapping

import msgspec

from palyra.errors import NotFound
from palyra.tools.web.egress_policy import EgressRefused, ReachRules
from palyra.tools.web.urls import Url


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """One configured credential."""

    name: str
    secret: str  # a reference, see `secret_reference`
    host: str  # in its one form
    header: str = "authorization"
    prefix: str = "Bearer "


def find_credential(
    name: str, url: Url, known: Mapping[str, Credential], rules: ReachRules
) -> Credential:
    """The credential, if it may go to this URL.  Raises NotFound or Unreachable."""
    found = known.get(name)
    if found is None:
        listed = ", ".join(sorted(known)) or "none"
        raise NotFound(f"there is no credential {name[:64]!r}; configured: {listed}")
    if url.host != found.host:
        raise EgressRefused(f"the credential {name} is for {found.host}, not for {url.host}")
    if url.scheme != "https" and not rules.is_opened(url.host, url.port):
        raise EgressRefused(f"the credential {name} is sent over https only")
    return found
