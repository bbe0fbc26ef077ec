"""Texts as Java trims and decodes them. Pure."""

import base64
import re
from typing import Final
from urllib.parse import quote, unquote_plus

_TRIMMED: Final = "".join(map(chr, range(0x21)))
_ESCAPED_IN_SUBJECT: Final = frozenset(',+"\\<>;=#')
_ESCAPED_AT_ENDS: Final = " \r"
_NO_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")


def trimmed(text: str) -> str:
    """String.trim: remove spaces and control characters at both ends; other Unicode spaces stay."""
    return text.strip(_TRIMMED)


def in_utf_8(text: str) -> str:
    """String.getBytes(UTF_8): the text with `?` in place of each half of a surrogate pair, which UTF-8 does not have.
    Different texts may become equal: for texts to send, never for comparisons.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


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


def subject_text(value: str) -> str:
    """X500Principal.getName: a value of a subject in the text of RFC 2253, special characters behind a backslash."""
    begin, end = len(value) - len(value.lstrip(_ESCAPED_AT_ENDS)), len(value.rstrip(_ESCAPED_AT_ENDS))
    return "".join(
        f"\\{char}" if char in _ESCAPED_IN_SUBJECT or not begin <= place < end else char
        for place, char in enumerate(value)
    ).replace("\0", "\\00")
