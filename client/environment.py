"""The variables of the environment with the broker and the credentials of a command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["DEFAULT_SERVICE_URL", "VARIABLES", "from_environment"]

DEFAULT_SERVICE_URL: Final = "pulsar://127.0.0.1:6650"
VARIABLES: Final = {
    "service_url": "MAGNETAR_URL",
    "admin_url": "MAGNETAR_ADMIN_URL",
    "token": "MAGNETAR_TOKEN",
    "tls_trust_certs": "MAGNETAR_TLS_TRUST_CERTS",
    "tls_cert": "MAGNETAR_TLS_CERT",
    "tls_key": "MAGNETAR_TLS_KEY",
}


def from_environment(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the value of each variable by the name of its option; None for absent and empty variables."""
    return {name: environ.get(variable) or None for name, variable in VARIABLES.items()}
