"""The option encryptionKeys: which public keys payloads are encrypted for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from magnetar.client.encryption import Encryption, key_at
from magnetar.client.errors import InputError
from magnetar.pipeline.option_table import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPTION: Final = "encryptionKeys"


def parse_keys(text: str) -> tuple[tuple[str, str], ...]:
    """``NAME=FILE,NAME=FILE`` as pairs of a key's name and the file of its public key. Raises: OptionError."""
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    if any(not name.strip() or not path.strip() for name, _, path in pairs):
        raise OptionError(f"option {_OPTION} is NAME=FILE, several with commas between them, not {text!r}")
    return tuple((name.strip(), path.strip()) for name, _, path in pairs)


def open_encryption(keys: Sequence[tuple[str, str]]) -> Encryption | None:
    """With a data key of its own; None without keys. Raises: OptionError for a file that has no RSA key in PEM."""
    if not keys:
        return None
    try:
        first, *others = ((name, key_at(path)) for name, path in keys)
        return Encryption(*first, *others)
    except InputError as error:
        raise OptionError(f"option {_OPTION}: {error}") from error
