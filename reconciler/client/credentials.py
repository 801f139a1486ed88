"""Where the API server is and who we are: kubernetes-asyncio's reading of its files, and no more of it.

The only module that imports kubernetes-asyncio, and only when a connection is opened: its import alone costs a second
and 71 MB. Models, `Watch` and leader election of that library are not used.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any, Protocol

from reconciler.client.errors import ApiError


class CredentialsError(ApiError):
    """No usable way to a cluster was found; the message says what to provide."""


class Credentials(Protocol):
    """How to reach one API server."""

    @property
    def host(self) -> str:
        """Base URL."""
        ...

    @property
    def proxy(self) -> str | None:
        """Proxy URL, if one is configured."""
        ...

    def tls(self) -> ssl.SSLContext | None:
        """TLS settings, with client certificates read anew; None for plain HTTP."""
        ...

    async def headers(self) -> dict[str, str]:
        """Authentication headers of the moment; expiring tokens are read again when due."""
        ...

    async def renew(self) -> None:
        """Read all credentials again, after the server refused the present ones."""
        ...


class ConfiguredCredentials:
    """Credentials from a kubeconfig file, or from the files a pod is given."""

    def __init__(self, kubeconfig: Path | None) -> None:
        """Remember the source; nothing is read before `load`."""
        self._kubeconfig = kubeconfig
        self._configuration: Any = None

    async def load(self) -> None:
        """Read the source.

        Raises:
            CredentialsError: it is missing or unusable.
        """
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config

        configuration = Configuration()
        try:
            if self._kubeconfig is None:
                load_incluster_config(client_configuration=configuration)
            else:
                await load_kube_config(
                    config_file=str(self._kubeconfig), client_configuration=configuration, persist_config=False
                )
        except (ConfigException, OSError, ValueError) as error:
            where = f"kubeconfig {self._kubeconfig}" if self._kubeconfig else "in-cluster configuration"
            hint = "" if self._kubeconfig else "; outside a cluster, give --kubeconfig"
            raise CredentialsError(f"{where} can't be used: {error}{hint}") from error
        self._configuration = configuration

    @property
    def host(self) -> str:
        """Base URL."""
        return str(self._configuration.host).rstrip("/")

    @property
    def proxy(self) -> str | None:
        """Proxy URL, if one is configured."""
        return self._configuration.proxy or None

    def tls(self) -> ssl.SSLContext | None:
        """TLS settings, with client certificates read anew; None for plain HTTP."""
        configuration = self._configuration
        if not self.host.startswith("https://"):
            return None
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    async def headers(self) -> dict[str, str]:
        """Authentication headers of the moment; expiring tokens are read again when due."""
        found: dict[str, str] = {}
        for setting in (await self._configuration.auth_settings()).values():
            if setting["in"] == "header" and setting["value"]:
                found[setting["key"]] = setting["value"]
        return found

    async def renew(self) -> None:
        """Read all credentials again, after the server refused the present ones."""
        await self.load()
