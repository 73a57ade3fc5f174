"""The daemon's ways out: what may be reached, by which credentials, and where secrets come from."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from palyra.actors.egress import Egress, EgressBranch
from palyra.actors.kernel.child import ChildSpec
from palyra.config.load import Config
from palyra.config.sections import FetchCredential
from palyra.core.redaction.references import parse_reference
from palyra.core.tool.hosts import normal_host
from palyra.errors import InvalidParams
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
    """Requests, secrets, and the services that they need."""

    web: Web
    secrets: SecretService
    egress: EgressBranch
    services: Sequence[ChildSpec]

    def open_egress(
        self, granted: Collection[str], on_refused: Callable[[str], None] = lambda _key: None
    ) -> Egress:
        """The way out of one jailed command: `Command.network`.

        `granted`: hosts, with their port where it is not 80 or 443 (`request.grant_key`);
        `on_refused` hears what the command tried beside.
        """
        gate = ProxyGate(self.web.dialler.dial, granted, on_refused)
        return self.egress.open(gate.admit)

    def problems(self) -> tuple[str, ...]:
        """Why secrets cannot be read."""
        return self.secrets.problems

    def doors(self) -> HostFunctions:
        """What guests of skills reach, as far as each was granted."""
        return HostFunctions(fetch=self._fetch, find_secret=self.secrets.find_in_vault)

    async def _fetch(self, request: FetchRequest) -> FetchReply:
        """One answer; a redirect is the guest's to follow, for its host must be granted too."""
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
    """As the configuration has it; `learn` teaches the redactor.

    Raises InvalidParams for a setting that cannot be kept.
    """
    data = config.paths.data_dir
    resolver = Resolver(data, data / "keys", passphrase=config.secrets.passphrase)
    secrets = SecretService(resolver, host.run_blocking, learn)
    credentials = read_credentials(config.fetch.credentials)
    ca_file = os.path.expanduser(config.fetch.ca_file)  # noqa: PTH111 - "" stays ""
    if ca_file:
        tls_context(ca_file)  # else the first request would find it wrong
    web = Web(
        Dialler(reach_rules(config)),
        host.run_blocking,
        credentials=credentials,
        find_secret=secrets.find,
        ca_file=ca_file,
    )
    named = [credential.secret for credential in credentials.values()]
    egress = EgressBranch()
    learning = ChildSpec("secrets", partial(secrets.keep_known, named))
    return Webset(web, secrets, egress, [learning, egress.child_spec()])


def reach_rules(config: Config) -> ReachRules:
    """Where requests may go.  Raises InvalidParams."""
    return ReachRules(
        ports=frozenset(config.fetch.ports), opened=parse_opened(config.fetch.private)
    )


def read_credentials(configured: Sequence[FetchCredential]) -> Mapping[str, Credential]:
    """The credentials by name.  Raises InvalidParams."""
    found: dict[str, Credential] = {}
    for each in configured:
        if not each.name or each.name in found:
            raise InvalidParams(
                f"fetch.credentials: every one needs a name of its own, not {each.name!r}",
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
