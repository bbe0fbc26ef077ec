"""User and password (Pulsar AuthenticationProviderBasic), checked against an .htpasswd text.

A line is `user:hash`; the hash is one that htpasswd or crypt(3) makes: apr1, bcrypt, sha512, sha256, md5, SHA, or the
traditional two letters of salt.
"""

from typing import TYPE_CHECKING

from magnetar.broker.auth.key_text import read_bytes
from magnetar.broker.auth.password_check import PasswordChecker, kind_of
from magnetar.broker.auth.provider import Authenticated, AuthenticationFailedError, PeerCertificate

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings


class BasicProvider:
    """Checks passwords."""

    method = "basic"

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
