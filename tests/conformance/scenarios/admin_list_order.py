"""The order of lists over REST, which is that of Java's hash maps."""

from harness.steps import java_slot, namespace, rest, stats
from transcript import scenario


@scenario
def persistent_topics_in_their_order(s):
    ns = namespace(s)
    c = s.connect()
    for i, name in enumerate(("zz", "a", "b10", "b9", "t-partition-x", "Upper", "B", "b")):
        s.lookup(f"persistent://{ns}/{name}")
        c.producer(f"persistent://{ns}/{name}", i, quietly=True, producer_name="p")
    s.http("PUT", rest(f"persistent://{ns}/part", "/partitions"), 12, quietly=True)
    s.http("PUT", rest(f"persistent://{ns}/another", "/partitions"), 2, quietly=True)
    s.note(
        "topics", list(c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="PERSISTENT").command.topics)
    )
    s.note("all", list(c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="ALL").command.topics))
    some = c.ask(
        "GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode="PERSISTENT", topics_pattern=f"{ns}/.*[0-9]"
    )
    s.note("some", list(some.command.topics))
    watched = c.ask("WATCH_TOPIC_LIST", quietly=True, watcher_id=1, namespace=ns, topics_pattern=".*")
    s.note("watched", list(watched.command.topic))
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=True)
    s.call("GET", f"/admin/v2/namespaces/{ns}/topics", keep=True)
    s.call("GET", f"/admin/v2/persistent/{ns}/partitioned", keep=True)


@scenario
def namespaces_and_roles_in_their_order(s):
    tenant = s.tag
    roles = ["z", "a", "m", "role-1", "role-2", *(f"r{i}" for i in range(8))]
    path = "/admin/v2/tenants/" + tenant
    s.http("PUT", path, {"allowedClusters": ["standalone"], "adminRoles": roles[:5]}, quietly=True)
    s.call("GET", path, keep=True)
    for n in (11, 12, 13):
        s.http("POST", path, {"allowedClusters": ["standalone"], "adminRoles": roles[:n]}, quietly=True)
        s.call("GET", path, keep=True)
    for name in ("zz", "a", "b10", "b9", "Upper", "x-y"):
        s.http("PUT", f"/admin/v2/namespaces/{tenant}/{name}", {}, quietly=True)
    s.call("GET", "/admin/v2/namespaces/" + tenant, keep=True)


@scenario
def subscriptions_in_the_order_of_a_hash(s):
    topic = s.topic()
    s.http("PUT", rest(topic), quietly=True)
    for name in ("sub", "a", "zz", "sub-1", "b", "my-subscription", "sub-2", "c", "x", "other", "s1", "s2", "s10"):
        s.http("PUT", rest(topic, "/subscription/" + name), "latest", quietly=True)
        s.call("GET", rest(topic, "/subscriptions"), keep=True)
    part = s.topic("p")
    s.http("PUT", rest(part, "/partitions"), 2, quietly=True)
    for name in ("sub", "a", "zz", "sub-1", "b", "my-subscription"):
        s.http("PUT", rest(part, "/subscription/" + name), "latest", quietly=True)
        s.call("GET", rest(part, "/subscriptions"), keep=True)


@scenario
def publishers_in_the_order_of_their_names(s):
    for domain in ("persistent", "non-persistent"):
        topic, c = s.topic(domain=domain), s.connect()
        for i, name in enumerate(("zeta", "a", "Beta", "b10", "b9", "é", "\U0001f600", "\uff5e")):
            c.producer(topic, i, quietly=True, producer_name=name)
        s.note(domain, [each["producerName"] for each in stats(s, topic)["publishers"]])


@scenario
def roles_of_a_subscription_and_types_of_a_namespace(s):
    path = "/admin/v2/namespaces/" + namespace(s)
    for roles in (["r2", "r1", "admin", "zz"], ["zz", "b", "aa", "role-1", "role-2", "C"]):
        s.call("POST", path + "/permissions/subscription/sub", roles)
        s.call("GET", path + "/permissions/subscription", keep=True)
    s.call("DELETE", path + "/permissions/sub/aa")
    s.call("GET", path + "/permissions/subscription", keep=True)
    for types in (["Shared", "Exclusive"], ["Key_Shared", "Failover", "Shared", "Exclusive"], ["Shared", "Failover"]):
        s.call("POST", path + "/subscriptionTypesEnabled", types)
        s.call("GET", path, keep=["subscription_types_enabled"])


@scenario
def non_persistent_topics_in_their_order(s):
    """Over REST by bundles, in a bundle by the slots of the full names; on the wire sorted."""
    ns, c = namespace(s), s.connect()
    names = [f"non-persistent://{ns}/{name}" for name in ("t", "q", "a", "b10", "b9", "zz", "Upper", "n1", "n2", "n3")]
    for i, name in enumerate(names):
        s.lookup(name)
        c.producer(name, i, quietly=True, producer_name="p")
    for name, parts in ("part", 3), ("another", 1):
        s.http("PUT", rest(f"non-persistent://{ns}/{name}", "/partitions"), parts, quietly=True)
    for name in "y", "x":
        s.http("PUT", rest(f"persistent://{ns}/{name}"), quietly=True)
    stored = [f"persistent://{ns}/x", f"persistent://{ns}/y"]
    bundles = {
        n: s.http("GET", "/lookup/v2/topic/" + n.replace("://", "/") + "/bundle", quietly=True)[1] for n in names
    }
    placed = sorted(names, key=lambda n: (bundles[n], java_slot(n)))
    for mode, expected in ("NON_PERSISTENT", placed), ("ALL", stored + placed):
        found = s.http("GET", f"/admin/v2/namespaces/{ns}/topics?mode={mode}", quietly=True)[1]
        s.note(mode, [found == expected, sorted(found)])
        s.note(
            f"{mode} on the wire",
            list(c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns, mode=mode).command.topics),
        )
    s.note("topics", s.http("GET", f"/admin/v2/non-persistent/{ns}", quietly=True)[1] == placed)
    s.call("GET", f"/admin/v2/non-persistent/{ns}/partitioned", keep=True)
    for bundle in sorted(set(bundles.values())):
        inside = [n for n in placed if bundles[n] == bundle]
        for more in f"/{bundle}", f"?bundle={bundle}":
            found = s.http("GET", f"/admin/v2/non-persistent/{ns}{more}", quietly=True)[1]
            if found != inside:  # how many bundles have topics differs between runs
                s.note("a bundle", False)


@scenario
def non_persistent_topics_of_a_bundle_without_use(s):
    ns, bundle = namespace(s), "0x00000000_0x40000000"
    path = f"/admin/v2/non-persistent/{ns}"
    s.call("GET", f"{path}/{bundle}", keep=True)
    s.call("GET", f"{path}?bundle={bundle}", keep=True)
    names = [f"t{i}" for i in range(40)]
    name = next(
        n for n in names if s.http("GET", f"/lookup/v2/topic/persistent/{ns}/{n}/bundle", quietly=True)[1] == bundle
    )
    s.http("PUT", f"/admin/v2/persistent/{ns}/{name}", quietly=True)
    s.call("GET", f"{path}/{bundle}", keep=True)
    s.call("PUT", f"/admin/v2/namespaces/{ns}/{bundle}/unload")
    s.call("GET", f"{path}/{bundle}", keep=True)
