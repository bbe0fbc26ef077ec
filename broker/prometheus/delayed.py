"""Metrics of the delayed index: Pulsar's names and labels, and Magnetar's for further figures."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Final

from magnetar.delayed.index_stats import LATENCY_BOUNDS_MS, LATENESS_BOUNDS_MS, OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from magnetar.delayed.index_stats import DelayIndexStats, OperationStats

    Rows = list[tuple[str, float]]

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


def lateness(labelled: Sequence[tuple[str, DelayIndexStats]]) -> Iterator[Rows]:
    """Samples of the histogram ``magnetar_delayed_lateness_ms``, topic by topic; each text begins after the metric's
    name.
    """
    for labels, stats in labelled:
        counts = list(accumulate(stats.lateness_counts or (0,) * len(_LATE)))
        rows: Rows = [(f'_bucket{{{labels},le="{le}"', count) for le, count in zip(_LATE, counts, strict=True)]
        yield [*rows, (f"_sum{{{labels}", stats.lateness_sum_ms), (f"_count{{{labels}", counts[-1])]


def delayed_metrics(labelled: Sequence[tuple[str, DelayIndexStats]]) -> Iterator[tuple[str, Iterator[Rows]]]:
    """Yield (name, samples topic by topic) of each metric except the histogram; labels as printed between braces. The
    samples are made lazily, when the caller iterates over them.

    As in Pulsar, the bins of the latency are not cumulative, and empty bins have no sample.
    """
    if not labelled:
        return
    for name, value in _GAUGES:
        yield name, _gauge(labelled, value)
    yield _PREFIX + "bucket_op_count", _of_operations(labelled, _outcomes)
    latency = _PREFIX + "bucket_op_latency_ms"
    yield latency, _of_operations(labelled, _bins)
    yield latency + "_count", _of_operations(labelled, lambda labels, each: [(labels, each.succeed)])
    yield latency + "_sum", _of_operations(labelled, lambda labels, each: [(labels, each.latency_sum_ms)])


def _gauge(
    labelled: Sequence[tuple[str, DelayIndexStats]], value: Callable[[DelayIndexStats], float]
) -> Iterator[Rows]:
    return ([(labels, value(stats))] for labels, stats in labelled)


def _of_operations(
    labelled: Sequence[tuple[str, DelayIndexStats]], rows: Callable[[str, OperationStats], Rows]
) -> Iterator[Rows]:
    return (
        rows(f'{labels},type="{kind}"', stats.operations[kind]) for labels, stats in labelled for kind in OPERATIONS
    )


def _outcomes(labels: str, each: OperationStats) -> Rows:
    states = (("succeed", each.succeed), ("failed", each.failed), ("all", each.all))
    return [(f'{labels},state="{state}"', count) for state, count in states]


def _bins(labels: str, each: OperationStats) -> Rows:
    return [
        (f'{labels},quantile="{bin_}"', count) for bin_, count in zip(_BINS, each.latency_counts, strict=True) if count
    ]
