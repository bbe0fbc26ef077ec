"""Messages of a transaction at a broker without transactions."""

from transcript import scenario


@scenario
def messages_of_a_transaction_are_refused(s):
    """A message with both halves of a transaction's id is refused, with one half it is an ordinary message."""
    topic = s.topic()
    c = s.connect()
    c.producer(topic, 1, producer_name="p", txn_enabled=True)
    c.subscribe(topic, "sub", 1, permits=10)
    for least, most in ((1, 0), (0, 0)):
        c.publish(1, 0, b"m", command={"txnid_least_bits": least, "txnid_most_bits": most})
        s.note("text", c.recv().command.message)
    for half in ("txnid_least_bits", "txnid_most_bits"):
        c.publish(1, 0, b"m", command={half: 1})
        c.recv_sorted(2)
    c.publish(1, 1, b"after")
    c.recv_sorted(2)
