"""The TLS side of the listeners, from the tls* settings.

The binary port and the web port have a context each, made from the same files. Changed certificate files are read again
without a restart: new connections get the new certificate, open connections keep the old certificate. An unusable file
is logged and the old certificate stays in use.
"""

import datetime as dt
import errno
import os
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.network.certificate_end import certificate_end_s

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings
    from magnetar.storage.interfaces import Scheduler, Timer


log = structlog.get_logger(__name__)
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TLS_1_3: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})
"""The suites of TLSv1.3. Python has no function to choose among them."""
_CERTIFICATE: Final = "tlsCertificateFilePath"
_KEY: Final = "tlsKeyFilePath"
_TRUSTED: Final = "tlsTrustCertsFilePath"
_BEGIN: Final = b"-----BEGIN CERTIFICATE"
_WARN_BEFORE_S: Final = 14 * 86_400.0
_WARN_EVERY_S: Final = 86_400.0
_IANA: Final = re.compile(r"TLS_(?P<exchange>\w+?)_WITH_(?P<cipher>\w+)")


def tls_context(settings: "Settings", *, web: bool = False) -> ssl.SSLContext:
    """Build a server context. With a trust store the context requests a client certificate, which must then be trusted.
    The settings webServiceTls* give the web port other protocols and ciphers.

    With tlsAllowInsecureConnection the context requests no certificate, so no certificate can fail or identify a role.
    Raises: OSError (also as ssl.SSLError) when a file cannot be read or used, with setting and file in its text;
    ValueError for ciphers that cannot be enforced, and for client certificates that are required but not checked.
    """
    if settings.tls_require_trusted_client_cert_on_connect and (
        not settings.tls_trust_certs_file_path or settings.tls_allow_insecure_connection
    ):
        raise ValueError(
            "tlsRequireTrustedClientCertOnConnect needs tlsTrustCertsFilePath, and no insecure connections"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    protocols = (settings.web_service_tls_protocols if web else ()) or settings.tls_protocols
    versions = [_VERSIONS[name] for name in protocols] or list(_VERSIONS.values())
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if web and settings.web_service_tls_ciphers:
        choose_ciphers(context, settings.web_service_tls_ciphers, "webServiceTlsCiphers")
    elif settings.tls_ciphers:
        choose_ciphers(context, settings.tls_ciphers, "tlsCiphers")
    _read_files(context, settings)
    if settings.tls_trust_certs_file_path and not settings.tls_allow_insecure_connection:
        required = settings.tls_require_trusted_client_cert_on_connect
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        # No session resumption: OpenSSL does not verify the client of a resumed session again, so a client that is no
        # longer trusted could continue its session.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def _read_files(context: ssl.SSLContext, settings: "Settings") -> None:
    """Read certificate and key, and the trust store unless tlsAllowInsecureConnection is set. Errors name setting and
    file, which OpenSSL's texts do not.
    """
    certificate, key = settings.tls_certificate_file_path, settings.tls_key_file_path
    trusted = "" if settings.tls_allow_insecure_connection else settings.tls_trust_certs_file_path
    contents = {
        name: _content(name, path)
        for name, path in ((_CERTIFICATE, certificate), (_KEY, key), (_TRUSTED, trusted))
        if path
    }
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password)
    except (ssl.SSLError, _EncryptedKeyError) as e:
        raise ssl.SSLError(getattr(e, "errno", 0), _chain_problem(e, certificate, key, contents)) from e
    if trusted:
        try:
            context.load_verify_locations(trusted)
        except ssl.SSLError as e:
            raise ssl.SSLError(e.errno, f"{_TRUSTED}: {trusted}: {_reason(e, _BEGIN, contents[_TRUSTED])}") from e


def _content(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as e:
        remedy = f"; user {os.geteuid()} must have the right to read it" if e.errno == errno.EACCES else ""
        raise OSError(e.errno, f"{name}: {path}: {e.strerror}{remedy}") from e


class _EncryptedKeyError(Exception):
    """The key needs a password. Without this error OpenSSL would ask for the password on the broker's terminal."""


def _refuse_password() -> str:
    raise _EncryptedKeyError


def _chain_problem(error: Exception, certificate: str, key: str, contents: Mapping[str, bytes]) -> str:
    """A sentence about a pair of certificate and key that OpenSSL refuses."""
    if isinstance(error, _EncryptedKeyError):
        return (
            f"{_KEY}: {key}: the key is encrypted; `openssl pkey -in {key} -out FILE` writes the key without password"
        )
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"{_KEY}: {key}: the key does not belong to the certificate of {_CERTIFICATE} ({certificate})"
    if _BEGIN in contents[_CERTIFICATE] and b"PRIVATE KEY-----" not in contents[_KEY]:
        return f"{_KEY}: {key}: {_reason(error, b'PRIVATE KEY-----', contents[_KEY])}"
    text = _reason(error, _BEGIN, contents[_CERTIFICATE])
    return f"{_CERTIFICATE}: {certificate}: {text} (with {_KEY}: {key})"


def _reason(error: Exception, mark: bytes, content: bytes) -> str:
    """The reason of OpenSSL, or that the file has no PEM block with this mark."""
    if mark not in content:
        return f"no {'certificate' if mark is _BEGIN else 'private key'} in PEM form in the file"
    return str(getattr(error, "strerror", error))


class CertificateWatch:
    """Looks at the certificate files of a context every tlsCertRefreshCheckDurationSec (0: never), and warns once a day
    of a certificate that ends within two weeks.

    A context cannot remove a certificate that it trusts. So the class makes a new context from changed files. The
    context of the listener cannot be replaced; it passes each handshake to the new context.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        settings: "Settings",
        *,
        web: bool = False,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._current = context
        self._now_s = now_s
        self._settings = settings
        self._web = web
        context.sni_callback = self._hand_over
        self._seen = self._stamps()
        self._timer: Timer | None = None
        self._warned_s = 0.0
        self._renewed_s = 0.0
        """When the files changed last, in seconds since 1970."""
        self.ends_s: float | None = None
        """The end of the certificate in use, in seconds since 1970; None when it is not known."""
        self._read_end()

    def start(self, scheduler: "Scheduler") -> None:
        """Check the files periodically until `stop`; the first check is after one period."""
        seconds = self._settings.tls_cert_refresh_check_duration_sec
        if seconds > 0:
            self._timer = scheduler.call_later(seconds, lambda: self._tick(scheduler))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self, scheduler: "Scheduler") -> None:
        self.check()
        self.start(scheduler)

    def check(self) -> bool:
        """Read the files again if they changed; returns whether a new context is in use."""
        stamps = self._stamps()
        if stamps == self._seen:
            self._warn_of_end()
            return False
        self._seen = stamps
        settings = self._settings
        try:
            self._current = tls_context(settings, web=self._web)  # raises for a half-written pair
            self._renewed_s = self._now_s()
        except OSError as e:
            log.warning("certificate.refused", reason=e.strerror or str(e))
            return False
        log.info("certificate.reloaded", file=settings.tls_certificate_file_path)
        self._warned_s = 0.0
        self._read_end()
        return True

    def _read_end(self) -> None:
        self.ends_s = certificate_end_s(Path(self._settings.tls_certificate_file_path))
        self._warn_of_end()

    def _warn_of_end(self) -> None:
        now_s = self._now_s()
        if self.ends_s is None or now_s < self.ends_s - _WARN_BEFORE_S or now_s < self._warned_s + _WARN_EVERY_S:
            return
        self._warned_s = now_s
        ends = dt.datetime.fromtimestamp(self.ends_s, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        if now_s < self.ends_s:
            log.warning("certificate.expiring", file=self._settings.tls_certificate_file_path, ends=ends)
        else:
            log.error("certificate.expired", file=self._settings.tls_certificate_file_path, ends=ends)

    def _hand_over(
        self, handshake: ssl.SSLObject | ssl.SSLSocket, _name: str | None, context: ssl.SSLContext
    ) -> int | None:
        """Called by OpenSSL when a client's first message was read, whether it names a server or not.

        Where client certificates count, a session of TLSv1.2 that began before the files changed is refused when the
        client resumes the session: OpenSSL keeps sessions by their number, and looks at no certificate of them again.
        The alert makes both sides forget the session.
        """
        if self._current is context:
            return None
        session = handshake.session if handshake.session_reused else None
        if session is not None and session.time <= self._renewed_s and self._current.verify_mode is not ssl.CERT_NONE:
            return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE
        handshake.context = self._current
        return None

    def _stamps(self) -> list[tuple[int, int] | None]:
        """Modification time and size of each file; None for a missing file."""
        settings = self._settings
        paths = settings.tls_certificate_file_path, settings.tls_key_file_path, settings.tls_trust_certs_file_path
        return [_stamp(Path(path)) for path in paths if path]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite of TLSv1.2; a name that is no IANA name is returned unchanged."""
    found = _IANA.fullmatch(name)
    if found is None:
        return name
    cipher = re.sub(r"^AES_(\d+)", r"AES\1", found["cipher"]).replace("_CBC", "")
    cipher = cipher.replace("POLY1305_SHA256", "POLY1305").replace("_", "-")
    exchange = "" if found["exchange"] == "RSA" else found["exchange"].replace("_", "-") + "-"
    return exchange + cipher


def choose_ciphers(context: ssl.SSLContext, names: Sequence[str], key: str) -> None:
    """Restrict the context to these suites.

    key: the setting the names come from, for the error.
    Raises: ValueError for a name that OpenSSL does not have, and for a choice that cannot be enforced.
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
