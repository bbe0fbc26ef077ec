"""TLS to bookies: trusted authorities and the client's certificate, from PEM files or PKCS #12 key stores."""

from __future__ import annotations

import os
import pathlib
import secrets
import ssl
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from magnetar.bookkeeper import events
from magnetar.bookkeeper.errors import BookKeeperError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.bookkeeper.wire.digest_md5 import DigestCredentials

__all__ = ["BookieSecurity", "BookieTls", "TlsContexts", "TlsFilesError", "tls_context"]

log = structlog.get_logger(__name__)
_KINDS = ("PEM", "PKCS12")


class TlsFilesError(BookKeeperError):
    """A file of keys or certificates cannot be used; the message names the file."""


@dataclass(frozen=True, slots=True)
class BookieTls:
    """Files as BookKeeper's client names them. Without `trust` the authorities of the system are trusted."""

    trust: str = ""
    trust_kind: str = "PEM"
    trust_password_file: str = ""
    key: str = ""
    key_kind: str = "PEM"
    """PEM: a file with the key, and another file with the certificate. PKCS12: one file with both."""
    key_password_file: str = ""
    certificate: str = ""
    verify_names: bool = False
    """Whether a bookie's certificate has to name its address; BookKeeper's client by default does not check that."""
    refresh_s: float = 300.0
    """Interval of the checks for changed files; later connections use the new files. 0: no checks."""

    @property
    def files(self) -> tuple[str, ...]:
        names = (self.trust, self.trust_password_file, self.key, self.key_password_file, self.certificate)
        return tuple(name for name in names if name)


@dataclass(frozen=True, slots=True)
class BookieSecurity:
    """How connections to bookies are protected: TLS, a user of the bookies, or both."""

    tls: BookieTls | None = None
    credentials: DigestCredentials | None = None


def tls_context(tls: BookieTls) -> ssl.SSLContext:
    """Raises TlsFilesError."""
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = tls.verify_names
        if tls.trust:
            _trust(context, tls)
        else:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if tls.key:
            _show(context, tls)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise TlsFilesError(f"TLS to bookies, files {', '.join(tls.files)}: {error}") from error
    return context


class TlsContexts:
    """Keeps a TLS context of the present files, and reads them again after a change. If a changed file cannot be used,
    the previous context stays in force.
    """

    def __init__(self, tls: BookieTls, now_s: Callable[[], float] = time.monotonic) -> None:
        self.tls, self._now_s = tls, now_s
        self._seen, self._looked_s = self._changes(), now_s()  # first: a change while the files are read is seen later
        self._context = tls_context(tls)

    def current(self) -> ssl.SSLContext:
        now_s = self._now_s()
        if self.tls.refresh_s and now_s - self._looked_s >= self.tls.refresh_s:
            self._looked_s = now_s
            changes = self._changes()
            if changes != self._seen:
                self._seen = changes
                try:
                    self._context = tls_context(self.tls)
                except TlsFilesError as error:
                    log.warning(events.TLS_FILES_UNUSABLE, error=str(error))
        return self._context

    def _changes(self) -> tuple[int, ...]:
        return tuple(_modified_ns(name) for name in self.tls.files)


def _trust(context: ssl.SSLContext, tls: BookieTls) -> None:
    if _kind(tls.trust_kind, tls.trust) == "PEM":
        context.load_verify_locations(cafile=tls.trust)
        return
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12  # noqa: PLC0415 - slow to load

    store = pkcs12.load_pkcs12(pathlib.Path(tls.trust).read_bytes(), _password(tls.trust_password_file))
    found = [each.certificate for each in (store.cert, *store.additional_certs) if each is not None]
    if not found:
        raise ValueError(f"{tls.trust} holds no certificate")
    context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in found))


def _show(context: ssl.SSLContext, tls: BookieTls) -> None:
    if _kind(tls.key_kind, tls.key) == "PEM":
        # With no password at all OpenSSL asks for one at the terminal of the process, and waits.
        password = _password(tls.key_password_file) or b""
        context.load_cert_chain(tls.certificate or tls.key, tls.key, password)
        return
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow to load

    store = serialization.pkcs12.load_pkcs12(pathlib.Path(tls.key).read_bytes(), _password(tls.key_password_file))
    if store.key is None or store.cert is None:
        raise ValueError(f"{tls.key} holds no key with its certificate")
    passing = secrets.token_hex(16).encode()
    pem = store.key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(passing),
    )
    for each in (store.cert, *store.additional_certs):
        pem += each.certificate.public_bytes(serialization.Encoding.PEM)
    with tempfile.NamedTemporaryFile() as file:  # ssl takes files only; a crash leaves a file that no password opens
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name, password=passing)


def _kind(kind: str, path: str) -> str:
    if kind.upper() not in _KINDS:
        convert = f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        raise ValueError(f"{path} of type {kind} cannot be read, PEM and PKCS12 can: {convert}")
    return kind.upper()


def _password(path: str) -> bytes | None:
    return pathlib.Path(path).read_bytes().strip() if path else None


def _modified_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - one call
    except OSError:
        return 0
