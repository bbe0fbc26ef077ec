"""Cipher suites of the settings: IANA's names, which Apache Pulsar's files have, and OpenSSL's."""

import re
import ssl
from collections.abc import Sequence
from typing import Final

TLS_1_3: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
"""Suites of TLSv1.3: Python gives no door to choose among them."""
_IANA: Final = re.compile(r"TLS_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+)")


def openssl_name(name: str) -> str:
    """OpenSSL's name of a suite of TLSv1.2; a name that is not IANA's stays as it is."""
    found = _IANA.fullmatch(name)
    if found is None:
        return name
    cipher = re.sub(r"^AES_(\d+)", r"AES\1", found["cipher"]).replace("_CBC", "")
    cipher = cipher.replace("POLY1305_SHA256", "POLY1305").replace("_", "-")
    exchange = "" if found["exchange"] == "RSA" else found["exchange"].replace("_", "-") + "-"
    return exchange + cipher


def choose_ciphers(context: ssl.SSLContext, names: Sequence[str], key: str) -> None:
    """Have the context speak no other suites than these.

    key: the setting the names come from, for the error.
    Raises: ValueError for a name that OpenSSL does not know, and for a choice that cannot be kept.
    """
    newer = {name for name in names if name in TLS_1_3}
    older = [openssl_name(name) for name in names if name not in TLS_1_3]
    speaks_newer = context.maximum_version is ssl.TLSVersion.TLSv1_3
    speaks_older = context.minimum_version is ssl.TLSVersion.TLSv1_2
    if newer and newer != TLS_1_3 and speaks_newer:
        raise ValueError(
            f"{key}: suites of TLSv1.3 cannot be chosen one by one: name all of {', '.join(sorted(TLS_1_3))}"
        )
    if newer and not older and speaks_older:
        raise ValueError(f"{key} names suites of TLSv1.3 only: speak no older version")
    for name in older:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(name)
        except ssl.SSLError as e:
            raise ValueError(f"{key}: {name} is no cipher suite that OpenSSL knows") from e
    if older:
        context.set_ciphers(":".join(older))
