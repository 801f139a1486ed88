"""Where the API server is and who we are: kubernetes-asyncio's reading of its files, and no more of it.

The only module that imports kubernetes-asyncio, and only when a connection is opened: its import alone costs a second
and 71 MB. Models, `Watch` and leader election of that library are not used.

Reading happens in a thread: kubeconfigs, token files and certificates are files, and an exec plugin may take its time;
none of it may hold up the loop. Tokens in files are read again each minute, since a service account's is replaced while
the pod runs; an exec plugin is asked again shortly before its token ends; a 401 asks for all of it at once.
"""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec
import structlog
import yaml

from reconciler.api.time import Seconds
from reconciler.client.errors import CredentialsError

REREAD = Seconds(60.0)
"""How old what was read from files may get."""
AFTER_TROUBLE = Seconds(10.0)
"""When to try again after a re-read that failed; until then the former credentials serve."""
BEFORE_EXPIRY = Seconds(300.0)
"""How long before its end a plugin's token is replaced (kubernetes-asyncio's own margin)."""
PLUGIN_REST = Seconds(5.0)
"""Shortest time between two readings, however many answers say 401."""

log = structlog.get_logger(__name__)


class Credentials(Protocol):
    """How to reach one API server."""

    @property
    def host(self) -> str:
        """Base URL, without a slash at its end."""
        ...

    @property
    def proxy(self) -> str | None:
        """Proxy URL, if one is configured."""
        ...

    @property
    def server_name(self) -> str | None:
        """Name to expect in the server's certificate, if another than the host's."""
        ...

    @property
    def tls(self) -> ssl.SSLContext | None:
        """TLS settings, the same object for good; None for plain HTTP."""
        ...

    async def authorization(self) -> str | None:
        """The `Authorization` header of the moment, read again when due; None without a token."""
        ...

    async def renew(self, refused: str | None) -> bool:
        """Read all credentials again, after the server refused this header.

        Returns:
            Whether another try makes sense.
        """
        ...


class _Read(msgspec.Struct, frozen=True):
    """One reading of the source."""

    host: str
    proxy: str | None
    server_name: str | None
    authorization: str | None
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    verify: bool
    lasts: Seconds | None


class ConfiguredCredentials:
    """Credentials from a kubeconfig file, or from the files a pod is given."""

    def __init__(self, kubeconfig: Path | None, *, service_account: Path | None = None) -> None:
        """Remember the source; nothing is read before `load`.

        Args:
            kubeconfig: the file; None for the files of the pod we run in.
            service_account: folder of `token` and `ca.crt`, if another than a pod's usual one.
        """
        self._kubeconfig = kubeconfig
        self._service_account = service_account
        self._now: _Read | None = None
        self._context: ssl.SSLContext | None = None
        self._lock = asyncio.Lock()
        self._read_at = 0.0
        self._due: float | None = None

    async def load(self) -> None:
        """Read the source.

        Raises:
            CredentialsError: it is missing or unusable; the message says what to provide.
        """
        async with self._lock:
            await self._load()

    @property
    def host(self) -> str:
        """Base URL, without a slash at its end."""
        return self._loaded.host

    @property
    def proxy(self) -> str | None:
        """Proxy URL, if one is configured."""
        return self._loaded.proxy

    @property
    def server_name(self) -> str | None:
        """Name to expect in the server's certificate, if another than the host's."""
        return self._loaded.server_name

    @property
    def tls(self) -> ssl.SSLContext | None:
        """TLS settings, the same object for good; None for plain HTTP."""
        return self._context

    async def authorization(self) -> str | None:
        """The `Authorization` header of the moment, read again when due; None without a token."""
        if self._due is not None and self._time() >= self._due:
            async with self._lock:
                if self._time() >= self._due:
                    await self._try_load()
        return self._loaded.authorization

    async def renew(self, refused: str | None) -> bool:
        """Read all credentials again, after the server refused this header.

        Returns:
            Whether another try makes sense: something was read, by this call or by one at the same time.
        """
        async with self._lock:
            if self._loaded.authorization != refused:
                return True
            if self._time() - self._read_at < PLUGIN_REST:
                return False
            return await self._try_load()

    async def _try_load(self) -> bool:
        try:
            await self._load()
        except CredentialsError as error:
            self._due = self._time() + AFTER_TROUBLE
            log.warning("credentials couldn't be read again; the former ones serve", error=str(error))
            return False
        return True

    async def _load(self) -> None:
        found, self._context = await asyncio.to_thread(_read, self._kubeconfig, self._service_account, self._context)
        self._now = found
        self._read_at = self._time()
        self._due = None if found.lasts is None else self._read_at + found.lasts

    @property
    def _loaded(self) -> _Read:
        if self._now is None:
            raise CredentialsError("the credentials haven't been loaded yet")
        return self._now

    def _time(self) -> float:
        return asyncio.get_running_loop().time()


def _read(
    kubeconfig: Path | None, service_account: Path | None, context: ssl.SSLContext | None
) -> tuple[_Read, ssl.SSLContext | None]:
    """Read everything; runs in a thread.

    Raises:
        CredentialsError: the source is missing or unusable.
    """
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException

    configuration = Configuration()
    try:
        if kubeconfig is None:
            lasts: Seconds | None = _from_pod(configuration, service_account)
        else:
            lasts = asyncio.run(_from_file(configuration, kubeconfig))
        found = _Read(
            host=str(configuration.host).rstrip("/"),
            proxy=configuration.proxy or _proxy_of_environment(str(configuration.host)),
            server_name=configuration.tls_server_name or None,
            # Files often end with a newline, which a header mustn't hold.
            authorization=(configuration.api_key.get("BearerToken") or "").strip() or None,
            ca_file=configuration.ssl_ca_cert,
            cert_file=configuration.cert_file,
            key_file=configuration.key_file,
            verify=bool(configuration.verify_ssl),
            lasts=lasts,
        )
        return found, _tls(found, context)
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AssertionError, AttributeError) as error:
        # The library checks a file's shape with whatever its code trips over.
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "in-cluster configuration"
        hint = "" if kubeconfig else " Outside a cluster, give --kubeconfig."
        raise CredentialsError(f"{where} can't be used: {str(error) or type(error).__name__}.{hint}") from error


def _from_pod(configuration: Any, folder: Path | None) -> Seconds:
    from kubernetes_asyncio import config

    files = {} if folder is None else {"token_filename": str(folder / "token"), "cert_filename": str(folder / "ca.crt")}
    # Its own re-reading happens on the loop; ours is done here.
    load: Any = config.load_incluster_config
    load(client_configuration=configuration, try_refresh_token=False, **files)
    return REREAD


async def _from_file(configuration: Any, kubeconfig: Path) -> Seconds | None:
    from kubernetes_asyncio import config

    loader = await config.load_kube_config(config_file=str(kubeconfig), client_configuration=configuration)
    user = loader._user
    if user is None or "exec" not in user:
        return REREAD
    expiry = getattr(loader, "exec_plugin_expiry", None)
    if not isinstance(expiry, datetime):
        return None  # the plugin promises no end: it is asked again after a 401
    left = (expiry - datetime.now(UTC)).total_seconds()
    return Seconds(max(AFTER_TROUBLE, left - BEFORE_EXPIRY, min(left / 2, BEFORE_EXPIRY)))


def _proxy_of_environment(host: str) -> str | None:
    """What HTTPS_PROXY, HTTP_PROXY and NO_PROXY say of this server."""
    url = urlsplit(host)
    if not url.hostname or proxy_bypass(url.hostname):
        return None
    return getproxies().get(url.scheme)


def _tls(found: _Read, context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The TLS settings; an existing context takes renewed client certificates for its next connections."""
    if not found.host.startswith("https://"):
        return None
    if context is None:
        context = ssl.create_default_context(cafile=found.ca_file)
        # Cluster CAs are often written without the key identifiers that Python's strict mode asks for; Go doesn't.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not found.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
    elif found.ca_file and found.verify:
        context.load_verify_locations(cafile=found.ca_file)
    if found.cert_file:
        context.load_cert_chain(found.cert_file, keyfile=found.key_file)
    return context
