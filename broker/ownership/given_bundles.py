"""The bundles that the leader has assigned to brokers, with counts that each assignment updates. Pure.

A placement needs only the bundles of one namespace and two figures of each broker, so its cost does not depend on the
other bundles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

__all__ = ["GivenBundles"]


class GivenBundles:
    """Full name of a bundle -> id of the broker that got the bundle last."""

    def __init__(self) -> None:
        self._broker: dict[str, str] = {}
        self._below: dict[str, dict[str, set[str]]] = {}
        """broker -> namespace -> bundles."""
        self._counts: dict[str, int] = {}
        self._coming: dict[str, tuple[int, list[str]]] = {}
        """broker -> (time of its report, bundles that it got after the report). Later reports contain their load."""

    def __iter__(self) -> Iterator[str]:
        return iter(self._broker)

    def get(self, bundle: str) -> str | None:
        """The broker that got the bundle last."""
        return self._broker.get(bundle)

    def give(self, bundle: str, broker: str, reported_at: int | None = None) -> None:
        """Assign the bundle to the broker.

        reported_at: the time of the broker's last report, which lacks the load of the bundle; None: the report has the
        load, or the broker has no report.
        """
        self.take(bundle)
        self._broker[bundle] = broker
        self._below.setdefault(broker, {}).setdefault(_namespace(bundle), set()).add(bundle)
        self._counts[broker] = self._counts.get(broker, 0) + 1
        if reported_at is not None:
            at, coming = self._coming.get(broker, (reported_at, []))
            if at != reported_at:
                coming = []
            coming.append(bundle)
            self._coming[broker] = reported_at, coming

    def take(self, bundle: str) -> None:
        """Remove the assignment of the bundle (no-op for a bundle without a broker)."""
        broker = self._broker.pop(bundle, None)
        if broker is None:
            return
        self._counts[broker] -= 1
        namespaces = self._below[broker]
        namespaces[_namespace(bundle)].discard(bundle)
        if not namespaces[_namespace(bundle)]:
            del namespaces[_namespace(bundle)]
        at, coming = self._coming.get(broker, (0, []))
        if bundle in coming:
            self._coming[broker] = at, [each for each in coming if each != bundle]

    def keep(self, namespace: str, bundles: Collection[str]) -> None:
        """Remove the assignments of all other bundles of the namespace. ``bundles``: full names."""
        for namespaces in self._below.values():
            for bundle in set(namespaces.get(namespace, ())) - set(bundles):
                self.take(bundle)

    def clear(self) -> None:
        for bundle in list(self._broker):
            self.take(bundle)

    def count(self, broker: str) -> int:
        """The number of bundles of a broker."""
        return self._counts.get(broker, 0)

    def of_broker(self, broker: str) -> set[str]:
        """All bundles of a broker."""
        return set().union(*self._below.get(broker, {}).values())

    def of_namespace(self, broker: str, namespace: str) -> Collection[str]:
        """The bundles of one namespace that a broker got."""
        return self._below.get(broker, {}).get(namespace, ())

    def coming(self, broker: str, reported_at: int) -> Sequence[str]:
        """Return the bundles that the broker got since its report of this time. Calls return the same list object,
        perhaps with more bundles at its end, until one of the bundles is removed or a new report arrives.
        """
        at, coming = self._coming.get(broker, (reported_at, _NONE))
        return coming if at == reported_at else _NONE


_NONE: list[str] = []


def _namespace(bundle: str) -> str:
    return bundle.rpartition("/")[0]
