"""Consumers of any subscription type that are served when they have joined, and the messages that they leave."""

from harness.steps import drained

TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
AUTO = dict(keySharedMode="AUTO_SPLIT")


def becomes_active(c):
    """Wait for the next ACTIVE_CONSUMER_CHANGE; return false when the consumer is inactive, true when it is active or
    no change comes.
    """
    frame = c.recv_quietly(4)
    return frame is None or frame.command.is_active


def join(s, topic, sub_type, name="a", consumer_id=1, permits=100, subscription="sub", **more):
    """A new consumer; when the call returns, the broker serves it."""
    c = s.connect(name)
    more = ({"keySharedMeta": AUTO} if sub_type == "Key_Shared" else {}) | more
    c.subscribe(
        topic,
        subscription,
        consumer_id,
        quietly=True,
        subType=sub_type,
        consumer_name=name,
        initialPosition="Earliest",
        **more,
    )
    while sub_type == "Failover" and not becomes_active(c):
        pass
    if permits:
        c.send("FLOW", quietly=True, consumer_id=consumer_id, messagePermits=permits)
    return c


def left(s, topic, subscription="sub"):
    """Note the messages of a new consumer: payload and ack set."""
    c = s.connect("left")
    c.subscribe(topic, subscription, 77, 100, quietly=True, subType="Shared")
    s.note("left", [[f.payload[-2:].decode("latin-1"), list(f.command.ack_set)] for f in drained(c, 0.4)])
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=77)
