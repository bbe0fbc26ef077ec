"""TLS and logins to ZooKeeper: a file in the form of ZooKeeper's own client configuration (metadataStoreConfigPath).

Apache Pulsar has no keys for this file: it passes these names to its virtual machine.

    zookeeper.client.secure=true
    zookeeper.ssl.trustStore.location=/path/ca.pem           authorities, PEM
    zookeeper.ssl.keyStore.location=/path/client.pem         certificate and key of this broker, PEM
    zookeeper.ssl.hostnameVerification=true
    zookeeper.sasl.clientconfig=Client                       section of jaasLoginConfigPath with user and password
    zookeeper.sasl.client=true                               false: no login, for any jaasLoginConfigPath
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.bookkeeper.jaas import read_section
from magnetar.bookkeeper.zookeeper.values import ZooKeeperOptions

if TYPE_CHECKING:
    from magnetar.bookkeeper.wire.digest_md5 import DigestCredentials

__all__ = ["ZooKeeperSecurity", "read_security", "zookeeper_options"]

_CLIENT: Final = "Client"
"""The default of ZooKeeper's client."""
_SECURE: Final = "zookeeper.client.secure"
_TRUST: Final = "zookeeper.ssl.trustStore.location"
_KEYS: Final = "zookeeper.ssl.keyStore.location"
_NAMES: Final = "zookeeper.ssl.hostnameVerification"
_SASL: Final = "zookeeper.sasl.client"
_SECTION: Final = "zookeeper.sasl.clientconfig"
_KINDS: Final = ("zookeeper.ssl.trustStore.type", "zookeeper.ssl.keyStore.type")
_IGNORED: Final = ("zookeeper.clientCnxnSocket",)
"""The class that speaks TLS in ZooKeeper's client."""
_PROTECTS: Final = ("zookeeper.ssl.", "zookeeper.sasl.", "zookeeper.client.")


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """How the connection to ZooKeeper is protected. Without ``tls`` it is not encrypted."""

    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    """Certificate and key in one file."""
    verify_names: bool = True
    login: DigestCredentials | None = None


def read_security(path: str, login_path: str = "") -> ZooKeeperSecurity:
    """The security of the file at `path` and the login of the file at `login_path` (jaasLoginConfigPath); empty paths
    give no security and no login. Raises ValueError with the key and the remedy.
    """
    if not path:
        return ZooKeeperSecurity(login=read_section(login_path, _CLIENT) if login_path else None)
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"metadataStoreConfigPath: {error}") from error
    given = dict(_pairs(text))
    for key, value in given.items():
        if key in _KINDS and value.upper() != "PEM":
            raise ValueError(f"{path}: {key} cannot be {value!r}: key stores are read in PEM only")
        known = key in (_SECURE, _TRUST, _KEYS, _NAMES, _SASL, _SECTION, *_KINDS, *_IGNORED)
        if not known and key.startswith(_PROTECTS) and value.lower() != "false":
            raise ValueError(
                f"{path}: {key} has no effect here: leave it out; there are TLS with PEM files and SASL DIGEST-MD5"
            )
    if given.get(_SECURE, "false").lower() != "true":
        if _TRUST in given or _KEYS in given:
            raise ValueError(f"{path}: {_TRUST} and {_KEYS} need {_SECURE}=true")
        return ZooKeeperSecurity(login=_login(path, given, login_path))
    for key in (_TRUST, _KEYS):
        if given.get(key) and not pathlib.Path(given[key]).is_file():
            raise ValueError(f"{path}: {key}: there is no file {given[key]}")
    return ZooKeeperSecurity(
        tls=True,
        ca_file=given.get(_TRUST) or None,
        certificate_file=given.get(_KEYS) or None,
        verify_names=given.get(_NAMES, "true").lower() != "false",
        login=_login(path, given, login_path),
    )


def zookeeper_options(servers: str, security: ZooKeeperSecurity, session_timeout_ms: int) -> ZooKeeperOptions:
    """Return the options of a session with that protection."""
    sasl = {}
    if security.login is not None:
        sasl = {"mechanism": "DIGEST-MD5", "username": security.login.username, "password": security.login.password}
    return ZooKeeperOptions(
        servers,
        session_timeout_ms=session_timeout_ms,
        sasl=sasl,
        tls=security.tls,
        tls_ca_file=security.ca_file,
        tls_certificate_file=security.certificate_file,
        tls_key_file=security.certificate_file,
        tls_verify_names=security.verify_names,
    )


def _login(path: str, given: dict[str, str], login_path: str) -> DigestCredentials | None:
    if given.get(_SASL, "true").lower() == "false":
        return None
    if not login_path:
        for key in (_SASL, _SECTION):
            if key in given:
                raise ValueError(f"{path}: {key} needs jaasLoginConfigPath, the file with the user and the password")
        return None
    section = given.get(_SECTION, _CLIENT)
    found = read_section(login_path, section)
    if found is None and _SECTION in given:
        raise ValueError(f"{path}: {_SECTION}: {login_path} has no section {section}")
    return found


def _pairs(text: str) -> list[tuple[str, str]]:
    lines = (line.strip() for line in text.splitlines())
    return [
        (key.strip(), value.strip())
        for key, equals, value in (line.partition("=") for line in lines if line and line[0] not in "#!")
        if equals
    ]
