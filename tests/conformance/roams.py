#!/usr/bin/env python3
"""Random roams: all commands and the REST calls around them over the topics of a namespace, played against two brokers.

    roams.py --oracle pulsar://127.0.0.1:6650 http://127.0.0.1:8080 [--ours URL HTTP] [--first SEED] [--walks N]

walks.py tests a single subscription in depth; roams test in breadth: three connections make and close producers of all
access modes, names, epochs and schemas, publish, subscribe with several names, ask for schemas, lists, partitions and
lookups, watch the namespace, while REST makes, deletes, unloads, terminates and truncates topics and changes policies.
The verdicts are those of walks.py.
"""

import random
import sys
import time

import walks
from harness.runner import SCENARIOS
from harness.steps import EARLIEST, LATEST, avro, batch

KINDS = ("Exclusive", "Shared", "Failover", "Key_Shared")
MODES = ("Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing")
TEXTS = {
    "a": avro(("a", "int")),
    "b": avro(("a", "int"), ("b", "string", "x")),
    "c": avro(("a", "int"), ("c", "string")),
    "d": avro(("a", "string")),
}
STRATEGIES = ("FULL", "BACKWARD", "FORWARD", "ALWAYS_COMPATIBLE", "ALWAYS_INCOMPATIBLE", "BACKWARD_TRANSITIVE")
TOPICS = ("t", "t", "t", "u", "p", "p-partition-0", "p-partition-1", "p-partition-5", "n:t", "n:t")
QUIET_SECONDS = 0.2
ANSWER_SECONDS = 4
POLICY_SECONDS = 1.2
ELECTION_SECONDS = 1.4
TOPIC_FIELDS = ("msgInCounter", "msgOutCounter", "waitingPublishers", "deduplicationStatus", "topicEpoch")
PUBLISHER_FIELDS = ("producerName", "producerId", "accessMode")
SUBSCRIPTION_FIELDS = (
    "msgBacklog", "msgBacklogNoDelayed", "unackedMessages", "msgOutCounter", "type", "activeConsumerName", "isDurable",
    "isReplicated", "blockedSubscriptionOnUnackedMsgs", "msgDelayed", "allowOutOfOrderDelivery",
    "filterProcessedMsgCount", "msgInReplay", "totalNonContiguousDeletedMessagesRange", "subscriptionProperties",
)  # fmt: skip
CONSUMER_FIELDS = ("consumerName", "availablePermits", "unackedMessages", "msgOutCounter", "messageAckCounter")


class Plan:
    """The steps of one seed; each is the name of a Player's method and its arguments."""

    def __init__(self, seed, steps, _types):
        self.r = r = random.Random(seed)
        self.partitions = r.choice([0, 2, 2])
        self.settings = r.sample(list(SETTINGS), r.choice([0, 0, 1, 2]))
        self.steps, self.producers, self.sent = [], [], 0
        self.topics = r.sample(TOPICS, 3)
        self.schemas = r.random() < 0.4
        while len(self.steps) < steps:
            chosen = r.choices(list(WEIGHTS), WEIGHTS.values())[0]
            getattr(self, "_" + chosen)(r.randrange(3))
            if r.random() < 0.12:
                self._stats(0)
        for topic in sorted(set(self.topics)):
            self._add("stats", topic)

    def _add(self, name, *arguments):
        self.steps.append((name, *arguments))

    def _some(self, **choices):
        """Each field with the share of times it is given and its values."""
        return {k: self.r.choice(values) for k, (share, values) in choices.items() if self.r.random() < share}

    def _schema(self):
        if not self.schemas or self.r.random() < 0.4:
            return {}
        kind = self.r.choice(["Avro", "Avro", "Avro", "Json", "String", "Int32", "AutoConsume"])
        name = self.r.choice(list(TEXTS)) if kind in {"Avro", "Json"} else None
        return {"schema": {"name": "s", "type": kind, "schema_data": TEXTS[name] if name else b""}}

    def _producer(self, c):
        fields = self._some(
            producer_name=(0.7, ["a", "a", "b", ""]), epoch=(0.3, [0, 1, 2]), user_provided_producer_name=(0.2, [True, False]),
            producer_access_mode=(0.5, MODES), topic_epoch=(0.2, [0, 1, 2, 5]), encrypted=(0.15, [True]),
            initial_subscription_name=(0.1, ["s1", "s2", "init"]), txn_enabled=(0.05, [True]),
        )  # fmt: skip
        number = self.r.choice([1, 1, 2, 3])
        self.producers.append((c, number))
        self._add("producer", c, self.r.choice(self.topics), number, fields | self._schema())

    def _close_producer(self, c):
        self._add("ask", c, "CLOSE_PRODUCER", {"producer_id": self.r.choice([1, 1, 2, 3])})

    def _send(self, c):
        r = self.r
        if r.random() < 0.02:
            number = r.randrange(9)
        elif self.producers:
            c, number = r.choice(self.producers)
        else:
            return
        for _ in range(r.choice([1, 1, 2, 4])):
            size = r.choice([1, 1, 1, 3])
            metadata = self._some(
                partition_key=(0.3, ["k1", "k2", ""]), ordering_key=(0.1, [b"o"]), event_time=(0.1, [5]), replicated_from=(0.03, ["x"]),
                deliver_at_time=(0.05, [1]), null_value=(0.05, [True]), marker_type=(0.02, [13]), txnid_least_bits=(0.03, [1]),
                compression=(0.1, ["LZ4", "ZLIB"]), uncompressed_size=(0.1, [1, 500]), properties=(0.1, [[{"key": "k", "value": "v"}]]),
                encryption_keys=(0.1, [[{"key": "k", "value": b"v"}]]), schema_version=(0.05, [b"", b"\0" * 8]), uuid=(0.02, ["u"]),
                producer_name=(0.1, ["a", "z"]),
            )  # fmt: skip
            command = self._some(
                num_messages=(0.1, [1, 2]), highest_sequence_id=(0.1, [0, 3, 50]), txnid_most_bits=(0.02, [1])
            )
            sequence = self.sent if r.random() < 0.7 else r.randrange(self.sent + 5)
            self._add("send", c, number, sequence, size, command, metadata, r.random() < 0.04)
            self.sent = max(self.sent, sequence + size)

    def _subscribe(self, c):
        r = self.r
        fields = {"subType": r.choice(KINDS)} | self._some(
            initialPosition=(0.5, ["Earliest", "Latest"]), durable=(0.2, [False]), start_message_id=(0.1, [EARLIEST, LATEST]),
            priority_level=(0.2, [0, 1]), read_compacted=(0.1, [True]), force_topic_creation=(0.1, [False]), consumer_epoch=(0.2, [0, 1]),
            replicate_subscription_state=(0.1, [True, False]), subscription_properties=(0.1, [[{"key": "k", "value": "v"}]]),
            consumer_name=(0.6, ["x", "y"]), start_message_rollback_duration_sec=(0.05, [100]),
            keySharedMeta=(0.1, [{"keySharedMode": "AUTO_SPLIT"}, {"keySharedMode": "AUTO_SPLIT", "allowOutOfOrderDelivery": True}]),
        )  # fmt: skip
        topic, number = r.choice(self.topics), r.choice([1, 1, 2, 3])
        self._add(
            "subscribe",
            c,
            topic,
            r.choice(["s1", "s1", "s2"]),
            number,
            fields | self._schema(),
            r.choice([0, 1, 5, 100]),
        )

    def _consumer(self, c):
        number = {"consumer_id": self.r.choice([1, 1, 2, 3])}
        what = self.r.choices(
            ["CLOSE_CONSUMER", "UNSUBSCRIBE", "GET_LAST_MESSAGE_ID", "CONSUMER_STATS", "SEEK"], [4, 2, 2, 0.3, 2]
        )[0]
        more = {}
        if what == "UNSUBSCRIBE" and self.r.random() < 0.5:
            more["force"] = True
        if what == "SEEK":
            more = self.r.choice([{"message_id": EARLIEST}, {"message_id": LATEST}, {"message_publish_time": 0}, {}])
        self._add("ask", c, what, number | more)

    def _flow(self, c):
        self._add(
            "tell", c, "FLOW", {"consumer_id": self.r.choice([1, 1, 2]), "messagePermits": self.r.choice([1, 5, 100])}
        )

    def _ack(self, c):
        self._add(
            "ack", c, self.r.choice([1, 1, 2]), self.r.choice(["Individual", "Cumulative"]), self.r.randrange(1, 4)
        )

    def _redeliver(self, c):
        self._add(
            "tell",
            c,
            "REDELIVER_UNACKNOWLEDGED_MESSAGES",
            {"consumer_id": self.r.choice([1, 1, 2])} | self._some(consumer_epoch=(0.3, [1, 2])),
        )

    def _schema_question(self, c):
        topic = self.r.choice(self.topics)
        if self.r.random() < 0.5:
            version = self.r.choice([None, None, 0, 1, 7])
            more = {} if version is None else {"schema_version": version.to_bytes(8, "big")}
            self._add("about", c, "GET_SCHEMA", topic, more)
        elif self.schemas:
            self._add(
                "about",
                c,
                "GET_OR_CREATE_SCHEMA",
                topic,
                self._schema() or {"schema": {"name": "s", "type": "String", "schema_data": b""}},
            )

    def _question(self, c):
        topic = self.r.choice([*self.topics, "none", "p"])
        what = self.r.choice(["LOOKUP", "PARTITIONED_METADATA", "PARTITIONED_METADATA"])
        self._add(
            "about",
            c,
            what,
            topic,
            self._some(metadata_auto_creation_enabled=(0.7, [True, False])) if what[0] == "P" else {},
        )

    def _list(self, c):
        more = self._some(topics_pattern=(0.3, [".*t", "$ns/t.*", "persistent://$ns/.*"]))
        self._add("list", c, self.r.choice(["PERSISTENT", "NON_PERSISTENT", "ALL"]), more)

    def _watch(self, c):
        if self.r.random() < 0.7:
            self._add("watch", c, self.r.randrange(2), self.r.choice([".*", ".*/t", ".*p.*"]))
        else:
            self._add("ask", c, "WATCH_TOPIC_LIST_CLOSE", {"watcher_id": self.r.randrange(2)})

    def _rest(self, _c):
        r, topic = self.r, self.r.choice(self.topics)
        base = topic.partition("-partition-")[0]
        what, body = r.choice([
            (("PUT", topic, ""), None), (("DELETE", topic, ""), None), (("DELETE", topic, "?force=true"), None),
            (("PUT", topic, "/unload"), None), (("PUT", topic, "/unload"), None), (("POST", topic, "/terminate"), None),
            (("DELETE", topic, "/truncate"), None), (("PUT", base, "/partitions"), 2), (("POST", base, "/partitions"), 3),
            (("DELETE", base, "/partitions?force=true"), None), (("PUT", topic, "/subscription/s1"), "earliest"),
            (("PUT", topic, "/subscription/s2"), "latest"), (("DELETE", topic, "/subscription/s1"), None),
            (("DELETE", topic, "/subscription/s1?force=true"), None), (("POST", topic, "/subscription/s1/skip/1"), None),
            (("POST", topic, "/subscription/s1/skip_all"), None), (("POST", topic, "/subscription/s1/resetcursor/0"), None),
            (("POST", topic, "/subscription/s1/expireMessages/0"), None), (("GET", topic, "/lastMessageId"), None),
            (("GET", topic, "/subscriptions"), None), (("GET", base, "/partitions"), None),
            (("POST", topic, "/subscription/s1/replicatedSubscriptionStatus"), True),
        ])  # fmt: skip
        self._add("rest", *what, body)

    def _policy(self, _c):
        self._add("set", self.r.choice(list(SETTINGS)))

    def _topic_policy(self, _c):
        path, bodies = self.r.choice(list(TOPIC_POLICIES.items()))
        body = self.r.choice([*bodies, None])
        self._add("topic_policy", self.r.choice(self.topics), path, body)

    def _drop(self, c):
        self._add("drop", c)

    def _stats(self, _c):
        self._add("stats", self.r.choice(self.topics))


SETTINGS = {
    "dedup": ("POST", "deduplication", True), "no dedup": ("POST", "deduplication", False),
    "encryption": ("POST", "encryptionRequired", True), "no encryption": ("POST", "encryptionRequired", False),
    "two producers": ("POST", "maxProducersPerTopic", 2), "one consumer": ("POST", "maxConsumersPerSubscription", 1),
    "two consumers": ("POST", "maxConsumersPerTopic", 2), "one subscription": ("POST", "maxSubscriptionsPerTopic", 1),
    "no creation": ("POST", "autoTopicCreation", {"allowAutoTopicCreation": False}),
    "partitioned creation": ("POST", "autoTopicCreation", {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}),
    "no subscriptions": ("POST", "autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False}),
    "enforced": ("POST", "schemaValidationEnforced", True), "no updates": ("POST", "isAllowAutoUpdateSchema", False),
    "types": ("POST", "subscriptionTypesEnabled", ["Shared", "Failover"]), "three topics": ("POST", "maxTopicsPerNamespace", 3),
} | {name: ("PUT", "schemaCompatibilityStrategy", name) for name in STRATEGIES}  # fmt: skip
TOPIC_POLICIES = {
    "maxProducers": [1, 2, 0], "maxConsumers": [1, 2], "maxConsumersPerSubscription": [1, 2], "maxSubscriptionsPerTopic": [1, 2],
    "deduplicationEnabled": [True, False], "maxMessageSize": [2, 100], "subscriptionTypesEnabled": [["Shared"], ["Exclusive", "Failover"]],
    "schemaValidationEnforced": [True], "schemaCompatibilityStrategy": STRATEGIES[:3], "maxUnackedMessagesOnConsumer": [1, 2],
    "maxUnackedMessagesOnSubscription": [1, 2], "delayedDelivery": [{"active": False, "tickTime": 100}],
    "autoSubscriptionCreation": [{"allowAutoSubscriptionCreation": False}],
}  # fmt: skip
WEIGHTS = {
    "producer": 20, "close_producer": 6, "send": 18, "subscribe": 14, "consumer": 10, "flow": 5, "ack": 6, "redeliver": 3,
    "schema_question": 5, "question": 4, "list": 3, "watch": 2, "rest": 12, "policy": 3, "topic_policy": 2, "drop": 2, "stats": 3,
}  # fmt: skip


class Player:
    """Plays a plan in one session; each method is a step."""

    def __init__(self, s, plan):
        self.s, self.plan, self.open, self.held, self.closed, self.got = s, plan, {}, {}, set(), {}
        self.slow, self.made = QUIET_SECONDS, set()
        self.ns = s.namespace("ns")
        s.http("PUT", f"/admin/v2/namespaces/{self.ns}", {"bundles": {"numBundles": 1}}, quietly=True)
        for name in plan.settings:
            self._set(name)
        for n in range(3):
            self.open[n] = s.connect(f"c{n}")
        if plan.partitions:
            s.http("PUT", f"/admin/v2/persistent/{self.ns}/p/partitions", plan.partitions, quietly=True)
        self._look()

    def play(self):
        for name, *arguments in self.plan.steps:
            self.s.log("step", "=", name, repr(arguments))
            self.slow = QUIET_SECONDS
            getattr(self, name)(*arguments)
            self._settle(self.slow)

    def _look(self):
        self.s.lookup(f"persistent://{self.ns}/t")

    def _topic(self, name):
        domain = "non-persistent" if name.startswith("n:") else "persistent"
        return f"{domain}://{self.ns}/{name.removeprefix('n:')}"

    def _connection(self, c):
        if c in self.closed:
            self._forget(c)
            self.open.pop(c).close()
            self.open[c] = self.s.connect(f"c{c}")
        return self.open[c]

    def _forget(self, c):
        self.closed.discard(c)
        self.made = {(other, number) for other, number in self.made if other != c}

    # commands
    def tell(self, c, command, fields):
        self._connection(c).send(command, quietly=True, **fields)

    def ask(self, c, command, fields):
        request = self.s.next_request()
        self.tell(c, command, fields | {"request_id": request})
        self._await(c, request)
        if command in {"CLOSE_CONSUMER", "SEEK", "UNSUBSCRIBE"}:
            self.slow = ELECTION_SECONDS if self.failover else QUIET_SECONDS

    failover = False

    def about(self, c, command, topic, fields):
        self.ask(c, command, {"topic": self._topic(topic)} | fields)

    def producer(self, c, topic, number, fields):
        self.ask(c, "PRODUCER", {"topic": self._topic(topic), "producer_id": number} | fields)
        last = self.held.get(c, [None])[-1]
        if last and last.type == "PRODUCER_SUCCESS":
            self.made.add((c, number))

    def send(self, c, number, sequence, size, command, metadata, bad):
        """A SEND, unless the connection was closed or the producer refused, which would close it again and again."""
        if (c, number) not in self.made and number < 4:
            return
        metadata = dict(metadata)
        payload = b"m"
        if size > 1:
            payload = batch(*[b"b"] * size)
            metadata["num_messages_in_batch"] = size
            command = {"num_messages": size} | command
        lines, self.s.lines = self.s.lines, []
        self._connection(c).publish(number, sequence, payload, command=command, bad_crc=bad, **metadata)
        self.s.lines = lines

    def subscribe(self, c, topic, name, number, fields, permits):
        self.failover |= fields["subType"] == "Failover"
        self.ask(c, "SUBSCRIBE", {"topic": self._topic(topic), "subscription": name, "consumer_id": number} | fields)
        self._settle(ELECTION_SECONDS if self.failover else QUIET_SECONDS)
        if permits and c not in self.closed:
            self.tell(c, "FLOW", {"consumer_id": number, "messagePermits": permits})

    def ack(self, c, number, kind, count):
        ids = self.got.get((c, number), [])
        chosen = ids[:count] if kind == "Individual" else ids[count - 1 : count]
        if chosen:
            self.got[c, number] = ids[count:]
            self.ask(c, "ACK", {"consumer_id": number, "ack_type": kind, "message_id": chosen})

    def list(self, c, mode, fields):
        fields = {k: v.replace("$ns", self.ns) for k, v in fields.items()}
        self.ask(c, "GET_TOPICS_OF_NAMESPACE", {"namespace": self.ns, "mode": mode} | fields)

    def watch(self, c, number, pattern):
        self.ask(c, "WATCH_TOPIC_LIST", {"watcher_id": number, "namespace": self.ns, "topics_pattern": pattern})

    def drop(self, c):
        self.open.pop(c).close()
        time.sleep(0.1)
        self.open[c] = self.s.connect(f"c{c}")
        self._forget(c)
        self.slow = ELECTION_SECONDS if self.failover else QUIET_SECONDS

    # REST
    def rest(self, method, topic, more, body):
        path = "/admin/v2/" + self._topic(topic).replace("://", "/") + more
        status, answer = self.s.http(method, path, body, quietly=True)
        if status in {200, 204}:
            status = "done"
        self.s.note(method + more, [status, answer if method == "GET" and status == "done" else None])
        self._look()
        self.slow = ELECTION_SECONDS if self.failover else 2 * QUIET_SECONDS

    def set(self, name):
        self.s.note("set", self._set(name))
        self.slow = POLICY_SECONDS

    def _set(self, name):
        method, path, body = SETTINGS[name]
        return self.s.http(method, f"/admin/v2/namespaces/{self.ns}/{path}", body, quietly=True)[0] // 100

    def topic_policy(self, topic, policy, body):
        path = f"/admin/v2/{self._topic(topic).replace('://', '/')}/{policy}"
        status = self.s.http(
            "DELETE" if body is None else "PUT" if policy == "schemaCompatibilityStrategy" else "POST",
            path,
            body,
            quietly=True,
        )[0]
        self.s.note("policy", status if status >= 300 else "done")
        self.slow = POLICY_SECONDS

    def stats(self, topic):
        status, body = self.s.http(
            "GET", "/admin/v2/" + self._topic(topic).replace("://", "/") + "/stats", quietly=True
        )
        if status != 200:
            self.s.note("stats", status)
            return
        self.s.note("topic", {k: body.get(k) for k in TOPIC_FIELDS})
        told = [[p.get(k) for k in PUBLISHER_FIELDS] for p in body["publishers"]]
        self.s.note("publishers", sorted(([n if len(n) < 3 else "generated", *more] for n, *more in told), key=str))
        for name, sub in sorted(body["subscriptions"].items()):
            self.s.note(name, {k: sub.get(k) for k in SUBSCRIPTION_FIELDS})
            told = [[c.get(k) for k in CONSUMER_FIELDS] for c in sub["consumers"]]
            self.s.note(
                "consumers", sorted(([n if len(n or "") < 3 else "generated", *more] for n, *more in told), key=str)
            )

    # reading
    def _settle(self, quiet):
        end = time.monotonic() + quiet
        while time.monotonic() < end:
            self.s.check_deadline()
            if any(self._take(n, c) for n, c in self.open.items()):
                end = time.monotonic() + quiet
            time.sleep(0.02)
        for n, c in self.open.items():
            for frame in self.held.pop(n, []):
                if frame and frame.type == "MESSAGE":
                    self.got.setdefault((n, frame.command.consumer_id), []).append(frame.message_id)
                self._log(c, frame)

    def _log(self, c, frame):
        if frame and frame.type.startswith(("GET_TOPICS", "WATCH_TOPIC")):
            told = frame.command
            names = {
                f: sorted(getattr(told, f))
                for f in ("topics", "topic", "new_topics", "deleted_topics")
                if hasattr(told, f)
            }
            self.s.log(c.name, "<", frame.type, names)
            return
        self.s.log_frame(c.name, frame)

    def _await(self, n, request):
        """Until the answer is there or the connection is closed."""
        end = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < end and n not in self.closed:
            if self._take(n, self.open[n]) and any(self._answers(f, request) for f in self.held[n]):
                return
            time.sleep(0.01)

    def _answers(self, frame, request):
        return getattr(frame and frame.command, "request_id", None) == request

    def _take(self, n, c):
        taken = False
        while not c.frames.empty() and n not in self.closed:
            frame = c.frames.get()
            self.held.setdefault(n, []).append(frame)
            taken = True
            if frame is False:
                c.frames.put(False)
                self.closed.add(n)
        return taken


def named(seed, steps, types):
    def play(s):
        s.deadline = time.monotonic() + walks.WALK_SECONDS
        Player(s, Plan(seed, steps, types)).play()

    name = f"roam_{seed:05d}"
    SCENARIOS[name] = play
    return name


if __name__ == "__main__":
    walks.named = named
    sys.exit(walks.main())
