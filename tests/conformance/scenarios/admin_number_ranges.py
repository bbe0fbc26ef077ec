"""Numbers in bodies beyond Java's types: int has 32 bits, long 64."""

from harness.steps import namespace, plain_and_partitioned
from transcript import scenario

EDGES = (2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30)
MEMBERS = {
    "publishRate": ("publishThrottlingRateInMsg", "publishThrottlingRateInByte"),
    "dispatchRate": ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte", "ratePeriodInSecond"),
    "subscribeRate": ("subscribeThrottlingRatePerConsumer", "ratePeriodInSecond"),
    "delayedDelivery": ("tickTime", "maxDeliveryDelayInMillis"),
    "inactiveTopicPolicies": ("maxInactiveDurationSeconds",),
    "backlogQuota": ("limit", "limitSize", "limitTime"),
}
PLAIN = ("compactionThreshold", "maxProducers", "messageTTL")


@scenario
def numbers_of_topic_policies_at_the_edges(s):
    base = plain_and_partitioned(s)
    for path, members in MEMBERS.items():
        for member in members:
            for value in EDGES:
                fixed = {"policy": "producer_exception"} if path == "backlogQuota" else {}
                s.call("POST", f"{base}/t/{path}", fixed | {member: value})
    for path in PLAIN:
        for value in EDGES:
            s.call("POST", f"{base}/t/{path}", value)


@scenario
def numbers_of_message_ids_at_the_edges(s):
    base = plain_and_partitioned(s)
    s.http("PUT", f"{base}/t/subscription/s", quietly=True)
    for member in ("ledgerId", "entryId", "partitionIndex"):
        for value in (2**31, 2**63, -(2**63) - 1, 10**30):
            if (member, value) == ("ledgerId", 2**31):
                continue
            body = {"ledgerId": 1, "entryId": 1} | {member: value}
            for method, path in (("PUT", "backlogSize"), ("POST", "subscription/s/resetcursor")):
                s.call(method, f"{base}/t/{path}", body)


@scenario
def numbers_of_partitions_and_of_offloads_at_the_edges(s):
    base, ns = plain_and_partitioned(s), namespace(s, "b")
    for value in EDGES:
        if not -(2**31) <= value < 2**31:
            s.call("PUT", f"{base}/v/partitions", value)
            s.call("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", {"defaultNumPartitions": value})
        s.call("PUT", f"/admin/v2/namespaces/{ns}/offloadThreshold", value)
        s.call("PUT", f"/admin/v2/namespaces/{ns}/offloadDeletionLagMs", value)


@scenario
def null_in_place_of_numbers(s):
    base = plain_and_partitioned(s)
    for path, members in MEMBERS.items():
        if path != "backlogQuota":
            s.call("POST", f"{base}/t/{path}", dict.fromkeys(members))
            s.eventually(path, lambda path=path: s.http("GET", f"{base}/t/{path}", quietly=True)[1])
            s.call("GET", f"{base}/t/{path}", keep=True)


@scenario
def a_resource_group_has_no_rates_of_replication(s):
    group = f"/admin/v2/resourcegroups/{s.tag}-rates"
    s.call("PUT", group, {"replicationDispatchRateInMsgs": 3, "replicationDispatchRateInBytes": 4})
    s.eventually("the group is there", lambda: s.http("GET", group, quietly=True)[0] == 200)
    s.call("GET", group, keep=True)
    s.call("DELETE", group)
