"""JSON web tokens (Pulsar AuthenticationProviderToken): signature, expiry and role.

One key is used, the secret key (HS256/384/512) before the public key (RS*, PS*, ES*). The signature is checked with the
algorithm of the key only, so a token cannot choose a weaker algorithm; unsigned tokens are refused; an HMAC key must be
as long as its digest. `exp` and `nbf` are honoured, the other registered claims must be well formed (see `claims`). The
role claim must be a text that is not blank; if `tokenAuthClaim` is set it may be a list, whose first element is the
role.
"""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_public_key,
)
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OctKey, RSAKey
from joserfc.util import urlsafe_b64decode

from magnetar.broker.auth.claims import check_registered, json_object, moment, trimmed
from magnetar.broker.auth.key_text import decode_base64, names_file, read_bytes
from magnetar.broker.auth.provider import Authenticated, AuthenticationFailedError, PeerCertificate

if TYPE_CHECKING:
    from magnetar.broker.settings import Settings

MOST_TOKEN_BYTES: Final = 128 << 10
_DIGEST_BYTES: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_DEFAULT_CLAIM: Final = "sub"
_PEM: Final = b"-----BEGIN"
Key = OctKey | RSAKey | ECKey


class TokenProvider:
    """Checks tokens with one key."""

    method = "token"
    renews = True

    def __init__(
        self,
        key: Key,
        algorithms: list[str],
        *,
        claim: str = _DEFAULT_CLAIM,
        audience_claim: str = "",
        audience: str = "",
        skew_s: int = 0,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._key = key
        self._algorithms = algorithms
        self._claim = claim
        self._audience_claim = audience_claim
        self._audience = audience
        self._skew_s = skew_s
        self._now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)

    @classmethod
    def from_settings(cls, settings: "Settings", now_ms: Callable[[], int] | None = None) -> "TokenProvider":
        """Make the provider of the settings. Raises ValueError without a key or with an unusable key."""
        if settings.token_audience_claim and not settings.token_audience:
            raise ValueError("tokenAudience is needed by tokenAudienceClaim")
        key: Key
        if settings.token_secret_key:
            key, algorithms = secret_key(settings.token_secret_key)
        elif settings.token_public_key:
            key, algorithms = public_key(settings.token_public_key), [settings.token_public_alg]
        else:
            raise ValueError("the token provider needs tokenSecretKey or tokenPublicKey")
        return cls(
            key,
            algorithms,
            claim=settings.token_auth_claim or _DEFAULT_CLAIM,
            audience_claim=settings.token_audience_claim,
            audience=settings.token_audience,
            skew_s=settings.token_allowed_clock_skew_seconds,
            now_ms=now_ms,
        )

    async def authenticate(self, credentials: bytes, certificate: PeerCertificate | None = None) -> Authenticated:  # noqa: ARG002 - the token says it all
        """Raises AuthenticationFailedError unless the token is signed, in force and names a role."""
        if not credentials:
            raise AuthenticationFailedError("no token")
        if len(credentials) > MOST_TOKEN_BYTES:
            raise AuthenticationFailedError(f"token of {len(credentials)} bytes")
        try:
            signed = jws.deserialize_compact(trimmed(credentials), self._key, algorithms=self._algorithms)
            claims = _claims(signed, credentials)
        except (JoseError, ValueError, TypeError, RecursionError) as e:
            raise AuthenticationFailedError(f"token: {e}") from e
        expires_s = self._check_times(claims)
        self._check_audience(claims)
        return Authenticated(self._role(claims), self.method, None if expires_s is None else int(expires_s * 1000))

    def _check_times(self, claims: Mapping[str, Any]) -> float | None:
        now_s = self._now_ms() / 1000
        expires_s, not_before_s = moment(claims, "exp"), moment(claims, "nbf")
        if expires_s is not None and now_s - self._skew_s > expires_s:
            raise AuthenticationFailedError("token has expired", "EXPIRED")
        if not_before_s is not None and now_s + self._skew_s < not_before_s:
            raise AuthenticationFailedError("token is not yet valid")
        return expires_s

    def _check_audience(self, claims: Mapping[str, Any]) -> None:
        if not self._audience_claim:
            return
        audience = claims.get(self._audience_claim)
        if not (audience == self._audience or (isinstance(audience, list) and self._audience in audience)):
            raise AuthenticationFailedError("token is for another audience")

    def _role(self, claims: Mapping[str, Any]) -> str:
        role = claims.get(self._claim)
        if isinstance(role, list) and role and self._claim != _DEFAULT_CLAIM:
            role = role[0]
        if not isinstance(role, str) or not role.strip():
            raise AuthenticationFailedError(f"token without a role in claim {self._claim}")
        return role


def _claims(signed: jws.CompactSignature, token: bytes) -> dict[str, Any]:
    """Read the claims of a token. Precondition: its signature is valid. Raises ValueError.

    A header with a content type declares that the content is no set of claims.
    """
    header = json_object(urlsafe_b64decode(token.partition(b".")[0]))
    content_type = header.get("cty")
    if content_type is not None and str(content_type).strip():
        raise ValueError("content of a type of its own")
    claims = json_object(signed.payload or b"")
    check_registered(claims)
    return claims


def secret_key(text: str) -> tuple[OctKey, list[str]]:
    """The HMAC key of a setting and the algorithms it is long enough for; a file holds its bytes, not base64."""
    raw = read_bytes(text, "tokenSecretKey")
    if is_content := not text.startswith("data:") and not names_file(text):
        try:
            raw = decode_base64(raw, "tokenSecretKey")
        except ValueError as e:
            if text.startswith("env:"):
                raise
            raise ValueError("tokenSecretKey: neither base64 nor the path of a file that exists") from e
    algorithms = [name for name, size in _DIGEST_BYTES.items() if len(raw) >= size]
    if not algorithms:
        hint = ", or the path of a file that exists" if is_content else ""
        raise ValueError(f"tokenSecretKey: a key of at least 32 bytes is needed{hint}")
    if raw.lstrip().startswith(_PEM):  # each reader of the public key could sign tokens
        raise ValueError("tokenSecretKey: a certificate or a key of a pair is no secret key")
    return OctKey.import_key(raw), algorithms


def public_key(text: str) -> RSAKey | ECKey:
    """The public key of a setting: PEM, DER, or base64 of DER."""
    raw = read_bytes(text, "tokenPublicKey")
    try:
        if raw.lstrip().startswith(_PEM):
            loaded = load_pem_public_key(raw)
        elif raw[:1] == b"\x30":  # DER of a SubjectPublicKeyInfo begins with a SEQUENCE
            loaded = load_der_public_key(raw)
        else:
            loaded = load_der_public_key(decode_base64(raw, "tokenPublicKey"))
        pem = loaded.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        return ECKey.import_key(pem) if b"EC" in type(loaded).__name__.encode() else RSAKey.import_key(pem)
    except (ValueError, TypeError, JoseError) as e:
        raise ValueError(f"tokenPublicKey: not a public key in PEM or DER form ({e})") from e
