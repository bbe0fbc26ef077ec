"""This broker as a client of the brokers of its cluster, including itself: reads and writes the topics of policies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from magnetar.client.address import Address, Credentials
from magnetar.client.pool import ConnectionPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.broker.advertised import AdvertisedUrls
    from magnetar.broker.settings import Settings

__all__ = ["PeerClient", "peer_credentials"]

_TOKEN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"  # noqa: S105 - the name of a class
_BASIC = "org.apache.pulsar.client.impl.auth.AuthenticationBasic"
_NONE = "org.apache.pulsar.client.impl.auth.AuthenticationDisabled"
_TLS = "org.apache.pulsar.client.impl.auth.AuthenticationTls"


class PeerClient:
    """One connection to each broker. `own_urls()` has the addresses once this broker listens."""

    def __init__(self, settings: Settings, own_urls: Callable[[], AdvertisedUrls]) -> None:
        self.credentials = peer_credentials(settings)
        self.connections = ConnectionPool(self.credentials)
        self._own_urls = own_urls
        self._tls = settings.broker_client_tls_enabled

    @property
    def service(self) -> Address:
        """The address of this broker, at which lookups begin."""
        urls = self._own_urls()
        plain, tls = urls.service_url, urls.service_url_tls
        url = (tls or plain) if self._tls else (plain or tls)
        assert url is not None, "a member of a cluster listens"
        return Address.parse(url)

    async def close(self) -> None:
        await self.connections.wait_closed()


def peer_credentials(settings: Settings) -> Credentials:
    """Read the credentials of brokerClientAuthenticationPlugin and its parameters. Raises ValueError for unsupported
    settings.
    """
    plugin, given = settings.broker_client_authentication_plugin, settings.broker_client_authentication_parameters
    token = basic = None
    if plugin in ("token", _TOKEN):
        token = given.removeprefix("token:")
        if token.startswith("file://"):
            token = f"file:{token.removeprefix('file://')}"
    elif plugin in ("basic", _BASIC):
        basic = _basic(given)
    elif plugin not in ("", _NONE, "tls", _TLS):
        raise ValueError(
            f"brokerClientAuthenticationPlugin cannot be {plugin!r}: this broker has {_TOKEN}, {_BASIC} and {_TLS}"
        )
    pairs = dict(part.partition(":")[::2] for part in given.split(",")) if plugin in ("tls", _TLS) else {}
    return Credentials(
        token=token,
        basic=basic,
        tls_trust_certs=settings.broker_client_trust_certs_file_path or None,
        tls_cert=pairs.get("tlsCertFile") or settings.broker_client_certificate_file_path or None,
        tls_key=pairs.get("tlsKeyFile") or settings.broker_client_key_file_path or None,
        tls_allow_insecure=settings.tls_allow_insecure_connection,
        tls_hostname_verification=settings.tls_hostname_verification_enabled,
    )


def _basic(given: str) -> str:
    """``user:password`` of the parameters, which may be JSON as in Apache Pulsar."""
    if not given.lstrip().startswith("{"):
        return given
    try:
        found = json.loads(given)
        return f"{found['userId']}:{found['password']}"
    except (ValueError, KeyError, TypeError):
        raise ValueError("brokerClientAuthenticationParameters: userId and password are expected") from None
