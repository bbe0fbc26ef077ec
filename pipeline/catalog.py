"""The catalogue of topics and of their stored entries, from the admin REST API.

Magnetar gives the ranges of a thousand logs in one request (`logRanges`). Apache Pulsar lacks this route; there every
topic takes its own requests, made side by side.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote

from magnetar.client.errors import ClientError
from magnetar.pipeline.errors import CatalogError, CatalogRefusedError, CatalogUnavailableError, NoSuchTopicError
from magnetar.pipeline.log_range import LedgerSpan, LogRange
from magnetar.pipeline.offsets import MessagePlace, Position
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from email.message import Message

    from magnetar.client.admin import AdminApi
    from magnetar.pipeline.offsets import Place
    from magnetar.pipeline.options import TopicSelection

_TOPICS_IN_ONE_REQUEST = 1000
_LAST_MS = (1 << 63) - 1
"""The latest time that a request can name."""
_AT_ONCE = 8
_NOT_THERE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED})
_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE})
_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_INDEX_HEADER = "X-Pulsar-Broker-Entry-METADATA-index"
_BATCH_HEADER = "X-Pulsar-num-batch-message"
_MARKER_HEADER = "X-Pulsar-marker-type"
_ABORTED_HEADER = "X-Pulsar-txn-aborted"
_SWITCH = "transactionCoordinatorEnabled"
"""A broker that coordinates no transactions names this setting in its refusal."""

T = TypeVar("T")


def topic_path(topic: str) -> str:
    """The path of a topic in the admin API."""
    name = TopicName.parse(topic)
    return f"/admin/v2/{name.domain}/{name.namespace}/{quote(name.local_name, safe='')}"


class Catalog:
    """Caches no answer: every call sends a request. Raises CatalogError when the admin API is not there or refuses."""

    def __init__(self, admin: AdminApi) -> None:
        self._admin = admin
        self._tells_ranges = True
        """False once the broker has refused `logRanges`."""
        self._has_transactions = True
        """False once the broker has answered that it coordinates no transactions."""

    # --- which topics -----------------------------------------------------------------------------------------------

    def partitions(self, selection: TopicSelection, *, missing_ok: bool = False) -> list[str]:
        """Full names of all plain topics and partitions that are selected, each once, sorted.

        Raises NoSuchTopicError for a named topic that does not exist, unless `missing_ok`.
        """
        if selection.pattern:
            return self._matching(selection)
        found: dict[str, None] = {}
        for name in selection.names:
            topic = TopicName.parse(name)
            count = 0 if topic.is_partition else self._partition_count(name, missing_ok=missing_ok)
            found |= dict.fromkeys([str(topic.partition_name(n)) for n in range(count)] or [name])
        return sorted(found)

    def _matching(self, selection: TopicSelection) -> list[str]:
        names = self._ask(f"/admin/v2/namespaces/{selection.namespace}/topics")
        topics = [TopicName.parse(name) for name in names if name.startswith("persistent://")]
        return sorted({str(t) for t in topics if not t.is_system and selection.matches(t)})

    def _partition_count(self, topic: str, *, missing_ok: bool) -> int:
        try:
            return int(self._ask(f"{topic_path(topic)}/partitions")["partitions"])
        except NoSuchTopicError:
            if missing_ok:
                return 0
            raise

    # --- stored logs ------------------------------------------------------------------------------------------------

    def ranges(self, topics: Sequence[str], *, ledgers: bool = False) -> dict[str, LogRange | None]:
        """The stored log of each topic or partition; None for a missing topic."""
        if self._tells_ranges:
            try:
                return self._ranges_told(topics, ledgers=ledgers)
            except NoSuchTopicError:
                self._tells_ranges = False
        return dict(zip(topics, self._side_by_side(self._range_of_stats, topics), strict=True))

    def range(self, topic: str, *, ledgers: bool = False) -> LogRange | None:
        """The stored log of one topic or partition; None when it does not exist."""
        return self.ranges([topic], ledgers=ledgers)[topic]

    def _ranges_told(self, topics: Sequence[str], *, ledgers: bool) -> dict[str, LogRange | None]:
        by_namespace: dict[str, list[str]] = {}
        for topic in topics:
            by_namespace.setdefault(TopicName.parse(topic).namespace, []).append(topic)
        found: dict[str, LogRange | None] = {}
        for namespace, names in by_namespace.items():
            path = f"/admin/v2/namespaces/{namespace}/logRanges?ledgers={str(ledgers).lower()}"
            for start in range(0, len(names), _TOPICS_IN_ONE_REQUEST):
                part = names[start : start + _TOPICS_IN_ONE_REQUEST]
                told = self._ask(path, "POST", json.dumps(part).encode())
                found |= {name: _told_range(name, told[name]) for name in part}
        without = [] if ledgers else [name for name, log in found.items() if log is not None and not log.indexed]
        if without:  # places are positions there: arithmetic on them takes the ledgers
            found |= self._ranges_told(without, ledgers=True)
        return found

    def _range_of_stats(self, topic: str) -> LogRange | None:
        """The stored log of one topic or partition, from its `internalStats`, for brokers without `logRanges`."""
        try:
            stats = self._ask(f"{topic_path(topic)}/internalStats")
        except NoSuchTopicError:
            return None
        last = Position.parse(stats["lastConfirmedEntry"])
        ledgers = [LedgerSpan(each["ledgerId"], each["entries"], True) for each in stats["ledgers"]]
        if ledgers and not ledgers[-1].entries:
            ledgers[-1] = LedgerSpan(ledgers[-1].ledger_id, stats["currentLedgerEntries"], False)
        oldest = ledgers[0].ledger_id if ledgers else None
        entries, size = stats["numberOfEntries"], stats["totalSize"]
        log = LogRange(topic, None, None, entries, size, last, tuple(ledgers), oldest)
        if not log.entries:
            return log
        lowest = self.index_of(topic, log.position_at(0))
        highest = self.index_of(topic, log.position_at(log.entries - 1))
        if lowest is not None and highest is not None:
            log = replace(log, first_index=lowest[0], end_index=highest[1] + 1)
        return replace(log, open_from=self._open_from(log))

    def _open_from(self, log: LogRange) -> Place | None:
        """The place of the first message that an open transaction withholds; None without such a transaction, and where
        the broker does not answer for it. Consumers get messages up to `maxReadPosition`.
        """
        last = self._max_read_position(log.topic)
        if last is None or last >= log.last:
            return None
        readable = log.ordinal(Position(last.ledger_id, last.entry_id + 1))
        if not readable:
            return log.first
        position = log.position_at(readable - 1)
        if not log.indexed:
            return Position(position.ledger_id, position.entry_id + 1)
        bounds = self.index_of(log.topic, position)
        return None if bounds is None else bounds[1] + 1

    def _max_read_position(self, topic: str) -> Position | None:
        if not self._has_transactions:
            return None
        name = TopicName.parse(topic)
        path = f"/admin/v3/transactions/transactionBufferStats/{name.namespace}/{quote(name.local_name, safe='')}"
        try:
            stats = self._ask(path)
        except CatalogUnavailableError as error:
            if _SWITCH not in str(error):
                raise
            self._has_transactions = False
            return None
        except CatalogError:  # an older broker, or a role without the right
            return None
        return Position.parse(stats["maxReadPosition"]) if stats.get("state") == "Ready" else None

    # --- places -----------------------------------------------------------------------------------------------------

    def index_of(self, topic: str, position: Position) -> tuple[int, int] | None:
        """Index of the first and of the last message of an entry; None when it has no index.

        Raises CatalogError when there is no such entry.
        """
        return self._stored(topic, position)[0]

    def withheld(self, topic: str, position: Position) -> tuple[bool, tuple[int, int] | None]:
        """Whether the broker stores the entry and sends it to no consumer, and `index_of` the entry.

        Such entries are markers, and messages of aborted transactions. Raises as `index_of`.
        """
        bounds, headers = self._stored(topic, position)
        aborted = str(headers.get(_ABORTED_HEADER, "")).lower() == "true"
        return aborted or _MARKER_HEADER in headers, bounds

    def _stored(self, topic: str, position: Position) -> tuple[tuple[int, int] | None, Message]:
        path = f"{topic_path(topic)}/ledger/{position.ledger_id}/entry/{position.entry_id}?raw=true"
        headers = self._asked(lambda: self._admin.fetch("GET", path), path)[1]
        return _index_in(headers), headers

    def position_of_index(self, topic: str, index: int) -> Position | None:
        """The entry that holds the message of a broker index; None when there is none."""
        try:
            found = self._ask(f"{topic_path(topic)}/getMessageIdByIndex?index={index}")
        except NoSuchTopicError:
            return None
        return Position(found["ledgerId"], found["entryId"])

    def place_of_time(self, topic: str, time_ms: int) -> MessagePlace:
        """The first entry published at that time or later; behind the last entry when there is no such entry."""
        found = self._ask(f"{topic_path(topic)}/messageid/{min(max(time_ms, 0), _LAST_MS)}")
        return MessagePlace(Position(found["ledgerId"], found["entryId"]))

    # --- subscriptions ----------------------------------------------------------------------------------------------

    def create_subscription(self, topic: str, subscription: str) -> None:
        """Create a durable subscription at the end of the topic; an existing subscription stays as it is."""
        path = f"{topic_path(topic)}/subscription/{_subscription(subscription)}"
        try:
            self._ask(path, "PUT", b'"latest"')
        except CatalogError as error:
            cause = error.__cause__
            if not isinstance(cause, HTTPError) or cause.code != HTTPStatus.CONFLICT:
                raise

    def reset_cursor(self, topic: str, subscription: str, position: Position) -> None:
        """Move the cursor of the subscription: its next message is the first of this entry."""
        body = {"ledgerId": position.ledger_id, "entryId": position.entry_id, "partitionIndex": -1, "isExcluded": False}
        path = f"{topic_path(topic)}/subscription/{_subscription(subscription)}/resetcursor"
        self._ask(path, "POST", json.dumps(body).encode())

    # --- asking -----------------------------------------------------------------------------------------------------

    def schemas(self, topics: Sequence[str]) -> list[dict[str, Any] | None]:
        """`schema` of several topics, in their order."""
        return self._side_by_side(self.schema, topics)

    def schema(self, topic: str, *, version: int | None = None) -> dict[str, Any] | None:
        """The newest schema of a topic, or its schema of `version`, as the admin API shows it; None if it is absent."""
        name = TopicName.parse(topic).base
        path = f"/admin/v2/schemas/{name.namespace}/{quote(name.local_name, safe='')}/schema"
        if version is not None:
            path += f"/{version}"
        try:
            found: dict[str, Any] = self._ask(path)
        except NoSuchTopicError:
            return None
        return found

    def register_schema(self, topic: str, schema: Mapping[str, Any]) -> int:
        """Register a schema, in the form of `schema`, with a topic; returns its version, which may be an old version.

        Raises: CatalogError with the broker's reason, for an incompatible schema.
        """
        name = TopicName.parse(topic).base
        path = f"/admin/v2/schemas/{name.namespace}/{quote(name.local_name, safe='')}/schema"
        body = {
            "type": schema["type"],
            "schema": schema.get("data") or "",
            "properties": schema.get("properties") or {},
        }
        answer = self._ask(path, "POST", json.dumps(body).encode())
        return int(answer["version"]["version"])

    def answer(self, path: str) -> Any:
        """The answer to GET. Raises: NoSuchTopicError for a missing topic, CatalogError."""
        return self._ask(path)

    def _ask(self, path: str, method: str = "GET", body: bytes | None = None) -> Any:
        """Raises NoSuchTopicError for 404 and 405, CatalogError for everything else that is no success."""
        return self._asked(lambda: self._admin.call(method, path, body), path)

    def _asked(self, call: Callable[[], T], path: str) -> T:
        where = self._admin.url
        try:
            return call()
        except HTTPError as error:
            if error.code in _NOT_THERE:
                raise NoSuchTopicError(_named(path)) from error
            reason = error.read()[:300].decode("utf-8", "replace").strip()
            hint = " (check the token or the rights of its role)" if error.code in _REFUSED else ""
            refused = CatalogRefusedError if error.code in _REFUSED else CatalogError
            kind = CatalogUnavailableError if error.code in _BUSY else refused
            raise kind(f"{where} answers {error.code} for {_named(path)}{hint}: {reason}") from error
        except ClientError as error:
            raise CatalogError(str(error)) from error
        except OSError as error:
            raise CatalogUnavailableError(
                f"the admin API does not answer at {where} (option admin.url): {error}"
            ) from error
        except ValueError as error:
            raise CatalogError(f"{where} answers {_named(path)} without JSON: {error}") from error

    def _side_by_side(self, ask: Callable[[str], T], topics: Iterable[str]) -> list[T]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(ask, topics))


def _told_range(topic: str, told: dict[str, Any] | None) -> LogRange | None:
    if told is None:
        return None
    ledgers = tuple(LedgerSpan(*each) for each in told.get("ledgers", ()))
    last = Position.parse(told["lastConfirmedEntry"])
    return LogRange(
        topic,
        told["firstIndex"],
        told["endIndex"],
        told["entries"],
        told["bytes"],
        last,
        ledgers,
        told.get("firstLedger"),
    )


def _index_in(headers: Message) -> tuple[int, int] | None:
    index = headers.get(_INDEX_HEADER)
    if index is None:
        return None
    return int(index) - max(int(headers.get(_BATCH_HEADER, "1")), 1) + 1, int(index)


def _named(path: str) -> str:
    """The topic of a path as users write it, else the path."""
    parts = path.partition("?")[0].split("/")
    return f"{parts[3]}://{'/'.join(parts[4:7])}" if len(parts) > 6 and parts[3] == "persistent" else path


def _subscription(name: str) -> str:
    """Encode a subscription twice for paths of topics, as Java's admin client does."""
    return quote(quote(name, safe=""), safe="")
