"""The texts about topics that are not there, where each family of routes has its own."""

from harness.steps import namespace, plain_and_partitioned
from transcript import scenario

MESSAGES = {"messages": [{"payload": "x"}]}


def refused(s, method, path, body=None):
    status, answer = s.http(method, path, body, quietly=True)
    reason = answer.get("reason") if isinstance(answer, dict) else answer
    s.note(f"{method} {path}".replace(s.tag, "$"), [status, reason and reason.replace(s.tag, "$")])


@scenario
def messages_for_topics_that_are_not_there(s):
    for domain in ("persistent", "non-persistent"):
        base = "/topics/" + plain_and_partitioned(s, domain).removeprefix("/admin/v2/")
        for path in ("none", "none/partitions/1"):
            refused(s, "POST", f"{base}/{path}", MESSAGES)
        refused(s, "POST", f"/topics/{domain}/public/{s.tag}-none/t", MESSAGES)
        refused(s, "POST", f"/topics/{domain}/public/{s.tag}-none/t/partitions/0", MESSAGES)
        refused(s, "POST", f"/topics/{domain}/{s.tag}-none/x/t", MESSAGES)


@scenario
def transaction_buffers_of_topics_that_are_not_there(s):
    name = plain_and_partitioned(s).removeprefix("/admin/v2/persistent")
    base = "/admin/v3/transactions/transactionBufferInternalStats"
    for path in (f"{name}/t", f"{name}/none", f"{name}/p", f"{name}/p-partition-9"):
        refused(s, "GET", base + path)
    refused(s, "GET", f"{base}/public/{s.tag}-none/t")
    refused(s, "GET", f"{base}/{s.tag}-none/x/t")


@scenario
def words_where_no_topic_may_be_created(s):
    ns = namespace(s)
    s.http("POST", f"/admin/v2/namespaces/{ns}/autoTopicCreation", {"allowAutoTopicCreation": False}, quietly=True)
    for domain in ("persistent", "non-persistent"):
        for method, more in (("PUT", "/subscription/s"), ("GET", "/partitions?checkAllowAutoCreation=true")):
            s.http(method, f"/admin/v2/{domain}/{ns}/t{more}", keep=True)
