"""The claims of a JSON web token, read as strictly and as loosely as by Apache Pulsar 4.2's library (jjwt 0.13).

Header and body are JSON objects in UTF-8 without duplicate names; bytes behind the object are ignored. Registered
claims must have their types: texts, and times as seconds, as digits in a text or as an ISO date.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

_TEXTS: Final = ("sub", "iss", "jti")
_MOMENTS: Final = ("exp", "nbf", "iat")
_WHOLE_SECONDS: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_FARTHEST_MS: Final = 2**63 - 1
_BASE64_URL: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_FOREIGN: Final = bytes(set(range(256)).difference(_BASE64_URL))
_WHITE_SPACE: Final = re.compile(rb"[ \t\r\n\x0b\x0c]")


def json_object(raw: bytes) -> dict[str, Any]:
    """The object the bytes begin with; raises ValueError."""
    text = raw.decode("utf-8").lstrip(" \t\r\n")
    found, _ = json.JSONDecoder(object_pairs_hook=_each_name_once).raw_decode(text)
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - a broken text, not a wrong type in the code
    return found


def _each_name_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in a JSON object")
    return found


def check_registered(claims: Mapping[str, Any]) -> None:
    """Raise ValueError when a registered claim has an invalid value."""
    for name in _TEXTS:
        if not isinstance(_value(claims, name), str | None):
            raise ValueError(f"claim {name} is no text")  # noqa: TRY004 - a broken token, not a wrong type in the code
    audience = _value(claims, "aud")
    texts = audience if isinstance(audience, list) else [audience]
    if not all(isinstance(text, str | None) for text in texts):
        raise ValueError("claim aud is neither a text nor a list of texts")
    for name in _MOMENTS:
        moment(claims, name)


def _value(claims: Mapping[str, Any], name: str) -> Any:
    """Return the claim, None without it. Null, blank texts, empty lists and empty objects count as no claim."""
    value = claims.get(name)
    is_nothing = not value.strip() if isinstance(value, str) else isinstance(value, list | dict) and not value
    return None if is_nothing else value


def moment(claims: Mapping[str, Any], name: str) -> float | None:
    """Return the time of the claim in seconds since 1970, None without the claim; raises ValueError if it is no
    time.
    """
    value = _value(claims, name)
    if value is None:
        return None
    if isinstance(value, str):
        value = int(value) if _WHOLE_SECONDS.fullmatch(value) else _iso_date(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) * 1000 <= _FARTHEST_MS:
        raise ValueError(f"claim {name} is no time")
    return float(value)


def _iso_date(text: str) -> float:
    form = "%Y-%m-%dT%H:%M:%S.%fZ" if "." in text else "%Y-%m-%dT%H:%M:%SZ"
    return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()


def trimmed(token: bytes) -> bytes:
    """The token without foreign characters around its signature, such as padding. White space is left where it is: no
    token has any.
    """
    signed, dot, signature = token.rpartition(b".")
    return signed + dot + (signature if _WHITE_SPACE.search(signature) else signature.strip(_FOREIGN))
