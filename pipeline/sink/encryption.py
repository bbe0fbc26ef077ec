"""End-to-end encryption, as the official clients do it: the payload of an entry under AES-256-GCM, and in the metadata
the AES key under each reader's RSA key (OAEP with SHA-1).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from magnetar.pipeline.option_table import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from magnetar.protocol import pulsar_api_pb2 as pb

_OPTION: Final = "encryptionKeys"
_IV_BYTES: Final = 12
TAG_BYTES: Final = 16
"""By so much a payload grows."""
_OAEP: Final = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)  # noqa: S303 - what all clients use


def parse_keys(text: str) -> tuple[tuple[str, str], ...]:
    """``NAME=FILE,NAME=FILE`` as pairs of a key's name and the file of its public key. Raises: OptionError."""
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    if any(not name.strip() or not path.strip() for name, _, path in pairs):
        raise OptionError(f"option {_OPTION} is NAME=FILE, several with commas between them, not {text!r}")
    return tuple((name.strip(), path.strip()) for name, _, path in pairs)


class Encryptor:
    """Encrypts the entries of one producer with a data key of its own."""

    def __init__(self, keys: Sequence[tuple[str, str]]) -> None:
        """Reads the public keys. Raises: OptionError for a file that has no RSA key in PEM."""
        secret = AESGCM.generate_key(256)
        self._cipher = AESGCM(secret)
        self._keys = [(name, _public_key(path).encrypt(secret, _OAEP)) for name, path in keys]

    def encrypt(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """The payload encrypted; the metadata gets what its readers need."""
        del metadata.encryption_keys[:]
        for name, wrapped in self._keys:
            metadata.encryption_keys.add(key=name, value=wrapped)
        metadata.encryption_param = os.urandom(_IV_BYTES)
        return self._cipher.encrypt(metadata.encryption_param, payload, None)


def _public_key(path: str) -> RSAPublicKey:
    try:
        key = load_pem_public_key(Path(path).read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise OptionError(f"option {_OPTION}: {path} is no public key in PEM: {error}") from error
    if not isinstance(key, RSAPublicKey):
        raise OptionError(f"option {_OPTION}: {path} is no RSA key, and others are not supported")
    return key
