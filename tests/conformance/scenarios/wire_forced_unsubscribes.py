"""Requests to unsubscribe, with and without force, that repeat each other."""

from harness.consumers import by_types
from transcript import encode, scenario

TYPES = ("Exclusive", "Failover", "Shared", "Key_Shared")


def by_force(function):
    """A scenario for each domain, type and force of two requests."""
    for domain in ("persistent", "non-persistent"):
        for kind in TYPES:
            for first, second in ((True, True), (False, True), (True, False)):

                def run(s, domain=domain, kind=kind, first=first, second=second):
                    function(s, domain, kind, first, second)

                place = domain.replace("-", "_")
                forces = f"{'forced' if first else 'plain'}_{'forced' if second else 'plain'}"
                run.__name__ = f"{function.__name__}_{place}_{kind.lower()}_{forces}"
                scenario(run)


@by_force
def unsubscribed_and_again(s, domain, kind, first, second):
    topic = s.topic(domain=domain)
    c = s.connect()
    c.subscribe(topic, "sub", 1, subType=kind)
    if kind == "Failover":
        c.recv(2)
    for force in (first, second):
        c.ask("UNSUBSCRIBE", consumer_id=1, force=force)
    c.none(0.3)


@by_types("Exclusive", "Failover")
def unsubscribed_by_force_twice_in_one_write(s, kind):
    for domain in ("persistent", "non-persistent"):
        topic = s.topic(domain=domain)
        c = s.connect()
        c.subscribe(topic, "sub", 1, subType=kind)
        if kind == "Failover":
            c.recv(2)
        frames = [encode("UNSUBSCRIBE", request_id=i, consumer_id=1, force=True) for i in (1, 2)]
        c.raw(b"".join(frames), "two")
        c.recv_sorted(2)
        c.none(0.3)
