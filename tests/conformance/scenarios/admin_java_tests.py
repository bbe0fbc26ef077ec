"""What Apache Pulsar's own Java tests of its admin API ask of a broker and no other file here does."""

from transcript import scenario


def path_of(s, name="t", domain="persistent"):
    s.lookup(f"{domain}://public/default/{s.tag}-{name}")
    return f"/admin/v2/{domain}/public/default/{s.tag}-{name}"


@scenario
def subscription_that_some_partitions_have(s):
    """It comes to those that have it not; a conflict is when all have it."""
    t = path_of(s)
    s.call("PUT", t + "/partitions", 3)
    s.call("PUT", t + "-partition-1/subscription/s")
    s.call("PUT", t + "/subscription/s")
    s.call("PUT", t + "/subscription/s")
    for i in range(3):
        s.call("GET", f"{t}-partition-{i}/subscriptions", keep=True)
