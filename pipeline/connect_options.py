"""The options of addresses and credentials: the same for source, sink and jobs.

Spark gives option names in lower case and compares them without case; so does this module.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.client.address import Address, Credentials, read_token
from magnetar.client.admin import AdminApi
from magnetar.client.environment import DEFAULT_SERVICE_URL
from magnetar.client.errors import InputError
from magnetar.pipeline.option_table import Option, OptionError, flag

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_OPTIONS = (
    Option(
        "service.url", DEFAULT_SERVICE_URL, "address of the broker, `pulsar://HOST:PORT` or `pulsar+ssl://HOST:PORT`"
    ),
    Option("admin.url", "port 8080 (8443 with TLS) of the broker", "address of the admin REST API"),
    Option("token", "", "a token, `file:PATH` or `env:NAME`; read anew at each connection, so a renewed token is used"),
    Option("basic", "", "`USER:PASSWORD`"),
    Option("pulsar.client.authPluginClassName", "", "Java or short name of the plugin: token, tls or basic"),
    Option("pulsar.client.authParams", "", "its parameters, as the Java client takes them"),
    Option("pulsar.client.tlsTrustCertsFilePath", "the system's", "file of authorities to trust"),
    Option("pulsar.client.tlsCertificateFilePath", "", "certificate to show"),
    Option("pulsar.client.tlsKeyFilePath", "", "its key"),
    Option("pulsar.client.tlsAllowInsecureConnection", "false", "take any certificate of the broker"),
    Option("pulsar.client.tlsHostnameVerificationEnable", "true", "refuse a certificate of another host"),
)
"""THE table of these options; the documentation is tested against it."""

_PLUGINS = {
    "token": "token",
    "tls": "tls",
    "basic": "basic",
    "org.apache.pulsar.client.impl.auth.authenticationtoken": "token",
    "org.apache.pulsar.client.impl.auth.authenticationtls": "tls",
    "org.apache.pulsar.client.impl.auth.authenticationbasic": "basic",
}


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """Addresses of the broker and credentials. Holds no connection; may be pickled to executors."""

    service: Address
    admin_url: str
    credentials: Credentials

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> ConnectOptions:
        """Read them from the options of a DataFrame reader or writer. Raises: OptionError."""
        given = {name.lower(): value for name, value in options.items()}
        try:
            service = Address.parse(given.get("service.url", DEFAULT_SERVICE_URL))
            credentials = _credentials(given)
            if credentials.token is not None:
                read_token(credentials.token)
        except InputError as error:
            raise OptionError(str(error)) from error
        return cls(service, given.get("admin.url", service.web_url()).rstrip("/"), credentials)

    def admin(self) -> AdminApi:
        """The admin REST API of the same cluster."""
        return AdminApi(self.admin_url, self.credentials)


def _credentials(given: Mapping[str, str]) -> Credentials:
    plugin = given.get("pulsar.client.authpluginclassname", "").strip()
    method = _PLUGINS.get(plugin.lower(), "") if plugin else ""
    if plugin and not method:
        raise OptionError(
            f"option pulsar.client.authPluginClassName: {plugin!r} is not supported; token, tls and basic are"
        )
    params = given.get("pulsar.client.authparams", "")
    named = _named_params(params)
    certificate, key = given.get("pulsar.client.tlscertificatefilepath"), given.get("pulsar.client.tlskeyfilepath")
    if method == "tls":
        certificate, key = certificate or named.get("tlsCertFile"), key or named.get("tlsKeyFile")
    token, basic = given.get("token"), given.get("basic")
    if method == "token":
        token = token or _token(params, named)
    elif method == "basic":
        basic = basic or _basic(params, named)
    return Credentials(
        token=token,
        basic=basic,
        tls_trust_certs=given.get("pulsar.client.tlstrustcertsfilepath"),
        tls_cert=certificate,
        tls_key=key,
        tls_allow_insecure=flag(given, "pulsar.client.tlsAllowInsecureConnection", False),
        tls_hostname_verification=flag(given, "pulsar.client.tlsHostnameVerificationEnable", True),
    )


def _named_params(params: str) -> dict[str, str]:
    """`a:b,c:d` or a JSON object, as the Java client takes both."""
    if params.lstrip().startswith("{"):
        try:
            return {str(name): str(value) for name, value in json.loads(params).items()}
        except ValueError as error:
            raise OptionError(f"option pulsar.client.authParams is no JSON object: {error}") from error
    return {name: value for name, colon, value in (part.partition(":") for part in params.split(",")) if colon}


def _token(params: str, named: Mapping[str, str]) -> str:
    """`token:TEXT`, `file:PATH`, `file:///PATH`, `env:NAME`, {"token": ...} or the bare token."""
    if params.lstrip().startswith("{"):
        return named.get("token", "")
    return params.removeprefix("token:").replace("file://", "file:", 1)


def _basic(params: str, named: Mapping[str, str]) -> str:
    """`USER:PASSWORD`, or {"userId": ..., "password": ...}."""
    return f"{named['userId']}:{named.get('password', '')}" if "userId" in named else params
