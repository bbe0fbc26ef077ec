"""The ports of dispatchers: the cursor they read, the view of delayed entries, converters."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.broker.dispatchers.turns import DispatchTurns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container, Sequence

    from pyroaring import BitMap

    from magnetar.broker.consumers.unacked_total import UnackedTotal
    from magnetar.broker.policies.subscription_settings import SubscriptionSettings
    from magnetar.broker.tasks import TaskSet
    from magnetar.storage.interfaces import CallLater
    from magnetar.storage.position import Position
    from magnetar.storage.slab import Span


class Reader(Protocol):
    """The source of entries: the cursor itself, or a view of the compacted topic with the same calls."""

    def read(
        self,
        max_entries: int,
        max_bytes: int,
        upto: Position | None = None,
        skip: Callable[[int], BitMap | None] | None = None,
    ) -> list[Span] | Awaitable[list[Span]]:
        """The next entries that are not deleted and not to be skipped; [] at the end. Advances the read position."""
        ...

    def read_positions(self, positions: Sequence[Position]) -> list[Span] | Awaitable[list[Span]]:
        """Read the entries at these positions, except deleted entries and entries that no longer exist."""
        ...

    def rewind(self) -> None:
        """Continue reading behind the mark-delete position."""
        ...


class AckCursor(Protocol):
    """The part of a cursor's books that dispatch needs."""

    @property
    def mark_delete(self) -> Position: ...
    @property
    def has_partial_acks(self) -> bool: ...
    def is_deleted(self, position: Position) -> bool: ...
    def positions_in(self, ledger_id: int) -> list[Position]: ...
    def ack_set(self, position: Position) -> list[int] | None: ...
    def ack(self, position: Position, ack_set: Sequence[int] | None = None) -> bool: ...


class DelayView(Protocol):
    """Delayed delivery of one Shared or Key_Shared subscription; calls its wake function when entries become due."""

    def pending(self, ledger_id: int) -> BitMap | None:
        """Entries known to be not yet due: reads skip them. The caller fetches the bitmap again after any wait."""
        ...

    def offer(self, ledger_id: int, entries: Sequence[tuple[int, int]]) -> Container[int]:
        """Offer entries of one ledger that were read and have a deliver_at_time: the entry id and time of each. The
        view holds back the entries that it returns, until `take_due` returns them. The others are to be delivered now.
        """
        ...

    def holds_none(self, latest_ms: int, ledger_id: int, first: int, last: int) -> bool:
        """Whether `offer` would certainly hold none of these entries back, which are due by ``latest_ms``."""
        ...

    def take_due(self, max_entries: int) -> list[Position]:
        """The positions that became due; each is returned once."""
        ...

    def has_due(self) -> bool: ...
    @property
    def may_repeat(self) -> bool:
        """Whether `take_due` may return entries that consumers hold: such entries must not be sent again."""
        ...

    @property
    def pauses_reading(self) -> bool:
        """Whether reads pause until an entry is due; the view then calls the wake function."""
        ...

    @property
    def pending_count(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    def clear(self) -> None: ...


class Order(enum.Enum):
    """The order that a subscription type guarantees."""

    NONE = "none"  # Shared
    BY_KEY = "by key"  # Key_Shared
    TOTAL = "total"  # Exclusive, Failover


class Parked(NamedTuple):
    """One entry that cannot be sent now (`span` holds only it, as stored), to be tried again after `delay_ms`."""

    span: Span
    delay_ms: int
    holds_key: bool = False
    """Key_Shared: entries with the same key hash wait behind it."""


@dataclass(slots=True)
class Transformed:
    """The outcome of the entries of a read that had to be converted.

    spans    entries to send, in order, converted or as stored; every entry keeps its position and message count
    done     entries that no consumer gets: the read loop acknowledges them
    cleared  batch indexes without a message: ack sets without the bits of these indexes
    parked   entries that are not sent now
    rest     where the order counts: the first parked entry and all entries behind it, not examined and not sent
    """

    spans: list[Span] = field(default_factory=list)
    done: list[Position] = field(default_factory=list)
    cleared: list[tuple[Position, list[int]]] = field(default_factory=list)
    parked: list[Parked] = field(default_factory=list)
    rest: list[Span] = field(default_factory=list)


class EntryTransformer(Protocol):
    """Converts the entries of a read, before they are planned and sent."""

    @property
    def flags(self) -> int:
        """The `EntryFlag`s of the entries that it receives; 0: it receives all entries."""
        ...

    def __call__(
        self, spans: list[Span], order: Order
    ) -> list[Span] | Transformed | Awaitable[list[Span] | Transformed]:
        """Convert the entries; return the same list object when no entry needs a conversion. Without side effects on
        cursor and consumers.
        """
        ...

    def bypass(self, spans: list[Span]) -> None:
        """Note that a read is sent as stored, because its consumers requested stored bytes."""
        ...

    def close(self) -> None:
        """Close with the subscription: calls under way end soon, with any result."""
        ...


class DispatchThrottle(Protocol):
    """Dispatch rates of policies (rate_limits.Throttles)."""

    counts_entries: bool
    """Whether an entry counts as one message."""

    def take(self, messages: int, size: int) -> None: ...
    def room(self) -> int:
        """Messages that may be sent now."""
        ...

    def room_bytes(self) -> int:
        """Bytes that may be sent now; a read that brings a single entry may exceed them."""
        ...

    def note_wait(self) -> None:
        """Count a wait for room."""
        ...

    def wait_s(self) -> float:
        """Seconds until there is room."""
        ...


def skip_nothing(_positions: list[Position]) -> None:
    """Acknowledge nothing."""


def never_ended(_known: bool) -> bool:
    """Return False."""
    return False


@dataclass(slots=True)
class DispatchContext:
    """The state that all dispatchers of one subscription share; settings may be replaced at any time."""

    topic_name: str
    subscription_name: str
    partition: int
    cursor: AckCursor
    reader: Reader
    settings: SubscriptionSettings
    now_ms: Callable[[], int]
    call_later: CallLater
    tasks: TaskSet
    delay: DelayView | None = None
    transform: EntryTransformer | None = None
    transform_flags: int = 0
    """`EntryTransformer.flags`, where every read can look."""
    skipped: Callable[[list[Position]], None] = field(default=skip_nothing)
    """Acknowledges entries that no consumer gets (markers, unreadable entries)."""
    throttle: DispatchThrottle | None = None
    """None without a rate."""
    unacked_total: UnackedTotal | None = None
    """None in a broker without a limit of unacknowledged messages."""
    turns: DispatchTurns = field(init=False)
    """The read loops of a broker share one."""
    ended: Callable[[bool], bool] = field(default=never_ended)
    """Whether no entry will follow; called when a read finds no entry. If so, and all entries are acknowledged, the
    consumers get a notice.
    """

    def __post_init__(self) -> None:
        self.turns = DispatchTurns(self.call_later)

    @property
    def reads_log(self) -> bool:
        """Whether the cursor is the source of entries: a compacted topic has entries before the cursor, too."""
        source: object = self.reader
        return source is self.cursor

    def cut_cycles(self) -> None:
        """Forget the functions of the subscription: a closed subscription leaves no cycle to the garbage collector."""
        self.skipped, self.ended, self.delay = skip_nothing, never_ended, None
