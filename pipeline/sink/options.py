"""The options of the sink."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from magnetar.pipeline.connect_options import CONNECT_OPTIONS, ConnectOptions
from magnetar.pipeline.encryption_keys import parse_public_keys
from magnetar.pipeline.option_table import Option, OptionError, check_names, flag, whole_number, word
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping


class Guarantee(enum.StrEnum):
    """How often a row reaches its topic."""

    AT_LEAST_ONCE = "at-least-once"
    """A task, a batch or a driver that runs again sends its rows again."""
    DETERMINISTIC = "exactly-once"
    """Tasks send. A task that runs again must have the same rows in the same order."""
    STAGED = "exactly-once-staged"
    """Tasks write their rows to files; the driver sends the files of a batch after all tasks have ended."""


class Routing(enum.StrEnum):
    """Which partition of a partitioned topic gets a message."""

    KEY = "key"
    PARTITION = "partition"


class ValueMode(enum.StrEnum):
    """How the columns that are not parts of the message's metadata become its payload."""

    AUTO = "auto"
    BYTES = "bytes"
    JSON = "json"
    AVRO = "avro"


SINK_OPTIONS = (
    Option("topic", "the column `__topic`", "topic of all rows; wins over the column"),
    Option("guarantee", "exactly-once-staged (streams), at-least-once (batches)", "see the table of guarantees"),
    Option("sinkId", "id of the streaming query", "identity of the producers, the same whenever a write is repeated"),
    Option(
        "stagingDirectory",
        "`sink-staging` in the checkpoint",
        "where staged rows are kept; executors and driver share it",
    ),
    Option("checkDeduplication", "true", "ask the admin API whether the topic deduplicates before anything is sent"),
    Option("enableDeduplication", "false", "switch deduplication on for the topic where it is off"),
    Option("routing", "key", "`key`: hash of the key, else entries in turn; `partition`: the column `__partition`"),
    Option("valueMode", "auto", "`auto`: the column `value` alone as it is, else Avro; `bytes`, `json`, `avro`"),
    Option("registerSchema", "true", "register the schema of Avro, JSON and number values with the topic"),
    Option("recordName", "Record", "name of the Avro record"),
    Option("columnStyle", "pulsar", "`kafka`: columns key, value, topic, partition, timestamp, headers"),
    Option("batchingEnabled", "true", "several messages in one entry"),
    Option("batchingMaxMessages", "1000", "messages of an entry at most"),
    Option("batchingMaxBytes", "131072", "payload bytes of an entry at most"),
    Option(
        "chunkingEnabled", "false", "a message that the broker would refuse for its size is sent in several entries"
    ),
    Option("batchByKey", "false", "an entry ends where the key changes, as Key_Shared subscriptions need"),
    Option("compressionType", "NONE", "NONE, LZ4, ZLIB, ZSTD or SNAPPY"),
    Option(
        "encryptionKeys",
        "",
        "`NAME=FILE`, several with commas between them: public RSA keys (PEM), readable on the executors, whose owners "
        "can decrypt the payloads",
    ),
    Option("maxPendingBytes", "16777216", "bytes a producer sends ahead of their receipts"),
    Option("sendTimeoutMs", "120000", "a task fails when no entry is stored for so long"),
)
"""THE table of the sink's own options; those of the connection are in `connect_options`."""

PRODUCER_OPTIONS = (
    *("batchingEnabled", "batchingMaxMessages", "batchingMaxBytes", "chunkingEnabled"),
    *("compressionType", "sendTimeoutMs"),
)
"""Options that the sink also takes behind `pulsar.producer.`, as pulsar-spark has them."""
_PRODUCER = "pulsar.producer."
_COMPRESSION = {"NONE": pb.NONE, "LZ4": pb.LZ4, "ZLIB": pb.ZLIB, "ZSTD": pb.ZSTD, "SNAPPY": pb.SNAPPY}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options, read. May be pickled to executors."""

    connect: ConnectOptions
    topic: str | None
    guarantee: Guarantee
    sink_id: str
    staging: str
    check_deduplication: bool
    enable_deduplication: bool
    routing: Routing
    value_mode: ValueMode
    register_schema: bool
    record_name: str
    kafka_style: bool
    batch_messages: int
    batch_bytes: int
    batch_by_key: bool
    chunking: bool
    compression: pb.CompressionType
    pending_bytes: int
    timeout_s: float
    encryption_keys: tuple[tuple[str, str], ...] = ()
    """Name of each key and file of its public key."""
    keep_schema_versions: bool = False
    """Not a user's option, set by replay: the column `__schemaVersion` has the target's schema version of each row."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        """Read them from the options of a DataFrame writer. Raises: OptionError."""
        given = _without_prefix({name.lower(): str(value) for name, value in options.items()})
        check_names(given, (*CONNECT_OPTIONS, *SINK_OPTIONS), "docs/pipeline/sink.md")
        default = Guarantee.STAGED if streaming else Guarantee.AT_LEAST_ONCE
        guarantee = Guarantee(word(given, "guarantee", [*Guarantee], default))
        checkpoint = given.get("checkpointlocation", "")
        staging = given.get("stagingdirectory", f"{checkpoint.rstrip('/')}/sink-staging" if checkpoint else "")
        if guarantee is Guarantee.STAGED and not staging:
            raise OptionError("guarantee exactly-once-staged needs option stagingDirectory or checkpointLocation")
        if guarantee is Guarantee.DETERMINISTIC and not streaming and not given.get("sinkid"):
            raise OptionError("guarantee exactly-once needs option sinkId: a name of its own for this write")
        if guarantee is Guarantee.STAGED and not streaming:
            raise OptionError("guarantee exactly-once-staged is for streams; a batch takes exactly-once and a sinkId")
        batching = flag(given, "batchingEnabled", True)
        return cls(
            connect=ConnectOptions.parse(options),
            topic=_topic(given["topic"]) if given.get("topic") else None,
            guarantee=guarantee,
            sink_id=given.get("sinkid", ""),
            staging=staging,
            check_deduplication=flag(given, "checkDeduplication", True),
            enable_deduplication=flag(given, "enableDeduplication", False),
            routing=Routing(word(given, "routing", [*Routing])),
            value_mode=ValueMode(word(given, "valueMode", [*ValueMode])),
            register_schema=flag(given, "registerSchema", True),
            record_name=given.get("recordname", "Record"),
            kafka_style=word(given, "columnStyle", ("pulsar", "kafka")) == "kafka",
            batch_messages=whole_number(given, "batchingMaxMessages", 1000) if batching else 0,
            batch_bytes=whole_number(given, "batchingMaxBytes", 131072),
            batch_by_key=flag(given, "batchByKey", False),
            chunking=flag(given, "chunkingEnabled", False),
            compression=_compression(given.get("compressiontype", "NONE")),
            pending_bytes=whole_number(given, "maxPendingBytes", 16 * 1024 * 1024),
            timeout_s=whole_number(given, "sendTimeoutMs", 120_000) / 1000,
            encryption_keys=parse_public_keys(given.get("encryptionkeys", "")),
        )

    @property
    def exactly_once(self) -> bool:
        """Whether producers have fixed names and sequence ids."""
        return self.guarantee is not Guarantee.AT_LEAST_ONCE


def _without_prefix(given: Mapping[str, str]) -> dict[str, str]:
    """Rename the producer options of pulsar-spark to the names of this sink. If an option is given under both names,
    the value under this sink's name counts.
    """
    prefixed = {_PRODUCER + name.lower(): name.lower() for name in PRODUCER_OPTIONS}
    found = {prefixed[name]: value for name, value in given.items() if name in prefixed}
    return found | {name: value for name, value in given.items() if name not in prefixed}


def _topic(text: str) -> str:
    try:
        return str(TopicName.parse(text))
    except InvalidTopicNameError as error:
        raise OptionError(f"option topic: {error}") from error


def _compression(text: str) -> pb.CompressionType:
    try:
        return _COMPRESSION[text.upper()]
    except KeyError:
        raise OptionError(f"option compressionType is {', '.join(_COMPRESSION)}, not {text!r}") from None
