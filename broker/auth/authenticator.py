"""Establishes the role of a client. One `Authenticator` serves the binary protocol and HTTP.

A provider turns credentials into a role or refuses them. Providers are those of `authenticationProviders`, by
Pulsar's class names or short: token (JWT), basic (user and password), tls (common name of a verified client
certificate). Clients of a method without a provider are anonymous when `anonymousUserRole` is set, refused when it
is not.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from magnetar.broker.auth.provider import Authenticated, AuthenticationFailedError, PeerCertificate, Provider
from magnetar.broker.compat.java_texts import base64_decoded, subject_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from magnetar.broker.settings import Settings


__all__ = [
    "MOST_IN_WINDOW",
    "WINDOW_S",
    "Authenticated",
    "AuthenticationFailedError",
    "Authenticator",
    "FailureLog",
    "TlsProvider",
]

_CLASS_PREFIX: Final = "AuthenticationProvider"
log = structlog.get_logger(__name__)
WINDOW_S: Final = 10.0
MOST_IN_WINDOW: Final = 10


class FailureLog:
    """One warning per refused proof, bounded: an attacker must not fill the disk with the log of its attempts.

    Logs at most `MOST_IN_WINDOW` failures in `WINDOW_S`; the first line of a later window gives the number of
    failures left out before it as `left_out`. `pulsar_authentication_failures_total` counts all of them. Loop only.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._since_s = now_s()
        self._lines = 0
        self._left_out = 0

    def failed(self, door: str, address: str, method: str, reason: str) -> None:
        """Report one failure.

        door: ``binary`` or ``http``; address: of the peer; method: of the proof, as the peer names it; reason: without
        secrets.
        """
        now_s = self._now_s()
        if now_s - self._since_s >= WINDOW_S:
            self._since_s, self._lines = now_s, 0
        if self._lines >= MOST_IN_WINDOW:
            self._left_out += 1
            return
        self._lines += 1
        more = {"left_out": self._left_out} if self._left_out else {}
        self._left_out = 0
        log.warning("authentication.failed", door=door, address=address, method=method, reason=reason, **more)


class Authenticator:
    """All configured providers and the anonymous role.

    Raises: ValueError when a provider is unknown or its key or file cannot be used: the broker does not start.
    """

    def __init__(self, settings: Settings, now_ms: Callable[[], int] | None = None) -> None:
        self.enabled = settings.authentication_enabled
        self.anonymous_role = settings.anonymous_user_role or None
        self.successes: Counter[tuple[str, str]] = Counter()  # (provider, method)
        self.failures: Counter[tuple[str, str]] = Counter()  # (provider, kind of failure)
        self.failure_log = FailureLog()
        """The binary port and the web port report refused proofs here, so that they share one bound."""
        self._providers: dict[str, Provider] = {}
        if self.enabled:
            for name in settings.authentication_providers:
                provider = _provider(name, settings, now_ms)
                self._providers[provider.method] = provider

    def provides(self, method: str) -> bool:
        """Whether there is a provider of that method."""
        return method in self._providers

    def renews(self, method: str) -> bool:
        """Whether clients of that method renew their proofs; true without a provider, where any proof is refused."""
        provider = self._providers.get(method)
        return provider is None or provider.renews

    async def authenticate(
        self, method: str, credentials: bytes, certificate: PeerCertificate | None = None
    ) -> Authenticated:
        """Return the role of a client of the binary protocol; raises AuthenticationFailedError."""
        provider = self._providers.get(method)
        if provider is None:
            return self._anonymous(AuthenticationFailedError(f"no provider for method {method!r}", "NO_PROVIDER"))
        return await self._counted(provider, credentials, certificate)

    async def _counted(
        self, provider: Provider, credentials: bytes, certificate: PeerCertificate | None
    ) -> Authenticated:
        name = type(provider).__name__
        try:
            found = await provider.authenticate(credentials, certificate)
        except AuthenticationFailedError as e:
            self.failures[name, e.kind] += 1
            raise
        self.successes[name, provider.method] += 1
        return found

    async def authenticate_http(
        self,
        authorization: str | None,
        certificate: PeerCertificate | None = None,
        *,
        token: str | None = None,
        named: str | None = None,
    ) -> Authenticated:
        """Return the role of an HTTP request. Raises AuthenticationFailedError.

        Bad credentials count as no credentials, unless the request names their method. authorization: the header of
        that name: `Bearer <token>` or `Basic <base64 of user:password>`; token: the token of the query, which is used
        only without such a header; named: the method, as administration clients name it.
        """
        failed = AuthenticationFailedError("no credentials" if named in (None, *self._providers) else f"no {named}")
        for method, credentials in _http_credentials(authorization, certificate, token):
            provider = self._providers.get(method)
            if provider is None or named not in (None, method):
                continue
            try:
                return await self._counted(provider, credentials, certificate)
            except AuthenticationFailedError as e:
                failed = e
        if named is not None:
            raise failed
        return self._anonymous(failed)

    def _anonymous(self, failed: AuthenticationFailedError) -> Authenticated:
        if self.anonymous_role is None:
            raise failed
        return Authenticated(self.anonymous_role, "anonymous")


def _http_credentials(
    authorization: str | None, certificate: PeerCertificate | None, token: str | None
) -> list[tuple[str, bytes]]:
    found = []
    scheme, _, value = (authorization or "").partition(" ")
    if scheme == "Bearer":  # Apache Pulsar accepts the word in this spelling only
        found.append(("token", value.encode()))
    elif scheme.lower() == "basic":
        try:
            found.append(("basic", base64_decoded(value)))
        except ValueError:
            found.append(("basic", b""))
    elif token:
        found.append(("token", token.encode()))
    if certificate:
        found.append(("tls", b""))
    return found


def _provider(name: str, settings: Settings, now_ms: Callable[[], int] | None) -> Provider:
    """The provider of a configured name: a Pulsar class name with or without its package, or the method itself."""
    short = name.rpartition(".")[2].removeprefix(_CLASS_PREFIX).lower()
    if short == "token":
        from magnetar.broker.auth.token import TokenProvider  # noqa: PLC0415 - brings in cryptography

        return TokenProvider.from_settings(settings, now_ms)
    if short == "basic":
        from magnetar.broker.auth.basic import BasicProvider  # noqa: PLC0415 - only when configured

        return BasicProvider.from_settings(settings)
    if short == "tls":
        return TlsProvider()
    raise ValueError(f"authenticationProviders: there is no provider {name!r}; known are token, basic, tls")


class TlsProvider:
    """The role is the common name of the certificate that the TLS handshake has verified: of several names the last,
    which is the most specific name, as in Apache Pulsar.
    """

    method = "tls"
    renews = False

    async def authenticate(self, credentials: bytes, certificate: PeerCertificate | None) -> Authenticated:  # noqa: ARG002 - the certificate says it all
        for part in reversed((certificate or {}).get("subject", ())):
            if role := _role_of(part):
                return Authenticated(role, self.method)
        raise AuthenticationFailedError("no verified client certificate with a common name")


_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


def _role_of(part: Sequence[tuple[str, str]]) -> str:
    """Return the role that a part of the subject gives; empty when it begins with another name than a common name.

    Of a part with several names, such as `CN=a+OU=b`, the role is `a+OU=b`, as Apache Pulsar reads the subject's text
    by RFC 2253: a character that this text escapes has a backslash in the role too. Raises AuthenticationFailedError
    where a part of several names has other names, or such characters.
    """
    (kind, role), *others = part
    if kind != "commonName":
        return ""
    if not others:
        return subject_text(role)
    if any(name not in _KEYWORDS for name, _ in others) or any(subject_text(value) != value for _, value in part):
        raise AuthenticationFailedError("the common name shares its part of the subject with unusual names")
    return "+".join((role, *(f"{_KEYWORDS[name]}={value}" for name, value in others)))
