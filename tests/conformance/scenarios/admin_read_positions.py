"""Where a cursor reads next when requests, acknowledgements and seeks have moved it, over loads of the topic."""

from harness.consumers import join
from harness.steps import LATEST, ack, published, read, rest, stats
from transcript import scenario

# Each letter is a step of a walk, in this order: see _steps.
WALKS = ("pucp", "pup4up", "pu3upu3", "puCj", "puI", "pAuj", "pusj", "puxj")


def _position(s, text):
    ledger, _, entry = text.partition(":")
    return f"{s.neutral({'ledgerId': int(ledger)})['ledgerId']}:{entry}"


def _places(s, topic):
    found = s.http("GET", rest(topic, "/internalStats"), quietly=True)[1]
    return {
        "ledgers": [_position(s, f"{each['ledgerId']}:{each['entries']}") for each in found["ledgers"]],
        "confirmed": _position(s, found["lastConfirmedEntry"]),
        **{
            name: [_position(s, cursor["markDeletePosition"]), _position(s, cursor["readPosition"])]
            for name, cursor in found["cursors"].items()
        },
    }


def _with_consumer(s, topic, kind, permits, use):
    """Join the subscription, use the consumer, leave, and wait until the broker has seen that."""
    c = join(s, topic, kind, permits, subscription="s")
    use(c)
    c.close()
    s.until(lambda: not stats(s, topic)["subscriptions"]["s"]["consumers"])


def _acknowledged(c, count):
    for message in read(c, count):
        ack(c, message.message_id)


def _sought(s, c, topic):
    c.ask("SEEK", True, consumer_id=1, message_id=LATEST)
    s.until(lambda: not stats(s, topic)["subscriptions"]["s"]["consumers"])


def _steps(s, topic, kind, ids):
    whole = "Cumulative" if kind == "Exclusive" else "Individual"

    def call(method, path):
        return lambda: s.http(method, rest(topic, path), quietly=True)

    def use(permits, what):
        return lambda: _with_consumer(s, topic, kind, permits, what)

    return {
        "p": lambda: ids.extend(published(s, topic, 3, first=len(ids))),
        "u": lambda: (s.http("PUT", rest(topic, "/unload"), quietly=True), s.lookup(topic), stats(s, topic)),
        "x": call("DELETE", "/truncate"),
        "c": call("POST", "/subscription/s/skip_all"),
        "3": call("POST", "/subscription/s/skip/3"),
        "4": call("POST", "/subscription/s/skip/4"),
        "j": use(0, lambda c: None),
        "A": use(9, lambda c: _acknowledged(c, 3)),
        "C": use(0, lambda c: ack(c, ids[-1], kind=whole)),
        "I": use(0, lambda c: ack(c, *ids)),
        "s": use(0, lambda c: _sought(s, c, topic)),
    }


def _declare(walk, kind):
    def run(s):
        topic = s.topic()
        for path in ("", "/subscription/s", "/subscription/keep"):
            s.http("PUT", rest(topic, path), quietly=True)
        steps = _steps(s, topic, kind, [])
        for n, step in enumerate(walk, 1):
            steps[step]()
            s.note(walk[:n], _places(s, topic))

    run.__name__ = f"read_positions_after_{walk}_{kind.lower()}"
    scenario(run)


for _walk in WALKS:
    for _kind in ("Exclusive", "Shared"):
        _declare(_walk, _kind)
