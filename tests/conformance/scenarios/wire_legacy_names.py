"""Names with a cluster, short names and the older roots of the API: the answers of all requests and routes."""

from harness.steps import LATEST, namespace
from transcript import scenario

FORMS = (
    "persistent://public/standalone/default/{}",
    "non-persistent://public/standalone/default/{}",
    "persistent://public/other/none/{}",
    "public/default/{}",
    "public/standalone/default/{}",
    "{}",
    "persistent://public/default/{}/x",
    "persistent://public//{}",
    "PERSISTENT://public/default/{}",
    "persistent:public/default/{}",
    "://public/default/{}",
    "persistent://public/default/",
    "topic://public/default/{}",
    "segment://public/default/{}",
)


def each_form(s):
    for i, form in enumerate(FORMS):
        yield i, form.format(f"{s.tag}-{i}")


@scenario
def lookups_of_names_in_every_form(s):
    c = s.connect()
    for _, name in each_form(s):
        c.ask("LOOKUP", topic=name, authoritative=False)
        c.ask("PARTITIONED_METADATA", topic=name, metadata_auto_creation_enabled=False)


@scenario
def producers_of_names_in_every_form(s):
    for i, name in each_form(s):
        s.lookup(name)
        c = s.connect()
        c.producer(name, i, producer_name="p")


@scenario
def consumers_of_names_in_every_form(s):
    for i, name in each_form(s):
        s.lookup(name)
        c = s.connect()
        c.subscribe(name, "sub", i)


@scenario
def schemas_of_names_in_every_form(s):
    c = s.connect()
    for _, name in each_form(s):
        c.ask("GET_SCHEMA", topic=name)


@scenario
def routes_with_a_cluster_in_the_name(s):
    for root in ("/admin/v2", "/admin", "/admin/v3"):
        base = f"{root}/persistent/public/standalone/default/{s.tag}"
        s.http("PUT", base)
        s.http("GET", base + "/stats")
        s.http("PUT", base + "/partitions", 2)
        s.http("GET", base + "/partitions")
        s.http("DELETE", base)
    for path in (
        "/admin/namespaces/public",
        "/admin/namespaces/public/standalone",
        "/admin/namespaces/public/standalone/default",
        "/admin/persistent/public/standalone/default",
        "/admin/properties",
        "/admin/v2/properties",
        "/admin/destination/x",
        "/admin/clusters",
        "/admin/brokers/standalone",
        "/admin/v2/namespaces/public/standalone/default",
        "/admin/v2/persistent/public/standalone/default",
    ):
        s.http("GET", path)


@scenario
def lookup_routes_in_every_form(s):
    for path in (
        f"/lookup/v2/topic/persistent/public/default/{s.tag}",
        f"/lookup/v2/destination/persistent/public/default/{s.tag}",
        f"/lookup/v2/topic/persistent/public/standalone/default/{s.tag}",
        f"/lookup/v2/topic/persistent/public/default/{s.tag}/bundle",
        f"/lookup/v2/topic/odd/public/default/{s.tag}",
        f"/lookup/v2/topic/persistent/none/none/{s.tag}",
        f"/lookup/v1/topic/persistent/public/default/{s.tag}",
        f"/lookup/v2/topic/persistent/public/default/{s.tag}?authoritative=true&listenerName=none",
        f"/lookup/v2/topics/persistent/public/default/{s.tag}",
        "/lookup/v2/topic/persistent/public/default",
        "/lookup/v2/topic",
        "/lookup",
    ):
        s.call("GET", path, keep=lambda found: sorted(found) if isinstance(found, dict) else type(found).__name__)


@scenario
def names_of_partitions_in_every_form(s):
    ns = namespace(s)
    s.http("PUT", f"/admin/v2/persistent/{ns}/p/partitions", 2, quietly=True)
    c = s.connect()
    for i, name in enumerate(
        (
            "p",
            "p-partition-0",
            "p-partition-2",
            "p-partition-00",
            "p-partition-1-partition-0",
            "p-partition-",
            "p-partition-1x",
        )
    ):
        topic = f"persistent://{ns}/{name}"
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
        s.lookup(topic)
        c.producer(topic, i, producer_name="p")
        c.subscribe(topic, "sub", i)
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=sorted)
    s.call("GET", f"/admin/v2/persistent/{ns}/partitioned", keep=sorted)


@scenario
def names_with_percent_signs_over_routes(s):
    ns = namespace(s)
    for name in ("a%2Fb", "a%20b", "a%25b", "a%3Ab", "%C3%A4", "a+b", "a%3Fb", "a%23b", "a;b", "a,b=c"):
        base = f"/admin/v2/persistent/{ns}/{name}"
        s.http("PUT", base)
        s.http("PUT", base + "/subscription/s%2F1", LATEST)
        s.call("GET", base + "/subscriptions", keep=True)
        s.call("DELETE", base + "?force=true")
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=sorted)
