"""The path of a session with several topics, /ws/v3/consumer/{subscription}, and the topics of its query.

    topics=A,B          names, separated by commas; short names are topics of public/default
    topicsPattern=P     a regular expression for the names of one namespace's persistent topics

Order and statuses of refusals are those of Apache Pulsar 4.2. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from magnetar.broker.websocket.errors import ParameterError, SessionRefusedError
from magnetar.broker.websocket.session import SessionPath
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MOST_TOPICS", "TOPICS_PATH", "parse_topics_path"]

TOPICS_PATH: Final = "/ws/v3/consumer"
MOST_TOPICS: Final = 1000
"""Limit of the topics that a query names."""


def parse_topics_path(path: str, query: Mapping[str, str]) -> SessionPath:
    """Parse a raw path (still percent-encoded) and its decoded query. Raises SessionRefusedError.

    `topic` of the result is the first named topic, or the pattern as if the pattern were a name: with its namespace.
    """
    rest = path.removeprefix(TOPICS_PATH)
    if not path.startswith(TOPICS_PATH) or rest[:1] not in ("", "/"):
        raise SessionRefusedError(404, "no such path")
    names, pattern = query.get("topics"), query.get("topicsPattern")
    if names is None and pattern is None:
        raise SessionRefusedError(500, "Should set topics or topicsPattern")
    if names is not None and pattern is not None:
        raise SessionRefusedError(500, "Topics must be null when use topicsPattern")
    subscription = unquote(rest.removeprefix("/").partition("/")[0])
    if names is None:
        return SessionPath("topics", _topic(pattern or ""), subscription, pattern=pattern or "")
    parts = names.split(",", MOST_TOPICS)
    if len(parts) > MOST_TOPICS:
        raise ParameterError(f"topics has more than {MOST_TOPICS} names")
    first, *others = parts[0], *(name.strip() for name in parts[1:])  # spaces are allowed behind a comma alone
    topic = _topic(first)
    if "" in others:
        raise ParameterError("topicNames cannot have blank topic")
    # A name that comes twice is one topic.
    return SessionPath("topics", topic, subscription, tuple(dict.fromkeys([topic, *map(_topic, others)])))


def _topic(text: str) -> TopicName:
    try:
        return TopicName.parse(text if text.strip() else "")
    except InvalidTopicNameError as e:
        raise SessionRefusedError(500, str(e)) from e
