"""User and password (Pulsar AuthenticationProviderBasic), checked against an .htpasswd text.

A line is `user:hash`; the hash is apr1 (`$apr1$salt$...`, MD5 as Apache httpd has it) or one that the system's
crypt(3) knows: the traditional two letters of salt, or `$id$...` (sha256, sha512, bcrypt, yescrypt).
"""

import ctypes
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

from magnetar.broker.auth.key_text import read_bytes
from magnetar.broker.auth.provider import Authenticated, AuthenticationFailedError, PeerCertificate

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

_APR1: Final = "$apr1$"
_ALPHABET: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_LIBRARIES: Final = ("libcrypt.so.1", "libcrypt.so.2", None)  # None: the C library itself


class BasicProvider:
    """Checks passwords."""

    method = "basic"

    def __init__(self, users: dict[str, str]) -> None:
        self._users = users

    @classmethod
    def from_settings(cls, settings: "Settings") -> "BasicProvider":
        """Raises ValueError when the file cannot be read or holds no user."""
        if not settings.basic_auth_conf:
            raise ValueError("the basic provider needs basicAuthConf")
        return cls(parse_users(read_bytes(settings.basic_auth_conf, "basicAuthConf").decode()))

    def authenticate(self, credentials: bytes, certificate: PeerCertificate | None = None) -> Authenticated:  # noqa: ARG002 - the password says it all
        """Raises AuthenticationFailedError unless `credentials` is user:password of a known user."""
        user, colon, password = credentials.partition(b":")
        try:
            name = user.decode()
        except UnicodeDecodeError as e:
            raise AuthenticationFailedError("basic: user name is not UTF-8") from e
        expected = self._users.get(name)
        if not colon or expected is None or not matches(password, expected):
            raise AuthenticationFailedError("basic: unknown user or wrong password")
        return Authenticated(name, self.method)


def parse_users(text: str) -> dict[str, str]:
    """User name -> hash; empty lines and comments are left out."""
    users = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            user, colon, digest = line.strip().partition(":")
            if not colon:
                raise ValueError("basicAuthConf: a line is not user:hash")
            users[user] = digest
    if not users:
        raise ValueError("basicAuthConf: no users")
    return users


def matches(password: bytes, expected: str) -> bool:
    """Whether the password has this hash; compared in constant time."""
    if expected.startswith(_APR1):
        found: str | None = apr1(password, expected[len(_APR1) :].partition("$")[0])
    else:
        found = _crypt(password, expected)
    return found is not None and hmac.compare_digest(found.encode(), expected.encode())


def _crypt(password: bytes, setting: str) -> str | None:
    """The system's crypt(3); None when it does not know the kind of hash."""
    if b"\0" in password:
        return None
    for library in _LIBRARIES:
        try:
            crypt = ctypes.CDLL(library).crypt
        except (OSError, AttributeError):
            continue
        crypt.restype = ctypes.c_char_p
        result: bytes | None = crypt(password, setting.encode())
        # Failure is NULL or a text that begins with * and is never equal to a stored hash.
        return None if result is None or result.startswith(b"*") else result.decode()
    return None


def apr1(password: bytes, salt: str) -> str:
    """Apache's variant of MD5-crypt: 1000 rounds over password, salt (8 letters) and the digest before."""
    salt_bytes = salt[:8].encode()
    mixed = hashlib.md5(password + salt_bytes + password, usedforsecurity=False).digest()
    first = password + _APR1.encode() + salt_bytes
    first += (mixed * (len(password) // 16 + 1))[: len(password)]
    bits = len(password)
    while bits:
        first += b"\0" if bits & 1 else password[:1]
        bits >>= 1
    digest = hashlib.md5(first, usedforsecurity=False).digest()
    for i in range(1000):
        parts = [password if i & 1 else digest]
        if i % 3:
            parts.append(salt_bytes)
        if i % 7:
            parts.append(password)
        parts.append(digest if i & 1 else password)
        digest = hashlib.md5(b"".join(parts), usedforsecurity=False).digest()
    return f"{_APR1}{salt[:8]}${_letters(digest)}"


def _letters(digest: bytes) -> str:
    text = ""
    for a, b, c in ((0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)):
        text += _base64(digest[a] << 16 | digest[b] << 8 | digest[c], 4)
    return text + _base64(digest[11], 2)


def _base64(value: int, letters: int) -> str:
    return "".join(_ALPHABET[value >> 6 * i & 0x3F] for i in range(letters))
