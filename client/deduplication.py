"""Whether a topic deduplicates: read from, and on request changed through, the admin REST API."""

from __future__ import annotations

import time
import urllib.error
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from magnetar.client.errors import DeduplicationError, DeduplicationRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from magnetar.client.admin import AdminApi
    from magnetar.protocol.topic_name import TopicName

_WAIT_S = 15.0
_POLL_S = 0.2
_REFUSED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_MAX_REASON = 300
_ENABLED = "Enabled"
_ON_THE_WAY = {"Initialized", "Recovering"}


class Remedies(NamedTuple):
    """Texts for error messages: how the user switches deduplication on, names the admin address, or skips the check."""

    enable: str
    admin_url: str
    assume: str


COMMAND_LINE = Remedies("--enable-deduplication", "--admin-url", "--assume-deduplication")


def topic_path(topic: TopicName) -> str:
    """Return the path of the topic in the tree of the admin API."""
    return f"/admin/v2/persistent/{topic.namespace}/{quote(topic.local_name, safe='')}"


def ensure_not_created_in_vain(admin: AdminApi, topic: TopicName, *, enable: bool) -> bool:
    """Whether the topic exists. Blocks: call it in a thread, before a producer creates the topic.

    Args:    enable: deduplication will be switched on for the topic once it exists.
    Raises:  DeduplicationError when it does not exist and would not deduplicate, or when that cannot be determined.
    """
    try:
        try:
            admin.call("GET", f"{topic_path(topic)}/stats")
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
        else:
            return True
        if enable or _is_on_for_new_topics(admin, topic):
            return False
    except (OSError, ValueError) as error:
        raise _unknown(admin, topic, error, COMMAND_LINE) from error
    raise DeduplicationError(_OFF.format(topic=topic, enable=COMMAND_LINE.enable))


def _is_on_for_new_topics(admin: AdminApi, topic: TopicName) -> bool:
    """Whether the namespace's policy, else the broker's setting, switches deduplication on. True for an absent
    namespace, which the lookup refuses later.
    """
    try:
        policy = admin.call("GET", f"/admin/v2/namespaces/{topic.namespace}/deduplication")
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        return True
    if policy is not None:
        return bool(policy)
    settings = admin.call("GET", "/admin/v2/brokers/configuration/runtime")
    return str(settings.get("brokerDeduplicationEnabled")).lower() == "true"


def ensure_deduplication(
    admin: AdminApi,
    topic: TopicName,
    *,
    enable: bool,
    say: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
    remedies: Remedies = COMMAND_LINE,
) -> None:
    """Return when the topic deduplicates. Blocks: call it in a thread.

    Args:    enable: switch it on for this topic when it is off.
    Raises:  DeduplicationError when it is off and stays off, or the admin API does not answer.
    """
    base = topic_path(topic)
    try:
        if _settled(admin, base, pause) == _ENABLED:
            return
        if not enable:
            raise DeduplicationError(_OFF.format(topic=topic, enable=remedies.enable))
        _switch_on(admin, topic, remedies)
        say(f"deduplication is now on for {topic.base} (policy of the topic)")
        for _ in range(int(_WAIT_S / _POLL_S)):
            if _settled(admin, base, pause) == _ENABLED:
                return
            pause(_POLL_S)
    except (OSError, ValueError) as error:
        raise _unknown(admin, topic, error, remedies) from error
    raise DeduplicationError(f"deduplication of {topic} was switched on, but is not in effect after {_WAIT_S:.0f} s")


def _switch_on(admin: AdminApi, topic: TopicName, remedies: Remedies) -> None:
    """Set the policy of the whole topic. Raises: DeduplicationRefusedError, OSError, ValueError."""
    try:
        admin.call("POST", f"{topic_path(topic.base)}/deduplicationEnabled", b"true")
    except urllib.error.HTTPError as error:
        if error.code not in _REFUSED:
            raise
        raise DeduplicationRefusedError(
            _MAY_NOT_SWITCH.format(url=admin.url, topic=topic.base, reason=_reason(error), remedies=remedies)
        ) from error


def _unknown(admin: AdminApi, topic: TopicName, error: Exception, remedies: Remedies) -> DeduplicationError:
    if isinstance(error, urllib.error.HTTPError) and error.code in _REFUSED:
        reason = _reason(error)
        return DeduplicationRefusedError(
            _MAY_NOT_READ.format(url=admin.url, topic=topic, reason=reason, remedies=remedies)
        )
    return DeduplicationError(_UNKNOWN.format(url=admin.url, error=error, topic=topic, remedies=remedies))


def _reason(error: urllib.error.HTTPError) -> str:
    text = error.read()[:_MAX_REASON].decode("utf-8", "replace").strip()
    return f"{error.code}: {text}" if text else str(error.code)


def _settled(admin: AdminApi, base: str, pause: Callable[[float], None]) -> str:
    """Return the deduplication status from the topic's statistics, once the recovery of deduplication has ended or
    _WAIT_S have passed.
    """
    status = ""
    for _ in range(int(_WAIT_S / _POLL_S)):
        status = str(admin.call("GET", f"{base}/stats").get("deduplicationStatus", ""))
        if status not in _ON_THE_WAY:
            break
        pause(_POLL_S)
    return status


_OFF = (
    "deduplication is off for {topic}: a run that is interrupted and repeated would store messages twice. Switch it on "
    "with {enable} (for this topic only), or for the namespace with "
    "`pulsar-admin namespaces set-deduplication NAMESPACE --enable`. Nothing has been stored"
)
_UNKNOWN = (
    "{url} does not tell whether {topic} deduplicates ({error}): give the admin address with {remedies.admin_url}, or "
    "use {remedies.assume} when you know that it is on. Nothing has been stored"
)
_MAY_NOT_READ = (
    "{url} refuses to tell whether {topic} deduplicates ({reason}): check the token or the rights of its role, or use "
    "{remedies.assume} when you know that it is on. Nothing has been stored"
)
_MAY_NOT_SWITCH = (
    "deduplication is off for {topic}, and {url} refuses to switch it on ({reason}): only an administrator of the "
    "tenant may do that. Let one switch it on, and leave {remedies.enable} out. Nothing has been stored"
)
