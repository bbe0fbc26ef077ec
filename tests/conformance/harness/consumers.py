"""Consumers of each subscription type, for scenarios that cover all of them."""

from harness.runner import scenario

TYPES = ("Exclusive", "Failover", "Shared", "Key_Shared")


def by_types(*types):
    """One scenario for each of these subscription types, named after it."""

    def decorate(function):
        for kind in types:

            def run(s, kind=kind):
                function(s, kind)

            run.__name__ = f"{function.__name__}_{kind.lower()}"
            scenario(run)
        return function

    return decorate


by_type = by_types(*TYPES)


def join(s, topic, kind, permits=100, name=None, **more):
    """A consumer of that type on a connection of its own."""
    c = s.connect(name)
    resume(c, topic, kind, permits, **more)
    return c


def resume(c, topic, kind, permits=100, **more):
    """Subscribe without a log; on a Failover subscription also read the notice of the active consumer."""
    c.subscribe(topic, permits=permits, quietly=True, subType=kind, **more)
    if kind == "Failover":
        c.recv_quietly(3)
