"""Places in the log of a topic partition, and how options and checkpoints write them.

A place is the *next* message to read, so two places are a half-open range: comparisons of message ids skip no message.

* an ``int``: the broker entry index of the next message (every message of a log has an index, without gaps);
* a ``Position``: the next entry. Only for logs whose entries carry no index (Apache Pulsar without
  ``AppendIndexMetadataInterceptor``).

Offsets of a stream are one JSON object in Spark's checkpoint::

    {"v": 2, "persistent://public/default/orders-partition-0": 1042, "persistent://public/default/plain": "17:3",
     "ledgers": {"persistent://public/default/orders-partition-0": 31},
     "bytes": {"persistent://public/default/orders-partition-0": 1080}}

``ledgers`` has the newest ledger of a log when its place was chosen. Ledgers that were opened later hold later
messages, so a log that begins with such a later ledger and still has messages before the place is another log of the
same name.
``bytes`` has the average stored size of a message at that time: it decides where a range is cut for Spark partitions,
so a micro-batch that is planned again has the same Spark partitions, however the log has grown since.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from google.protobuf.message import DecodeError

from magnetar.pipeline.option_table import OptionError
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.message_id import signed
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION = 2
"""The version of offsets with sizes of messages; offsets without sizes have version 1, which earlier releases read."""
_VERSIONS = (1, VERSION)
EARLIEST = "earliest"
LATEST = "latest"
_KAFKA_ENDS = {-2: EARLIEST, -1: LATEST}
_LEDGERS, _BYTES = "ledgers", "bytes"
_MESSAGE_ID = re.compile(r"-?\d+:-?\d+(:-?\d+)?")
_NO_LEDGER = -1
"""The newest ledger of a log that never had a producer."""
_NO_TOPICS = frozenset({"v", _LEDGERS, _BYTES})


class Position(NamedTuple):
    """An entry: ledger, and its number in the ledger."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"

    @staticmethod
    def parse(text: str) -> Position:
        """``ledger:entry``. Raises ValueError."""
        ledger, colon, entry = text.partition(":")
        if not colon:
            raise ValueError(f"{text!r} is no ledger:entry")
        return Position(int(ledger), int(entry))


class MessagePlace(NamedTuple):
    """A message named by its id; ``batch_index`` -1: the whole entry."""

    position: Position
    batch_index: int = -1


Place = int | Position
"""The next message, or the next entry, to read."""


def is_before(a: Place, b: Place) -> bool:
    """Whether place `a` is before place `b` of the same log. Both must be of one kind."""
    if isinstance(a, Position) or isinstance(b, Position):
        assert isinstance(a, Position), "places of one log are of one kind"
        assert isinstance(b, Position), "places of one log are of one kind"
        return tuple(a) < tuple(b)
    return a < b


class TimePlace(NamedTuple):
    """The first entry published at this time (ms since 1970) or later."""

    time_ms: int


Wanted = str | int | MessagePlace | TimePlace
"""A place as users name it: EARLIEST, LATEST, an index, a message id, a time."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """The place in every topic partition.

    ledgers, bytes_per: the newest ledger of its log and the average size of a message when the place was chosen, if
        known.
    """

    by_topic: Mapping[str, Place]
    ledgers: Mapping[str, int] = field(default_factory=dict, compare=False)
    bytes_per: Mapping[str, int] = field(default_factory=dict, compare=False)

    def as_json(self) -> dict[str, Any]:
        """The offsets as Spark stores them; the inverse of `from_json`."""
        places = {t: place if isinstance(place, int) else str(place) for t, place in sorted(self.by_topic.items())}
        facts = {_LEDGERS: dict(sorted(self.ledgers.items())), _BYTES: dict(sorted(self.bytes_per.items()))}
        version = VERSION if self.bytes_per else 1
        return {"v": version, **places, **{name: known for name, known in facts.items() if known}}

    @staticmethod
    def from_json(stored: Any) -> Offsets:
        """Raises ValueError for damaged offsets, and those of a later version or of another source."""
        version = stored.get("v") if isinstance(stored, dict) else None
        if not _is_number(version):
            raise ValueError(_not_ours(stored))
        if version not in _VERSIONS:
            raise ValueError(f"offsets of version {version}; this program reads up to version {VERSION}")
        try:
            places = {t: _stored_place(p) for t, p in stored.items() if t not in _NO_TOPICS}
            ledgers = _numbers(stored.get(_LEDGERS, {}), least=_NO_LEDGER)
            return Offsets(places, ledgers, _numbers(stored.get(_BYTES, {}), least=0))
        except ValueError as error:
            raise ValueError(_not_ours(stored)) from error


def _not_ours(stored: Any) -> str:
    return (
        f"the checkpoint has no offsets of this source, but {json.dumps(stored, default=str)[:200]}: it is damaged, or "
        "of another source; begin with a new checkpoint, and with startingOffsets at the last place of the former query"
    )


def _is_number(value: object, least: int = 0) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _stored_place(value: Any) -> Place:
    """Raises ValueError."""
    if isinstance(value, str):
        return Position.parse(value)
    if not _is_number(value):
        raise ValueError(f"{value!r} is no place")
    return int(value)


def _numbers(value: Any, *, least: int) -> dict[str, int]:
    """Raises ValueError."""
    if not isinstance(value, dict) or not all(_is_number(each, least) for each in value.values()):
        raise ValueError(f"{value!r} has no number for each topic")
    return value


@dataclass(frozen=True, slots=True)
class WantedOffsets:
    """Where to begin or end: a place for each named topic, and a default place for all other topics.

    The name of a partitioned topic applies to all its partitions. Partition 0 may be a topic without partitions, as in
    the columns of Spark's Kafka source.

    option: name of the option that gave these places.
    """

    default: Wanted
    by_topic: Mapping[str, Wanted]
    option: str = field(default="", compare=False)

    def of(self, topic: str) -> Wanted:
        """The place wanted of a topic or partition, by its full name."""
        return next((self.by_topic[name] for name in _names(topic) if name in self.by_topic), self.default)

    def names_outside(self, topics: Iterable[str]) -> list[str]:
        """The names that are neither one of these topics and partitions nor the partitioned topic of one."""
        return sorted(self.by_topic.keys() - {name for topic in topics for name in _names(topic)})


def _names(topic: str) -> tuple[str, str]:
    """The names of a topic or partition in options."""
    name = TopicName.parse(topic)
    return topic, str(name.base if name.is_partition else name.partition_name(0))


def parse_wanted(option: str, text: str, default: Wanted) -> WantedOffsets:
    """The value of startingOffsets or endingOffsets; `default` is for topics that JSON does not name.

    ``earliest``, ``latest``, a time in ISO 8601, or JSON: topic -> one of

    * an index (integer; -2 is earliest, -1 latest), ``"earliest"``, ``"latest"``, a time in ISO 8601,
      ``"ledger:entry"`` or ``"ledger:entry:batchIndex"``;
    * the bytes of a serialized message id, as an array of numbers (pulsar-spark's form);
    * partition -> index, where -2 is earliest and -1 latest (the form of Spark's Kafka source).

    Raises OptionError.
    """
    plain = text.strip()
    if plain.lower() in {EARLIEST, LATEST}:
        return WantedOffsets(plain.lower(), {}, option)
    try:
        return WantedOffsets(TimePlace(ms_of_iso(plain)), {}, option)
    except ValueError:
        pass
    found: dict[str, Wanted] = {}
    given = _object(option, plain, "earliest, latest, a time in ISO 8601 or a JSON object")
    for name, value in given.items():
        if "v" in given and name in _NO_TOPICS:
            continue  # offsets as a checkpoint has them
        for topic, place in _by_partition(option, name, value):
            found[topic] = _wanted(option, place)
    return WantedOffsets(default, found, option)


def parse_wanted_times(option: str, text: str, default: Wanted) -> WantedOffsets:
    """The value of startingOffsetsByTimestamp or endingOffsetsByTimestamp: JSON, topic -> ms since 1970, or topic ->
    partition -> ms (the form of Spark's Kafka source). Raises OptionError.
    """
    found: dict[str, Wanted] = {}
    for name, value in _object(option, text, "a JSON object").items():
        for topic, time_ms in _by_partition(option, name, value):
            if isinstance(time_ms, bool) or not isinstance(time_ms, int):
                raise OptionError(f"option {option}: {name}: ms since 1970 are expected, not {time_ms!r}")
            found[topic] = TimePlace(time_ms)
    return WantedOffsets(default, found, option)


def ms_of_iso(text: str) -> int:
    """A time in ISO 8601, UTC without a time zone, as ms since 1970. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _object(option: str, text: str, expected: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {option} is {expected}, not {text!r}") from error
    if not isinstance(given, dict):
        raise OptionError(f"option {option}: a JSON object of topics is expected, not {text!r}")
    return given


def _by_partition(option: str, name: str, value: Any) -> list[tuple[str, Any]]:
    try:
        topic = TopicName.parse(name)
        if not isinstance(value, dict):
            return [(str(topic), value)]
        named = {int(n): place for n, place in value.items()}
    except InvalidTopicNameError as error:
        raise OptionError(f"option {option}: {error}") from error
    except (ValueError, TypeError) as error:
        raise OptionError(f"option {option}: {name}: partition -> index is expected, not {value!r}") from error
    return [(str(topic.partition_name(n)), place) for n, place in named.items()]


def _wanted(option: str, value: Any) -> Wanted:
    if isinstance(value, bool):
        raise OptionError(f"option {option}: {value!r} is no place in a topic")
    if isinstance(value, int) and (value >= 0 or value in _KAFKA_ENDS):
        return _KAFKA_ENDS.get(value, value)
    try:
        if isinstance(value, str):
            return _place_of_text(value)
        if isinstance(value, list):
            return message_place(bytes(byte & 0xFF for byte in value))
    except (ValueError, TypeError) as error:
        raise OptionError(f"option {option}: {value!r} is no message id: {error}") from error
    raise OptionError(f"option {option}: {value!r} is no place in a topic")


def _place_of_text(text: str) -> Wanted:
    if text.lower() in {EARLIEST, LATEST}:
        return text.lower()
    is_time = "-" in text[1:] and not _MESSAGE_ID.fullmatch(text)
    return TimePlace(ms_of_iso(text)) if is_time else _message_of_text(text)


def _message_of_text(text: str) -> MessagePlace:
    position, _, batch = text.partition(":")[2].partition(":")
    return MessagePlace(Position.parse(f"{text.partition(':')[0]}:{position}"), int(batch) if batch else -1)


def message_place(serialized: bytes) -> Wanted:
    """The place of a message id as the official clients serialize it. Raises ValueError."""
    try:
        found = pb.MessageIdData.FromString(serialized)
    except DecodeError as error:
        raise ValueError("not a serialized MessageIdData") from error
    ledger, entry = signed(found.ledgerId), signed(found.entryId)
    if ledger < 0:
        return EARLIEST
    if ledger == (1 << 63) - 1:
        return LATEST
    return MessagePlace(Position(ledger, entry), found.batch_index)
