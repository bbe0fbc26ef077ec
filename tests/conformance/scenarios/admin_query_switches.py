"""Query parameters of the admin routes in every form: their effect, and the texts that count as true."""

import time

from harness.steps import backlog, namespace, published, rest
from transcript import scenario

NAMESPACES = "/admin/v2/namespaces/"
SYSTEM_NAMES = ("t", "__x", "__change_events_not", "__transaction_buffer_snapshot", "a-multiTopicsReader")
QUARTERS = {"numBundles": 4, "boundaries": ["0x00000000", "0x40000000", "0x80000000", "0xc0000000", "0xffffffff"]}
HALVES = {"numBundles": 2, "boundaries": ["0x00000000", "0x80000000", "0xffffffff"]}
FILES = {"managedLedgerOffloadDriver": "filesystem"}
QUORUMS = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
TRUTHS = ("true", "false", "", "maybe")


def in_order(body):
    return sorted(body) if isinstance(body, list | dict) else body


def without_events(body):
    """A sorted list without the topic of policies, which Apache Pulsar creates when it likes."""
    return in_order([name for name in body if not name.endswith("/__change_events")])


def system_topics(s):
    ns = namespace(s)
    for name in SYSTEM_NAMES:
        s.http("PUT", f"/admin/v2/persistent/{ns}/{name}", quietly=True)
    for name in ("p", "__y", "__transaction_log_"):
        s.http("PUT", f"/admin/v2/persistent/{ns}/{name}/partitions", 2, quietly=True)
    s.http("PUT", f"/admin/v2/non-persistent/{ns}/__n/partitions", 1, quietly=True)
    return ns


def _lists_with(text):
    def run(s):
        ns = system_topics(s)
        for path in (
            "/persistent/{}",
            "/persistent/{}/partitioned",
            "/non-persistent/{}",
            "/non-persistent/{}/partitioned",
        ):
            s.call("GET", f"/admin/v2{path.format(ns)}?includeSystemTopic={text}", keep=without_events)
        for mode in ("", "&mode=PERSISTENT", "&mode=NON_PERSISTENT", "&mode=ALL"):
            s.call("GET", f"{NAMESPACES}{ns}/topics?includeSystemTopic={text}{mode}", keep=without_events)

    run.__name__ = f"lists_with_system_topics_{text or 'empty'}"
    scenario(run)


for _text in ("true", "false", "", "1", "TRUE"):
    _lists_with(_text)


@scenario
def lists_by_properties(s):
    """The parameter `properties` selects nothing."""
    ns = namespace(s)
    for name, properties in {"a": None, "b": {"color": "red", "size": "1"}}.items():
        s.http("PUT", f"/admin/v2/persistent/{ns}/{name}", properties, quietly=True)
    s.http("PUT", f"/admin/v2/persistent/{ns}/c/partitions", 2, quietly=True)
    s.http("PUT", f"/admin/v2/persistent/{ns}/c/properties", {"color": "red"}, quietly=True)
    for query in (
        "color=red",
        "color%3Dred",
        "color=blue",
        "color",
        "",
        "color=red&properties=size=1",
        "color=red,size=1",
    ):
        s.call("GET", f"/admin/v2/persistent/{ns}?properties={query}", keep=in_order)
        s.call("GET", f"/admin/v2/non-persistent/{ns}?properties={query}", keep=in_order)
    s.call("GET", f"/admin/v2/persistent/{ns}?bundle=0x00000000_0xffffffff&properties=color=red", keep=in_order)


@scenario
def lists_of_a_bundle_in_every_form(s):
    ns = s.namespace()
    s.http("PUT", NAMESPACES + ns, {"bundles": HALVES}, quietly=True)
    for name in "abcdefgh":
        s.http("PUT", f"/admin/v2/persistent/{ns}/{name}", quietly=True)
        s.lookup(f"persistent://{ns}/{name}")
    counts = []
    for bundle in ("0x00000000_0x80000000", "0x80000000_0xffffffff", "0x0_0x8", "bad", "", "0x00000000_0x40000000"):
        _, body = s.call("GET", f"/admin/v2/persistent/{ns}?bundle={bundle}")
        counts += [len(body)] if isinstance(body, list) else []
        s.call("GET", f"/admin/v2/non-persistent/{ns}?bundle={bundle}", keep=in_order)
        s.call("GET", f"/admin/v2/non-persistent/{ns}/{bundle}", keep=in_order)
    s.note("in both halves", sum(counts[:2]))


@scenario
def positions_of_chosen_topics(s):
    ns = s.namespace()
    s.http("PUT", NAMESPACES + ns, {"bundles": QUARTERS}, quietly=True)
    for query in ("", "?topics=", f"?topics=persistent://{ns}/a", "?topics=nope", "?topics=a&topics=b"):
        for bundle in ("0x00000000_0x40000000", "bad", "0x00000000_0x50000000"):
            s.call("GET", f"{NAMESPACES}{ns}/{bundle}/topicHashPositions{query}", keep=in_order)


@scenario
def tenant_deleted_by_force(s):
    tenant = f"/admin/v2/tenants/{s.tag}"
    topic = f"persistent://{s.tag}/a/x"
    s.http("PUT", tenant, {"allowedClusters": ["standalone"]}, quietly=True)
    for name in "ab":
        s.http("PUT", f"{NAMESPACES}{s.tag}/{name}", {}, quietly=True)
    s.http("PUT", rest(topic), quietly=True)
    s.http("PUT", f"/admin/v2/persistent/{s.tag}/b/p/partitions", 3, quietly=True)
    s.lookup(topic)
    c = s.connect()
    c.subscribe(topic, quietly=True)
    c.producer(topic, quietly=True, producer_name="p")
    for query in ("", "?force=false", "?force=yes"):
        s.call("DELETE", tenant + query)
    s.call("DELETE", tenant + "?force=true")
    c.recv_sorted(2)
    c.none()
    for path in (tenant, NAMESPACES + s.tag, f"{NAMESPACES}{s.tag}/a", f"/admin/v2/persistent/{s.tag}/b"):
        s.call("GET", path, keep=True)
    s.call("DELETE", tenant + "?force=true")
    s.http("PUT", tenant, {"allowedClusters": ["standalone"]}, quietly=True)
    s.call("GET", NAMESPACES + s.tag, keep=True)
    s.call("DELETE", tenant + "?force=true")


def _authoritative(text):
    def run(s):
        ns = namespace(s)
        t, query = f"/admin/v2/persistent/{ns}/t", f"?authoritative={text}"
        s.call("PUT", t + query)
        s.call("PUT", f"/admin/v2/persistent/{ns}/p/partitions{query}&createLocalTopicOnly={text}", 2)
        s.lookup(f"persistent://{ns}/t")
        published(s, f"persistent://{ns}/t", 3)
        s.call("GET", t + "/stats" + query, keep=["msgInCounter"])
        s.call("GET", f"/admin/v2/persistent/{ns}/p/partitions{query}", keep=True)
        s.call("PUT", t + "/subscription/s" + query)
        s.call("POST", t + "/subscription/s/skip/1" + query)
        s.call("GET", t + f"/examinemessage{query}&initialPosition=earliest&messagePosition=1")
        s.call("GET", t + "/lastMessageId" + query)
        s.call("POST", t + "/retention" + query, {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1})
        s.call("GET", t + "/retention" + query, keep=True)
        s.call("DELETE", t + "/retention" + query)
        s.call("PUT", t + "/unload" + query)
        s.call("DELETE", f"{t}{query}&deleteSchema={text}&force={text}")
        s.call("DELETE", f"/admin/v2/persistent/{ns}/p/partitions{query}&force={text}")

    run.__name__ = f"switch_authoritative_{text or 'empty'}"
    scenario(run)


for _text in TRUTHS:
    _authoritative(_text)

GLOBAL = {
    "replication": (["standalone"], ["standalone"]),
    "sub/dispatchRate": ({"dispatchThrottlingRateInMsg": 1}, {"dispatchThrottlingRateInMsg": 3}),
    "offloadPolicies": (FILES, FILES | {"managedLedgerOffloadThresholdInBytes": 5}),
    "retention": (
        {"retentionTimeInMinutes": 1, "retentionSizeInMB": 1},
        {"retentionTimeInMinutes": 2, "retentionSizeInMB": 2},
    ),
    "maxMessageSize": (100, 200),
    "publishRate": ({"publishThrottlingRateInMsg": 1}, {"publishThrottlingRateInMsg": 2}),
    "persistence": (QUORUMS | {"managedLedgerMaxMarkDeleteRate": 1}, QUORUMS | {"managedLedgerMaxMarkDeleteRate": 2}),
}


def _global(path, local, everywhere):
    def run(s):
        t = f"/admin/v2/persistent/{namespace(s)}/t"
        s.http("PUT", t, quietly=True)

        def show(*queries):
            for query in queries:
                s.call("GET", f"{t}/{path}{query}", keep=True)

        show("", "?isGlobal=true")
        s.call("POST", f"{t}/{path}?isGlobal=true", everywhere)
        show("", "?isGlobal=true", "?applied=true", "?applied=true&isGlobal=true")
        s.call("POST", f"{t}/{path}?isGlobal=false", local)
        show("", "?isGlobal=true", "?applied=true")
        s.call("DELETE", f"{t}/{path}?isGlobal=true")
        show("", "?isGlobal=true", "?applied=true")
        s.call("DELETE", f"{t}/{path}")
        show("", "?isGlobal=true", "?applied=true")

    run.__name__ = f"global_and_local_{path.replace('/', '_of_')}"
    scenario(run)


for _path, _values in GLOBAL.items():
    _global(_path, *_values)


@scenario
def global_and_local_backlog_quotas(s):
    t = f"/admin/v2/persistent/{namespace(s)}/t"
    s.http("PUT", t, quietly=True)
    size = {"limitSize": 100000, "policy": "producer_exception"}
    age = {"limitTime": 100, "policy": "consumer_backlog_eviction"}

    def change(verb, query, body=None):
        s.call(verb, f"{t}/backlogQuota{query}", body)
        for shown in ("", "?isGlobal=true", "?applied=true"):
            s.call("GET", f"{t}/backlogQuotaMap{shown}", keep=True)

    change("POST", "?isGlobal=true", size)
    change("POST", "?isGlobal=true&backlogQuotaType=message_age", age)
    change("POST", "?backlogQuotaType=message_age", age | {"limitTime": 7})
    change("DELETE", "?backlogQuotaType=message_age")
    change("DELETE", "?isGlobal=true")
    change("DELETE", "?isGlobal=true&backlogQuotaType=message_age")
    s.call("DELETE", f"{t}/backlogQuota?isGlobal=true&backlogQuotaType=nope")


def _entry_filters(domain):
    def run(s):
        t = f"/admin/v2/{domain}/{namespace(s)}/t"
        s.http("PUT", t, quietly=True)
        for query in ("", "?applied=true", "?isGlobal=true"):
            s.call("GET", t + "/entryFilters" + query, keep=True)
        for body in ({"entryFilterNames": "x"}, {"entryFilterNames": ""}, {}):
            s.call("POST", t + "/entryFilters", body)
        s.call("POST", t + "/entryFilters?isGlobal=true", {"entryFilterNames": "x,y"})
        s.call("DELETE", t + "/entryFilters")
        s.call("DELETE", t + "/entryFilters?isGlobal=true")

    run.__name__ = f"entry_filters_of_a_{domain.replace('-', '_')}_topic"
    scenario(run)


_entry_filters("persistent")
_entry_filters("non-persistent")
PARTS = ("", "perPartition=true", "perPartition=false", "excludePublishers=true", "excludeConsumers=true")
COSTS = (
    "getPreciseBacklog=true",
    "subscriptionBacklogSize=true",
    "subscriptionBacklogSize=false",
    "getEarliestTimeInBacklog=true",
)


def _partitioned_stats(domain):
    def run(s):
        ns = namespace(s)
        c = s.connect()
        s.http("PUT", f"/admin/v2/{domain}/{ns}/p/partitions", 2, quietly=True)
        for i in (0, 1):
            part = f"{domain}://{ns}/p-partition-{i}"
            s.lookup(part)
            c.subscribe(part, "sub", 1 + i, quietly=True, subType="Shared", consumer_name="c")
            c.producer(part, 1 + i, quietly=True, producer_name=f"p{i}")
        for query in (*PARTS, *COSTS):
            _, found = s.call("GET", f"/admin/v2/{domain}/{ns}/p/partitioned-stats?{query}")
            shown = ("msgBacklog", "backlogSize", "earliestMsgPublishTimeInBacklog")
            for part in (found, *found["partitions"].values()):
                of_each = {k: [len(v["consumers"]), *map(v.get, shown)] for k, v in part["subscriptions"].items()}
                s.note("shows", [sorted(part), len(part["publishers"]), of_each])

    run.__name__ = f"switches_of_partitioned_stats_{domain.replace('-', '_')}"
    scenario(run)


_partitioned_stats("persistent")
_partitioned_stats("non-persistent")


@scenario
def quotas_of_resources_in_every_form(s):
    ns = namespace(s)
    quota = dict(msgRateIn=1.0, msgRateOut=2.0, bandwidthIn=3.0, bandwidthOut=4.0, memory=5.0, dynamic=False)
    bundle = f"/admin/v2/resource-quotas/{ns}/0x00000000_0x40000000"
    s.call("GET", "/admin/v2/resource-quotas/" + ns, keep=True)
    s.call("GET", bundle, keep=True)
    for body in (quota, {"msgRateIn": -1}, {}):
        s.call("POST", bundle, body)
        s.call("GET", bundle, keep=True)
    s.call("DELETE", bundle)
    s.call("GET", bundle, keep=True)
    s.call("POST", f"/admin/v2/resource-quotas/{ns}/bad", quota)
    s.call("GET", f"/admin/v2/resource-quotas/{ns}/bad")
    s.call("POST", f"/admin/v2/resource-quotas/{ns}/0x00000000_0x12345678", quota)
    s.call("GET", "/admin/v2/resource-quotas/public/none/0x00000000_0xffffffff")


@scenario
def quota_of_a_bundle_removed_again_and_again(s):
    bundle = f"/admin/v2/resource-quotas/{namespace(s)}/0x00000000_0x40000000"
    for method, body in (("DELETE", None), ("POST", {"msgRateIn": 1}), ("DELETE", None), ("DELETE", None)):
        status, answer = s.http(method, bundle, body, quietly=True)
        s.note(method, [status, answer])
    s.call("GET", bundle, keep=["memory"])


@scenario
def cluster_without_its_data(s):
    for raw in (None, b"", b"null"):
        status, answer = s.http("PUT", "/admin/v2/clusters/" + s.tag, raw=raw, quietly=True)
        s.note("PUT", [status, answer])


@scenario
def replication_with_comparison(s):
    path = NAMESPACES + namespace(s)
    for query in ("?compareTopicPartitions=true", "?compareTopicPartitions=false", "?compareTopicPartitions="):
        for clusters in (["standalone"], ["nope"], []):
            s.call("POST", f"{path}/replication{query}", clusters)
        s.call("GET", f"{path}/replication", keep=True)
    s.call("POST", f"{path}/allowedClusters", ["standalone"])
    s.call("GET", f"{path}/allowedClusters", keep=True)
    s.call("POST", f"{path}/replication", ["standalone"])
    s.call("POST", f"{path}/allowedClusters", [])
    s.call("POST", f"{path}/allowedClusters", ["nope"])
    s.call("GET", path, keep=["allowed_clusters", "replication_clusters"])


@scenario
def health_of_a_broker_by_id(s):
    for query in ("", "?topicVersion=V1", "?topicVersion=V2", "?topicVersion=V3", "?brokerId=none:1", "?brokerId="):
        _, body = s.call("GET", "/admin/v2/brokers/health" + query)
        s.note("body", body if body in ("ok", None) else type(body).__name__)


@scenario
def routes_of_transactions_with_switches(s):
    topic = s.topic()
    name = topic.replace("persistent://", "")
    s.http("PUT", rest(topic), quietly=True)
    for path in (
        f"pendingAckStats/{name}/sub?lowWaterMarks=true",
        f"pendingAckInternalStats/{name}/sub?metadata=true",
        f"transactionBufferStats/{name}?lowWaterMarks=true&segmentStats=true",
        f"transactionBufferInternalStats/{name}?metadata=true",
        "coordinatorStats?coordinatorId=0",
        "coordinatorInternalStats/0?metadata=true",
        "slowTransactions/100?coordinatorId=1",
        f"positionStatsInPendingAck/{name}/sub/1/1?batchIndex=1",
        "transactionMetadata/0/0",
        "transactionCoordinator/replicas",
    ):
        s.call("GET", "/admin/v3/transactions/" + path)
    for body in (1, 0, -1, "x", None):
        s.call("POST", "/admin/v3/transactions/transactionCoordinator/replicas", body)
    s.call("POST", "/admin/v3/transactions/abortTransaction/0/0")


@scenario
def rate_of_a_single_subscription(s):
    t = f"/admin/v2/persistent/{namespace(s)}/t"
    s.http("PUT", t, quietly=True)
    s.http("PUT", t + "/subscription/sub", quietly=True)
    rate = dict(
        dispatchThrottlingRateInMsg=5, dispatchThrottlingRateInByte=6, relativeToPublishRate=True, ratePeriodInSecond=2
    )

    def show():
        for name in ("sub", "none"):
            for query in ("", "?applied=true"):
                s.call("GET", f"{t}/{name}/dispatchRate{query}", keep=True)

    s.call("POST", f"{t}/sub/dispatchRate", rate)
    s.call("POST", f"{t}/none/dispatchRate", rate | {"ratePeriodInSecond": 0})
    show()
    s.call("POST", f"{t}/subscriptionDispatchRate", rate | {"dispatchThrottlingRateInMsg": 1})
    show()
    for name in ("sub", "never"):
        s.call("DELETE", f"{t}/{name}/dispatchRate")
    show()
    for body in ({}, "x"):
        s.call("POST", f"{t}/sub/dispatchRate", body)
    show()


@scenario
def trims_of_every_kind_of_topic(s):
    ns = namespace(s)
    base = f"/admin/v2/persistent/{ns}"
    s.http("PUT", base + "/t", quietly=True)
    s.http("PUT", base + "/p/partitions", 2, quietly=True)
    s.lookup(f"persistent://{ns}/t")
    published(s, f"persistent://{ns}/t", 3)
    for name in ("t", "p", "p-partition-0", "p-partition-7", "none", "bad%2F"):
        s.call("POST", f"{base}/{name}/trim")
        s.call("POST", f"{base}/{name}/trim?authoritative=true")
    s.call("POST", f"/admin/v2/non-persistent/{ns}/t/trim")
    s.call("GET", base + "/t/internalStats", keep=["numberOfEntries", "entriesAddedCounter", "currentLedgerEntries"])


@scenario
def policies_of_expiry_set_when_messages_are_old(s):
    """A new time to live takes effect at once, without the periodic check."""
    ns = namespace(s)
    topic = f"persistent://{ns}/t"
    s.http("PUT", rest(topic), quietly=True)
    s.lookup(topic)
    s.http("PUT", rest(topic, "/subscription/s"), quietly=True)
    published(s, topic, 4)
    time.sleep(2)
    s.call("POST", f"{NAMESPACES}{ns}/messageTTL", 1)
    s.eventually("expired", lambda: backlog(s, topic) == {"s": 0}, 10)
