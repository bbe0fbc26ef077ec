"""DIGEST-MD5 (RFC 2831) as a client, without a security layer: the authentication of BookKeeper's bookies. Pure.

The bookie sends a challenge, the client proves that it has the password, and then the bookie proves the same, so that
the client detects an impostor without the password. MD5 alone gives no protection; use it over TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from dataclasses import dataclass, field

from magnetar.bookkeeper.errors import WireError

__all__ = ["DigestCredentials", "DigestMd5"]

_PAIR = re.compile(rb'\s*([A-Za-z0-9_-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^",\s]*))\s*(?:,|$)')
_COUNT = b"00000001"


@dataclass(frozen=True, slots=True)
class DigestCredentials:
    """Name and password of a user of the bookies."""

    username: str
    password: str = field(repr=False)


class DigestMd5:
    """One authentication. `service` is protocol and host, the same on both sides: ``bookkeeper/bookkeeper``. `nonce` is
    a random text from the client.
    """

    def __init__(self, credentials: DigestCredentials, service: bytes, nonce: bytes) -> None:
        self._credentials, self._service, self._nonce = credentials, service, nonce
        self._expected = b""

    def respond(self, challenge: bytes) -> bytes:
        """Return the answer to the challenge. Raises WireError for a challenge that this client cannot answer."""
        given = _pairs(challenge)
        nonce, realm = given.get(b"nonce", b""), given.get(b"realm", b"")
        offered = [each.strip() for each in given.get(b"qop", b"auth").split(b",")]
        if not nonce or given.get(b"algorithm", b"md5-sess") != b"md5-sess" or b"auth" not in offered:
            raise WireError("a DIGEST-MD5 challenge without a nonce, or one that asks for more than authentication")
        user, password = self._credentials.username.encode(), self._credentials.password.encode()
        secret = _md5(user + b":" + realm + b":" + password).digest()
        session = _md5(secret + b":" + nonce + b":" + self._nonce).hexdigest().encode()
        self._expected = self._proof(session, nonce, b":")
        return b",".join(
            (
                b"charset=utf-8",
                b"username=" + _quoted(user),
                b"realm=" + _quoted(realm),
                b"nonce=" + _quoted(nonce),
                b"nc=" + _COUNT,
                b"cnonce=" + _quoted(self._nonce),
                b"digest-uri=" + _quoted(self._service),
                b"response=" + self._proof(session, nonce, b"AUTHENTICATE:"),
                b"qop=auth",
            )
        )

    def check(self, answer: bytes) -> None:
        """Check the bookie's proof. Raises WireError unless it proves that the bookie has the password too."""
        proof = _pairs(answer).get(b"rspauth", b"")
        if not self._expected or not hmac.compare_digest(proof, self._expected):
            raise WireError("the other side does not know the password")

    def _proof(self, session: bytes, nonce: bytes, method: bytes) -> bytes:
        request = _md5(method + self._service).hexdigest().encode()
        return _md5(b":".join((session, nonce, _COUNT, self._nonce, b"auth", request))).hexdigest().encode()


def _md5(data: bytes) -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)


def _quoted(value: bytes) -> bytes:
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", value) + b'"'


def _pairs(text: bytes) -> dict[bytes, bytes]:
    """Parse ``name=value, name="value"``; of a repeated name the first value counts. Raises WireError."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(text):
        match = _PAIR.match(text, at)
        if match is None or match.end() == at:
            raise WireError("a DIGEST-MD5 message that is no list of names and values")
        name, quoted, plain = match.groups()
        value = plain if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted, flags=re.DOTALL)
        found.setdefault(name.lower(), value)
        at = match.end()
    return found
