"""The options of the source: one table, and the values they become.

A name that is not in the table is an error that names the nearest option; families of options of the established
connectors (`pulsar.client.*` and so on) that have no effect here are ignored with a warning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from magnetar.pipeline.connect_options import CONNECT_OPTIONS, ConnectOptions
from magnetar.pipeline.encryption_keys import parse_private_keys
from magnetar.pipeline.offsets import (
    EARLIEST,
    LATEST,
    TimePlace,
    WantedOffsets,
    ms_of_iso,
    parse_wanted,
    parse_wanted_times,
)
from magnetar.pipeline.option_table import Option, OptionError, check_names, flag, whole_number, word
from magnetar.pipeline.quarantine import ON_CORRUPT, ON_ENCRYPTED
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import NamespaceName, TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping

READ_MODES: Final = ("auto", "segment", "broker")
VALUE_MODES: Final = ("schema", "bytes")
_BOUNDS: Final = ("Offsets", "Time", "Timestamp", "OffsetsByTimestamp")

SOURCE_OPTIONS: Final = (
    *CONNECT_OPTIONS,
    Option("topic", "", "one topic; a partitioned topic with all its partitions, or a single partition"),
    Option("topics", "", "several topics, with commas between them"),
    Option(
        "topicsPattern",
        "",
        "regular expression for whole topic names, `tenant/namespace/REGEX` or `REGEX` in public/default; a running "
        "stream picks up new topics",
    ),
    Option(
        "startingOffsets",
        "earliest (batch), latest (stream)",
        "`earliest`, `latest`, a time in ISO 8601 or JSON by topic; a stream uses it only while it has no checkpoint",
    ),
    Option("endingOffsets", "latest", "batch only; like startingOffsets"),
    Option(
        "startingTime",
        "",
        "begin with the first entry published at this time or later, by the broker's clock (without broker publish "
        "time by the producer's): ms since 1970, or ISO 8601; instead of startingOffsets",
    ),
    Option("endingTime", "", "batch only: end before the first entry published at this time; instead of endingOffsets"),
    Option("startingTimestamp", "", "another name of startingTime, that of Spark's Kafka source"),
    Option("endingTimestamp", "", "another name of endingTime"),
    Option(
        "startingOffsetsByTimestamp",
        "",
        "JSON by topic: ms since 1970, or partition -> ms, as for Spark's Kafka source; other topics begin at their "
        "earliest message",
    ),
    Option(
        "endingOffsetsByTimestamp", "", "batch only: the same for the end; other topics end at their latest message"
    ),
    Option("maxEntriesPerTrigger", "", "stream: about so many entries in one micro-batch"),
    Option("maxMessagesPerTrigger", "", "stream: at most so many messages in one micro-batch"),
    Option("maxOffsetsPerTrigger", "", "another name of maxMessagesPerTrigger, that of Spark's Kafka source"),
    Option("maxBytesPerTrigger", "", "stream: about so many stored bytes in one micro-batch"),
    Option("minPartitions", "", "split the work into at least so many Spark partitions"),
    Option("maxRecordsPerPartition", "", "at most so many messages in one Spark partition"),
    Option(
        "failOnDataLoss",
        "true",
        "fail when messages of the range are lost; with false count, report and skip them",
    ),
    Option(
        "predefinedSubscription",
        "",
        "stream: durable subscription whose cursor follows the stream; its backlog counts the messages that the stream "
        "has not read",
    ),
    Option("subscription", "", "another name of predefinedSubscription"),
    Option("subscriptionPrefix", "", "without effect, because reading creates no subscriptions; accepted for old jobs"),
    Option(
        "readMode",
        "auto",
        "`broker`: all through the broker; `segment`: ledger files only, fails without them; `auto`: ledger files "
        "that are readable, the broker for the rest",
    ),
    Option(
        "storage.url", "", "data directory of the broker, `/path` or `file:///path`, readable on driver and executors"
    ),
    Option("columns", "", "only these columns, with commas between them"),
    Option("metadataOnly", "false", "all columns but the value"),
    Option("columnStyle", "pulsar", "`kafka`: names and types of Spark's Kafka source"),
    Option("includeHeaders", "false", "columnStyle kafka: the column `headers` too"),
    Option("valueMode", "schema", "`schema`: the value by the topic's schema; `bytes`: the published bytes"),
    Option("allowDifferentTopicSchemas", "false", "topics with different schemas in one table: the value as bytes"),
    Option(
        "pushdown",
        "false",
        "batch: the tasks evaluate filters on time, key, index, partition and other columns, if the session allows "
        "filter pushdown (register() sets it); only for a DataFrame that serves a single query",
    ),
    Option("readCompacted", "false", "batch: of each key the newest message, for compacted topics; through the broker"),
    Option("includeMarkers", "false", "rows for control entries of the broker too"),
    Option(
        "onCorrupt",
        "fail",
        "unreadable entries: `fail`, or `quarantine`: skip them and log their positions",
    ),
    Option(
        "decryptionKeys",
        "",
        "`FILE`, or `NAME=FILE` by the name of the encryption key, several with commas between them: private RSA keys "
        "(PEM), readable on the executors, that decrypt encrypted entries",
    ),
    Option(
        "onEncrypted",
        "deliver; fail with decryptionKeys",
        "entries that stay encrypted: `deliver` returns the ciphertext, `fail`, or `quarantine`: skip them and "
        "log their positions",
    ),
    Option("waitingForNonExistedTopic", "false", "stream: wait for a topic that does not exist yet"),
    Option("pollTimeoutMs", "120000", "fail when the broker sends no data for so long, restarts included"),
    Option("pulsar.reader.receiverQueueSize", "5000", "messages that a task requests in advance"),
    Option("batchBytes", "1310720 (jobs: 4194304)", "largest size of a record batch"),
    Option(
        "splitBytes",
        "268435456 (batches, jobs: by the cores)",
        "stored bytes of a Spark partition, approximately; by default a batch gives each core of the driver's machine, "
        "and a job each core, the same number of partitions of about 256 MiB",
    ),
)
"""THE table of options of the source; docs/pipeline/options.md is tested against it."""


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Which topics: by name, or all of a namespace whose name matches."""

    names: tuple[str, ...] = ()
    namespace: str = ""
    pattern: str = ""

    def matches(self, topic: TopicName) -> bool:
        """Whether the pattern takes this topic (of a partition its partitioned topic)."""
        return re.fullmatch(self.pattern, topic.base.local_name) is not None

    def has(self, topic: str) -> bool:
        """Whether a topic or partition is selected, by its full name."""
        name = TopicName.parse(topic)
        if self.pattern:
            return name.namespace == self.namespace and self.matches(name)
        return topic in self.names or str(name.base) in self.names


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one micro-batch; None: no limit."""

    entries: int | None = None
    messages: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All options of the source, checked. Executors may unpickle them."""

    connect: ConnectOptions
    selection: TopicSelection
    starting: WantedOffsets
    ending: WantedOffsets
    limits: Limits
    min_partitions: int | None
    max_records: int | None
    fail_on_data_loss: bool
    subscription: str
    read_mode: str
    storage_path: str
    columns: tuple[str, ...]
    metadata_only: bool
    column_style: str
    include_headers: bool
    value_mode: str
    allow_different_schemas: bool
    pushdown: bool
    read_compacted: bool
    include_markers: bool
    on_corrupt: str
    on_encrypted: str
    decryption_keys: tuple[tuple[str, str], ...]
    wait_for_topic: bool
    poll_timeout_s: float
    receiver_queue: int
    batch_bytes: int | None
    split_bytes: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
        """Raises OptionError, which names the option and its valid values."""
        given = {name.lower(): str(value) for name, value in options.items()}
        check_names(given, SOURCE_OPTIONS, "docs/pipeline/options.md")
        mode = word(given, "readMode", READ_MODES)
        path = _storage_path(given.get("storage.url", ""))
        if mode == "segment" and not path:
            raise OptionError("option readMode=segment needs storage.url, the data directory of the broker")
        default_start = LATEST if streaming else EARLIEST
        decryption_keys = parse_private_keys(given.get("decryptionkeys", ""))
        if streaming:
            _refuse_in_streams(given)
        return cls(
            connect=ConnectOptions.parse(given),
            selection=_selection(given),
            starting=_bound(given, "starting", default_start, EARLIEST),
            ending=_bound(given, "ending", LATEST, LATEST),
            limits=_limits(given),
            min_partitions=_optional(given, "minPartitions"),
            max_records=_optional(given, "maxRecordsPerPartition"),
            fail_on_data_loss=flag(given, "failOnDataLoss", True),
            subscription=_either(given, "predefinedSubscription", "subscription"),
            read_mode=mode,
            storage_path=path,
            columns=tuple(name.strip() for name in given.get("columns", "").split(",") if name.strip()),
            metadata_only=flag(given, "metadataOnly", False),
            column_style=word(given, "columnStyle", ("pulsar", "kafka")),
            include_headers=flag(given, "includeHeaders", False),
            value_mode=word(given, "valueMode", VALUE_MODES),
            allow_different_schemas=flag(given, "allowDifferentTopicSchemas", False),
            pushdown=flag(given, "pushdown", False),
            read_compacted=flag(given, "readCompacted", False),
            include_markers=flag(given, "includeMarkers", False),
            on_corrupt=word(given, "onCorrupt", ON_CORRUPT),
            on_encrypted=word(given, "onEncrypted", ON_ENCRYPTED, "fail" if decryption_keys else None),
            decryption_keys=decryption_keys,
            wait_for_topic=flag(given, "waitingForNonExistedTopic", False),
            poll_timeout_s=whole_number(given, "pollTimeoutMs", 120_000) / 1000,
            receiver_queue=whole_number(given, "pulsar.reader.receiverQueueSize", 5000),
            batch_bytes=whole_number(given, "batchBytes", 1024, minimum=1024) if given.get("batchbytes") else None,
            split_bytes=_optional(given, "splitBytes"),
        )


def _refuse_in_streams(given: Mapping[str, str]) -> None:
    """Raise OptionError for options that a stream cannot have, except with their default values: a stream has no end
    and reads every message.
    """
    for name, default in (*((f"ending{each}", LATEST) for each in _BOUNDS), ("readCompacted", "false")):
        if given.get(name.lower(), "").strip().lower() not in ("", default):
            raise OptionError(f"option {name} is for spark.read only: a stream has no end and reads every message")


def _selection(given: Mapping[str, str]) -> TopicSelection:
    ways = [name for name in ("topic", "topics", "topicsPattern") if given.get(name.lower(), "").strip()]
    if len(ways) != 1:
        found = f"not {' and '.join(ways)} together" if ways else "none is given"
        if not ways and given.get("path"):
            found = f"{found} (the path of load, {given['path']!r}, names no topic)"
        raise OptionError(f"one of the options topic, topics and topicsPattern is needed; {found}")
    text = given[ways[0].lower()].strip()
    if ways[0] == "topicsPattern":
        return _pattern(text)
    parts = [text] if ways[0] == "topic" else [part.strip() for part in text.split(",") if part.strip()]
    try:
        names = [TopicName.parse(part) for part in parts]
    except InvalidTopicNameError as error:
        raise OptionError(f"option {ways[0]}: {error}") from error
    for name in names:
        if not name.persistent:
            raise OptionError(f"option {ways[0]}: {name} is not persistent, there is no log to read")
    return TopicSelection(tuple(dict.fromkeys(str(name) for name in names)))


def _pattern(text: str) -> TopicSelection:
    domain, separator, rest = text.partition("://")
    if separator and domain != "persistent":
        raise OptionError(f"option topicsPattern: only persistent topics have a log to read, not {domain}://")
    parts = (rest if separator else text).split("/", 2)
    if len(parts) == 2:
        raise OptionError(f"option topicsPattern is tenant/namespace/REGEX or REGEX, not {text!r}")
    tenant, namespace, pattern = parts if len(parts) == 3 else ("public", "default", parts[0])
    try:
        NamespaceName.parse(f"{tenant}/{namespace}")
        re.compile(pattern)
    except InvalidTopicNameError as error:
        raise OptionError(f"option topicsPattern: {error}; only the last part may be a pattern") from error
    except re.error as error:
        raise OptionError(f"option topicsPattern: {pattern!r} is no regular expression: {error}") from error
    return TopicSelection((), f"{tenant}/{namespace}", pattern)


def _bound(given: Mapping[str, str], side: str, default: str, unnamed: str) -> WantedOffsets:
    names = [side + ending for ending in _BOUNDS]
    texts = {name: given.get(name.lower(), "").strip() for name in names}
    chosen = [name for name, text in texts.items() if text]
    if len(chosen) > 1:
        raise OptionError(f"only one of the options {' and '.join(chosen)} may be given")
    if not chosen:
        return WantedOffsets(default, {})
    name = chosen[0]
    if name.endswith("OffsetsByTimestamp"):
        return parse_wanted_times(name, texts[name], unnamed)
    if name.endswith("Offsets"):
        return parse_wanted(name, texts[name], unnamed)
    return WantedOffsets(TimePlace(_time_ms(name, texts[name])), {})


def _time_ms(option: str, text: str) -> int:
    try:
        return int(text) if text.isdecimal() else ms_of_iso(text)
    except ValueError as error:
        raise OptionError(f"option {option} is ms since 1970 or ISO 8601, not {text!r}") from error


def _limits(given: Mapping[str, str]) -> Limits:
    both = [name for name in ("maxMessagesPerTrigger", "maxOffsetsPerTrigger") if given.get(name.lower(), "").strip()]
    if len(both) == 2:
        raise OptionError("maxMessagesPerTrigger and maxOffsetsPerTrigger are the same option; give one")
    messages = _optional(given, both[0]) if both else None
    return Limits(_optional(given, "maxEntriesPerTrigger"), messages, _optional(given, "maxBytesPerTrigger"))


def _optional(given: Mapping[str, str], name: str) -> int | None:
    return whole_number(given, name, 0) if given.get(name.lower(), "").strip() else None


def _either(given: Mapping[str, str], name: str, alias: str) -> str:
    return given.get(name.lower(), "").strip() or given.get(alias.lower(), "").strip()


def _storage_path(url: str) -> str:
    text = url.strip()
    path = text.removeprefix("file://") if text.startswith("file://") else text.removeprefix("file:")
    if path and not path.startswith("/"):
        raise OptionError(f"option storage.url is an absolute path or file:///path, not {url!r}")
    return path
