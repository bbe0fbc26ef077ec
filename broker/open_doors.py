"""Warns of valid settings that leave the broker more open than their author may expect, or out of reach, and of files
with secrets that other users of the machine can read: a sentence for each.
"""

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from magnetar.client.address import is_loopback

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings


_EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared with, not bound to
OWNER_ONLY_UMASK: Final = 0o077
"""The umask of the broker's process: its files (journal, ledgers, metadata, scratch files) belong to its user alone."""


def warnings_of_open_doors(settings: "Settings") -> list[str]:
    """The warnings for the operator at every start."""
    warnings = []
    if not settings.authentication_enabled:
        set_in_vain = [key for key, value in _of_authentication(settings).items() if value]
        if set_in_vain:
            warnings.append(
                f"{', '.join(set_in_vain)}: of no effect without authenticationEnabled=true; the broker is open"
            )
        if not is_loopback(settings.bind_address):
            warnings.append(
                f"bindAddress={settings.bind_address} without authenticationEnabled=true: every client "
                "that reaches this address may read, write and delete everything"
            )
    elif not settings.authorization_enabled:
        warnings.append("authenticationEnabled=true without authorizationEnabled=true: every role may do everything")
    elif settings.anonymous_user_role and settings.anonymous_user_role in settings.super_user_roles:
        warnings.append("anonymousUserRole is one of superUserRoles: clients without credentials may do everything")
    if settings.broker_service_port_tls is None and settings.web_service_port_tls is None:
        set_in_vain = [key for key, value in _of_tls(settings).items() if value]
        if set_in_vain:
            warnings.append(
                f"{', '.join(set_in_vain)}: of no effect without brokerServicePortTls or webServicePortTls; "
                "no connection is encrypted"
            )
    if settings.advertised_address in _EVERY_ADDRESS:
        warnings.append(
            f"advertisedAddress={settings.advertised_address}: a client on another machine connects to itself; set the "
            "name or address by which clients reach this machine"
        )
    return warnings


def _of_tls(settings: "Settings") -> dict[str, str]:
    return {
        "tlsCertificateFilePath": settings.tls_certificate_file_path,
        "tlsKeyFilePath": settings.tls_key_file_path,
    }


def _of_authentication(settings: "Settings") -> dict[str, object]:
    return {
        "authenticationProviders": settings.authentication_providers,
        "tokenSecretKey": settings.token_secret_key,
        "tokenPublicKey": settings.token_public_key,
        "basicAuthConf": settings.basic_auth_conf,
        "superUserRoles": settings.super_user_roles,
    }


def warnings_of_readable_files(settings: "Settings") -> list[str]:
    """Return a sentence for each key or password file of the settings that users outside its owner and group can
    read.
    """
    files = {
        "tlsKeyFilePath": settings.tls_key_file_path,
        "tokenSecretKey": _file_of(settings.token_secret_key),
        "basicAuthConf": _file_of(settings.basic_auth_conf),
    }
    return [
        f"{key}: every user of this machine can read {path}; run: chmod o-rwx {path}"
        for key, path in files.items()
        if path and is_readable_by_others(Path(path))
    ]


def is_readable_by_others(path: Path) -> bool:
    """Whether the file exists and its mode lets other users read it."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except (OSError, ValueError):  # ValueError: the text is no valid path
        return False


def _file_of(text: str) -> str:
    """The path that the value of a setting names as file:///path; anything else may be the secret itself."""
    return unquote(urlsplit(text).path) if text.startswith("file:") else text if text.startswith("/") else ""
