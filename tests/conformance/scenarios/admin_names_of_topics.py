"""Names that a new topic may not have, and the order in which a request to create a topic is checked."""

from harness.steps import namespace
from transcript import scenario

LIKE_PARTITIONS = (
    "a-partition-b",
    "a-partition-",
    "a-partition-0-b",
    "a-partition--1",
    "a-partition-01",
    "a-Partition-0",
)
OF_TRANSACTIONS = (
    "a__transaction_pending_ack",
    "x-partition-0__transaction_pending_ack",
    "bad%2Fname__transaction_pending_ack",
)
TOPICS = ("bad%2Fname", "a-partition-0", "%20", "a%20b")


def words(found):
    """The reason of a refusal; the words about a body differ."""
    status, body = found
    reason = body.get("reason", "") if isinstance(body, dict) else ""
    return reason if status not in (400, 500) or "system topic" in reason else ""


def _like_a_partition(domain):
    def run(s):
        base = f"/admin/v2/{domain}/{namespace(s)}"
        for name in LIKE_PARTITIONS:
            for body in (2, 0):
                s.note("why", words(s.call("PUT", f"{base}/{name}/partitions", body)))
            for verb, path, body in (
                ("PUT", "2", None),
                ("POST", "/partitions", 3),
                ("DELETE", "/partitions", None),
                ("GET", "/partitions", None),
            ):
                s.note("why", words(s.call(verb, f"{base}/{name}{path}", body)))

    run.__name__ = f"new_topics_named_like_partitions_{domain.replace('-', '_')}"
    scenario(run)


_like_a_partition("persistent")
_like_a_partition("non-persistent")


@scenario
def new_partitioned_topics_without_a_body(s):
    """The name is checked before the number of partitions."""
    base = f"/admin/v2/persistent/{namespace(s)}"
    for name in (*LIKE_PARTITIONS, "a__transaction_pending_ack", "plain"):
        s.note("why", words(s.call("PUT", f"{base}/{name}/partitions")))


def _of_transactions(place):
    def run(s):
        ns = namespace(s) if place == "a namespace" else place
        for domain in ("persistent", "non-persistent"):
            for name in OF_TRANSACTIONS:
                s.note("why", words(s.call("PUT", f"/admin/v2/{domain}/{ns}/{name}")))
                for body in (2, 0, -1, "x"):
                    s.note("why", words(s.call("PUT", f"/admin/v2/{domain}/{ns}/{name}/partitions", body)))

    run.__name__ = f"new_topics_of_transactions_in_{place.replace(' ', '_').replace('/', '_')}"
    scenario(run)


for _place in ("a namespace", "public/none", "none/none"):
    _of_transactions(_place)


@scenario
def topics_of_transactions_through_every_door(s):
    ns = namespace(s)
    topic = f"persistent://{ns}/a__transaction_pending_ack"
    path = f"/admin/v2/persistent/{ns}/a__transaction_pending_ack"
    for body in (None, {"ledgerId": 0, "entryId": 0}):
        s.note("why", words(s.call("PUT", path + "/subscription/x", body)))
    s.call("POST", f"/topics/persistent/{ns}/a__transaction_pending_ack", {"messages": [{"payload": "x"}]})
    s.call("POST", path + "/subscription/x/resetcursor/0")
    s.call("POST", path + "/partitions", 2)
    for what in ("/stats", "/internalStats", "/subscriptions", "/partitions"):
        s.call("GET", path + what)
    s.lookup(topic)
    c = s.connect()
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic)
    c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
    for name in ("x__transaction_pending_ack-partition-0", "a__transaction_pending_ack-partition-0"):
        s.lookup(f"persistent://{ns}/{name}")
        c.producer(f"persistent://{ns}/{name}", 2, producer_name="q")
    n = f"non-persistent://{ns}/a__transaction_pending_ack"
    s.lookup(n)
    c.producer(n, 3, producer_name="r")
    s.call("PUT", "/admin/v2/persistent/pulsar/system/__transaction_log_")
    s.call("PUT", "/admin/v2/persistent/pulsar/system/transaction_coordinator_assignx")


CALLS = {
    "": ("PUT", "DELETE"),
    "/partitions": ("GET", "POST", "PUT", "DELETE"),
    "/subscription/x": ("PUT", "DELETE"),
    "/unload": ("PUT",),
    "/stats": ("GET",),
    "/internalStats": ("GET",),
    "/partitioned-stats": ("GET",),
    "/retention": ("GET", "DELETE"),
    "/subscriptions": ("GET",),
    "/lastMessageId": ("GET",),
    "/compaction": ("GET", "PUT"),
    "/properties": ("GET",),
    "/permissions": ("GET",),
}


def _order(path, verbs):
    def run(s):
        for ns in (namespace(s), "public/none", "none/none"):
            for name in TOPICS:
                for domain in ("persistent", "non-persistent"):
                    for verb in verbs:
                        if (domain, name, verb, path) == ("non-persistent", "a-partition-0", "PUT", "/partitions"):
                            continue  # docs/differences.md
                        body = 2 if path == "/partitions" and verb in ("POST", "PUT") else None
                        s.note("why", words(s.call(verb, f"/admin/v2/{domain}/{ns}/{name}{path}", body)))

    run.__name__ = f"order_of_checks_of_names_{path.strip('/').replace('/', '_').replace('-', '_') or 'topic'}"
    scenario(run)


for _path, _verbs in CALLS.items():
    _order(_path, _verbs)
