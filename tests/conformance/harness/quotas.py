"""Backlog quotas of topics and namespaces, for scenarios about them."""

from harness.runner import scenario
from harness.steps import namespace, rest, stats

HOLD, REFUSE, EVICT = "producer_request_hold", "producer_exception", "consumer_backlog_eviction"
WITHOUT = ("earliestMsgPublishTimeInBacklog", "earliestMsgPublishTimeInBacklogs")
"""Figures that depend on the moment of the look."""
CHECK_SECONDS = 2.5
"""More than the interval of the checks in default.conf."""


def limit(s, place, policy, size=None, seconds=None):
    """Set a quota of a topic or a namespace."""
    kind, body = (
        ("message_age", {"limitTime": seconds}) if size is None else ("destination_storage", {"limitSize": size})
    )
    base = rest(place) if "://" in place else f"/admin/v2/namespaces/{place}"
    s.http("POST", f"{base}/backlogQuota?backlogQuotaType={kind}", body | {"policy": policy}, quietly=True)


def tried(c, topic, name="q", **fields):
    """A producer that asks, and closes again when it may produce."""
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=7)
    frame = c.producer(topic, 7, producer_name=name, **fields)
    if frame and frame.type == "PRODUCER_SUCCESS":
        c.ask("CLOSE_PRODUCER", quietly=True, producer_id=7)


def by_refusal(function):
    for policy in (HOLD, REFUSE):

        def run(s, policy=policy):
            function(s, policy)

        run.__name__ = f"{function.__name__}_{policy}"
        scenario(run)
    return function


def plain_topic(s):
    """A topic in a namespace of its own, for a quota that comes later."""
    return s.topic(namespace=namespace(s))


def limit_namespace(s, topic, policy, size):
    """Set a quota by size of the topic's namespace, in force on return: no check may meet a backlog that grows."""
    limit(s, topic.split("://")[1].rpartition("/")[0], policy, size)
    s.until(lambda: stats(s, topic)["backlogQuotaLimitSize"] == size)
