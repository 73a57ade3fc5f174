"""Typed methods about the configuration and the vault."""

from typing import Any

from palyra.client.requests import RequestMethods
from palyra.core.configuration import ConfigChanged, ConfigView, StoredSecret
from palyra.core.notice import NoticeSent
from palyra.net.protocol.results import NoticesTried, SecretList, SecretRemoved


class ConfigurationMethods(RequestMethods):
    """Read and change the configuration and the secrets it refers to.  Operators only."""

    async def get_config(self, key: str = "") -> ConfigView:
        """Return the keys of the configuration with values and sources; `key` is one key or a section."""
        return await self._ask("config.get", {"key": key}, ConfigView)

    async def set_config(self, key: str, value: Any, *, digest: str | None = None) -> ConfigChanged:  # noqa: ANN401 - JSON
        """Write one value to the configuration file; None removes the key.

        `digest` is that of the file the change was made for; Conflict if it has changed since.
        """
        params = {"key": key, "value": value, "digest": digest}
        return await self._mutate("config.set", params, ConfigChanged)

    async def try_notices(self) -> list[NoticeSent]:
        """Send a test to each address of the section `notify`; a result has its problem."""
        return (await self._ask("notify.test", {}, NoticesTried)).sent

    async def list_secrets(self) -> list[StoredSecret]:
        """List the secrets of the vault by name, without values."""
        return (await self._ask("secret.list", {}, SecretList)).secrets

    async def set_secret(self, name: str, value: str) -> StoredSecret:
        """Store a secret as vault:NAME; the daemon redacts it from now on."""
        return await self._ask("secret.set", {"name": name, "value": value}, StoredSecret)

    async def remove_secret(self, name: str) -> SecretRemoved:
        """Remove a secret from the vault.  Raises NotFound."""
        return await self._ask("secret.remove", {"name": name}, SecretRemoved)
