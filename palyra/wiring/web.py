"""Wiring of egress: reachable hosts, credentials of requests, and the sources of secrets."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from palyra.actors.egress import Egress, EgressBranch
from palyra.actors.kernel.child import ChildSpec
from palyra.config.load import Config
from palyra.config.sections import FetchCredential
from palyra.core.outbound import Outbound
from palyra.core.redaction.secret_references import is_reference, parse_reference
from palyra.core.tool.hosts import normal_host
from palyra.errors import InvalidParams
from palyra.net.api.words import protocol_words
from palyra.secrets.resolver import Resolver
from palyra.secrets.service import SecretService
from palyra.tools.skills.host_functions import FetchReply, FetchRequest, HostFunctions
from palyra.tools.web.credentials import Credential
from palyra.tools.web.dialler import Dialler
from palyra.tools.web.egress_policy import ReachRules, parse_opened
from palyra.tools.web.fetch import Web
from palyra.tools.web.http_client import tls_context
from palyra.tools.web.proxy import ProxyGate
from palyra.tools.web.request import read_request
from palyra.wiring.host import Host


class Webset(NamedTuple):
    """HTTP client, secrets, and the services that both need."""

    web: Web
    secrets: SecretService
    egress: EgressBranch
    services: Sequence[ChildSpec]

    def open_egress(
        self, granted: Collection[str], on_refused: Callable[[str], None] = lambda _key: None
    ) -> Egress:
        """Build the egress of one sandboxed command: `Command.network`.

        `granted`: hosts, with a port other than 80 or 443 included (`request.grant_key`).
        `on_refused` is called with the key of each refused host.
        """
        gate = ProxyGate(self.web.dialler.dial, granted, on_refused)
        return self.egress.open(gate.admit)

    def problems(self) -> tuple[str, ...]:
        """Return the problems that prevent reading secrets."""
        return self.secrets.problems

    def doors(self) -> HostFunctions:
        """Build the host functions that a skill's guest may call, within its grants."""
        return HostFunctions(fetch=self._fetch, find_secret=self.secrets.find_in_vault)

    async def _fetch(self, request: FetchRequest) -> FetchReply:
        """Send one request without following redirects: the guest needs a grant for each host."""
        body = {"body": request.body} if request.body else {}
        arguments = {"url": request.url, "method": request.method, "headers": request.headers}
        answer = await self.web.exchange(read_request({**arguments, **body}))
        return FetchReply(
            status=answer.status,
            headers=dict(answer.headers),
            body=answer.body.decode("utf-8", "replace"),
            is_cut=answer.is_cut,
        )


def build_webset(config: Config, host: Host, learn: Callable[..., None]) -> Webset:
    """Build the configured egress and secrets; `learn` adds a secret to the redactor.

    Raises InvalidParams for an invalid setting.
    """
    data = config.paths.data_dir
    resolver = Resolver(
        data, data / "keys", passphrase=config.secrets.passphrase, find_words=protocol_words
    )
    secrets = SecretService(resolver, host.run_blocking, learn)
    credentials = read_credentials(config.fetch.credentials)
    ca_file = os.path.expanduser(config.fetch.ca_file)  # noqa: PTH111 - "" stays ""
    outbound = config.outbound
    trust = partial(tls_context, ca_file, outbound)
    if ca_file or outbound != Outbound():
        trust()  # check the files now, not at the first request
    web = Web(
        Dialler(reach_rules(config)),
        host.run_blocking,
        credentials=credentials,
        find_secret=secrets.find,
        trust=trust,
    )
    named = [credential.secret for credential in credentials.values()]
    named += filter(is_reference, (config.notify.webhook, config.notify.topic))
    egress = EgressBranch()
    learning = ChildSpec("secrets", partial(secrets.keep_known, named))
    return Webset(web, secrets, egress, [learning, egress.child_spec()])


def reach_rules(config: Config) -> ReachRules:
    """Return the rules for reachable addresses and ports.  Raises InvalidParams."""
    return ReachRules(
        ports=frozenset(config.fetch.ports), opened=parse_opened(config.fetch.private)
    )


def read_credentials(configured: Sequence[FetchCredential]) -> Mapping[str, Credential]:
    """Return the configured credentials by name.  Raises InvalidParams."""
    found: dict[str, Credential] = {}
    for each in configured:
        if not each.name or each.name in found:
            raise InvalidParams(
                f"fetch.credentials: each needs a unique name, not {each.name!r}",
                field="fetch.credentials",
            )
        found[each.name] = Credential(
            name=each.name,
            secret=parse_reference(each.secret).text,
            host=normal_host(each.host),
            header=each.header.lower(),
            prefix=each.prefix,
        )
    return found
