"""Which namespaces a new or changed isolation policy unloads: by all patterns, by changed patterns, or none."""

from transcript import scenario


def policy(namespaces, scope=None, primary=("b1",)):
    """Primary brokers that do not exist: a broker that is one would serve the namespaces of its policies alone."""
    more = {} if scope is None else {"unload_scope": scope}
    failover = {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "100"}}
    body = {"namespaces": namespaces, "primary": list(primary), "secondary": [".*"]}
    return body | {"auto_failover_policy": failover} | more


def namespaces(s, *names):
    """A connection with a producer in each of the namespaces, which are made, in the order of their names."""
    c = s.connect()
    for i, name in enumerate(names):
        ns = s.namespace() + name
        s.http("PUT", f"/admin/v2/namespaces/{ns}", {"bundles": {"numBundles": 1}}, quietly=True)
        topic = f"persistent://{ns}/t"
        s.lookup(topic)
        c.producer(topic, i, quietly=True)
    return c


def again(s, c, *names):
    """Let the producers come back that the last call closed; the log shows which, sorted."""
    closed = set()
    while frame := c.recv_quietly(0.5):
        closed.add(frame.command.producer_id)
    s.note("closed", sorted(names[i] for i in closed))
    for i in sorted(closed):
        topic = f"persistent://{s.namespace()}{names[i]}/t"
        s.lookup(topic)
        c.producer(topic, i, quietly=True)


def cluster_of(s):
    """Make a cluster of this scenario: other scenarios look at the policies of the cluster that both brokers serve, and a
    policy of any cluster unloads.
    """
    cluster = s.tag + "other"
    s.call("PUT", f"/admin/v2/clusters/{cluster}", {"serviceUrl": "http://h:1"})
    return cluster


def path(s, cluster):
    return f"/admin/v2/clusters/{cluster}/namespaceIsolationPolicies/{s.tag}"


@scenario
def isolation_policies_unload_the_namespaces_of_their_patterns(s):
    names, here = ("-a", "-b", "-c"), s.namespace()
    c = namespaces(s, *names)
    cluster = cluster_of(s)
    for body in (
        policy([here + "-a"]),
        policy([here + "-a"]),
        policy([here + "-a", here + "-b"]),
        policy([here + "-b", here + "-c"]),
        policy([here + "-b"], primary=("b1", "b2")),
        policy([here + "-b"], "changed", ("b2", "b1")),
        policy([here]),
    ):
        s.call("POST", path(s, cluster), body)
        again(s, c, *names)
    s.call("DELETE", path(s, cluster))
    again(s, c, *names)
    s.call("DELETE", f"/admin/v2/clusters/{cluster}")


@scenario
def isolation_policies_of_a_scope(s):
    names, here = ("-a", "-b", "-c"), s.namespace()
    c = namespaces(s, *names)
    cluster = cluster_of(s)
    for body in (
        policy([here + "-a"], "none"),
        policy([here + "-a"], "all_matching"),
        policy([here + "-[bc]"], "all_matching"),
        policy([here + "-[bc]", here + "-a"], "changed"),
        policy([here + "-[bc]", here + "-a"], "changed", ("b2",)),
        policy([here + "-a"], "none"),
        policy([here + "-a"], "other"),
    ):
        s.call("POST", path(s, cluster), body)
        again(s, c, *names)
    s.call("DELETE", path(s, cluster))
    again(s, c, *names)
    s.call("DELETE", f"/admin/v2/clusters/{cluster}")


@scenario
def isolation_policies_of_another_cluster(s):
    c = namespaces(s, "-a")
    cluster = cluster_of(s)
    s.call("POST", path(s, cluster), policy([s.namespace() + "-a"], "all_matching"))
    again(s, c, "-a")
    s.call("DELETE", path(s, cluster))
    s.call("DELETE", f"/admin/v2/clusters/{cluster}")
