#!/usr/bin/env python3
"""Random journeys: the commands and REST calls of roams.py and more, with all figures of a topic after each step.

    journeys.py --oracle pulsar://127.0.0.1:6650 http://127.0.0.1:8080 [--ours URL HTTP] [--first SEED] [--walks N]

A journey stays with a single topic and its subscriptions, and looks deeper than a roam: batches acknowledged in part,
delayed, keyed, compressed and empty messages, redelivery of chosen messages, seeks by message, by place in a batch and
by time, cursors moved over REST, compaction, messages read over REST, properties, policies set, shown and removed. The
verdicts are those of walks.py.
"""

import random
import re
import sys
import time

import roams
import walks
from harness.figures import figures, internal_figures
from harness.runner import SCENARIOS
from harness.steps import EARLIEST, LATEST, batch, now_ms

TYPES = ("Exclusive", "Shared", "Key_Shared")
HIDDEN = (
    "msgDelayed",
    "lastConsumedTimestamp",
    "lastAckedTimestamp",
    "lastConsumedFlowTimestamp",
    "readPositionWhenJoining",
)
KEYS = ("k1", "k2", "k3", "")
JOURNEY_SECONDS = 300
POLICIES = {
    "retention": ("POST", [{"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}, {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}]),
    "messageTTL?messageTTL=100": ("POST", [None]), "maxConsumers": ("POST", [1, 3]), "maxProducers": ("POST", [1, 2]),
    "maxUnackedMessagesOnConsumer": ("POST", [2, 5]), "maxUnackedMessagesOnSubscription": ("POST", [3, 6]),
    "deduplicationEnabled": ("POST", [True, False]), "compactionThreshold": ("POST", [100000]), "maxMessageSize": ("POST", [3, 1000]),
    "delayedDelivery": ("POST", [{"active": False, "tickTime": 100}, {"active": True, "tickTime": 100, "maxDeliveryDelayInMillis": 1000}]),
    "persistence": ("POST", [{"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1, "managedLedgerMaxMarkDeleteRate": 1.0}]),
    "subscriptionTypesEnabled": ("POST", [["Shared", "Exclusive"]]), "maxSubscriptionsPerTopic": ("POST", [1, 2]),
    "autoSubscriptionCreation": ("POST", [{"allowAutoSubscriptionCreation": False}]),
}  # fmt: skip


class Plan:
    """The steps of one seed; each is the name of a Player's method and its arguments."""

    partitions, settings = 0, ()

    def __init__(self, seed, steps, types):
        self.r = r = random.Random(seed)
        self.type, self.sent = r.choice(types), 0
        self.topic = "n:t" if r.random() < 0.06 else "t"
        self.steps = []
        self._join()
        while len(self.steps) < steps:
            getattr(self, "_" + r.choices(list(WEIGHTS), WEIGHTS.values())[0])()

    def _add(self, name, *arguments):
        self.steps.append((name, *arguments))

    def _some(self, **choices):
        return {k: self.r.choice(values) for k, (share, values) in choices.items() if self.r.random() < share}

    def _join(self):
        r = self.r
        kind = self.type if r.random() < 0.9 else r.choice(TYPES)
        fields = {"subType": kind} | self._some(
            initialPosition=(0.5, ["Earliest", "Latest"]), durable=(0.08, [False]), start_message_id=(0.08, [EARLIEST, LATEST]),
            priority_level=(0.2, [0, 1]), read_compacted=(0.1, [True]),
            subscription_properties=(0.1, [[{"key": "k", "value": "v"}]]), metadata=(0.1, [[{"key": "m", "value": "1"}]]),
            start_message_rollback_duration_sec=(0.04, [100]), force_topic_creation=(0.1, [False]),
        )  # fmt: skip
        if kind == "Key_Shared":
            fields["keySharedMeta"] = {"keySharedMode": "AUTO_SPLIT"} | self._some(
                allowOutOfOrderDelivery=(0.2, [True])
            )
        c, name = r.randrange(3), r.choice(["s1", "s1", "s1", "s2"])
        fields["consumer_name"] = f"n{len(self.steps)}"
        self._add("subscribe", c, self.topic, name, 1, fields, r.choice([0, 1, 3, 100, 100]))

    def _publish(self):
        r = self.r
        for _ in range(r.choice([1, 1, 2, 4])):
            size = r.choice([1, 1, 1, 3])
            metadata = self._some(
                partition_key=(0.4, KEYS), event_time=(0.1, [5]), properties=(0.15, [[{"key": "k", "value": "v"}]]),
                ordering_key=(0.05, [b"o"]), null_value=(0.04, [True]), replicated_from=(0.03, ["x"]),
            )  # fmt: skip
            delay = r.choice([400, 3_600_000, -5]) if r.random() < 0.08 else None
            self._add("put", self.sent, size, metadata, delay)
            self.sent += size

    def _repeat(self):
        if self.sent:
            self._add("put", self.r.randrange(self.sent), 1, {}, None)

    def _flow(self):
        self._add("tell", self.r.randrange(3), "FLOW", {"consumer_id": 1, "messagePermits": self.r.choice([1, 2, 10])})

    def _ack(self):
        r = self.r
        kind = r.choice(["Individual", "Individual", "Cumulative"])
        self._add("acknowledge", r.randrange(3), kind, r.choice([1, 1, 2, 3]), r.random() < 0.4, r.random() < 0.2)

    def _redeliver(self):
        self._add("again", self.r.randrange(3), self.r.choice([0, 0, 1, 2]))

    def _move(self):
        r = self.r
        self._add(
            "seek",
            r.randrange(3),
            r.choice(["earliest", "latest", "id", "id", "part", "time", "later", "none"]),
            r.randrange(9),
        )

    def _end(self):
        r = self.r
        what = r.choice(
            ["CLOSE_CONSUMER", "CLOSE_CONSUMER", "UNSUBSCRIBE", "GET_LAST_MESSAGE_ID", "GET_LAST_MESSAGE_ID", "drop"]
        )
        if what == "drop":
            self._add("drop", r.randrange(3))
        else:
            more = {"force": True} if what == "UNSUBSCRIBE" and r.random() < 0.5 else {}
            self._add("ask", r.randrange(3), what, {"consumer_id": 1} | more)

    def _cursor(self):
        sub = "/subscription/" + self.r.choice(["s1", "s1", "s1", "s2", "none"])
        method, more, body = self.r.choice([
            ("POST", "/skip/1", None), ("POST", "/skip/2", None), ("POST", "/skip_all", None), ("POST", "/resetcursor/0", None),
            ("POST", "/resetcursor/99999999999999", None), ("POST", "/resetcursor", "id"), ("POST", "/resetcursor", "part"),
            ("POST", "/resetcursor", "id+"), ("POST", "/expireMessages/0", None), ("POST", "/expireMessages", "id"), ("PUT", "", "earliest"),
            ("PUT", "", "latest"), ("PUT", "", "id"), ("DELETE", "", None), ("DELETE", "?force=true", None),
            ("PUT", "/properties", {"a": "1"}), ("PUT", "/properties", {}), ("GET", "/properties", None), ("POST", "/analyzeBacklog", None),
            ("GET", "/position/1", None), ("GET", "/position/2", None),
        ])  # fmt: skip
        self._add("call", method, sub + more, body, self.r.randrange(9))

    def _topic_call(self):
        method, more, body = self.r.choice([
            ("PUT", "/unload", None), ("PUT", "/unload", None), ("DELETE", "/truncate", None), ("POST", "/trim", None), ("POST", "/terminate", None),
            ("GET", "/lastMessageId", None), ("GET", "/getMessageIdByIndex?index=1", None),
            ("GET", "/getMessageIdByIndex?index=4", None), ("GET", "/messageid/0", None), ("PUT", "/backlogSize", "id"),
            ("GET", "/examinemessage?initialPosition=earliest&messagePosition=2", None), ("GET", "/subscriptions", None),
            ("POST", "/all_subscription/skip_all", None), ("POST", "/all_subscription/expireMessages/0", None),
            ("PUT", "/properties", {"a": "1"}), ("DELETE", "/properties?key=a", None), ("DELETE", "", None), ("DELETE", "?force=true", None),
            ("GET", "/policies", None), ("GET", "/producers", None),
        ])  # fmt: skip
        self._add("call", method, more, body, self.r.randrange(9))

    def _compact(self):
        self._add("compact")

    def _policy(self):
        r = self.r
        path, (method, bodies) = r.choice(list(POLICIES.items()))
        self._add("policy", path, method, r.choice(bodies), r.choice(["set", "set", "remove"]))


WEIGHTS = {
    "publish": 22, "repeat": 1, "join": 12, "flow": 6, "ack": 16, "redeliver": 6, "move": 7, "end": 8, "cursor": 13, "topic_call": 11,
    "compact": 2, "policy": 5,
}  # fmt: skip


class Player(roams.Player):
    """Plays a plan in one session; all figures of the topic follow each step."""

    def __init__(self, s, plan):
        self.ids, self.closing = [], {}
        super().__init__(s, plan)
        self.feeder = s.connect("feeder")
        s.http("PUT", self._path(""), quietly=True)

    def _path(self, more):
        return "/admin/v2/" + self._topic(self.plan.topic).replace("://", "/") + more

    def play(self):
        topic = self._topic(self.plan.topic)
        for name, *arguments in self.plan.steps:
            self.s.log(
                "step", "=", name, repr([sorted(a.items(), key=str) if isinstance(a, dict) else a for a in arguments])
            )
            self.slow = roams.QUIET_SECONDS
            getattr(self, name)(*arguments)
            self._settle(self.slow)
            figures(self.s, topic, "figures", HIDDEN)
            if name in {"call", "seek", "acknowledge"} and self.plan.topic == "t":
                internal_figures(self.s, topic, "internal")

    def put(self, sequence, size, metadata, delay):
        s, c = self.s, self.feeder
        lines, s.lines = s.lines, []
        self._look()
        made = c.ask("PRODUCER", quietly=True, topic=self._topic(self.plan.topic), producer_id=1, producer_name="p")
        answer = made
        if made and made.type == "PRODUCER_SUCCESS":
            more = dict(metadata) | ({} if delay is None else {"deliver_at_time": now_ms(delay)})
            payload = batch(*[b"b%d" % i for i in range(size)]) if size > 1 else b"m%d" % sequence
            more |= {"num_messages_in_batch": size} if size > 1 else {}
            c.publish(1, sequence, payload, command={"num_messages": size}, **more)
            answer = c.recv_quietly(5)
            if answer and answer.type == "SEND_RECEIPT" and answer.message_id["entryId"] < 2**60:
                self.ids.append((answer.message_id, size))
            if answer:
                c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
        if not answer:
            c.close()
            self.feeder = s.connect("feeder")
        s.lines = lines
        s.note("put", [answer and answer.type, str(getattr(answer and answer.command, "error", ""))])
        if delay == 400:
            self.slow = 1.2

    def _log(self, c, frame):
        if frame and frame.type == "MESSAGE" and frame.metadata.HasField("deliver_at_time"):
            frame.metadata.deliver_at_time = 1  # differs between runs
        super()._log(c, frame)

    def _id(self, number, part=False):
        if not self.ids:
            return None
        found, size = self.ids[number % len(self.ids)]
        if part and size > 1:
            return found | {"ack_set": [0b110], "batch_size": size}
        return found

    def acknowledge(self, c, kind, count, part, answered):
        held = self.got.get((c, 1), [])
        chosen = held[:count] if kind == "Individual" else held[count - 1 : count]
        if not chosen:
            return
        self.got[c, 1] = held if part else held[count:]
        sizes = {(i["ledgerId"], i["entryId"]): n for i, n in self.ids}
        ids = []
        for each in chosen:
            size = sizes.get((each["ledgerId"], each["entryId"]), 1)
            ids.append(
                each
                | (
                    {"ack_set": [0b101 if kind == "Individual" else 0b100], "batch_size": size}
                    if part and size > 1
                    else {}
                )
            )
        fields = {"consumer_id": 1, "ack_type": kind, "message_id": ids}
        if answered:
            self.ask(c, "ACK", fields)
        else:
            self.tell(c, "ACK", fields)

    def again(self, c, count):
        ids = self.got.get((c, 1), [])[:count]
        self.tell(c, "REDELIVER_UNACKNOWLEDGED_MESSAGES", {"consumer_id": 1, "message_ids": ids})

    def seek(self, c, target, number):
        more = {
            "earliest": {"message_id": EARLIEST},
            "latest": {"message_id": LATEST},
            "time": {"message_publish_time": 0},
            "none": {},
        }.get(target)
        if target == "later":
            more = {"message_publish_time": now_ms(3_600_000)}
        if target in {"id", "part"}:
            more = {"message_id": self._id(number, target == "part") or EARLIEST}
        self.ask(c, "SEEK", {"consumer_id": 1} | more)
        self.slow = 0.4

    def call(self, method, more, body, number):
        if body in ("id", "part", "id+"):
            found = self._id(number) or {"ledgerId": 0, "entryId": 0}
            query = "" if body != "id+" else "?isExcluded=true"
            body = {"ledgerId": found["ledgerId"], "entryId": found["entryId"]} | (
                {"batchIndex": 1} if body == "part" else {}
            )
            body |= {"isExcluded": True} if query else {}
        status, answer = self.s.http(method, self._path(more), body, quietly=True)
        if status in {200, 204}:
            status = "done"
        shown = _reason(answer) if status != "done" else _calm(self.s, answer) if method == "GET" else None
        self.s.note(method + more, [status, shown])
        self._look()
        self.slow = 0.4

    def compact(self):
        status = self.s.http("PUT", self._path("/compaction"), quietly=True)[0]
        self.s.note("compaction", status)
        if status < 300:
            ended = ("SUCCESS", "ERROR", "NOT_RUN")
            self.s.until(
                lambda: self.s.http("GET", self._path("/compaction"), quietly=True)[1].get("status") in ended, 10
            )
            time.sleep(0.2)

    def policy(self, path, method, body, what):
        bare = path.partition("?")[0]
        if what == "set":
            status = self.s.http(method, self._path("/" + path), body, quietly=True)[0]
        else:
            status = self.s.http("DELETE", self._path("/" + bare), quietly=True)[0]
        self.s.note(what, status if status >= 300 else "done")
        time.sleep(roams.POLICY_SECONDS)
        for query in ("", "?applied=true"):
            status, answer = self.s.http("GET", self._path(f"/{bare}{query}"), quietly=True)
            self.s.note(
                bare + query,
                [status if status >= 300 or answer is not None else "done", answer if status < 300 else None],
            )


def _reason(answer):
    """The reason of a refusal, without ledgers."""
    reason = answer.get("reason") if isinstance(answer, dict) else answer and "a page"
    return reason and re.sub(r"\b\d+:(-?\d+)", r"L:\1", str(reason))[:160]


def _calm(s, value):
    if isinstance(value, dict):
        return s.neutral({k: _calm(s, v) for k, v in value.items() if k not in ("properties", "partitionIndex") or v})
    return value


def named(seed, steps, types):
    def play(s):
        s.deadline = s.clock.now() + JOURNEY_SECONDS
        Player(s, Plan(seed, steps, types)).play()

    name = f"journey_{seed:05d}"
    SCENARIOS[name] = play
    return name


if __name__ == "__main__":
    walks.named = named
    walks.TYPES = TYPES
    sys.exit(walks.main())
