"""The options encryptionKeys of the sink and decryptionKeys of the source: files with RSA keys in PEM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.client.encryption import Decryption, Encryption, key_at
from magnetar.client.errors import InputError
from magnetar.pipeline.option_table import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    NamedFiles = Sequence[tuple[str, str]]
    """Pairs of a reader's name and the file of the reader's key."""

_PUBLIC: Final = "encryptionKeys"
_PRIVATE: Final = "decryptionKeys"


def parse_public_keys(text: str) -> tuple[tuple[str, str], ...]:
    """``NAME=FILE,NAME=FILE``, empty for none. Raises: OptionError."""
    pairs = [part.partition("=") for part in _parts(text)]
    if any(not name.strip() or not path.strip() for name, _, path in pairs):
        raise OptionError(f"option {_PUBLIC} is NAME=FILE, several with commas between them, not {text!r}")
    return tuple((name.strip(), path.strip()) for name, _, path in pairs)


def parse_private_keys(text: str) -> tuple[tuple[str, str], ...]:
    """``FILE`` for every name (its name is empty), ``NAME=FILE,NAME=FILE``, empty for none; several files of a name are
    keys of a pair that was replaced. Raises: OptionError.
    """
    pairs = [part.partition("=") if "=" in part else ("", "", part) for part in _parts(text)]
    if any((equals and not name.strip()) or not path.strip() for name, equals, path in pairs):
        raise OptionError(f"option {_PRIVATE} is FILE or NAME=FILE, several with commas between them, not {text!r}")
    return tuple((name.strip(), path.strip()) for name, _, path in pairs)


def open_encryption(keys: NamedFiles) -> Encryption | None:
    """Return an encryption with a new data key; None without keys. Raises: OptionError for a file that has no public
    RSA key.
    """
    if not keys:
        return None
    try:
        first, *others = ((name, key_at(path)) for name, path in keys)
        return Encryption(*first, *others)
    except InputError as error:
        raise OptionError(f"option {_PUBLIC}: {error}") from error


def open_decryption(keys: NamedFiles) -> Decryption | None:
    """Return the decryption; None without keys. Raises: OptionError for a file that has no private RSA key."""
    if not keys:
        return None
    try:
        found: dict[str, list[bytes]] = {}
        for name, path in keys:
            found.setdefault(name, []).append(key_at(path))
        return Decryption(*found.pop("", ()), named=found)
    except InputError as error:
        raise OptionError(f"option {_PRIVATE}: {error}") from error


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
