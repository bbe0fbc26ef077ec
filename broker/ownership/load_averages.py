"""The load of bundles over time: a short and a long average of each, and their sums over the bundles of a broker. Pure.

    /loadbalance/bundle-data/<tenant>/<ns>/0x..._0x...    BundleData: the averages of a bundle
    /loadbalance/broker-time-average/<host:web port>      TimeAverageBrokerData: the sums of a broker

The leader writes both nodes in the form of Apache Pulsar 4.2; the next leader, of either kind, continues with them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from magnetar.broker.errors import UNREADABLE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from magnetar.broker.ownership.cluster_nodes import BundleUsage, LoadReport

__all__ = [
    "BROKER_AVERAGES",
    "BUNDLE_DATA",
    "BrokerLoad",
    "BundleLoad",
    "LoadAverages",
    "decode_bundle_load",
    "encode_broker_load",
    "encode_bundle_load",
]

BUNDLE_DATA: Final = "/loadbalance/bundle-data"
BROKER_AVERAGES: Final = "/loadbalance/broker-time-average"

_SHORT_SAMPLES: Final = 10
_LONG_SAMPLES: Final = 1000
_UNSEEN_RATE: Final = 50.0
"""The assumed rate of messages in, and of messages out, of a bundle without samples, as in Apache Pulsar."""
_UNSEEN_THROUGHPUT: Final = 50_000.0


class Average(msgspec.Struct, rename="camel", frozen=True):
    """TimeAverageMessageData: the mean of the first samples, later a moving average over ``max_samples``."""

    max_samples: int
    num_samples: int = 0
    msg_throughput_in: float = 0.0
    msg_throughput_out: float = 0.0
    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0

    @property
    def rate(self) -> float:
        return self.msg_rate_in + self.msg_rate_out

    @property
    def throughput(self) -> float:
        return self.msg_throughput_in + self.msg_throughput_out

    def sampled(self, usage: BundleUsage) -> Average:
        """Return the average with a further sample; the first sample replaces the assumed value of an unseen bundle."""
        count = min(self.num_samples + 1, self.max_samples)

        def mean(before: float, now: float) -> float:
            return ((count - 1) * before + now) / count

        return Average(
            self.max_samples,
            count,
            mean(self.msg_throughput_in, usage.msg_throughput_in),
            mean(self.msg_throughput_out, usage.msg_throughput_out),
            mean(self.msg_rate_in, usage.msg_rate_in),
            mean(self.msg_rate_out, usage.msg_rate_out),
        )


def _unseen(samples: int) -> Average:
    return Average(samples, 0, _UNSEEN_THROUGHPUT, _UNSEEN_THROUGHPUT, _UNSEEN_RATE, _UNSEEN_RATE)


class BundleLoad(msgspec.Struct, rename="camel", frozen=True):
    """BundleData."""

    short_term_data: Average = _unseen(_SHORT_SAMPLES)
    long_term_data: Average = _unseen(_LONG_SAMPLES)
    topics: int = 0

    def sampled(self, usage: BundleUsage) -> BundleLoad:
        return BundleLoad(self.short_term_data.sampled(usage), self.long_term_data.sampled(usage), usage.topics)


class BrokerLoad(msgspec.Struct, rename="camel", frozen=True):
    """TimeAverageBrokerData; all zero for a broker that starts."""

    short_term_msg_throughput_in: float = 0.0
    short_term_msg_throughput_out: float = 0.0
    short_term_msg_rate_in: float = 0.0
    short_term_msg_rate_out: float = 0.0
    long_term_msg_throughput_in: float = 0.0
    long_term_msg_throughput_out: float = 0.0
    long_term_msg_rate_in: float = 0.0
    long_term_msg_rate_out: float = 0.0


class LoadAverages:
    """The averages that the leader keeps. bundles: by full name."""

    def __init__(self) -> None:
        self.bundles: dict[str, BundleLoad] = {}

    def unseen(self, reports: Mapping[str, LoadReport]) -> list[str]:
        """Reported bundles without an average: an earlier leader may have left one."""
        return sorted({name for each in reports.values() for name in each.last_stats} - self.bundles.keys())

    def sample(self, reports: Mapping[str, LoadReport], stored: Mapping[str, BundleLoad]) -> list[str]:
        """Add the present figures of every bundle; forget and return the bundles that no broker reports any more.

        stored: averages of an earlier leader.
        """
        now: dict[str, BundleLoad] = {}
        for report in reports.values():
            for name, usage in report.last_stats.items():
                before = now.get(name) or self.bundles.get(name) or stored.get(name) or BundleLoad()
                now[name] = before.sampled(usage)
        gone = sorted(self.bundles.keys() - now.keys())
        self.bundles = now
        return gone

    def forget(self) -> None:
        """Remove all averages: another broker is the leader."""
        self.bundles = {}

    def heaviest(self, count: int) -> list[str]:
        """The bundles with most load; all of them when ``count`` is 0 or less."""

        def weight(name: str) -> tuple[float, float]:
            found = self.bundles[name].long_term_data
            return found.throughput, found.rate

        ordered = sorted(self.bundles, key=weight, reverse=True)
        return ordered[:count] if count > 0 else ordered

    def short_term(self, reports: Mapping[str, LoadReport]) -> dict[str, LoadReport]:
        """Return the reports with the short averages of their bundles in place of the present figures, so that a short
        peak moves no bundle.
        """
        return {
            name: msgspec.structs.replace(
                each, last_stats={bundle: self._smooth(bundle, usage) for bundle, usage in each.last_stats.items()}
            )
            for name, each in reports.items()
        }

    def _smooth(self, bundle: str, usage: BundleUsage) -> BundleUsage:
        found = self.bundles.get(bundle)
        if found is None:
            return usage
        short = found.short_term_data
        return msgspec.structs.replace(
            usage,
            msg_rate_in=short.msg_rate_in,
            msg_rate_out=short.msg_rate_out,
            msg_throughput_in=short.msg_throughput_in,
            msg_throughput_out=short.msg_throughput_out,
        )

    def rate(self, report: LoadReport, coming: Collection[str]) -> float:
        """Return the messages per second of a broker over a long time, including those of the bundles that it will
        get.
        """
        return self.base_rate(report) + self.expected_rate(coming)

    def base_rate(self, report: LoadReport) -> float:
        """Messages a second of a broker over long time."""
        rate = report.msg_rate_in + report.msg_rate_out
        for bundle, usage in report.last_stats.items():
            if bundle in self.bundles:
                rate += self.bundles[bundle].long_term_data.rate - usage.msg_rate_in - usage.msg_rate_out
        return max(rate, 0.0)

    def expected_rate(self, coming: Collection[str]) -> float:
        """Messages a second that bundles will bring to their broker."""
        unseen = BundleLoad()
        return sum(self.bundles.get(each, unseen).long_term_data.rate for each in coming)

    def broker_load(self, report: LoadReport) -> BrokerLoad:
        loads = [self.bundles.get(bundle, BundleLoad()) for bundle in report.last_stats]
        sums = []
        for term in ("short_term_data", "long_term_data"):
            averages = [getattr(each, term) for each in loads]
            names = ("msg_throughput_in", "msg_throughput_out", "msg_rate_in", "msg_rate_out")
            sums += [math.fsum(getattr(each, name) for each in averages) for name in names]
        return BrokerLoad(*sums)


def encode_bundle_load(load: BundleLoad) -> bytes:
    """Raises ValueError for averages that another leader could not read."""
    value = msgspec.json.encode(load)
    if decode_bundle_load(value) != load:
        raise ValueError("the load of a bundle with a figure that other brokers cannot read")
    return value


def encode_broker_load(load: BrokerLoad) -> bytes:
    """Raises ValueError for sums that another leader could not read."""
    value = msgspec.json.encode(load)
    if b"null" in value:
        raise ValueError("the load of a broker with a figure that other brokers cannot read")
    return value


def decode_bundle_load(value: bytes) -> BundleLoad | None:
    """Decode the averages; None for other bytes: the averages of the bundle then begin anew."""
    try:
        found = msgspec.json.decode(value, type=BundleLoad)
    except UNREADABLE:
        return None
    return found if all(map(_is_sound, (found.short_term_data, found.long_term_data))) else None


def _is_sound(average: Average) -> bool:
    figures = (average.msg_throughput_in, average.msg_throughput_out, average.msg_rate_in, average.msg_rate_out)
    return 0 <= average.num_samples <= average.max_samples and average.max_samples > 0 and min(figures) >= 0
