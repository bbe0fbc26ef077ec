"""Tenants, resource groups and policies of namespaces while topics use them."""

from harness.steps import namespace, rest
from transcript import scenario

FIRST = {"ledgerId": -1, "entryId": -1}


@scenario
def subscription_expiration_shown_and_hidden(s):
    ns = namespace(s)
    path = f"/admin/v2/namespaces/{ns}/subscriptionExpirationTime"
    topic = s.topic(namespace=ns)
    s.http("PUT", rest(topic, "/subscription/sub"), FIRST, quietly=True)
    for v in (1, 0, -1, 3):
        s.call("POST", path, v)
        s.call("GET", path, keep=lambda b: b)
    s.call("DELETE", path)
    s.call("GET", rest(topic, "/subscriptions"), keep=lambda b: b)


@scenario
def resource_groups_beside_namespaces_and_topics(s):
    ns = namespace(s)
    topic = s.topic(namespace=ns)
    g = f"/admin/v2/resourcegroups/{s.tag}"
    s.call("POST", f"/admin/v2/namespaces/{ns}/resourcegroup/{s.tag}")
    s.call("PUT", g, {"publishRateInMsgs": 100})
    s.call("POST", f"/admin/v2/namespaces/{ns}/resourcegroup/{s.tag}")
    s.call("POST", rest(topic, "/resourceGroup"), s.tag)
    s.call("GET", rest(topic, "/resourceGroup?applied=true"), keep=lambda b: b)
    s.call("DELETE", g)
    s.call("POST", rest(topic, "/resourceGroup"), "none")
    s.call("DELETE", f"/admin/v2/namespaces/{ns}/resourcegroup")
    s.call("DELETE", g)
    s.call("DELETE", rest(topic, "/resourceGroup"))
    s.call("DELETE", g)
    s.call("DELETE", f"/admin/v2/namespaces/{ns}?force=true")
    s.call("DELETE", g)


@scenario
def tenants_with_namespaces_and_clusters(s):
    t = s.tag
    s.call("PUT", f"/admin/v2/tenants/{t}", {"adminRoles": ["a", "a"], "allowedClusters": ["standalone"]})
    s.call("PUT", f"/admin/v2/namespaces/{t}/n", {"replication_clusters": ["nowhere"]})
    s.call("PUT", f"/admin/v2/namespaces/{t}/n", {"replication_clusters": ["standalone"], "bundles": {"numBundles": 3}})
    s.call("POST", f"/admin/v2/tenants/{t}", {"adminRoles": [], "allowedClusters": []})
    s.call("GET", f"/admin/v2/tenants/{t}", keep=True)
    s.call("POST", f"/admin/v2/tenants/{t}", {"allowedClusters": ["standalone"]})
    s.call("GET", f"/admin/v2/tenants/{t}", keep=True)
    s.call("GET", f"/admin/v2/namespaces/{t}", keep=True)
    s.call("DELETE", f"/admin/v2/tenants/{t}")
    s.call("PUT", f"/admin/v2/persistent/{t}/n/x")
    s.call("DELETE", f"/admin/v2/tenants/{t}?force=true")
    s.call("GET", f"/admin/v2/namespaces/{t}")
    s.call("GET", f"/admin/v2/persistent/{t}/n")


@scenario
def lookups_and_metadata_of_policies(s):
    ns = namespace(
        s, autoTopicCreation={"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3}
    )
    topic = f"persistent://{ns}/{s.tag}-t"
    c = s.connect()
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.ask("PARTITIONED_METADATA", topic=topic)
    s.lookup(topic + "-partition-5")
    c.producer(topic + "-partition-5", 1, producer_name="p")
    c.producer(topic, 2, producer_name="p")
    c.subscribe(topic, "s", 2)
    n = f"non-persistent://{ns}/{s.tag}-n"
    c.ask("PARTITIONED_METADATA", topic=n)
    s.call("GET", f"/admin/v2/persistent/{ns}/partitioned", keep=sorted)
    s.call("GET", f"/admin/v2/non-persistent/{ns}/partitioned", keep=sorted)
    s.call("GET", rest(n, "/partitions"), keep=True)
    s.call("GET", rest(n, "/partitions?checkAllowAutoCreation=true"), keep=True)
    s.call("GET", f"/lookup/v2/topic/persistent/{ns}/{s.tag}-zz")
    s.call("GET", f"/admin/v2/persistent/{ns}", keep=sorted)


@scenario
def null_among_allowed_keys_of_metrics(s):
    ns = namespace(s)
    path = f"/admin/v2/namespaces/{ns}/allowedTopicPropertyKeysForMetrics"
    many = ["a", "b", "c", "d", None]
    for body in (["a", None], [None], [None, None, "b"], ["b", "b"], [1, True], ["null", None, ""], many, [[]], []):
        s.call("POST", path, body)
        s.call("GET", path, keep=True)
        s.call("GET", f"/admin/v2/namespaces/{ns}", keep=["allowed_topic_property_keys_for_metrics"])
    s.call("DELETE", path)
    for i, keys in enumerate((["a", None], ["zz", "b", "b"], [None], [])):
        s.call("PUT", f"/admin/v2/namespaces/{ns}{i}", {"allowed_topic_property_keys_for_metrics": keys})
        s.call("GET", f"/admin/v2/namespaces/{ns}{i}/allowedTopicPropertyKeysForMetrics", keep=True)
