"""The order of turns on a Shared subscription: consumers that join, leave, run out of permits, stand at another level."""

from harness.steps import ack, setup_connection, texts
from transcript import scenario


class Round:
    """Messages put on a topic one at a time; the log has the consumer of each."""

    def __init__(self, s, domain="persistent", acks=True):
        self.s, self.topic, self.n, self.members, self.acks = s, s.topic(domain=domain), 0, {}, acks
        self.c = setup_connection(s)
        self.c.producer(self.topic, 99, quietly=True, producer_name="p")

    def join(self, name, permits=100, priority=0, **more):
        c = self.s.connect(name)
        more = {"subType": "Shared"} | more
        c.subscribe(self.topic, permits=permits, quietly=True, consumer_name=name, priority_level=priority, **more)
        self.members[name] = c

    def leave(self, name):
        self.members.pop(name).ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)

    def flow(self, name, permits):
        self.members[name].send("FLOW", consumer_id=1, messagePermits=permits)
        self.members[name].ask("CONSUMER_STATS", quietly=True, consumer_id=1)  # permits count when this is answered

    def deal(self, n):
        """n messages, each read before the next is published; notes the names of their consumers."""
        got = []
        for _ in range(n):
            self.c.publish_all(99, [b"m%d" % self.n], self.n)
            self.n += 1
            got.append(self._taker())
        self.s.note("dealt", got)

    def _taker(self):
        end = self.s.within_deadline(1) * 50
        while end > 0:
            for name, c in self.members.items():
                if frame := c.recv_quietly(0.01):
                    if self.acks:
                        ack(c, frame.message_id)
                    return name
            end -= len(self.members)
        return None


@scenario
def turn_of_one_that_joins(s):
    r = Round(s)
    r.join("a")
    r.deal(1)
    r.join("b")
    r.deal(3)
    r.join("c")
    r.deal(5)


@scenario
def turn_after_the_first_left(s):
    r = Round(s)
    for name in "abcd":
        r.join(name)
    r.deal(2)
    r.leave("a")
    r.deal(4)


@scenario
def turn_after_the_last_left(s):
    r = Round(s)
    for name in "abcd":
        r.join(name)
    r.deal(3)
    r.leave("d")
    r.deal(4)
    r.leave("a")
    r.leave("b")
    r.deal(2)
    r.join("e")
    r.deal(3)


@scenario
def turn_after_everybody_left(s):
    r = Round(s)
    for name in "abc":
        r.join(name)
    r.deal(2)
    for name in "abc":
        r.leave(name)
    for name in "xyz":
        r.join(name)
    r.deal(9)


@scenario
def turn_of_one_out_of_permits(s):
    r = Round(s)
    for name, permits in (("a", 1), ("b", 3), ("c", 100)):
        r.join(name, permits)
    r.deal(7)
    r.flow("a", 2)
    r.deal(4)
    r.flow("b", 1)
    r.deal(3)


@scenario
def turn_with_a_better_level_that_fills_up(s):
    r = Round(s)
    r.join("low", 100, 2)
    r.deal(1)
    r.join("mid", 2, 1)
    r.join("top", 1, 0)
    r.deal(5)
    r.flow("mid", 1)
    r.deal(2)
    r.flow("top", 2)
    r.deal(4)


@scenario
def turn_between_two_levels_of_two(s):
    r = Round(s)
    for name, permits, level in (("a", 2, 0), ("b", 3, 0), ("c", 100, 1), ("d", 100, 1)):
        r.join(name, permits, level)
    r.deal(10)
    r.flow("a", 1)
    r.deal(3)
    r.join("e", 2, 0)
    r.deal(5)
    r.leave("c")
    r.deal(2)


@scenario
def turn_after_a_seek(s):
    r = Round(s)
    for name in "abc":
        r.join(name)
    r.deal(2)
    latest = dict(ledgerId=2**63 - 1, entryId=2**63 - 1)
    r.members["a"].ask("SEEK", quietly=True, consumer_id=1, message_id=latest)
    r.members.clear()
    for name in "xyz":
        r.join(name)
    r.deal(4)


@scenario
def turn_of_redelivered_messages(s):
    r = Round(s, acks=False)
    for name in "abc":
        r.join(name)
    r.deal(3)
    r.members["b"].send("REDELIVER_UNACKNOWLEDGED_MESSAGES", consumer_id=1)
    s.note("again", r._taker())
    r.deal(2)
    r.leave("b")
    s.note("again", r._taker())
    r.deal(2)


@scenario
def turn_on_a_non_persistent_topic(s):
    r = Round(s, "non-persistent")
    for name, permits, level in (("a", 3, 0), ("b", 2, 0), ("c", 100, 1)):
        r.join(name, permits, level)
    r.deal(7)
    r.flow("b", 1)
    r.deal(2)
    r.leave("a")
    r.join("d")
    r.deal(3)


@scenario
def backlog_is_dealt_to_those_who_join_late(s):
    """Sixty messages of backlog, read by three that come one after the other with permits for twenty-five each."""
    topic = s.topic()
    keeper = s.connect()
    keeper.subscribe(topic, quietly=True, subType="Shared")
    c = setup_connection(s)
    c.producer(topic, 99, quietly=True, producer_name="p")
    c.publish_all(99, [b"%d" % i for i in range(60)])
    for name in ("a", "b", "d"):
        x = s.connect(name)
        x.subscribe(topic, permits=25, quietly=True, subType="Shared")
        frames = list(iter(lambda x=x: x.recv_quietly(0.4), None))
        s.note(name, texts(frames))
        ack(x, *[f.message_id for f in frames[:5]])
    keeper.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)
