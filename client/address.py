"""Address of the broker and credentials: service URL, token, TLS."""

from __future__ import annotations

import base64
import ipaddress
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from magnetar.client.errors import InputError

_PORTS = {"pulsar": 6650, "pulsar+ssl": 6651}
_WEB = {"pulsar": ("http", 8080), "pulsar+ssl": ("https", 8443)}


@dataclass(frozen=True, slots=True)
class Address:
    """One broker of a service URL."""

    host: str
    port: int
    tls: bool

    @staticmethod
    def parse(url: str) -> Address:
        """Raises: InputError for an invalid service URL."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
            parts = urlsplit("")
        if parts.scheme not in _PORTS or not parts.hostname:
            raise InputError(f"{url!r} is no service URL: give pulsar://HOST:PORT or pulsar+ssl://HOST:PORT")
        return Address(parts.hostname, port or _PORTS[parts.scheme], parts.scheme == "pulsar+ssl")

    def web_url(self) -> str:
        """Return the admin address that a broker at this address has by default."""
        scheme, port = _WEB["pulsar+ssl" if self.tls else "pulsar"]
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}"

    def url(self) -> str:
        """The service URL of this broker."""
        return f"pulsar{'+ssl' if self.tls else ''}://{self}"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether the address or name is one of this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials that the client sends to the broker, and the TLS settings that verify the broker.

    token: a token, `file:PATH` or `env:NAME`; each connection reads it again, so that a renewed token is used.
    basic: `USER:PASSWORD`.
    tls_trust_certs: file of authorities to trust instead of the system's.   tls_cert, tls_key: of the client.
    """

    token: str | None = None
    basic: str | None = None
    tls_trust_certs: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_allow_insecure: bool = False
    tls_hostname_verification: bool = True

    def auth(self) -> tuple[str, bytes]:
        """Method name and data of CONNECT. Raises: InputError when the token cannot be read."""
        if self.token is not None:
            return "token", (read_token(self.token) or "").encode()
        if self.basic is not None:
            return "basic", self.basic.encode()
        return ("tls", b"") if self.tls_cert else ("", b"")

    def authorization(self) -> str | None:
        """The Authorization header of an HTTP request. Raises: InputError when the token cannot be read."""
        if self.token is not None:
            return f"Bearer {read_token(self.token)}"
        if self.basic is not None:
            return f"Basic {base64.b64encode(self.basic.encode()).decode()}"
        return None

    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS context of the client. Raises: InputError when a file cannot be read or used."""
        try:
            context = ssl.create_default_context(cafile=self.tls_trust_certs or None)
        except OSError as error:
            raise _unusable(error, self.tls_trust_certs) from error
        # From Python 3.13 on the default refuses certificates without an authority key identifier or key usage,
        # which other clients of Apache Pulsar accept.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        try:
            if self.tls_cert:
                context.load_cert_chain(self.tls_cert, self.tls_key)
        except OSError as error:
            raise _unusable(error, self.tls_cert, self.tls_key) from error
        context.check_hostname = self.tls_hostname_verification and not self.tls_allow_insecure
        if self.tls_allow_insecure:
            context.verify_mode = ssl.CERT_NONE
        return context


def _unusable(error: OSError, *paths: str | None) -> InputError:
    """The error of files that the TLS library refuses; its texts name no file."""
    reason = error.strerror or str(error)
    if "PEM lib" in reason:
        reason = "no certificate, or no private key, in PEM form; a file of the key alone must be named beside it"
    elif "KEY_VALUES_MISMATCH" in reason:
        reason = "the private key does not belong to the certificate"
    return InputError(f"a TLS file cannot be used: {', '.join(filter(None, paths))}: {reason}")


def read_token(text: str | None) -> str | None:
    """Return the token that `text` is or names: the token itself, `file:PATH`, or `env:NAME`; with the latter two the
    token stays out of the process list.

    Raises: InputError.
    """
    if text is None:
        return None
    kind, _, rest = text.partition(":")
    if kind == "env":
        token = os.environ.get(rest)
        if token is None:
            raise InputError(f"token env:{rest}: there is no such variable")
        return token.strip()
    if kind == "file":
        try:
            return Path(rest).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InputError(f"token file:{rest}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"token file:{rest}: {error}") from error
    return text
