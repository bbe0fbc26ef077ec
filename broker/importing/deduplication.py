"""Whether the topic deduplicates, asked of (and, when allowed, changed through) the admin REST API."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from magnetar.broker.importing.errors import DeduplicationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.client.admin import AdminApi
    from magnetar.protocol.topic_name import TopicName

_WAIT_S = 15.0
_POLL_S = 0.2
_ENABLED = "Enabled"
_ON_THE_WAY = {"Initialized", "Recovering"}


def ensure_deduplication(
    admin: AdminApi,
    topic: TopicName,
    *,
    enable: bool,
    say: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Return when the topic deduplicates. Blocks: call it in a thread.

    Args:    enable: switch it on for this topic when it is off.
    Raises:  DeduplicationError when it is off and stays off, or nobody can be asked.
    """
    base, whole = _path(topic), _path(topic.base)
    try:
        if _settled(admin, base, pause) == _ENABLED:
            return
        if not enable:
            raise DeduplicationError(_OFF.format(topic=topic))
        admin.call("POST", f"{whole}/deduplicationEnabled", b"true")
        say(f"deduplication is now on for {topic.base} (policy of the topic)")
        for _ in range(int(_WAIT_S / _POLL_S)):
            if _settled(admin, base, pause) == _ENABLED:
                return
            pause(_POLL_S)
    except (OSError, ValueError) as error:
        raise DeduplicationError(_UNKNOWN.format(url=admin.url, error=error, topic=topic)) from error
    raise DeduplicationError(f"deduplication of {topic} was switched on, but is not in effect after {_WAIT_S:.0f} s")


def _path(topic: TopicName) -> str:
    return f"/admin/v2/persistent/{topic.namespace}/{quote(topic.local_name, safe='')}"


def _settled(admin: AdminApi, base: str, pause: Callable[[float], None]) -> str:
    """What the topic's stats say once it is done with recovering."""
    status = ""
    for _ in range(int(_WAIT_S / _POLL_S)):
        status = str(admin.call("GET", f"{base}/stats").get("deduplicationStatus", ""))
        if status not in _ON_THE_WAY:
            break
        pause(_POLL_S)
    return status


_OFF = (
    "deduplication is off for {topic}: a run that is interrupted and repeated would store messages twice. Switch it on "
    "with --enable-deduplication (for this topic only), or for the namespace with "
    "`pulsar-admin namespaces set-deduplication NAMESPACE --enable`. Nothing has been stored"
)
_UNKNOWN = (
    "cannot ask {url} whether {topic} deduplicates ({error}): give the admin address with --admin-url, or say "
    "--assume-deduplication when you know that it is on. Nothing has been stored"
)
