"""The admin REST API and HTTP lookup as operators, pulsar-admin and client test suites use them: the basics."""

import json

from transcript import scenario

RECORD = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
RECORD_2 = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "string"], "default": None}],
    }
)


def rest(topic):
    return "/admin/v2/" + topic.replace("://", "/")


def namespace(s, name="ns", policies=None):
    """A new namespace; its REST path."""
    path = "/admin/v2/namespaces/" + s.namespace(name)
    s.http("PUT", path, policies or {}, quietly=True)
    return path


def topic_in(s, ns, name="t"):
    """A new plain topic in the namespace of that REST path; its name and its own REST path."""
    topic = "persistent://" + ns.removeprefix("/admin/v2/namespaces/") + "/" + name
    s.http("PUT", rest(topic), quietly=True)
    s.lookup(topic)
    return topic, rest(topic)


def filled(s, n=5, name="t", **metadata):
    """A topic with n messages m0..; its name, REST path, connection (producer 1) and message ids."""
    topic = s.topic(name)
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    ids = c.publish_all(1, [b"m%d" % i for i in range(n)], **metadata)
    return topic, rest(topic), c, ids


def backlog(s, path):
    subscriptions = s.http("GET", path + "/stats", quietly=True)[1]["subscriptions"]
    return {k: v["msgBacklog"] for k, v in subscriptions.items()}


@scenario
def admin_tenant_from_creation_to_deletion(s):
    path = "/admin/v2/tenants/" + s.tag
    info = {"adminRoles": ["a"], "allowedClusters": ["standalone"]}
    s.call("GET", path)
    s.call("PUT", path, info)
    s.call("PUT", path, info)
    s.call("GET", path, keep=True)
    s.call("POST", path, info | {"adminRoles": ["b", "c"]})
    s.call("GET", path, keep=lambda t: sorted(t["adminRoles"]))
    s.call("GET", "/admin/v2/tenants", keep=lambda names: s.tag in names)
    s.call("DELETE", path)
    s.call("GET", path)


@scenario
def admin_namespace_from_creation_to_deletion(s):
    tenant = "/admin/v2/namespaces/" + s.tag
    s.http("PUT", "/admin/v2/tenants/" + s.tag, {"allowedClusters": ["standalone"]}, quietly=True)
    s.call("GET", tenant, keep=True)
    s.call("PUT", tenant + "/b")
    s.call("PUT", tenant + "/a", {})
    s.call("PUT", tenant + "/a", {})
    s.call("GET", tenant, keep=sorted)
    s.call("GET", tenant + "/a", keep=["replication_clusters", "bundles"])
    s.call("GET", f"/admin/v2/persistent/{s.tag}/a", keep=True)
    s.call("DELETE", tenant + "/a")
    s.call("GET", tenant + "/a")
    s.call("GET", tenant, keep=sorted)
    s.http("DELETE", f"/admin/v2/tenants/{s.tag}?force=true", quietly=True)


@scenario
def admin_policies_of_a_new_namespace(s):
    """The policies object that every tool starts from: unset policies are absent, empty or -1."""
    s.call(
        "GET",
        namespace(s),
        keep=[
            "auth_policies",
            "replication_clusters",
            "bundles",
            "backlog_quota_map",
            "topicDispatchRate",
            "subscriptionDispatchRate",
            "clusterSubscribeRate",
            "publishMaxMessageRate",
            "deleted",
            "encryption_required",
            "subscription_auth_mode",
            "offload_threshold",
            "schema_compatibility_strategy",
            "is_allow_auto_update_schema",
            "schema_validation_enforced",
            "retention_policies",
            "persistence",
            "message_ttl_in_seconds",
            "deduplicationEnabled",
            "autoTopicCreationOverride",
            "delayed_delivery_policies",
            "max_producers_per_topic",
            "compaction_threshold",
            "inactive_topic_policies",
            "properties",
        ],
    )


@scenario
def admin_namespace_retention_and_ttl(s):
    ns = namespace(s)
    s.call("GET", ns + "/retention", keep=True)
    s.call("POST", ns + "/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5})
    s.call("GET", ns + "/retention", keep=True)
    s.call("GET", ns, keep=["retention_policies"])
    s.call("DELETE", ns + "/retention")
    s.call("GET", ns + "/retention", keep=True)
    s.call("GET", ns + "/messageTTL", keep=True)
    s.call("POST", ns + "/messageTTL", 60)
    s.call("GET", ns + "/messageTTL", keep=True)
    s.call("GET", ns, keep=["message_ttl_in_seconds"])
    s.call("POST", ns + "/messageTTL", -1)
    s.call("DELETE", ns + "/messageTTL")
    s.call("GET", ns + "/messageTTL", keep=True)


@scenario
def admin_namespace_backlog_quota(s):
    ns = namespace(s)
    s.call("GET", ns + "/backlogQuotaMap", keep=True)
    s.call("POST", ns + "/backlogQuota", {"limitSize": 1000, "policy": "producer_exception"})
    s.call(
        "POST",
        ns + "/backlogQuota?backlogQuotaType=message_age",
        {"limitSize": -1, "limitTime": 100, "policy": "consumer_backlog_eviction"},
    )
    s.call("GET", ns + "/backlogQuotaMap", keep=True)
    s.call("POST", ns + "/backlogQuota", {"limitSize": 1000})
    s.call("DELETE", ns + "/backlogQuota?backlogQuotaType=message_age")
    s.call("GET", ns + "/backlogQuotaMap", keep=True)
    s.call("DELETE", ns + "/backlogQuota")
    s.call("GET", ns + "/backlogQuotaMap", keep=True)


@scenario
def admin_topic_create_list_delete(s):
    ns = namespace(s).removeprefix("/admin/v2/namespaces/")
    path = "/admin/v2/persistent/" + ns
    s.call("GET", path, keep=True)
    s.call("PUT", path + "/b")
    s.call("PUT", path + "/a")
    s.call("PUT", path + "/a")
    s.call("GET", path, keep=sorted)
    s.call("GET", path + "/a/partitions", keep=["partitions"])
    s.call("GET", path + "/unknown/partitions")
    s.call("GET", path + "/a/subscriptions", keep=True)
    s.call("DELETE", path + "/a")
    s.call("DELETE", path + "/a")
    s.call("GET", path, keep=sorted)


@scenario
def admin_partitioned_topic_create_grow_delete(s):
    ns = namespace(s).removeprefix("/admin/v2/namespaces/")
    path = "/admin/v2/persistent/" + ns
    s.call("PUT", path + "/p/partitions", 2)
    s.call("PUT", path + "/p/partitions", 2)
    s.call("GET", path + "/partitioned", keep=True)
    s.call("GET", path, keep=sorted)
    s.call("GET", path + "/p/partitions", keep=["partitions"])
    s.call("POST", path + "/p/partitions", 3)
    s.call("GET", path + "/p/partitions", keep=["partitions"])
    s.call("POST", path + "/p/partitions", 2)
    s.call("GET", path, keep=sorted)
    s.call("DELETE", path + "/p/partitions")
    s.call("GET", path + "/p/partitions")
    s.call("GET", path, keep=sorted)


@scenario
def admin_delete_of_a_topic_in_use_needs_force(s):
    topic = s.topic()
    path = rest(topic)
    c = s.connect()
    c.subscribe(topic, quietly=True)
    s.call("DELETE", path)
    s.call("DELETE", path + "?force=true")
    c.recv()
    s.call("GET", path + "/stats")


@scenario
def admin_subscription_created_at_each_position(s):
    """A message id selects the first message."""
    topic, path, c, ids = filled(s)
    s.call("PUT", path + "/subscription/first", "earliest")
    s.call("PUT", path + "/subscription/last", "latest")
    s.call("PUT", path + "/subscription/absent")
    s.call("PUT", path + "/subscription/third", ids[2])
    s.call("PUT", path + "/subscription/first", "latest")
    s.call("GET", path + "/subscriptions", keep=sorted)
    s.note("backlog", backlog(s, path))
    s.call("DELETE", path + "/subscription/first")
    s.call("DELETE", path + "/subscription/first")
    s.call("GET", path + "/subscriptions", keep=sorted)


@scenario
def admin_skip_messages_and_reset_the_cursor(s):
    topic, path, c, ids = filled(s)
    sub = path + "/subscription/sub"
    s.http("PUT", sub, "earliest", quietly=True)
    for step, body in (
        ("/skip/2", None),
        ("/resetcursor", ids[1]),
        ("/skip_all", None),
        ("/resetcursor/1", None),
        ("/skip/100", None),
    ):
        s.call("POST", sub + step, body)
        s.note("backlog", backlog(s, path))


@scenario
def admin_peek_a_message(s):
    topic, path, c, ids = filled(
        s, properties=[{"key": "k", "value": "v"}], partition_key="key", event_time=1_700_000_000_001
    )
    sub = path + "/subscription/sub"
    s.http("PUT", sub, "earliest", quietly=True)
    s.call(
        "GET",
        sub + "/position/2",
        keep=True,
        show=[
            "X-Pulsar-publish-time",
            "X-Pulsar-event-time",
            "X-Pulsar-producer-name",
            "X-Pulsar-sequence-id",
            "X-Pulsar-partition-key",
            "X-Pulsar-PROPERTY",
        ],
    )
    s.note("id", s.http_headers["X-Pulsar-Message-ID"] == "{ledgerId}:{entryId}".format(**ids[1]))
    s.call("GET", sub + "/position/6")
    s.note("backlog", backlog(s, path))


@scenario
def admin_stats_of_a_topic_in_use(s):
    topic, path, c, ids = filled(s)
    s.http("PUT", path + "/subscription/sub", "earliest", quietly=True)
    c.subscribe(topic, "sub", 1, permits=3, quietly=True, subType="Shared", consumer_name="me")
    for _ in range(3):
        c.recv_quietly()
    c.ask("ACK", quietly=True, consumer_id=1, ack_type="Individual", message_id=[ids[0]])
    stats = s.http("GET", path + "/stats", quietly=True)[1]
    sub = stats["subscriptions"]["sub"]
    consumer, publisher = sub["consumers"][0], stats["publishers"][0]
    s.note(
        "topic", {k: stats[k] for k in ("msgInCounter", "msgOutCounter", "waitingPublishers", "deduplicationStatus")}
    )
    s.note("publisher", {k: publisher[k] for k in ("producerName", "producerId", "accessMode", "clientVersion")})
    s.note(
        "subscription",
        {
            k: sub[k]
            for k in (
                "msgBacklog",
                "unackedMessages",
                "type",
                "msgOutCounter",
                "blockedSubscriptionOnUnackedMsgs",
                "isDurable",
                "isReplicated",
                "subscriptionProperties",
            )
        },
    )
    s.note(
        "consumer",
        {
            k: consumer[k]
            for k in ("availablePermits", "unackedMessages", "msgOutCounter", "blockedConsumerOnUnackedMsgs")
        }
        | {"name": consumer["consumerName"]},
    )


@scenario
def admin_topic_policy_and_what_applies(s):
    """A topic policy covers that of the namespace; `applied` looks through to the namespace and the broker."""
    ns = namespace(s)
    topic, path = topic_in(s, ns)
    s.call("GET", path + "/retention", keep=True)
    s.call("GET", path + "/retention?applied=true", keep=True)
    s.call("POST", ns + "/retention", {"retentionTimeInMinutes": 1, "retentionSizeInMB": 2})
    s.call("GET", path + "/retention", keep=True)
    s.call("GET", path + "/retention?applied=true", keep=True)
    s.call("POST", path + "/retention", {"retentionTimeInMinutes": 3, "retentionSizeInMB": 4})
    s.call("GET", path + "/retention", keep=True)
    s.call("GET", path + "/retention?applied=true", keep=True)
    s.call("DELETE", path + "/retention")
    s.call("GET", path + "/retention", keep=True)
    s.call("GET", path + "/retention?applied=true", keep=True)


@scenario
def admin_schema_versions(s):
    ns = namespace(s)
    topic_in(s, ns)
    path = ns.replace("/namespaces/", "/schemas/") + "/t"
    s.call("GET", path + "/schema")
    for text in (RECORD, RECORD, RECORD_2):
        s.call("POST", path + "/schema", {"type": "AVRO", "schema": text, "properties": {"k": "v"}}, keep=True)
    s.call("GET", path + "/schema", keep=["version", "type", "data", "properties"])
    s.call("GET", path + "/schema/0", keep=["version", "type", "data", "properties"])
    s.call("GET", path + "/schemas", keep=lambda r: [x["version"] for x in r["getSchemaResponses"]])
    s.call("GET", path + "/schema/7")


@scenario
def admin_terminate_a_topic(s):
    topic, path, c, ids = filled(s, 3)
    s.call("POST", path + "/terminate", keep=["ledgerId", "entryId"])
    s.note("last message", ids[-1])
    c.recv()
    c.producer(topic, 2, producer_name="late")
    c.subscribe(topic, "sub", 1, initialPosition="Earliest", permits=10)
    c.recv_sorted(3)
    s.call("POST", path + "/terminate", keep=["ledgerId", "entryId"])


@scenario
def admin_unload_closes_the_clients(s):
    topic, path, c, ids = filled(s, 3)
    c.subscribe(topic, "sub", 1, quietly=True)
    s.call("PUT", path + "/unload")
    c.recv_sorted(2)
    s.lookup(topic)
    c.producer(topic, 2, producer_name="p")


@scenario
def admin_cluster_and_broker_facts(s):
    port = ":" + s.http_base.rpartition(":")[2]
    s.call("GET", "/admin/v2/clusters", keep=lambda names: "standalone" in names)
    s.call(
        "GET",
        "/admin/v2/clusters/standalone",
        keep=lambda c: [c["serviceUrl"].startswith("http://"), c["brokerServiceUrl"].startswith("pulsar://")],
    )
    s.call("GET", "/admin/v2/clusters/unknown")
    s.call("GET", "/admin/v2/brokers/standalone", keep=lambda brokers: [b.endswith(port) for b in brokers])
    s.call(
        "GET",
        "/admin/v2/brokers/leaderBroker",
        keep=lambda leader: leader["serviceUrl"].startswith("http://") and leader["serviceUrl"].endswith(port),
    )
    s.call("GET", "/admin/v2/brokers/health", keep=True)
    s.call("GET", "/admin/v2/brokers/ready", keep=True)


@scenario
def admin_lookup_over_http(s):
    ns = namespace(s).removeprefix("/admin/v2/namespaces/")
    s.call(
        "GET",
        f"/lookup/v2/topic/persistent/{ns}/t",
        keep=lambda x: {
            k: [x[k].partition("://")[0], x[k].endswith(port)]
            for k, port in (
                ("brokerUrl", f":{s.port}"),
                ("nativeUrl", f":{s.port}"),
                ("httpUrl", ":" + s.http_base.rpartition(":")[2]),
            )
        },
    )
    s.call("GET", f"/lookup/v2/topic/persistent/{ns}/t/bundle", keep=lambda text: len(text) == 21 and text[10] == "_")
    s.call("GET", "/lookup/v2/topic/persistent/public/unknown-namespace/t")
