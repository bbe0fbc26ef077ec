"""User and password (Pulsar AuthenticationProviderBasic), checked against an .htpasswd text.

A line is `user:hash`; the hash is of a kind that htpasswd or crypt(3) makes: apr1, bcrypt, sha512, sha256, md5, SHA, or
the traditional two letters of salt.

A check is costly on purpose, so it is never on the event loop and never without a bound. passlib (`libpass`) takes from
half a millisecond (apr1) to seconds (sha512 of many rounds). At most MOST_WAITING checks wait for the two threads; the
provider refuses a further client at once. It keeps a correct password for REMEMBERED_S as a keyed digest, so that the
requests of an HTTP client that sends the same password cost one check.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from passlib.context import CryptContext

from magnetar.broker.auth.key_text import read_bytes
from magnetar.broker.auth.provider import Authenticated, AuthenticationFailedError, PeerCertificate

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings


MOST_PASSWORD_BYTES: Final = 1024
MOST_WAITING: Final = 64
REMEMBERED_S: Final = 60.0
_MOST_REMEMBERED: Final = 1024
_THREADS: Final = 2
_WRONG: Final = "basic: unknown user or wrong password"
_HASHES: Final = CryptContext(
    ["apr_md5_crypt", "bcrypt", "sha512_crypt", "sha256_crypt", "md5_crypt", "ldap_sha1", "des_crypt"]
)


class BasicProvider:
    """Checks passwords."""

    method = "basic"
    renews = False

    def __init__(self, users: dict[str, str]) -> None:
        self._passwords = PasswordChecker(users)

    @classmethod
    def from_settings(cls, settings: "Settings") -> "BasicProvider":
        """Raises ValueError when the file cannot be read, holds no user or a hash that cannot be checked."""
        if not settings.basic_auth_conf:
            raise ValueError("the basic provider needs basicAuthConf")
        return cls(parse_users(read_bytes(settings.basic_auth_conf, "basicAuthConf").decode()))

    async def authenticate(self, credentials: bytes, certificate: PeerCertificate | None = None) -> Authenticated:  # noqa: ARG002 - the password says it all
        """Raises AuthenticationFailedError unless `credentials` is user:password of a known user."""
        user, colon, password = credentials.partition(b":")
        try:
            name = user.decode()
        except UnicodeDecodeError as e:
            raise AuthenticationFailedError("basic: user name is not UTF-8") from e
        if not colon:
            raise AuthenticationFailedError("basic: no user and password")
        await self._passwords.check(name, password)
        return Authenticated(name, self.method)


def parse_users(text: str) -> dict[str, str]:
    """User name -> hash; empty lines and comments are left out. Raises ValueError that names the user or line."""
    users = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            user, colon, digest = line.strip().partition(":")
            if not colon:
                raise ValueError(f"basicAuthConf: line {number} is not user:hash")
            if kind_of(digest) is None:
                raise ValueError(f"basicAuthConf: the hash of user {user!r} is of an unknown kind; use htpasswd -B")
            users[user] = digest
    if not users:
        raise ValueError("basicAuthConf: no users")
    return users


def kind_of(stored: str) -> str | None:
    """The name of the hash that made `stored`; None for an unsupported hash."""
    found: str | None = _HASHES.identify(stored)
    return found


def matches(password: bytes, stored: str) -> bool:
    """Whether the password has this hash; compared in constant time. False for a password that cannot be hashed."""
    try:
        return bool(_HASHES.verify(password, stored))
    except (ValueError, TypeError):  # a NUL, a truncated hash, more than bcrypt's 72 bytes
        return False


class PasswordChecker:
    """Checks passwords of the users of a file. Loop only; the hashing runs in threads.

    users: user name to stored hash, at least one.
    """

    def __init__(self, users: dict[str, str], now_s: Callable[[], float] = time.monotonic) -> None:
        self._users = users
        self._stored = list(users.values())
        self._now_s = now_s
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, float] = OrderedDict()
        self._waiting = 0
        self._threads = ThreadPoolExecutor(_THREADS, "magnetar-password")

    async def check(self, user: str, password: bytes) -> None:
        """Return when the password is that user's.

        The time of the answer does not reveal whether the user exists: the password of an unknown user is checked too,
        against the stored hash of another user.

        Raises: AuthenticationFailedError; with kind BUSY when too many checks are waiting.
        """
        if len(password) > MOST_PASSWORD_BYTES:
            raise AuthenticationFailedError(f"basic: password of {len(password)} bytes")
        proof = hmac.digest(self._key, f"{len(user)}:{user}:".encode() + password, hashlib.sha256)
        remembered_s = self._remembered.get(proof)
        if remembered_s is not None and self._now_s() - remembered_s < REMEMBERED_S:
            return
        if self._waiting >= MOST_WAITING:
            raise AuthenticationFailedError("basic: too many passwords are being checked", "BUSY")
        stored = self._users.get(user) or self._other(user)
        self._waiting += 1
        try:
            right = await asyncio.get_running_loop().run_in_executor(self._threads, matches, password, stored)
        finally:
            self._waiting -= 1
        if not right or user not in self._users:
            raise AuthenticationFailedError(_WRONG)
        self._remember(proof)

    def _other(self, user: str) -> str:
        """The hash against which the password of an unknown user is checked. The same name always gives the same hash,
        because the time of a check depends on the hash.
        """
        number = int.from_bytes(hmac.digest(self._key, user.encode(), hashlib.sha256)[:8], "big")
        return self._stored[number % len(self._stored)]

    def _remember(self, proof: bytes) -> None:
        self._remembered[proof] = self._now_s()
        self._remembered.move_to_end(proof)
        while len(self._remembered) > _MOST_REMEMBERED:
            self._remembered.popitem(last=False)
