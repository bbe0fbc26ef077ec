"""Key pairs for tokens: files that `pulsar tokens` and the broker's `tokenPublicKey` accept.

The private key is PKCS #8, the public key a SubjectPublicKeyInfo, both in DER form. Sizes and curves are those of
Apache Pulsar 4.2.4.
"""

import os
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
)
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, RSAKey

from magnetar.broker.auth.key_text import decode_base64, read_bytes

_PEM: Final = b"-----BEGIN"
_RSA_BITS: Final = {"256": 2048, "384": 3072, "512": 4096}
_LEAST_RSA_BITS: Final = 2048
"""By RFC 7518, 3.3."""
_EXPONENT: Final = 65537
_CURVES: Final[dict[str, type[ec.EllipticCurve]]] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
}
PAIR_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", *_CURVES)
_OWNER_ONLY: Final = 0o600
_EVERYONE: Final = 0o644


def create_key_pair(algorithm: str, private_path: str, public_path: str) -> None:
    """Write a new pair for one of ``PAIR_ALGORITHMS``; only its owner may read the file of the private key.

    Raises: FileExistsError: a key that is there is never written over; OSError. No file is left then.
    """
    curve = _CURVES.get(algorithm)
    key = (
        rsa.generate_private_key(_EXPONENT, _RSA_BITS[algorithm[2:]])
        if curve is None
        else ec.generate_private_key(curve())
    )
    write_new(private_path, key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()), _OWNER_ONLY)
    try:
        public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        write_new(public_path, public, _EVERYONE)
    except OSError:
        Path(private_path).unlink()
        raise


def write_new(path: str, data: bytes, mode: int = _OWNER_ONLY) -> None:
    """Write a file that does not exist yet. Raises OSError with the path, and leaves no file then."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        Path(path).unlink()
        raise OSError(error.errno, error.strerror, path) from error


def private_key(text: str) -> RSAKey | ECKey:
    """The private key of an argument: PEM, DER, or base64 of DER. Raises ValueError that names the option."""
    raw = read_bytes(text, "--private-key")
    try:
        if raw.lstrip().startswith(_PEM):
            loaded = load_pem_private_key(raw, None)
        elif raw[:1] == b"\x30":  # DER of a PrivateKeyInfo begins with a SEQUENCE
            loaded = load_der_private_key(raw, None)
        else:
            loaded = load_der_private_key(decode_base64(raw, "--private-key"), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as e:
        raise ValueError(f"--private-key: not a private key in PEM or DER form, without a password ({e})") from e
    kind: type[RSAKey | ECKey] | None = None
    if isinstance(loaded, ec.EllipticCurvePrivateKey):
        kind = ECKey
    elif isinstance(loaded, rsa.RSAPrivateKey) and loaded.key_size >= _LEAST_RSA_BITS:
        kind = RSAKey
    if kind is None:
        raise ValueError(f"--private-key: a key of RSA of at least {_LEAST_RSA_BITS} bits, or of ECDSA, is needed")
    try:
        return kind.import_key(loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    except (ValueError, JoseError) as e:
        raise ValueError(f"--private-key: no key for tokens ({e})") from e
