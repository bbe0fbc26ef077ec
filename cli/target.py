"""The broker and credentials of a command: from flags, environment, context and pulsar-client's file.

For each value, the first of these sources that has it counts:

    1. flags of the command                 --url, --admin-url, --token, ...
    2. MAGNETAR_URL, MAGNETAR_ADMIN_URL, MAGNETAR_TOKEN (`file:PATH` and `env:NAME` too), MAGNETAR_TLS_TRUST_CERTS
    3. the context of --context or MAGNETAR_CONTEXT, else the file PULSAR_CLIENT_CONF (Apache Pulsar's client.conf),
       else the current context
    4. pulsar://127.0.0.1:6650 and http://127.0.0.1:8080
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from magnetar.cli.contexts import Context, ContextFile
from magnetar.cli.errors import CommandLineError, ConfigurationError
from magnetar.client.address import Address, Credentials
from magnetar.client.environment import DEFAULT_SERVICE_URL, from_environment
from magnetar.client.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """One broker, or a cluster. `name`: the name of the context, or the service URL. `is_default`: no source has an
    address.
    """

    name: str
    service_url: str
    admin_url: str
    credentials: Credentials
    is_default: bool = False

    def address(self) -> Address:
        """Return the address of the service. Raises: CommandLineError for an invalid service URL."""
        try:
            return Address.parse(self.service_url)
        except InputError as error:
            raise CommandLineError(str(error)) from error


def chosen_target(flags: Context, context: str | None, environ: Mapping[str, str]) -> Target:
    """Return the target of a command.

    Args:    flags: values of the command's flags; None for absent flags.
    Raises:  CommandLineError, ConfigurationError, NotFoundError.
    """
    environment: dict[str, Any] = from_environment(environ)
    said = Context(**environment)
    name, named = _named(context or environ.get("MAGNETAR_CONTEXT"), environ)
    first: dict[str, Any] = {
        each.name: next((v for source in (flags, said, named) if (v := getattr(source, each.name))), each.default)
        for each in dataclasses.fields(Context)
    }
    merged = Context(**first)
    service_url = merged.service_url or _service_url_beside(merged.admin_url)
    admin_url = merged.admin_url or _web_url(service_url)
    _require_web_url(admin_url)
    credentials = Credentials(
        token=merged.token,
        basic=merged.basic,
        tls_trust_certs=merged.tls_trust_certs,
        tls_cert=merged.tls_cert,
        tls_key=merged.tls_key,
        tls_allow_insecure=bool(merged.tls_allow_insecure),
    )
    is_default = not (merged.service_url or merged.admin_url)
    return Target(name or service_url, service_url, admin_url, credentials, is_default)


def _named(name: str | None, environ: Mapping[str, str]) -> tuple[str | None, Context]:
    if name is not None:
        return name, ContextFile.load(environ).get(name)
    if environ.get("PULSAR_CLIENT_CONF"):
        return None, from_client_conf(Path(environ["PULSAR_CLIENT_CONF"]))
    file = ContextFile.load(environ)
    return (file.current, file.contexts[file.current]) if file.current is not None else (None, Context())


def _service_url_beside(admin_url: str | None) -> str:
    """Return the service URL on the host of the admin address; the default without an admin address."""
    parts = urlsplit(admin_url or "")
    if not parts.hostname:
        return DEFAULT_SERVICE_URL
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"pulsar+ssl://{host}:6651" if parts.scheme == "https" else f"pulsar://{host}:6650"


def _web_url(service_url: str) -> str:
    try:
        return Address.parse(service_url).web_url()
    except InputError as error:
        raise CommandLineError(str(error)) from error


def _require_web_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandLineError(f"{url!r} is no admin address: give http://HOST:PORT or https://HOST:PORT")


# --- Apache Pulsar's client.conf ----------------------------------------------------------------------------------


def from_client_conf(path: Path) -> Context:
    """Return the context that a client.conf describes. Raises: ConfigurationError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"PULSAR_CLIENT_CONF: cannot read {path}: {error}") from error
    found = {
        key.strip(): value.strip()
        for line in text.splitlines()
        if not line.lstrip().startswith("#") and "=" in line
        for key, _, value in [line.partition("=")]
    }
    context = Context(
        service_url=found.get("brokerServiceUrl") or None,
        admin_url=found.get("webServiceUrl") or None,
        tls_trust_certs=found.get("tlsTrustCertsFilePath") or None,
        tls_allow_insecure=found.get("tlsAllowInsecureConnection", "").lower() == "true",
    )
    return with_auth(context, found.get("authPlugin") or None, found.get("authParams") or None)


def with_auth(context: Context, plugin: str | None, params: str | None) -> Context:
    """Return the context with Pulsar's --auth-plugin and --auth-params: token, basic and TLS.

    Raises: ConfigurationError for another plugin or unreadable parameters.
    """
    if plugin is None:
        return context
    kind = plugin.rpartition(".")[2].removeprefix("Authentication").lower()
    if kind == "token":
        return dataclasses.replace(context, token=_token_parameter(params or ""))
    values = _parameters(params or "")
    if kind == "basic":
        return dataclasses.replace(context, basic=f"{values.get('userId', '')}:{values.get('password', '')}")
    if kind == "tls":
        return dataclasses.replace(context, tls_cert=values.get("tlsCertFile"), tls_key=values.get("tlsKeyFile"))
    raise ConfigurationError(f"authentication plugin {plugin}: only token, basic and tls are supported")


def _token_parameter(params: str) -> str:
    """`token:...`, `file:///PATH`, `env:NAME`, JSON with a field `token`, or the token itself."""
    if params.startswith("{"):
        return str(_parameters(params).get("token", ""))
    if params.startswith("file:"):
        return "file:" + params.removeprefix("file:").removeprefix("//")
    return params.removeprefix("token:")


def _parameters(params: str) -> dict[str, str]:
    if not params.startswith("{"):
        return dict(each.partition(":")[::2] for each in params.split(",") if ":" in each)
    try:
        values = json.loads(params)
    except ValueError as error:
        raise ConfigurationError(f"--auth-params holds no JSON: {error}") from error
    return {str(key): str(value) for key, value in values.items()}
