"""Requests to the admin API; failures become errors of this room."""

from __future__ import annotations

import json
import ssl
import urllib.error
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from magnetar.cli.errors import (
    BrokerFailedError,
    CliError,
    CommandLineError,
    ConfigurationError,
    ConflictError,
    DeniedError,
    NotFoundError,
    UnreachableError,
)
from magnetar.client.admin import AdminApi
from magnetar.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from magnetar.cli.target import Target

_OF_STATUS: Final[dict[int, type[CliError]]] = {
    HTTPStatus.BAD_REQUEST: CommandLineError,
    HTTPStatus.UNAUTHORIZED: DeniedError,
    HTTPStatus.FORBIDDEN: DeniedError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.METHOD_NOT_ALLOWED: CommandLineError,
    HTTPStatus.CONFLICT: ConflictError,
    HTTPStatus.UNPROCESSABLE_ENTITY: CommandLineError,
    HTTPStatus.PRECONDITION_FAILED: ConflictError,
    HTTPStatus.TOO_MANY_REQUESTS: ConflictError,
    HTTPStatus.SERVICE_UNAVAILABLE: UnreachableError,
}
_NO_CREDENTIALS: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "give a token with --token file:PATH, or a token, password or certificate in a context",
    HTTPStatus.FORBIDDEN: "the role lacks this right: an administrator grants it with `magnetar permissions grant`",
}
_UNPROVEN: Final = "Authentication required"
_OTHER_CLUSTER: Final = "is not in the list of allowed clusters"
_REFUSED_CREDENTIALS: Final = (
    "the broker does not accept the credentials: they are expired, or made with another key; authentication.failed in "
    "the broker's log has the reason"
)


class Web:
    """The admin API of one target."""

    def __init__(self, target: Target, timeout_s: float = 60.0) -> None:
        self.target = target
        self._api = AdminApi(target.admin_url, target.credentials, timeout_s)

    def fetch(self, method: str, path: str, body: bytes | None = None) -> tuple[bytes, Mapping[str, str]]:
        """Send a request; return body and headers of a successful answer. Raises: CliError."""
        try:
            answer, headers = self._api.fetch(method, path, body)
        except urllib.error.HTTPError as error:
            raise refusal(error.code, error.read(), self.target) from None
        except ClientError as error:
            raise ConfigurationError(str(error)) from error
        except OSError as error:
            raise UnreachableError(_unreachable(self.target, error)) from error
        return answer, dict(headers.items())

    def call(self, method: str, path: str, value: Any = None) -> Any:
        """Return the parsed answer, None for an empty answer. Raises: CliError."""
        body = None if value is None else json.dumps(value).encode()
        answer, _ = self.fetch(method, path, body)
        if not answer.strip():
            return None
        try:
            return json.loads(answer)
        except ValueError:
            return answer.decode(errors="replace")

    def get(self, path: str) -> Any:
        return self.call("GET", path)


def refusal(status: int, body: bytes, target: Target) -> CliError:
    """Return the error for a failed answer, with the broker's own reason."""
    kind = _OF_STATUS.get(status, BrokerFailedError)
    reason = reason_of(body) or f"HTTP {status}"
    hint = _hint(status, reason, has_credentials=target.credentials.authorization() is not None)
    error = kind(f"{reason} ({hint})" if hint else reason)
    error.add_note(reason)
    return error


def _hint(status: int, reason: str, *, has_credentials: bool) -> str | None:
    """Return the remedy for a refusal; None where the broker's reason has it."""
    if _OTHER_CLUSTER in reason:
        return "`magnetar admin tenants update TENANT --allowed-clusters NAME,...` changes the list"
    if not has_credentials:
        return _NO_CREDENTIALS.get(status)
    return _REFUSED_CREDENTIALS if reason == _UNPROVEN else None


def reason_of(body: bytes) -> str:
    """Return the field `reason` of an answer, else the beginning of its text."""
    try:
        found = json.loads(body)
    except ValueError:
        return body[:300].decode(errors="replace").strip()
    return str(found.get("reason", "")) if isinstance(found, dict) else str(found)


def _unreachable(target: Target, error: OSError) -> str:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return (
            f"no trusted certificate at {target.admin_url} ({reason.verify_message}): give its authority with "
            "--tls-trust-certs, and in --admin-url a name of the certificate"
        )
    return (
        f"no answer from {target.admin_url} ({reason}): is the broker up, and is this its web port? "
        f"Give --admin-url, or a context{hint_of_certificate(target.credentials.tls_cert)}"
    )


def hint_of_certificate(certificate: str | None) -> str:
    """Return the further remedy for a lost connection: a broker closes connections of certificates that it does not
    trust, with TLSv1.3 behind the client's handshake. Empty where the client has no certificate.
    """
    return f". tls.refused in the broker's log means that it does not trust {certificate}" if certificate else ""
