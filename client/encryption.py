"""End-to-end encryption of payloads as Apache Pulsar's clients do: the broker never sees a key.

A data key of AES-256 encrypts payloads (GCM, a nonce of 12 bytes in `encryption_param`, the tag behind the payload).
The RSA key of each reader encrypts the data key (OAEP with SHA-1 and MGF1, as MessageCrypto of the clients for Java
and C++), in `encryption_keys`.
"""

from __future__ import annotations

import base64
import os
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import unquote

from magnetar.client.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from magnetar.protocol import pulsar_api_pb2 as pb

DATA_KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
"""The number of bytes that encryption adds to a payload."""
MOST_DATA_KEYS: Final = 256
"""The client tries at most so many of the data keys that a payload carries."""
MOST_NAMES: Final = 10
"""An error shows at most so many names of readers."""
_REMEMBERED: Final = 1024
_ONLY_RSA: Final = "no RSA key: keys of elliptic curves (ECIES) are for the client for Java"


class CannotDecryptError(Exception):
    """The payload is not for this key, or was changed."""


class Decrypting(Protocol):
    """Makes payloads readable."""

    def decrypt(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """Raises: CannotDecryptError."""
        ...


def key_at(place: str) -> bytes:
    """The PEM text at `file:///PATH`, a plain path, or `data:...;base64,...`. Raises: InputError."""
    if place.startswith("data:"):
        head, _, text = place.partition(",")
        try:
            return base64.b64decode(text, validate=True) if head.endswith(";base64") else unquote(text).encode()
        except ValueError as error:
            raise InputError(f"a key in {head},...: {error}") from error
    path = unquote(place.removeprefix("file://")) if place.startswith("file://") else place.removeprefix("file:")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the key {path}: {error.strerror}") from error


class Encryption:
    """Encrypts payloads for the holders of private keys. Each instance makes its own data key."""

    def __init__(self, name: str, public_key: bytes, *others: tuple[str, bytes]) -> None:
        """Args: name: the name by which a reader finds its key. public_key: PEM. others: name and key of more readers.

        Raises: InputError.
        """
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - slow to load

        data_key = os.urandom(DATA_KEY_BYTES)
        readers = (name, public_key), *others
        self._for_readers = [(reader, _encrypted_key(reader, pem, data_key)) for reader, pem in readers]
        self._cipher = AESGCM(data_key)

    def encrypt(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """Return the encrypted payload; replace the encryption fields of `metadata`. Compress the payload before."""
        nonce = os.urandom(NONCE_BYTES)
        del metadata.encryption_keys[:]
        for reader, encrypted_key in self._for_readers:
            metadata.encryption_keys.add(key=reader, value=encrypted_key)
        metadata.encryption_param = nonce
        return self._cipher.encrypt(nonce, payload, None)


def _encrypted_key(name: str, public_key: bytes, data_key: bytes) -> bytes:
    """Return the data key, encrypted with the RSA public key. Raises: InputError."""
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - slow to load
    from cryptography.hazmat.primitives.asymmetric import padding, rsa  # noqa: PLC0415 - the same

    try:
        key = serialization.load_pem_public_key(public_key)
    except ValueError as error:
        raise InputError(f"the public key {name} cannot be read: {error}") from error
    if not isinstance(key, rsa.RSAPublicKey):
        raise InputError(f"the public key {name} is {_ONLY_RSA}")
    sha1 = hashes.SHA1()  # noqa: S303 - the protocol's; OAEP does not rest on its resistance to collisions
    return key.encrypt(data_key, padding.OAEP(padding.MGF1(sha1), sha1, None))


class Decryption:
    """Decrypts payloads with private keys: keys for all names, or keys for each name of a reader. A reader has several
    keys where the key pair was replaced and payloads for the old pair are still stored.

    The results of RSA are cached, also for data keys of other readers: a producer uses a data key for hours, and RSA
    takes half a millisecond.
    """

    def __init__(self, *private_keys: bytes, named: Mapping[str, Sequence[bytes]] | None = None) -> None:
        """Args: private_keys: PEM, for the names that `named` does not have.   named: name of a reader -> PEM of each
        key.

        Raises: InputError.
        """
        self._named = {
            name: [_private_key(f"the private key {name}", pem) for pem in pems] for name, pems in (named or {}).items()
        }
        self._others = [_private_key("the private key", pem) for pem in private_keys]
        self._ciphers: OrderedDict[tuple[str, bytes], AESGCM | None] = OrderedDict()

    def decrypt(self, metadata: pb.MessageMetadata, payload: bytes) -> bytes:
        """Decrypt as `Decrypting` does."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - slow to load

        for each in metadata.encryption_keys[:MOST_DATA_KEYS]:
            cipher = self._cipher(each.key, each.value)
            if cipher is None:
                continue
            try:
                return cipher.decrypt(metadata.encryption_param, payload, None)
            except (InvalidTag, ValueError) as error:
                raise CannotDecryptError("the payload was changed, or encrypted in another way") from error
        names = ", ".join(repr(each.key) for each in metadata.encryption_keys[:MOST_NAMES])
        which = "this one" if len(self._others) == 1 and not self._named else "those that are given"
        raise CannotDecryptError(f"the payload is encrypted for the keys {names}, not for {which}")

    def _cipher(self, name: str, encrypted: bytes) -> AESGCM | None:
        """Return the cipher of the data key that `encrypted` holds for the reader of this name; None for another
        reader's key.
        """
        keys = [key for key in self._named.get(name, self._others) if len(encrypted) == (key.key_size + 7) // 8]
        if not keys:
            return None  # no key has this size; not cached, because a producer chooses the length
        known = (name if name in self._named else "", encrypted)
        if known in self._ciphers:
            self._ciphers.move_to_end(known)
            return self._ciphers[known]
        ciphers = (_cipher_of(key, encrypted) for key in keys)
        self._ciphers[known] = found = next((cipher for cipher in ciphers if cipher is not None), None)
        if len(self._ciphers) > _REMEMBERED:
            self._ciphers.popitem(last=False)
        return found


def _private_key(which: str, pem: bytes) -> RSAPrivateKey:
    """Raises: InputError."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow to load
    from cryptography.hazmat.primitives.asymmetric import rsa  # noqa: PLC0415 - the same

    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise InputError(f"{which} cannot be read: {error}") from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise InputError(f"{which} is {_ONLY_RSA}")
    return key


def _cipher_of(key: RSAPrivateKey, encrypted: bytes) -> AESGCM | None:
    """Return the cipher of the data key; None when `encrypted` fits another key, or holds no AES key."""
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 - slow to load
    from cryptography.hazmat.primitives.asymmetric import padding  # noqa: PLC0415 - the same
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - the same

    sha1 = hashes.SHA1()  # noqa: S303 - as for `Encryption`
    try:
        return AESGCM(key.decrypt(encrypted, padding.OAEP(padding.MGF1(sha1), sha1, None)))
    except ValueError:
        return None
