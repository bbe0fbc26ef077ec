"""Lookups over HTTP of topics that do not exist, where topics are created automatically and where they are not."""

from harness.steps import namespace
from transcript import scenario

SYSTEM = (
    "__change_events",
    "__transaction_buffer_snapshot",
    "__transaction_buffer_snapshot_segments",
    "__transaction_buffer_snapshot_indexes",
    "__transaction_pending_ack",
    "t__transaction_pending_ack",
    "transaction_coordinator_assign",
    "__transaction_log_0",
    "__service_unit_state",
    "__other",
)


def looked_up(s, ns, *names, domain="persistent"):
    for name in names:
        for _ in range(2):
            s.call("GET", f"/lookup/v2/topic/{domain}/{ns}/{name}")


@scenario
def lookups_where_no_topic_may_be_created(s):
    ns = namespace(s)
    for path, body in (("plain", None), ("parts/partitions", 2), ("empty-partition-0", None), ("late/partitions", 2)):
        s.call("PUT", f"/admin/v2/persistent/{ns}/{path}", body)
    s.call("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", {"allowAutoTopicCreation": False})
    looked_up(s, ns, "plain", "parts", "parts-partition-1", "parts-partition-2", "empty", "empty-partition-0", "none")
    looked_up(s, ns, "none-partition-0", "plain-partition-0", "none-partition-01", "parts-partition-00")
    looked_up(s, ns, "none", "none-partition-0", domain="non-persistent")
    s.call("DELETE", f"/admin/v2/persistent/{ns}/plain")
    looked_up(s, ns, "plain")
    s.call(
        "POST",
        f"/admin/v2/namespaces/{ns}/autoTopicCreation",
        {"allowAutoTopicCreation": True, "topicType": "non-partitioned"},
    )
    looked_up(s, ns, "plain", "none-partition-0", "empty-partition-7")


@scenario
def lookups_of_system_topics_where_no_topic_may_be_created(s):
    ns = namespace(s)
    s.call("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", {"allowAutoTopicCreation": False})
    looked_up(s, ns, *SYSTEM)
    c = s.connect()
    for number, name in enumerate(SYSTEM[5:]):
        topic = f"persistent://{ns}/{name}"
        s.lookup(topic)
        c.ask("PARTITIONED_METADATA", topic=topic)
        c.producer(topic, number, producer_name="p")


@scenario
def system_topics_where_no_topic_may_be_created(s):
    ns = namespace(s)
    s.call("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", {"allowAutoTopicCreation": False})
    for name in SYSTEM[1:5]:
        topic = f"persistent://{ns}/{name}"
        c = s.connect(name)
        s.lookup(topic)
        for create in (False, True):
            c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=create)
        c.producer(topic, 1, producer_name="p")
        c.subscribe(topic, "s", 1)
