"""The subject of a path below /ws/v2, and the right that each kind of session needs.

/ws/v2/producer/{domain}/{tenant}/{namespace}/{topic}
/ws/v2/reader/{domain}/{tenant}/{namespace}/{topic}
/ws/v2/consumer/{domain}/{tenant}/{namespace}/{topic}/{subscription}

The statuses of paths that name nothing are those of Apache Pulsar 4.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from magnetar.broker.auth.table import TOPIC_CONSUME, TOPIC_PRODUCE
from magnetar.broker.websocket.errors import ParameterError, SessionRefusedError
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.auth.table import Need

PREFIX: Final = "/ws/v2/"
NEEDS: Final[dict[str, Need]] = {"producer": TOPIC_PRODUCE, "consumer": TOPIC_CONSUME, "reader": TOPIC_CONSUME}
"""THE table of sessions: the right that opens one."""
_DOMAINS: Final = ("persistent", "non-persistent")
_PARTS_BEFORE_TOPIC: Final = 4
_PARTS_OF_CONSUMER: Final = 6


class SessionPath(NamedTuple):
    """A session: its kind, its topic and, of a consumer, its subscription."""

    kind: str
    topic: TopicName
    subscription: str = ""


def parse_path(path: str) -> SessionPath:
    """The session that a raw path (still percent-encoded, no query) names. Raises SessionRefusedError."""
    kind, *parts = path.removeprefix(PREFIX).split("/")
    if not path.startswith(PREFIX) or kind not in NEEDS:
        raise SessionRefusedError(404, "no such path")
    if len(parts) < _PARTS_BEFORE_TOPIC or parts[0] not in _DOMAINS:
        raise SessionRefusedError(500, "Invalid topic name format")
    subscription = ""
    if kind == "consumer":
        if len(parts) + 1 != _PARTS_OF_CONSUMER:
            raise ParameterError("Invalid topic name format")
        subscription = unquote(parts.pop())
        if not subscription:
            raise ParameterError("Empty subscription name")
    topic = "/".join(part for part in parts[3:] if part)
    try:
        name = TopicName.parse(f"{parts[0]}://{unquote(parts[1])}/{unquote(parts[2])}/{unquote(topic)}")
    except InvalidTopicNameError as e:
        raise SessionRefusedError(500, str(e)) from e
    return SessionPath(kind, name, subscription)
