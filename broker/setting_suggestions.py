"""Suggests settings for misspelt keys, and recognizes keys that hold secrets."""

import difflib
import re
from collections.abc import Iterable
from typing import Final

from magnetar.broker.setting_areas.security import SecuritySettings
from magnetar.broker.setting_areas.setting import rows_of
from magnetar.broker.settings import SETTINGS

_SECRET: Final = re.compile("password$|secret|credential|authenticationparameters$|basicauthconf$", re.IGNORECASE)
_POINTS_TO_SECRET: Final = re.compile("path$|file$", re.IGNORECASE)
_KAFKA_ON_PULSAR: Final = re.compile("(kafka|kop)[A-Z]")
_WORD: Final = re.compile("[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_SECURITY: Final = frozenset(rows_of(SecuritySettings, "")) | {key for key in SETTINGS if key.startswith("tls")}
_NEAR: Final = 0.6
_ALL_BUT_EQUAL: Final = 0.87
_LONG_ENOUGH: Final = 6  # letters of a key that is the beginning of another


def names_secret(key: str) -> bool:
    """Whether a key of Apache Pulsar that is no setting here holds a secret, not the path of a secret."""
    return _SECRET.search(key) is not None and _POINTS_TO_SECRET.search(key) is None


def is_of_kafka_on_pulsar(key: str) -> bool:
    """Whether the key belongs to Kafka-on-Pulsar, a protocol handler whose settings stand in the file of the broker."""
    return key == "entryFormat" or _KAFKA_ON_PULSAR.match(key) is not None


def nearest(key: str) -> str | None:
    """The setting whose name is most like `key`, without regard to case and separators; None without a similar key."""
    return _nearest(key, SETTINGS, _NEAR)


def looks_like_security(key: str) -> bool:
    """Whether `key` nearly equals the name of a security setting."""
    plain = _plain(key)
    cut_short = len(plain) >= _LONG_ENOUGH and any(_plain(name).startswith(plain) for name in _SECURITY)
    return cut_short or _nearest(key, _SECURITY, _ALL_BUT_EQUAL) is not None


def _nearest(key: str, names: Iterable[str], cutoff: float) -> str | None:
    names = list(names)
    words = _words(key)
    for name in names:
        if _words(name) == words:  # in another order: webServiceTlsPort
            return name
    plain = {_plain(name): name for name in names}
    found = difflib.get_close_matches(_plain(key), plain, n=1, cutoff=cutoff)
    return plain[found[0]] if found else None


def _words(key: str) -> list[str]:
    return sorted(word.lower() for word in _WORD.findall(key))


def _plain(key: str) -> str:
    return re.sub("[^a-z0-9]", "", key.lower())
