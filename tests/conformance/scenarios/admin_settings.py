"""Settings that change while the broker runs, and the facts brokers tell of themselves."""

from transcript import scenario

BASE = "/admin/v2/brokers/configuration"


def values(s, *keys):
    found = s.http("GET", BASE + "/values", quietly=True)[1]
    s.note("values", {key: found.get(key) for key in keys})


@scenario
def dynamic_setting_changed_and_reset(s):
    key = "brokerDeleteInactiveTopicsFrequencySeconds"
    names = s.http("GET", BASE, quietly=True)[1]
    s.note("listed", [key in names, "brokerServicePort" in names, "clusterName" in names])
    s.call("POST", f"{BASE}/{key}/61")
    values(s, key)
    s.eventually("in force", lambda: s.http("GET", BASE + "/runtime", quietly=True)[1][key] == "61")
    s.call("POST", f"{BASE}/{key}/62")
    values(s, key)
    s.call("DELETE", f"{BASE}/{key}")
    values(s, key)
    s.call("DELETE", f"{BASE}/{key}")
    values(s, key)


@scenario
def dynamic_setting_refused(s):
    for path in (
        "/brokerServicePort/1",
        "/unknown/1",
        "/maxNamespacesPerTenant/x",
        "/maxTenants/1.5",
        "/allowAutoTopicCreationType/none",
        "/defaultNumPartitions/",
        "/defaultNumPartitions",
        "/loadBalancerSheddingExcludedNamespaces/a%2Fb",
    ):
        s.call("POST", BASE + path)
    values(s, "maxNamespacesPerTenant", "maxTenants", "loadBalancerSheddingExcludedNamespaces")
    for key in (
        "maxNamespacesPerTenant",
        "maxTenants",
        "allowAutoTopicCreationType",
        "loadBalancerSheddingExcludedNamespaces",
    ):
        s.call("DELETE", f"{BASE}/{key}")
    for path in ("/brokerServicePort", "/unknown", ""):
        s.call("DELETE", BASE + path)
    s.call("PUT", BASE + "/maxTenants/1")
    s.call("GET", BASE + "/maxTenants")


@scenario
def dynamic_setting_of_an_empty_value(s):
    s.call("POST", BASE + "/defaultNumPartitions/%20")
    s.call("DELETE", BASE + "/defaultNumPartitions")
