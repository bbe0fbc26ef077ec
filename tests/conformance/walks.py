#!/usr/bin/env python3
"""Random walks of wire commands and REST calls, played against two brokers: every answer must be alike.

    walks.py --oracle pulsar://127.0.0.1:6650 http://127.0.0.1:8080 [--ours URL HTTP] [--first SEED] [--walks N]

The oracle is an Apache Pulsar with the settings of default.conf; without --ours a broker of this project is started. A
seed gives the same walk for ever (with the same --types and --steps): consumers of one subscription join, leave, drop
their connection, grant permits, acknowledge (entries, messages of batches, cumulatively), ask for redelivery, seek, and
unsubscribe, while single, batched, keyed, delayed and chunked messages are published and the topic is unloaded,
terminated, skipped over and looked at. After each step all connections are read until they are silent, so the order of
frames on one connection counts and the order between connections does not.

A walk that comes out differently is played twice more on both. It is reported as "differs" when no log of Magnetar is
among the oracle's, as "unsteady" when the oracle does not agree with itself either, as "broken" (fewer --jobs help)
when the oracle did not get to the end in time. --show prints both logs. A finding becomes a scenario or a unit test
before its repair; the walk itself is not kept. Limits: one topic, one subscription; differences listed in
docs/differences.md are left out as far as a plan can know them; reads that outlive their consumer depend on timing.
"""

import argparse
import contextlib
import pathlib
import random
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
for folder in (HERE, HERE.parents[1]):  # the harness, and the project when it is not installed
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from harness.broker import running_broker  # noqa: E402  # importable only from here on
from harness.clock import BrokerClock  # noqa: E402
from harness.runner import SCENARIOS, Runner, compare  # noqa: E402
from harness.steps import EARLIEST, LATEST, batch, now_ms, rest, setup_connection  # noqa: E402

TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
KEYS = (None, "k1", "k2", "key1", "key2", "key01")
MEMBERS = 6  # consumers that join in one walk
QUIET_SECONDS = 0.3  # silence that ends a step
ELECTION_SECONDS = 1.5  # silence after steps that make Failover choose, which waits a second
DELAY_MS = 500
WALK_SECONDS = 60
TIMES = 3  # runs of a walk that came out differently
SUBSCRIPTION_FIELDS = (
    "msgBacklog", "unackedMessages", "msgOutCounter", "type", "activeConsumerName", "blockedSubscriptionOnUnackedMsgs",
)  # fmt: skip
CONSUMER_FIELDS = (
    "consumerName", "availablePermits", "unackedMessages", "msgOutCounter", "avgMessagesPerEntry",
    "blockedConsumerOnUnackedMsgs",
)  # fmt: skip


class Plan:
    """The steps of one seed, decided before anything is played: a step is the name of a Player's method
    and its arguments.
    """

    def __init__(self, seed, steps, types):
        self.r = r = random.Random(seed)
        self.type = r.choice(types)
        self.domain = "non-persistent" if r.random() < 0.1 else "persistent"
        plain_topic = self.type != "Failover" and r.random() < 0.6
        self.partition = None if plain_topic else r.randrange(3)
        self.schema = r.random() < 0.1
        self.durable = r.random() > 0.12
        self.acks_parts = (
            r.random() < 0.7
        )  # Apache Pulsar forgets them when a topic is unloaded, so such a walk never is
        self.key_shared = self._key_shared()
        self.sizes, self.live, self.left, self.joined, self.ranges = [], [], [], 0, 0
        self.steps = []
        if r.random() < 0.7:
            self._join()
        while len(self.steps) < steps:
            self._step() if self.live else self._join()
            if r.random() < 0.15:
                self._add("stats")
        self._add("stats")

    def _add(self, name, *arguments):
        self.steps.append((name, *arguments))

    def _key_shared(self):
        auto = {"keySharedMode": "AUTO_SPLIT"}
        return self.r.choice([None, auto, auto, auto | {"allowOutOfOrderDelivery": True}, "sticky"])

    def _consumer(self):
        """The fields of a SUBSCRIBE and the permits given after it."""
        r = self.r
        kind = self.type if r.random() < 0.95 else r.choice(TYPES)
        fields = {"subType": kind, "permits": r.choice([0, 1, 2, 5, 100, 100])}
        if r.random() < 0.3:
            fields["priority_level"] = r.randrange(3)
        if r.random() < 0.2:
            fields["initialPosition"] = "Earliest"
        if not self.durable:
            fields["durable"] = False
            if r.random() < 0.3:
                fields["start_message_id"] = EARLIEST
        if r.random() < 0.25:
            fields["consumer_epoch"] = r.randrange(3)
        if self.schema and r.random() < 0.5:
            fields["schema"] = {"name": "s", "schema_data": b"", "type": r.choice(["String", "String", "Int32"])}
        if kind == "Key_Shared" and self.key_shared:
            fields["keySharedMeta"] = self._sticky() if self.key_shared == "sticky" else self.key_shared
        return fields

    def _sticky(self):
        first, self.ranges = self.ranges * 16384, self.ranges + 1
        end = first + (16383 if self.r.random() < 0.8 else 8000)
        return {"keySharedMode": "STICKY", "hashRanges": [{"start": first, "end": end}]}

    def _join(self):
        self._add("join", self.joined, self._consumer())
        self.live.append(self.joined)
        self.joined += 1

    def _return(self, share=0.7):
        """Most of the consumers that the step before closed subscribe again."""
        for member in self.live:
            if self.r.random() < share:
                self._add("subscribe", member, self._consumer())

    def _entries(self, most=3):
        """Numbers of published entries, and for some batches the bits still to be acknowledged."""
        chosen = self.r.sample(range(len(self.sizes)), min(len(self.sizes), self.r.randint(1, most)))
        return [(k, self._bits(k, 0.6)) for k in chosen]

    def _bits(self, entry, share):
        size = self.sizes[entry]
        wanted = self.acks_parts and size > 1 and self.r.random() < share
        return self.r.randrange(1, 1 << size) if wanted else None

    def _step(self):
        chosen = self.r.choices(list(WEIGHTS), WEIGHTS.values())[0]
        getattr(self, "_" + chosen)(self.r.choice(self.live))

    def _publish(self, _member):
        for _ in range(self.r.choice([1, 1, 2, 4])):
            size = self.r.choice([1, 1, 1, 2, 5])
            self._add("publish", size, self.r.choice(KEYS))
            self.sizes.append(size)

    def _delayed(self, member):
        if self.type == "Shared":  # Apache Pulsar spends a turn on reading it before it is due (docs/differences.md)
            self._publish(member)
            return
        size = self.r.choice([1, 1, 3])
        self._add("delayed", size, self.r.choice([DELAY_MS, DELAY_MS, 3_600_000]), self.r.choice(KEYS))
        self.sizes.append(size)

    def _chunked(self, member):
        if self.type == "Shared":  # Apache Pulsar has chunks wait for ever whose consumer left (docs/differences.md)
            self._publish(member)
            return
        chunks = self.r.choice([2, 3])
        self._add("chunked", chunks, self.r.choice(KEYS))
        self.sizes += [1] * chunks

    def _another(self, _member):
        if self.left and self.r.random() < 0.3:
            member = self.left.pop(self.r.randrange(len(self.left)))
            self._add("subscribe", member, self._consumer())
            self.live.append(member)
        elif self.joined < MEMBERS:
            self._join()

    def _go(self, member):
        name = self.r.choice(["leave", "drop"])
        self._add(name, member)
        self.live.remove(member)
        if name == "leave":
            self.left.append(member)

    def _flow(self, member):
        self._add("flow", member, self.r.choice([1, 2, 3, 10, 100]))

    def _ack(self, member):
        self._add("ack", member, "Individual", self._entries(), self.r.random() < 0.5)

    def _cumulative(self, member):
        self._add("ack", member, "Cumulative", self._entries(1), self.r.random() < 0.5)

    def _redeliver(self, member):
        chosen = [k for k, _ in self._entries()] if self.r.random() < 0.5 else []
        self._add("redeliver", member, chosen, self.r.choice([None, None, 0, 1, 5]))

    def _seek(self, member):
        target = self.r.choice(["earliest", "latest", *range(len(self.sizes))])
        self._add("seek", member, target, None if isinstance(target, str) else self._bits(target, 0.5))
        self._return(1 if self.type == "Failover" else 0.7)  # consumers that stay away: see docs/differences.md

    def _last(self, member):
        self._add("last", member)

    def _unsubscribe(self, member):
        self._add("unsubscribe", member, self.r.random() < 0.5)

    def _unload(self, _member):
        if not self.acks_parts:
            self._add("unload")
            self._return()

    def _rest(self, _member):
        self._add("post", self.r.choice(["skip/1", "skip/2", "skip/5", "skip_all", "expireMessages/3600"]))

    def _terminate(self, _member):
        self._add("terminate")

    def _stats(self, _member):
        self._add("stats")


WEIGHTS = {
    "publish": 22, "delayed": 3, "chunked": 3, "another": 13, "go": 5, "flow": 12, "ack": 14, "cumulative": 5,
    "redeliver": 9, "seek": 3, "last": 2, "unsubscribe": 1.5, "unload": 1.5, "rest": 2, "terminate": 0.5, "stats": 3,
}  # fmt: skip


class Player:
    """Plays a plan in one session; each method is a step."""

    def __init__(self, s, plan):
        self.s, self.plan = s, plan
        self.members, self.held, self.closed = {}, {}, set()
        self.ids, self.sizes, self.sequence = [], [], 0
        name = "t" if plan.partition is None else f"t-partition-{plan.partition}"
        if plan.partition is not None:
            s.http("PUT", f"/admin/v2/{plan.domain}/public/default/{s.tag}-t/partitions", 3, quietly=True)
        self.topic = s.topic(name, domain=plan.domain)

    def play(self):
        for name, *arguments in self.plan.steps:
            shown = [sorted(a.items(), key=str) if isinstance(a, dict) else a for a in arguments]
            self.s.log("step", "=", name, repr(shown))
            getattr(self, name)(*arguments)
            if name != "stats":
                self._settle(ELECTION_SECONDS if self._is_slow(name, arguments) else QUIET_SECONDS)

    def _is_slow(self, name, arguments):
        elects = name in {"join", "leave", "drop", "subscribe", "seek", "unload"}
        return (elects and self.plan.type == "Failover") or (name == "delayed" and arguments[1] == DELAY_MS)

    # the requests
    def join(self, member, fields):
        self.members[member] = self.s.connect(f"c{member}")
        self.subscribe(member, fields)

    def subscribe(self, member, fields):
        fields = dict(fields)
        permits = fields.pop("permits")
        named = {"topic": self.topic, "subscription": "sub", "consumer_name": f"n{member}"}
        self._ask(member, "SUBSCRIBE", **named, **fields)
        if permits:
            self.flow(member, permits)

    def leave(self, member):
        self._ask(member, "CLOSE_CONSUMER")

    def drop(self, member):
        self.members.pop(member).close()

    def flow(self, member, permits):
        self._send(member, "FLOW", messagePermits=permits)

    def ack(self, member, kind, entries, answered):
        ids = [m for k, bits in entries if (m := self._id(k, bits))]
        if ids:
            more = {"request_id": self.s.next_request()} if answered else {}
            self._send(member, "ACK", ack_type=kind, message_id=ids, **more)

    def redeliver(self, member, entries, epoch):
        ids = [m for k in entries if (m := self._id(k))]
        more = {} if epoch is None else {"consumer_epoch": epoch}
        self._send(member, "REDELIVER_UNACKNOWLEDGED_MESSAGES", message_ids=ids, **more)

    def seek(self, member, target, bits):
        ends = {"earliest": EARLIEST, "latest": LATEST}
        message_id = ends.get(target) or self._id(target, bits)
        if message_id:
            self._ask(member, "SEEK", message_id=message_id)

    def last(self, member):
        self._ask(member, "GET_LAST_MESSAGE_ID")

    def unsubscribe(self, member, force):
        self._ask(member, "UNSUBSCRIBE", force=force)

    # operations on the topic
    def publish(self, size, key, **metadata):
        metadata |= {"partition_key": key} if key else {}
        if size == 1:
            self._put([(b"m", 1, metadata)])
        else:
            self._put([(batch(*[b"b"] * size), size, metadata | {"num_messages_in_batch": size})])

    def delayed(self, size, delay_ms, key):
        self.publish(size, key, deliver_at_time=now_ms(delay_ms))

    def chunked(self, chunks, key):
        common = {"uuid": f"p-{self.sequence}", "num_chunks_from_msg": chunks, "total_chunk_msg_size": 3 * chunks}
        common |= {"partition_key": key} if key else {}
        self._put([(b"chk", 1, common | {"chunk_id": i}) for i in range(chunks)], one_sequence=True)

    def _put(self, sends, one_sequence=False):
        """Publishes over a connection of its own, unlogged but for a refusal; keeps the ids."""
        c, keep = setup_connection(self.s), self.s.lines
        self.s.lines = []
        schema = {"schema": {"name": "s", "schema_data": b"", "type": "String"}} if self.plan.schema else {}
        opened = c.producer(self.topic, 99, quietly=True, producer_name="p", **schema)
        taken = opened and opened.type == "PRODUCER_SUCCESS"
        for payload, messages, metadata in sends:
            receipt = None
            if taken:
                c.publish(99, self.sequence, payload, command={"num_messages": messages}, **metadata)
                receipt = c.recv_quietly()
            good = receipt and receipt.type == "SEND_RECEIPT"
            self.ids.append(receipt.message_id if good else None)
            self.sizes.append(messages)
            self.sequence += 0 if one_sequence else messages
        self.sequence += int(one_sequence)
        if taken:
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=99)
        self.s.lines = keep
        if self.ids[-1] is None:
            self.s.note("refused", opened and opened.type)

    def unload(self):
        self.s.http("PUT", rest(self.topic, "/unload"), quietly=True)
        self.s.lookup(self.topic)

    def terminate(self):
        self.s.http("POST", rest(self.topic, "/terminate"), quietly=True)

    def post(self, what):
        self.s.note("status", self.s.http("POST", rest(self.topic, "/subscription/sub/" + what), quietly=True)[0])

    def stats(self):
        """Counts of the subscription and of its consumers, which is also proof that nothing is missing in silence."""
        body = self.s.http("GET", rest(self.topic, "/stats"), quietly=True)[1]
        sub = body.get("subscriptions", {}).get("sub") if isinstance(body, dict) else None
        self.s.note("subscription", sub and {k: sub.get(k) for k in SUBSCRIPTION_FIELDS})
        consumers = [[c.get(k) for k in CONSUMER_FIELDS] for c in sub["consumers"]] if sub else []
        self.s.note("consumers", sorted(consumers, key=str))

    # sending and reading
    def _id(self, entry, bits=None):
        if entry >= len(self.ids) or self.ids[entry] is None:
            return None
        return self.ids[entry] | ({} if bits is None else {"ack_set": [bits], "batch_size": self.sizes[entry]})

    def _send(self, member, command, **fields):
        self.members[member].send(command, quietly=True, consumer_id=1, **fields)

    def _ask(self, member, command, **fields):
        """Sends a request and waits for its answer; frames before the answer are kept for the log."""
        request, c = self.s.next_request(), self.members[member]
        self._send(member, command, request_id=request, **fields)
        held = self.held.setdefault(member, [])
        end = self.s.clock.now() + 6
        while self.s.clock.now() < end:
            frame = c._read(0.5)
            if frame is False:
                return
            if frame:
                held.append(frame)
            if getattr(frame and frame.command, "request_id", None) == request:
                return

    def _settle(self, quiet):
        """Reads all connections until none of them has anything for so long, then logs one after the other."""
        clock = self.s.clock
        end = clock.now() + quiet
        while clock.now() < end:
            self.s.check_deadline()
            if any(self._take(member, c) for member, c in self.members.items()):
                end = clock.now() + quiet
            time.sleep(0.02)
        for member, c in self.members.items():
            for frame in self.held.pop(member, []):
                self._log(c, frame)

    def _take(self, member, c):
        """Whether a frame was waiting on that connection; its end is kept once."""
        taken = False
        while not c.frames.empty() and member not in self.closed:
            frame = c.frames.get()
            self.held.setdefault(member, []).append(frame)
            taken = True
            if frame is False:
                c.frames.put(False)
                self.closed.add(member)
        return taken

    def _log(self, c, frame):
        if not frame or frame.type != "MESSAGE":
            self.s.log_frame(c.name, frame)
            return
        m, metadata = frame.command, frame.metadata
        told = {"ledgerId": m.message_id.ledgerId, "entryId": m.message_id.entryId, "size": len(frame.payload)}
        told |= {"redelivery_count": m.redelivery_count} if m.redelivery_count else {}
        # Bits beyond the batch are free: Apache Pulsar sends whole words of them.
        told |= {"ack_set": [word & 0xFF for word in m.ack_set]} if m.ack_set else {}
        told |= {"consumer_epoch": m.consumer_epoch} if m.HasField("consumer_epoch") else {}
        told |= {"key": metadata.partition_key} if metadata.partition_key else {}
        self.s.log(c.name, "<", "MESSAGE", told)


def named(seed, steps, types):
    """The walk of that seed among the scenarios; its name."""

    def play(s):
        s.deadline = s.clock.now() + WALK_SECONDS
        Player(s, Plan(seed, steps, types)).play()

    name = f"walk_{seed:05d}"
    SCENARIOS[name] = play
    return name


def walk(name, oracle, ours):
    """The verdict and both logs; a walk that came out differently is played again."""
    theirs, mine = [], []
    with ThreadPoolExecutor(2) as pair:
        for _ in range(TIMES):
            running = pair.submit(oracle.run_one, name)
            mine.append(ours.run_one(name))
            theirs.append(running.result())
            if any(log in theirs for log in mine):
                return "equal", theirs[-1], mine[-1]
    if any(line.startswith("! ") for log in theirs for line in log):
        return "broken", theirs[-1], mine[-1]
    steady = all(log == theirs[0] for log in theirs)
    return "differs" if steady else "unsteady", theirs[0], mine[0]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument(
        "--oracle", nargs=2, metavar=("URL", "HTTP"), default=["pulsar://127.0.0.1:6650", "http://127.0.0.1:8080"]
    )
    p.add_argument("--ours", nargs=2, metavar=("URL", "HTTP"))
    p.add_argument("--first", type=int, default=random.randrange(100_000), metavar="SEED", help="default: any")
    p.add_argument("--walks", type=int, default=100)
    p.add_argument("--steps", type=int, default=18)
    p.add_argument("--types", type=lambda text: text.split(","), default=list(TYPES), help=",".join(TYPES))
    p.add_argument("--jobs", type=int, default=6, help="walks at the same time")
    p.add_argument("--show", action="store_true", help="print the logs too")
    return p.parse_args()


def main():
    a = arguments()
    counts = dict.fromkeys(["equal", "broken", "unsteady", "differs"], 0)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        urls = a.ours or stack.enter_context(running_broker("default", folder))
        clocks = [stack.enter_context(BrokerClock(url)) for url, _ in (a.oracle, urls)]
        oracle, ours = (Runner(*at, clock=clock) for at, clock in zip((a.oracle, urls), clocks, strict=True))
        names = [named(seed, a.steps, a.types) for seed in range(a.first, a.first + a.walks)]
        pool = stack.enter_context(ThreadPoolExecutor(a.jobs))
        for name, (verdict, theirs, mine) in zip(names, pool.map(lambda n: walk(n, oracle, ours), names), strict=True):
            counts[verdict] += 1
            if a.show:
                print(f"== {name} oracle", *theirs, f"== {name} ours", *mine, sep="\n")
            if verdict in {"unsteady", "differs"}:
                print(f"{verdict}: {name}", *compare(theirs, mine), sep="\n    ", flush=True)
    print(f"seeds {a.first} to {a.first + a.walks - 1}, types {','.join(a.types)}, {a.steps} steps: {counts}")
    return 1 if counts["differs"] else 0


if __name__ == "__main__":
    sys.exit(main())
