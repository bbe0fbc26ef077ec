"""TLS to ZooKeeper: a file in the form of ZooKeeper's own client configuration (metadataStoreConfigPath).

Apache Pulsar has no keys of its own for this: it passes these names to its Java machine.

    zookeeper.client.secure=true
    zookeeper.ssl.trustStore.location=/path/ca.pem           authorities, PEM
    zookeeper.ssl.keyStore.location=/path/client.pem         certificate and key of this broker, PEM
    zookeeper.ssl.hostnameVerification=true
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass
from typing import Final

__all__ = ["ZooKeeperSecurity", "read_security"]

_SECURE: Final = "zookeeper.client.secure"
_TRUST: Final = "zookeeper.ssl.trustStore.location"
_KEYS: Final = "zookeeper.ssl.keyStore.location"
_NAMES: Final = "zookeeper.ssl.hostnameVerification"
_KINDS: Final = ("zookeeper.ssl.trustStore.type", "zookeeper.ssl.keyStore.type")
_IGNORED: Final = ("zookeeper.clientCnxnSocket",)
"""The class that speaks TLS in Java."""
_PROTECTS: Final = ("zookeeper.ssl.", "zookeeper.sasl.", "zookeeper.client.")


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """How the connection to ZooKeeper is protected. Without ``tls`` it is not."""

    tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    """Certificate and key in one file."""
    verify_names: bool = True


def read_security(path: str) -> ZooKeeperSecurity:
    """Of the file; of none for an empty path. Raises ValueError, which names the key and what to do."""
    if not path:
        return ZooKeeperSecurity()
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"metadataStoreConfigPath: {error}") from error
    given = dict(_pairs(text))
    for key, value in given.items():
        if key in _KINDS and value.upper() != "PEM":
            raise ValueError(f"{path}: {key} cannot be {value!r}: key stores are read in PEM only")
        known = key in (_SECURE, _TRUST, _KEYS, _NAMES, *_KINDS, *_IGNORED)
        if not known and key.startswith(_PROTECTS) and value.lower() != "false":
            raise ValueError(f"{path}: {key} has no effect here: leave it out; TLS with PEM files is what there is")
    if given.get(_SECURE, "false").lower() != "true":
        if _TRUST in given or _KEYS in given:
            raise ValueError(f"{path}: {_TRUST} and {_KEYS} need {_SECURE}=true")
        return ZooKeeperSecurity()
    for key in (_TRUST, _KEYS):
        if given.get(key) and not pathlib.Path(given[key]).is_file():
            raise ValueError(f"{path}: {key}: there is no file {given[key]}")
    return ZooKeeperSecurity(
        tls=True,
        ca_file=given.get(_TRUST) or None,
        certificate_file=given.get(_KEYS) or None,
        verify_names=given.get(_NAMES, "true").lower() != "false",
    )


def _pairs(text: str) -> list[tuple[str, str]]:
    lines = (line.strip() for line in text.splitlines())
    return [
        (key.strip(), value.strip())
        for key, equals, value in (line.partition("=") for line in lines if line and line[0] not in "#!")
        if equals
    ]
