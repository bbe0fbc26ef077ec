"""The field sets and counts of statistics, as tools read them."""

from transcript import scenario


def filled(s, n=3, name="t"):
    topic = s.topic(name)
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.publish_all(1, [b"m%d" % i for i in range(n)])
    return topic, "/admin/v2/" + topic.replace("://", "/"), c


def fields(s, what, value):
    s.note(what, {k: type(v).__name__ for k, v in sorted(value.items())})


@scenario
def stats_fields_of_a_topic_in_use(s):
    topic, t, c = filled(s)
    c.subscribe(topic, "sub", 2, quietly=True, subType="Shared")
    stats = s.http("GET", t + "/stats", quietly=True)[1]
    fields(s, "topic", stats)
    fields(s, "publisher", stats["publishers"][0])
    fields(s, "subscription", stats["subscriptions"]["sub"])
    fields(s, "consumer", stats["subscriptions"]["sub"]["consumers"][0])
    fields(s, "compaction", stats["compaction"])


@scenario
def stats_sizes_of_a_topic(s):
    topic, t, c = filled(s)
    s.call("PUT", t + "/subscription/first", "earliest")
    s.call("PUT", t + "/subscription/last", "latest")
    stats = s.http("GET", t + "/stats", quietly=True)[1]
    s.note("sizes", {k: stats[k] for k in ("storageSize", "backlogSize", "msgInCounter", "bytesInCounter")})
    for name in ("first", "last"):
        sub = stats["subscriptions"][name]
        s.note(name, {k: sub[k] for k in ("type", "msgBacklog", "backlogSize", "unackedMessages", "isDurable")})


@scenario
def stats_without_what_was_not_asked(s):
    topic, t, c = filled(s)
    c.subscribe(topic, "sub", 2, quietly=True)
    query = "?excludePublishers=true&excludeConsumers=true&subscriptionBacklogSize=false&getPreciseBacklog=true"
    stats = s.http("GET", t + "/stats" + query, quietly=True)[1]
    sub = stats["subscriptions"]["sub"]
    s.note("left out", [stats["publishers"], sub["consumers"], sub["backlogSize"]])


@scenario
def stats_of_a_partitioned_topic(s):
    t = f"/admin/v2/persistent/public/default/{s.tag}-p"
    s.lookup(f"persistent://public/default/{s.tag}-p")
    s.call("PUT", t + "/partitions", 2)
    s.call("PUT", t + "/subscription/sub")
    stats = s.http("GET", t + "/partitioned-stats", quietly=True)[1]
    fields(s, "topic", stats)
    fields(s, "partition", min(stats["partitions"].items())[1])
    s.note("metadata", stats["metadata"])
    s.note("none", s.http("GET", t + "/partitioned-stats?perPartition=false", quietly=True)[1]["partitions"])


@scenario
def internal_stats_fields(s):
    topic, t, c = filled(s)
    s.call("PUT", t + "/subscription/sub", "earliest")
    stats = s.http("GET", t + "/internalStats", quietly=True)[1]
    fields(s, "topic", stats)
    fields(s, "ledger", stats["ledgers"][0])
    s.note(
        "sizes",
        [stats[k] for k in ("entriesAddedCounter", "numberOfEntries", "totalSize", "currentLedgerSize", "state")],
    )
    info = s.http("GET", t + "/internal-info", quietly=True)[1]
    fields(s, "info", info)
    fields(s, "cursor", info["cursors"]["sub"])


@scenario
def stats_of_a_non_persistent_topic(s):
    topic = s.topic("n", domain="non-persistent")
    t = "/admin/v2/" + topic.replace("://", "/")
    c = s.connect()
    c.producer(topic, 1, quietly=True, producer_name="p")
    c.subscribe(topic, "sub", 2, quietly=True, subType="Shared")
    stats = s.http("GET", t + "/stats", quietly=True)[1]
    fields(s, "topic", stats)
    fields(s, "internal", s.http("GET", t + "/internalStats", quietly=True)[1])
