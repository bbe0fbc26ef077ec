"""Texts as Java trims and decodes them. Pure."""

import base64
import re
from typing import Final
from urllib.parse import quote, unquote_plus

_TRIMMED: Final = "".join(map(chr, range(0x21)))
_NO_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")


def trimmed(text: str) -> str:
    """String.trim: remove spaces and control characters at both ends; other Unicode spaces stay."""
    return text.strip(_TRIMMED)


def url_decoded(text: str) -> str:
    """URLDecoder.decode: a plus becomes a space; raises ValueError for a % without two hexadecimal digits."""
    if _NO_ESCAPE.search(text):
        raise ValueError(f"a % that begins no byte: {text!r}")
    return unquote_plus(text)


def encoded_twice(name: str) -> str:
    """The name of a subscription in the path of a topic, as the admin client encodes it."""
    return quote(quote(name, safe=""), safe="")


def base64_decoded(text: str) -> bytes:
    """Base64.getDecoder: padding is optional; raises ValueError (binascii.Error)."""
    return base64.b64decode(text + "=" * (-len(text) % 4) if "=" not in text else text, validate=True)
