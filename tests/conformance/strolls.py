#!/usr/bin/env python3
"""Random strolls through the admin API, played against two brokers: every status and body must be alike.

    strolls.py --oracle pulsar://127.0.0.1:6650 http://127.0.0.1:8080 [--ours URL HTTP] [--first SEED] [--walks N]

walks.py tests a subscription and roams.py commands; strolls test REST: tenants, namespaces, topics,
partitions, subscriptions, schemas, permissions and policies of every level are made, read, changed and removed in
random order, with odd values among usual values, while messages come in and consumers come and go. The verdicts are
those of walks.py.
"""

import random
import re
import sys
import time

import walks
from harness.runner import SCENARIOS
from harness.steps import avro, batch

TOPICS = ("t", "t", "t", "u", "p", "p", "p-partition-0", "p-partition-5", "n:t", "none")
SUBSCRIPTIONS = ("s1", "s1", "s1", "s2", "none")
ROLES = ("r1", "r2")
SETTLE_SECONDS = 0.15
RATE = {"dispatchThrottlingRateInMsg": 10, "dispatchThrottlingRateInByte": 20, "ratePeriodInSecond": 1}
QUORUMS = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
NUMBERS = (3, 0, -1, "7", None)
INACTIVE = {"inactiveTopicDeleteMode": "delete_when_no_subscriptions", "maxInactiveDurationSeconds": 100}
# name at a namespace -> (name at a topic, the method that sets it, values)
POLICIES = {
    "retention": ("retention", "POST", [
        {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}, {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
        {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}, {"retentionTimeInMinutes": 0, "retentionSizeInMB": 5},
    ]),
    "messageTTL": ("messageTTL?messageTTL={v}", "POST", [60, 0, -1]),
    "persistence": ("persistence", "POST", [QUORUMS | {"managedLedgerMaxMarkDeleteRate": 0.5}, QUORUMS, {}]),
    "delayedDelivery": ("delayedDelivery", "POST", [
        {"active": True, "tickTime": 2000}, {"active": False, "tickTime": 1}, {"active": True, "tickTime": 5, "maxDeliveryDelayInMillis": 50},
    ]),
    "inactiveTopicPolicies": ("inactiveTopicPolicies", "POST", [
        INACTIVE, INACTIVE | {"deleteWhileInactive": True}, {"inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up"},
    ]),
    "dispatchRate": ("dispatchRate", "POST", [RATE, {}, {"dispatchThrottlingRateInMsg": -1, "relativeToPublishRate": True}]),
    "subscriptionDispatchRate": ("subscriptionDispatchRate", "POST", [RATE, {}]),
    "replicatorDispatchRate": ("replicatorDispatchRate", "POST", [RATE, {}]),
    "publishRate": ("publishRate", "POST", [{"publishThrottlingRateInMsg": 1000}, {"publishThrottlingRateInByte": 5}, {}]),
    "subscribeRate": ("subscribeRate", "POST", [{"subscribeThrottlingRatePerConsumer": 10, "ratePeriodInSecond": 20}, {}]),
    "compactionThreshold": ("compactionThreshold", "POST", NUMBERS),
    "maxProducersPerTopic": ("maxProducers", "POST", NUMBERS),
    "maxConsumersPerTopic": ("maxConsumers", "POST", NUMBERS),
    "maxConsumersPerSubscription": ("maxConsumersPerSubscription", "POST", NUMBERS),
    "maxSubscriptionsPerTopic": ("maxSubscriptionsPerTopic", "POST", NUMBERS),
    "maxUnackedMessagesPerConsumer": ("maxUnackedMessagesOnConsumer", "POST", NUMBERS),
    "maxUnackedMessagesPerSubscription": ("maxUnackedMessagesOnSubscription", "POST", NUMBERS),
    "deduplication": ("deduplicationEnabled", "POST", [True, False, None]),
    "deduplicationSnapshotInterval": ("deduplicationSnapshotInterval", "POST", [60, 0, None]),
    "autoSubscriptionCreation": ("autoSubscriptionCreation", "POST", [{"allowAutoSubscriptionCreation": False}, {}]),
    "schemaCompatibilityStrategy": ("schemaCompatibilityStrategy", "PUT", ["FULL", "ALWAYS_COMPATIBLE", "UNDEFINED", "ALWAYS_INCOMPATIBLE"]),
    "schemaValidationEnforced": ("schemaValidationEnforced", "POST", [True, False]),
    "subscriptionTypesEnabled": ("subscriptionTypesEnabled", "POST", [["Exclusive"], ["Shared", "Failover"], []]),
    "entryFilters": ("entryFilters", "POST", [{"entryFilterNames": ""}]),
    "dispatcherPauseOnAckStatePersistent": ("dispatcherPauseOnAckStatePersistent", "POST", [None]),
    "subscriptionExpirationTime": ("subscriptionExpirationTime?subscriptionExpirationTime={v}", "POST", [60, 0, -1]),
    "maxTopicsPerNamespace": (None, "POST", [5, 0, None]),
    "autoTopicCreation": (None, "POST", [
        {"allowAutoTopicCreation": False}, {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2},
        {"allowAutoTopicCreation": True, "topicType": "partitioned"}, {},
    ]),
    "encryptionRequired": (None, "POST", [True, False]),
    "isAllowAutoUpdateSchema": (None, "POST", [False, True, None]),
    "subscriptionAuthMode": (None, "POST", ["Prefix", "None"]),
    "allowedTopicPropertyKeysForMetrics": (None, "POST", [["a"], []]),
    "replication": ("replication", "POST", [["standalone"], [], ["nowhere"]]),
    "offloadThreshold": (None, "PUT", [1000, -1]),
    "offloadDeletionLagMs": (None, "PUT", [1000, 0]),
    "antiAffinity": (None, "POST", ["g1", ""]),
}  # fmt: skip
SCHEMAS = [
    {"type": "AVRO", "schema": avro(("a", "int")).decode(), "properties": {}},
    {"type": "AVRO", "schema": avro(("a", "int"), ("b", "string", "x")).decode(), "properties": {"k": "v"}},
    {"type": "AVRO", "schema": avro(("a", "string")).decode(), "properties": {}},
    {"type": "JSON", "schema": avro(("a", "int")).decode(), "properties": {}},
    {"type": "STRING", "schema": "", "properties": {}},
    {"type": "INT32", "schema": "", "properties": {}},
    {"type": "AVRO", "schema": "{bad", "properties": {}},
    {"type": "NONE", "schema": "", "properties": {}},
    {"type": "KEY_VALUE", "schema": "", "properties": {}},
    {"type": "other", "schema": "", "properties": {}},
    {"type": "PROTOBUF", "schema": avro(("a", "int")).decode(), "properties": {}},
    {},
]
VOLATILE = re.compile(
    "Rate|Throughput|Time[sS]tamp|[tT]ime$|TimeInMs|^address$|Date$|delayedMessageIndex|NoDelayed|msgDelayed|Since|Age|statGeneratedAt|"
    "duration|Duration|clientVersion|ownerBroker|"
    "^broker|^appId|pendingRead|waitingReadOp|readPositionWhenJoining|lastAckedTimestamp|lastConsumedTimestamp"
)
KEPT = re.compile(
    "limitTime|InMinutes|InSeconds|tickTime|maxDeliveryDelay|RatePer|RateInMsg|RateInByte|ratePeriod|relative|earliest"
)


class Plan:
    """The steps of one seed; each is the name of a Player's method and its arguments."""

    def __init__(self, seed, steps):
        self.r = r = random.Random(seed)
        self.topics = r.sample(TOPICS, 4)
        self.policies = r.sample(list(POLICIES), 4)
        self.steps = []
        while len(self.steps) < steps:
            chosen = r.choices(list(WEIGHTS), WEIGHTS.values())[0]
            getattr(self, "_" + chosen)()

    def _call(self, method, path, body=None, **more):
        self.steps.append(("call", method, path, body, more))

    def _topic(self):
        return f"/$d/{self.r.choice(self.topics)}"

    def _namespace(self):
        return "/admin/v2/namespaces/" + self.r.choice(["$a", "$a", "$a", "$a", "$b", "$t/none", "$none/x"])

    # topics
    def _make(self):
        topic = self._topic()
        method, more, body = self.r.choice([
            ("PUT", "", None), ("PUT", "", {"k": "v"}), ("PUT", "/partitions", 2), ("PUT", "/partitions", 3), ("POST", "/partitions", 3),
            ("POST", "/partitions", 1), ("DELETE", "", None), ("DELETE", "?force=true", None), ("DELETE", "/partitions", None),
            ("DELETE", "/partitions?force=true", None), ("DELETE", "?deleteSchema=true", None), ("PUT", "/unload", None),
            ("POST", "/createMissedPartitions", None),
        ])  # fmt: skip
        self._call(method, topic + more, body)

    def _topic_call(self):
        method, more, body = self.r.choice([
            ("POST", "/terminate", None), ("POST", "/terminate/partitions", None), ("DELETE", "/truncate", None), ("POST", "/trim", None),
            ("PUT", "/compaction", None), ("GET", "/compaction", None), ("PUT", "/properties", {"a": "1"}), ("PUT", "/properties", {"b": "2"}),
            ("DELETE", "/properties?key=a", None), ("GET", "/properties", None), ("GET", "/lastMessageId", None), ("GET", "/partitions", None),
            ("GET", "/subscriptions", None), ("GET", "/permissions", None), ("GET", "/offload", None), ("PUT", "/backlogSize", "id:0"),
            ("PUT", "/backlogSize", "id:2"), ("GET", "/getMessageIdByIndex?index=1", None), ("GET", "/getMessageIdByIndex?index=99", None),
            ("GET", "/messageid/0", None), ("GET", "/messageid/99999999999999", None),
            ("GET", "/examinemessage?initialPosition=earliest&messagePosition=2", None),
            ("GET", "/examinemessage?initialPosition=latest&messagePosition=1", None), ("GET", "/backlog", None),
            ("GET", "/internal-info", None), ("GET", "/schemaCompatibilityStrategy?applied=true", None),
            ("POST", "/all_subscription/expireMessages/0", None), ("POST", "/all_subscription/expireMessages/100", None),
        ])  # fmt: skip
        self._call(method, self._topic() + more, body)

    def _stats(self):
        more = self.r.choice(["/stats", "/stats", "/stats?getPreciseBacklog=true&subscriptionBacklogSize=true", "/internalStats",
                              "/partitioned-stats", "/partitioned-stats?perPartition=true", "/partitioned-internalStats"])  # fmt: skip
        self._call("GET", self._topic() + more)

    def _lists(self):
        path = self.r.choice([
            "/$d", "/$d/partitioned", "/admin/v2/namespaces/$a/topics", "/admin/v2/namespaces/$a/topics?mode=ALL", "/admin/v2/namespaces/$t",
            "/$n", "/$n/partitioned", "/admin/v2/namespaces/$a", "/admin/v2/namespaces/$b", "/admin/v2/namespaces/$a/bundles",
            "/admin/v2/namespaces/$a/backlogQuotaMap", "/admin/v2/namespaces/$a/backlogQuotaMap?applied=true",
            "/admin/v2/tenants/$t", "/admin/v2/namespaces/$a/permissions"
        ])  # fmt: skip
        self._call("GET", path)

    # subscriptions
    def _subscription(self):
        at = f"{self._topic()}/subscription/{self.r.choice(SUBSCRIPTIONS)}"
        method, more, body = self.r.choice([
            ("PUT", "", "earliest"), ("PUT", "", "latest"), ("PUT", "", "id:1"), ("PUT", "?replicated=true", "earliest"), ("PUT", "", None),
            ("DELETE", "", None), ("DELETE", "?force=true", None), ("POST", "/skip_all", None), ("POST", "/skip/1", None),
            ("POST", "/skip/0", None), ("POST", "/resetcursor/0", None), ("POST", "/resetcursor/99999999999999", None),
            ("POST", "/resetcursor", "id:1"), ("POST", "/resetcursor", "id:9"), ("POST", "/expireMessages/0", None),
            ("POST", "/expireMessages/100", None), ("POST", "/expireMessages", "id:1"), ("GET", "/properties", None),
            ("PUT", "/properties", {"a": "1"}), ("PUT", "/properties", {}), ("POST", "/analyzeBacklog", None),
            ("POST", "/analyzeBacklog", "id:1"), ("GET", "/replicatedSubscriptionStatus", None),
            ("POST", "/replicatedSubscriptionStatus", True), ("POST", "/replicatedSubscriptionStatus", False),
            ("GET", "/position/1", None), ("GET", "/position/3", None), ("GET", "/position/0", None),
        ])  # fmt: skip
        self._call(method, at + more, body)

    # namespaces, tenants
    def _namespace_call(self):
        r = self.r
        method, more, body = r.choice([
            ("PUT", "", {}), ("PUT", "", {"bundles": {"numBundles": 2}}), ("DELETE", "", None), ("DELETE", "?force=true", None),
            ("PUT", "/unload", None), ("POST", "/clearBacklog", None), ("POST", "/clearBacklog/s1", None), ("POST", "/unsubscribe/s2", None),
            ("PUT", "/properties", {"k": "v"}), ("GET", "/properties", None), ("DELETE", "/properties", None), ("PUT", "/property/a/b", None),
            ("GET", "/property/a", None), ("DELETE", "/property/a", None), ("GET", "/permissions/subscription", None),
            ("POST", "/backlogQuota", {"limitSize": 1000000, "policy": "producer_exception"}),
            ("POST", "/backlogQuota?backlogQuotaType=message_age", {"limitTime": 50, "policy": "consumer_backlog_eviction"}),
            ("POST", "/backlogQuota", {"policy": "other"}), ("DELETE", "/backlogQuota", None),
            ("DELETE", "/backlogQuota?backlogQuotaType=message_age", None), ("GET", "/bundles", None), ("GET", "/topics", None),
            ("POST", "/permissions/subscription/s1", ["r1"]), ("DELETE", "/permissions/s1/r1", None),
        ])  # fmt: skip
        at = self._namespace()
        if more == "?force=true" and self.r.random() < 0.9:  # without it later steps have no namespace
            at = at.replace("$a", "$b")
        self._call(method, at + more, body)

    def _tenant(self):
        at = "/admin/v2/tenants/" + self.r.choice(["$t", "$t", "$u", "$none"])
        method, body = self.r.choice([
            ("GET", None), ("PUT", {"adminRoles": ["x"], "allowedClusters": ["standalone"]}), ("PUT", {}), ("PUT", {"allowedClusters": []}),
            ("PUT", {"allowedClusters": ["nowhere"]}), ("POST", {"adminRoles": ["y"], "allowedClusters": ["standalone"]}),
            ("POST", {"allowedClusters": ["nowhere"]}), ("POST", {}), ("DELETE", None),
        ])  # fmt: skip
        self._call(method, at, body)

    def _permission(self):
        r = self.r
        at = r.choice([self._topic(), self._namespace()]) + "/permissions"
        role = r.choice(ROLES)
        method, more, body = r.choice([
            ("GET", "", None), ("POST", "/" + role, ["produce"]), ("POST", "/" + role, ["produce", "consume"]), ("POST", "/" + role, []),
            ("POST", "/" + role, ["other"]), ("DELETE", "/" + role, None),
        ])  # fmt: skip
        self._call(method, at + more, body)

    # policies
    def _policy(self):
        r = self.r
        name = r.choice(self.policies)
        of_topic, verb, values = POLICIES[name]
        base, value = self._namespace(), r.choice(values)
        if of_topic and r.random() < 0.6:
            base, name = self._topic(), of_topic.replace("{v}", str(value))
            body = None if "{v}" in of_topic else value
        else:
            body = value
        bare = name.partition("?")[0]
        what = r.choice(["set", "set", "get", "applied", "applied", "remove", "global"])
        if what == "set":
            self._call(verb, f"{base}/{name}", body)
        elif what == "remove":
            self._call("DELETE", f"{base}/{bare}")
        elif what == "global":
            self._call("GET", f"{base}/{bare}?isGlobal=true")
        self._call("GET", f"{base}/{bare}" + ("?applied=true" if what == "applied" else ""))

    def _quota(self):
        query = self.r.choice(["", "?backlogQuotaType=message_age", "?backlogQuotaType=other"])
        method, body = self.r.choice([
            ("POST", {"limitSize": 1000000, "policy": "producer_exception"}), ("POST", {"limitTime": 70, "policy": "producer_request_hold"}),
            ("DELETE", None),
        ])  # fmt: skip
        topic = self._topic()
        self._call(method, topic + "/backlogQuota" + query, body)
        self._call("GET", topic + "/backlogQuotaMap" + self.r.choice(["", "?applied=true"]))

    # schemas
    def _schema(self):
        at = f"/admin/v2/schemas/$a/{self.r.choice(self.topics).removeprefix('n:')}"
        method, more = self.r.choice([
            ("GET", "/schema"), ("GET", "/schema/0"), ("GET", "/schema/1"), ("GET", "/schemas"), ("GET", "/metadata"),
            ("POST", "/schema"), ("POST", "/schema"), ("POST", "/compatibility"), ("POST", "/version"), ("DELETE", "/schema"),
            ("DELETE", "/schema?force=true"), ("GET", "/schema/x"),
        ])  # fmt: skip
        self._call(method, at + more, self.r.choice(SCHEMAS) if method == "POST" else None)

    def _cluster(self):
        at = "/admin/v2/clusters"
        method, more, body = self.r.choice([
            ("GET", "", None), ("GET", "/standalone/failureDomains", None), ("GET", "/$t", None), ("PUT", "/$t", {"serviceUrl": "http://a:1"}),
            ("POST", "/$t", {"serviceUrl": "http://b:1", "brokerServiceUrl": "pulsar://b:2"}), ("DELETE", "/$t", None),
            ("PUT", "/$t", {}), ("POST", "/$t", {}), ("GET", "/$t/peers", None), ("POST", "/$t/peers", ["standalone"]),
            ("GET", "/$t/namespaceIsolationPolicies", None),
        ])  # fmt: skip
        self._call(method, at + more, body)

    # clients
    def _publish(self):
        size = self.r.choice([1, 1, 1, 3])
        fields = {"partition_key": "k"} if self.r.random() < 0.3 else {}
        if self.r.random() < 0.1:
            fields["deliver_at_time"] = 2**50
        self.steps.append(("publish", self.r.choice(self.topics), self.r.randrange(1, 4), size, fields))

    def _join(self):
        kind = self.r.choice(walks.TYPES)
        self.steps.append(
            ("join", self.r.choice(self.topics), self.r.choice(["s1", "s1", "s2"]), kind, self.r.choice([0, 2, 100]))
        )

    def _leave(self):
        self.steps.append(("leave",))


WEIGHTS = {
    "make": 12, "topic_call": 16, "stats": 8, "lists": 6, "subscription": 18, "namespace_call": 7, "tenant": 2, "permission": 4,
    "policy": 14, "quota": 2, "schema": 7, "cluster": 1, "publish": 12, "join": 5, "leave": 3,
}  # fmt: skip


class Player:
    """Plays a plan in one session; each method is a step."""

    def __init__(self, s, plan):
        self.s, self.plan, self.ids, self.members = s, plan, {}, []
        self.tenant, self.sent = s.tag, 0
        allowed = {"adminRoles": ["x"], "allowedClusters": ["standalone"]}
        s.http("PUT", f"/admin/v2/tenants/{self.tenant}", allowed, quietly=True)
        for name in ("a", "b"):
            bundles = {"bundles": {"numBundles": 1}}
            s.http("PUT", f"/admin/v2/namespaces/{self.tenant}/{name}", bundles, quietly=True)
        for name in ("t", "u"):
            s.http("PUT", self._path(f"/$d/{name}"), quietly=True)
        s.http("PUT", self._path("/$d/p/partitions"), 2, quietly=True)
        self.feeder = s.connect("feeder")
        self._look()

    def _look(self):
        self.s.lookup(f"persistent://{self.tenant}/a/t")

    def _path(self, path):
        a, b = f"{self.tenant}/a", f"{self.tenant}/b"
        if path.startswith("/$d/n:"):
            path = path.replace("/$d/n:", "/$n/")
        for short, full in (
            ("/$d", f"/admin/v2/persistent/{a}"), ("/$n", f"/admin/v2/non-persistent/{a}"), ("$none", self.tenant + "-none"),
            ("$a", a), ("$b", b), ("$t", self.tenant), ("$u", self.tenant + "-u"),
        ):  # fmt: skip
            path = path.replace(short, full)
        return path

    def play(self):
        for name, *arguments in self.plan.steps:
            getattr(self, name)(*arguments)

    def call(self, method, path, body, _more):
        shown = body
        if isinstance(body, str) and body.startswith("id:"):
            at, ids = int(body[3:]), self.ids.get(path.split("/")[2].partition("?")[0], [])
            body = ids[at] if at < len(ids) else {"ledgerId": 0, "entryId": at}
        status, answer = self.s.http(method, self._path(path), body, quietly=True)
        self.s.log("rest", "=", f"{method} {path}", shown)
        self.s.log("rest", "<", "done" if status in {200, 204} and answer is None else str(status), None)
        for line in _lines(_calm(self.s.neutral(answer), tag=self.tenant)) if status < 300 else ():
            self.s.log("   ", " ", *line)
        if method != "GET":
            self._look()
            time.sleep(SETTLE_SECONDS)
            self._drain()

    def _topic(self, name):
        domain = "non-persistent" if name.startswith("n:") else "persistent"
        return f"{domain}://{self.tenant}/a/{name.removeprefix('n:')}"

    def publish(self, topic, count, size, fields):
        s, c = self.s, self.feeder
        lines, s.lines = s.lines, []
        self._look()
        made = c.ask("PRODUCER", quietly=True, topic=self._topic(topic), producer_id=1, producer_name="p")
        results = [made.type if made else None]
        if made and made.type == "PRODUCER_SUCCESS":
            for _ in range(count):
                payload = batch(*[b"b"] * size) if size > 1 else b"m%d" % self.sent
                more = {"num_messages_in_batch": size} | fields if size > 1 else fields
                c.publish(1, self.sent, payload, command={"num_messages": size}, **more)
                self.sent += size
                frame = c.recv_quietly(4)
                results.append(frame.type if frame else None)
                if frame and frame.type == "SEND_RECEIPT":
                    self.ids.setdefault(topic, []).append(frame.message_id)
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
        if not made:
            c.close()
            self.feeder = s.connect("feeder")
        s.lines = lines
        s.note(f"publish {topic} {count} of {size}", results)

    def join(self, topic, name, kind, permits):
        s = self.s
        c = s.connect(f"m{len(self.members)}")
        lines, s.lines = s.lines, []
        number = len(self.members)
        frame = c.ask(
            "SUBSCRIBE", quietly=True, topic=self._topic(topic), subscription=name, subType=kind, consumer_id=1, consumer_name=f"n{number}",
        )  # fmt: skip
        if permits and frame and frame.type == "SUCCESS":
            c.send("FLOW", quietly=True, consumer_id=1, messagePermits=permits)
        self.members.append(c)
        time.sleep(1.2 if kind == "Failover" else SETTLE_SECONDS)
        s.lines = lines
        s.note(f"join {topic} {name} {kind}", [frame.type, _error(frame)] if frame else None)

    def leave(self):
        if self.members:
            self.members.pop().close()
            time.sleep(SETTLE_SECONDS)

    def _drain(self):
        for c in self.members:
            while c.recv_quietly(0):
                pass


def _error(frame):
    return str(getattr(frame.command, "error", "")) if frame.type == "ERROR" else ""


def _lines(value, key=""):
    """One line for each leaf."""
    if isinstance(value, dict) and value:
        for k, v in sorted(value.items()):
            yield from _lines(v, f"{key}.{k}")
    elif isinstance(value, list) and any(isinstance(v, dict) for v in value):
        for i, v in enumerate(value):
            yield from _lines(v, f"{key}[{i}]")
    else:
        yield key, value


def _calm(value, key="", tag=""):
    """The value without the parts that may differ between two correct brokers."""
    if isinstance(value, dict):
        value = {k: v for k, v in value.items() if k != "version" or "creationDate" not in value}
        told = {k.replace(tag, "$"): v for k, v in value.items() if KEPT.search(k) or not VOLATILE.search(k)}
        return {k: _calm(v, k, tag) for k, v in told.items()}
    if isinstance(value, list):
        calm = [_calm(v, key, tag) for v in value]
        return sorted(calm, key=str)
    if isinstance(value, str):
        return re.sub(r"\b\d+:(-?\d+)", r"L:\1", value)
    if key in {"earliestMsgPublishTimeInBacklogs", "earliestMsgPublishTimeInBacklog", "timestamp"}:
        return value and "T"
    return value


def named(seed, steps, _types):
    def play(s):
        s.deadline = s.clock.now() + walks.WALK_SECONDS
        Player(s, Plan(seed, steps)).play()

    name = f"stroll_{seed:05d}"
    SCENARIOS[name] = play
    return name


if __name__ == "__main__":
    walks.named = named
    sys.exit(walks.main())
