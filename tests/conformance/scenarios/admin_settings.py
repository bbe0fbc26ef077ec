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
def settings_that_may_be_absent(s):
    found = s.http("GET", BASE + "/runtime", quietly=True)[1]
    s.note("ports", [found[key].startswith("Optional[") for key in ("brokerServicePort", "webServicePort")])
    absent = ("brokerServicePortTls", "webServicePortTls", "loadBalancerOverrideBrokerNicSpeedGbps")
    s.note("absent", {key: found[key] for key in (*absent, "advertisedListeners")})


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


RATES = {
    "dispatchThrottlingRatePerTopicInMsg": ("dispatchRate", "dispatchThrottlingRateInMsg"),
    "dispatchThrottlingRatePerTopicInByte": ("dispatchRate", "dispatchThrottlingRateInByte"),
    "dispatchThrottlingRatePerSubscriptionInMsg": ("subscriptionDispatchRate", "dispatchThrottlingRateInMsg"),
    "dispatchThrottlingRatePerSubscriptionInByte": ("subscriptionDispatchRate", "dispatchThrottlingRateInByte"),
    "dispatchThrottlingRatePerReplicatorInMsg": ("replicatorDispatchRate", "dispatchThrottlingRateInMsg"),
    "subscribeThrottlingRatePerConsumer": ("subscribeRate", "subscribeThrottlingRatePerConsumer"),
    "subscribeRatePeriodPerConsumerInSecond": ("subscribeRate", "ratePeriodInSecond"),
}


@scenario
def dynamic_rates_are_applied_where_no_policy_is(s):
    """Rates so large that no other scenario feels them."""
    topic = s.topic("t")
    base = "/admin/v2/" + topic.replace("://", "/")
    s.http("PUT", base, quietly=True)
    for key, (policy, field) in RATES.items():
        value = 987_654_321

        def applied(policy=policy, field=field):
            return s.http("GET", f"{base}/{policy}?applied=true", quietly=True)[1].get(field)

        s.call("POST", f"{BASE}/{key}/{value}")
        s.eventually(f"{key} is applied", lambda applied=applied, value=value: applied() == value)
        s.call("GET", f"{base}/{policy}", keep=True)
        s.call("DELETE", f"{BASE}/{key}")


@scenario
def a_policy_beats_the_rate_of_the_settings(s):
    topic = s.topic("t")
    base = "/admin/v2/" + topic.replace("://", "/")
    s.http("PUT", base, quietly=True)
    rate = {
        "dispatchThrottlingRateInMsg": 5_000_000,
        "dispatchThrottlingRateInByte": -1,
        "relativeToPublishRate": True,
        "ratePeriodInSecond": 2,
    }
    s.call("POST", base + "/dispatchRate", rate)
    s.eventually("applied", lambda: s.http("GET", f"{base}/dispatchRate?applied=true", quietly=True)[1] == rate)
    s.call("DELETE", base + "/dispatchRate")


@scenario
def settings_in_force_name_every_key(s):
    """Also keys that have an effect in Apache Pulsar alone; those whose values depend on the machine by name alone."""
    found = s.http("GET", BASE + "/runtime", quietly=True)[1]
    threads = ("numIOThreads", "numHttpServerThreads", "numExecutorThreadPoolSize", "webSocketNumIoThreads")
    s.note("threads", [found[key].isdigit() for key in threads])
    keys = (
        *("brokerClientAuthenticationParameters", "bookkeeperClientAuthenticationParameters"),
        *("transactionCoordinatorEnabled", "systemTopicEnabled", "functionsWorkerEnabled", "isRunningStandalone"),
        *("exposePublisherStats", "exposePreciseBacklogInPrometheus", "strictTopicNameEnabled", "tlsEnabled"),
        *("schemaRegistryStorageClassName", "schemaRegistryCompatibilityCheckers", "entryFilterNames"),
        *("topicBundleAssignmentStrategy", "supportedNamespaceBundleSplitAlgorithms", "additionalServlets"),
        *("managedLedgerCursorPositionFlushSeconds", "managedLedgerMaxUnackedRangesToPersist", "kinitCommand"),
        *(
            "dispatchRateLimiterFactoryClassName",
            "transactionPendingAckStoreProviderClassName",
            "saslJaasServerSectionName",
        ),
    )
    s.note("settings", {key: found.get(key) for key in keys})
