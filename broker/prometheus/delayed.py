"""Metrics of the delayed index: Pulsar's names and labels, and Magnetar's for further figures."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from magnetar.delayed.index_stats import LATENCY_BOUNDS_MS, LATENESS_BOUNDS_MS, OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from magnetar.delayed.index_stats import DelayIndexStats

__all__ = ["delayed_metrics", "lateness"]

_PREFIX: Final = "pulsar_delayed_message_index_"
_GAUGES: Final[tuple[tuple[str, Callable[[DelayIndexStats], float]], ...]] = (
    ("pulsar_delayed_message_index_bucket_total", lambda s: s.bucket_total),
    ("pulsar_delayed_message_index_loaded", lambda s: s.loaded),
    ("pulsar_delayed_message_index_bucket_snapshot_size_bytes", lambda s: s.snapshot_size_bytes),
    ("magnetar_delayed_pending", lambda s: s.pending),
    ("magnetar_delayed_earliest_timestamp", lambda s: s.earliest_ms or 0),
    ("magnetar_delayed_latest_timestamp", lambda s: s.latest_ms or 0),
    ("magnetar_delayed_coverage_gap_entries", lambda s: s.coverage_gap_entries),
    ("magnetar_delayed_cancelled", lambda s: s.cancelled),
    ("magnetar_delayed_fired_total", lambda s: s.fired),
    ("magnetar_delayed_rebuild_total", lambda s: s.rebuilds),
    ("magnetar_delayed_collected_total", lambda s: s.collected),
    ("magnetar_delayed_ready_spills_total", lambda s: s.spills),
    ("magnetar_delayed_bitmaps_shelved", lambda s: s.shelved),
)
_BINS: Final = (*map(str, LATENCY_BOUNDS_MS), "overflow")
_LATE: Final = (*map(str, LATENESS_BOUNDS_MS), "+Inf")


def lateness(labelled: Sequence[tuple[str, DelayIndexStats]]) -> list[tuple[str, float]]:
    """Samples of the histogram ``magnetar_delayed_lateness_ms``; labels begin behind the name."""
    out: list[tuple[str, float]] = []
    for labels, stats in labelled:
        counts = list(accumulate(stats.lateness_counts or (0,) * len(_LATE)))
        out += [(f'_bucket{{{labels},le="{le}"', count) for le, count in zip(_LATE, counts, strict=True)]
        out += [(f"_sum{{{labels}", stats.lateness_sum_ms), (f"_count{{{labels}", counts[-1])]
    return out


def delayed_metrics(labelled: Sequence[tuple[str, DelayIndexStats]]) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """(name, [(labels, value)]) of each metric but the histogram; labels as printed between braces.

    As in Pulsar the bins of the latency are not cumulative, and empty bins are left out.
    """
    if not labelled:
        return
    for name, value in _GAUGES:
        yield name, [(labels, value(stats)) for labels, stats in labelled]
    operations = [
        (f'{labels},type="{kind}"', stats.operations[kind]) for labels, stats in labelled for kind in OPERATIONS
    ]
    yield (
        _PREFIX + "bucket_op_count",
        [
            (f'{labels},state="{state}"', count)
            for labels, each in operations
            for state, count in (("succeed", each.succeed), ("failed", each.failed), ("all", each.all))
        ],
    )
    latency = _PREFIX + "bucket_op_latency_ms"
    yield (
        latency,
        [
            (f'{labels},quantile="{bin_}"', count)
            for labels, each in operations
            for bin_, count in zip(_BINS, each.latency_counts, strict=True)
            if count
        ],
    )
    yield latency + "_count", [(labels, each.succeed) for labels, each in operations]
    yield latency + "_sum", [(labels, each.latency_sum_ms) for labels, each in operations]
