"""Selects the bursts to trace: bursts with sampled contexts, and a share of the bursts without contexts, up to a
rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.traces.bursts import MOST_TRACES, TraceContext, contexts_in

if TYPE_CHECKING:
    from collections.abc import Callable

Parents = tuple[TraceContext | None, ...]
"""The parents of the spans of a burst, one span each; None begins a trace. Empty: the burst is not traced."""
_ROOT: Parents = (None,)
_NOTHING: Parents = ()


class Sampling:
    """Decides once for each burst. The size of the burst bounds the work, not the number of its messages.

    ratio: the share of bursts without a context that are traced. per_second: limit of spans per second for all topics
    together; the spans of a second may come at once.
    """

    def __init__(
        self, ratio: float, per_second: int, monotonic: Callable[[], float], random: Callable[[], float]
    ) -> None:
        self.recorded = 0
        """Allowed spans since the start."""
        self.left_out = 0
        """Spans since the start that the rate did not allow."""
        self._ratio, self._per_second = ratio, per_second
        self._monotonic, self._random = monotonic, random
        self._tokens, self._filled_s = float(per_second), monotonic()

    def parents(self, data: bytes, start: int, end: int) -> Parents:
        """Return the parents of the spans for the burst of entries in `data[start:end]`."""
        sampled, has_any = contexts_in(data, start, end)
        if sampled:
            return sampled[: self._allowed(len(sampled))]
        if has_any or not self._ratio or self._random() >= self._ratio:
            return _NOTHING
        return _ROOT[: self._allowed(1)]

    def with_more(self, known: Parents, data: bytes, start: int, end: int) -> Parents:
        """Return `known`, the parents of the spans for the earlier entries of a burst, and the parents for the entries
        in `data[start:end]`: sampled contexts of further traces.
        """
        traces = {context.trace_id for context in known if context is not None}
        found = [context for context in contexts_in(data, start, end).sampled if context.trace_id not in traces]
        new = found[: MOST_TRACES - len(known)]
        return (*known, *new[: self._allowed(len(new))]) if new else known

    def _allowed(self, wanted: int) -> int:
        now_s = self._monotonic()
        self._tokens = min(self._per_second, self._tokens + (now_s - self._filled_s) * self._per_second)
        self._filled_s = now_s
        allowed = min(wanted, int(self._tokens))
        self._tokens -= allowed
        self.recorded += allowed
        self.left_out += wanted - allowed
        return allowed
