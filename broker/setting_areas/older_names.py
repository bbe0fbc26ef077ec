"""Keys of earlier versions of Apache Pulsar that still have an effect: they give their value to the key of today."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["OlderName", "today"]


@dataclass(frozen=True, slots=True)
class OlderName:
    """A key, and the key that it gives its value to.

    before: text in front of the value;
    stronger: the older key, if its value is a positive number, wins over the key of today; without it the key of today
    wins.
    """

    key: str
    newer: str
    before: str = ""
    stronger: bool = False

    def counts(self, text: str) -> bool:
        """Whether the value has an effect; Apache Pulsar's default does not."""
        if not self.stronger:
            return bool(text)
        try:
            return int(text or "0") > 0
        except ValueError:
            return True  # the loader reports the value


def today(older: Iterable[OlderName], texts: Mapping[str, str]) -> dict[str, str]:
    """The older keys that have an effect, each with the key of today, in the order of ``older``."""
    found: dict[str, str] = {}
    for name in older:
        if not name.counts(texts.get(name.key, "")) or name.newer in found.values():
            continue
        if name.stronger or not texts.get(name.newer):
            found[name.key] = name.newer
    return found
