"""The ports of producers: their connection, their topic, and publishing to the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from magnetar.broker.meters.rates import RateMeter
    from magnetar.broker.topics.deduplication import SequenceTable, Verdict
    from magnetar.broker.topics.publish_policy import PublishPolicy
    from magnetar.protocol.runs import EntryRun
    from magnetar.protocol.topic_name import TopicName
    from magnetar.storage.errors import StorageError
    from magnetar.storage.interfaces import NextMessage
    from magnetar.storage.managed.append_result import AppendPiece, AppendResult, RunNotice


class Gate(Protocol):
    """Counts publishes in flight (`network.publish_gate`)."""

    def started(self, entries: int, size: int) -> None: ...
    def finished(self, entries: int, size: int) -> None: ...


class PromptOutput(Protocol):
    """The output of a connection (`network.output`)."""

    def write_now(self, data: bytes) -> bool:
        """Send a short answer within this call; return False, without effect, where that is not possible."""
        ...


class ProducerTable(Protocol):
    """The producers of a connection by id, or the futures of those that are being made."""

    def get(self, producer_id: int, /) -> object: ...
    def __delitem__(self, producer_id: int, /) -> None: ...


class ProducerConnection(Protocol):
    """The part of a connection that a producer needs."""

    loop: asyncio.AbstractEventLoop
    address: str
    client_version: str
    recently_closed_producers: dict[int, float]
    """Producers that the broker closed, with the time: the broker ignores their messages for a while."""
    early_read: NextMessage | None
    """Handles the next SEND, and nothing else (`network.early_read`); None: not possible on this connection."""

    @property
    def closed(self) -> bool: ...
    @property
    def gate(self) -> Gate: ...
    @property
    def output(self) -> PromptOutput: ...
    @property
    def producers(self) -> ProducerTable:
        """Producers of the connection by id; a producer that the broker closes removes itself."""
        ...

    def write(self, data: bytes) -> None: ...
    def close_notice(self, frame: bytes, since_version: int) -> None:
        """Write CLOSE_PRODUCER, or close the connection of a peer too old to know it."""
        ...

    async def check_alive(self) -> bool:
        """Send PING to the peer; return whether the peer answered in time."""
        ...

    def may(self, command_type: int, name: TopicName, subscription: str = "") -> bool:
        """Whether the connection's role still has the right to a command that the broker has accepted before."""
        ...

    def spend(self, commands: int) -> None:
        """Count the work of so many commands; read on in a later round of the event loop when the round has much."""
        ...

    def hold_reading(self, reason: str) -> None: ...
    def release_reading(self, reason: str) -> None: ...


class AnsweredProducer(Protocol):
    """A producer that gets answers from a topic: a client's producer, or the broker's own producer."""

    @property
    def name(self) -> str: ...
    @property
    def producer_id(self) -> int: ...
    def answer(self, data: bytes) -> None: ...
    def answer_append(self, data: bytes) -> None: ...
    def spend(self, commands: int) -> None:
        """Count the work of so many commands; the connection reads on in a later round when the round has much."""
        ...


class Deduplication(Protocol):
    """Decides which entries of a run are new."""

    enabled: bool
    table: SequenceTable

    @property
    def status(self) -> str:
        """The status in the words of the stats page."""
        ...

    def judge(self, name: str, run: EntryRun) -> Iterable[tuple[int, int, Verdict]]:
        """(start, end, verdict) of each part of the run, in order."""
        ...


class Publishing(Protocol):
    """Publishes runs to a topic, persistent or not."""

    receipt_step: int
    """The difference between the ids of consecutive entries of a run."""
    policy: PublishPolicy
    rate_in: RateMeter
    last_publish_ms: int
    """Time of the last publish, ms since 1970; 0: no publish since the topic was loaded."""

    @property
    def deduplication(self) -> Deduplication: ...
    def takes(self, producer: AnsweredProducer, run: EntryRun) -> bool:
        """Whether the topic takes publishes now; if not, `takes` has answered the producer where an answer is due."""
        ...

    def append(self, run: EntryRun, done: Callable[[AppendResult], None], notice: RunNotice | None = None) -> None:
        """Hand over a run; `done` is called once, in the order of the calls. `notice` may get a run that is on the
        disk just before `done` gets the result.
        """
        ...

    def stored(self, producer: AnsweredProducer, run: EntryRun, count: int, pieces: list[AppendPiece]) -> None:
        """Note that `count` entries are on the disk; called when `done` reports them."""
        ...

    def append_failed(self, producer: AnsweredProducer, run: EntryRun, stored: int, error: StorageError) -> None:
        """Note the failure behind `stored` entries; called when `done` reports the error."""
        ...
