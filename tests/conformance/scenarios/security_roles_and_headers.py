"""Rights of roles with odd names and on partitions, grants of every action, tokens of every form, revoked rights."""

import time
import urllib.parse

from harness.steps import rest
from harness.tenancy import world
from transcript import jwt, scenario


@scenario
def roles_with_odd_names(s):
    ns, topic = world(s)
    for i, role in enumerate(
        ("a b", "ü", "a/b", "a%b", "a+b", "*", "a" * 200, "Boss", "boss ", "ADMIN", "null", "admin,superUser")
    ):
        s.call("POST", f"/admin/v2/namespaces/{ns}/permissions/{urllib.parse.quote(role, safe='')}", ["produce"])
        c = s.connect(f"c{i}", token=jwt(role))
        c.producer(topic, i, producer_name=f"p{i}")
        c.subscribe(topic, "s", i)
    s.call("GET", f"/admin/v2/namespaces/{ns}/permissions", keep=True)


@scenario
def grants_of_partitions_and_their_topic(s):
    ns, topic = world(s)
    part = topic + "p"
    s.http("PUT", rest(part, "/partitions"), 2, quietly=True)
    s.call("POST", rest(part + "-partition-0", "/permissions/one"), ["produce"])
    s.call("POST", rest(part, "/permissions/all"), ["produce"])
    for role in ("one", "all"):
        c = s.connect(role, token=jwt(role))
        for i, t in enumerate((part, part + "-partition-0", part + "-partition-1", part + "-partition-5")):
            c.ask("PARTITIONED_METADATA", topic=t, metadata_auto_creation_enabled=False)
            c.ask("LOOKUP", topic=t, authoritative=False)
            c.producer(t, i, producer_name=f"{role}{i}")
    for t in (part, part + "-partition-0", part + "-partition-1"):
        s.call("GET", rest(t, "/permissions"), keep=True)
    s.call("DELETE", rest(part, "/permissions/all"))
    for t in (part, part + "-partition-0", part + "-partition-1"):
        s.call("GET", rest(t, "/permissions"), keep=True)
    s.call("DELETE", rest(part, "/permissions/nobody"))
    s.call("DELETE", rest(topic, "/permissions/nobody"))


@scenario
def grants_of_every_action(s):
    ns, topic = world(s)
    for i, actions in enumerate(
        (
            ["produce"],
            ["consume"],
            ["functions"],
            ["sources"],
            ["sinks"],
            ["packages"],
            [],
            ["produce", "consume"],
            ["PRODUCE"],
            ["x"],
            [None],
            "produce",
            {"a": 1},
            None,
        )
    ):
        s.call("POST", f"/admin/v2/namespaces/{ns}/permissions/r{i}", actions)
        c = s.connect(f"c{i}", token=jwt(f"r{i}"))
        c.producer(topic, i, producer_name=f"p{i}")
        c.subscribe(topic, f"s{i}", i)
        s.note("list", c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=ns).type)
    s.call("GET", f"/admin/v2/namespaces/{ns}/permissions", keep=True)


@scenario
def tokens_in_every_form(s):
    ns, topic = world(s, user=["produce"])
    now = int(time.time())
    for i, token in enumerate(
        (
            jwt("user"),
            jwt("user", iat=now + 1000),
            jwt("user", nbf=now + 1000),
            jwt("user", exp=now + 1000),
            jwt("user", exp=now - 1),
            jwt("user", exp="x"),
            jwt("user", aud="x"),
            jwt(),
            jwt(""),
            jwt(5),
            jwt(None, sub2="x"),
            jwt("user", alg="none"),
            jwt("user", alg="HS512", key=bytes(range(1, 33))),
            "x",
            "a.b.c",
            jwt("user") + "x",
            " " + jwt("user"),
            jwt("user") + " ",
            "Bearer " + jwt("user"),
            jwt("user").rsplit(".", 1)[0],
            jwt("user").rsplit(".", 1)[0] + ".",
        )
    ):
        s.note("token", i)
        c = s.connect(f"c{i}", token=token, quietly=True)
        if i not in (7, 8, 9, 10):
            c.send("PRODUCER", quietly=True, topic=topic, producer_id=1, request_id=1, producer_name=f"p{i}")
            c.recv(1)
        st, _ = s.http(
            "GET", rest(topic, "/stats"), quietly=True, headers={"Authorization": "Bearer " + token.strip()}, token=""
        )
        s.note("rest", st)


@scenario
def token_over_http_in_every_form(s):
    ns, topic = world(s, user=["produce"])
    for h in (
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "bearer " + jwt("user")},
        {"Authorization": "Basic dTpw"},
        {"Authorization": "Bearer " + jwt("user")},
        {"X-Original-Principal": "user"},
        {"Authorization": "Bearer " + jwt("user"), "X-Original-Principal": "admin"},
        {"Authorization": "Bearer " + jwt("admin"), "X-Original-Principal": "user"},
        {"X-Pulsar-Auth-Method-Name": "token", "Authorization": "Bearer " + jwt("user")},
        {"X-Pulsar-Auth-Method-Name": "none", "Authorization": "Bearer " + jwt("user")},
    ):
        for path in (
            rest(topic, "/stats"),
            f"/admin/v2/namespaces/{ns}",
            "/admin/v2/clusters",
            "/admin/v2/tenants",
            f"/lookup/v2/topic/persistent/{ns}/t",
        ):
            st, _ = s.http("GET", path, quietly=True, headers=h, token="")
            s.note(str(list(h)) + path.replace(s.tag, "$")[:30], st)
    for path in ("?token=" + jwt("user"),):
        st, _ = s.http("GET", rest(topic, "/stats") + path, quietly=True, token="")
        s.note("query", st)


@scenario
def revoked_while_using_partitions_and_readers(s):
    ns, topic = world(s, user=["produce", "consume"])
    c = s.connect(token=jwt("user"))
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "s", 1, permits=5)
    c.subscribe(topic, "r", 2, durable=False, start_message_id={"ledgerId": 2**64 - 1, "entryId": 2**64 - 1}, permits=5)
    s.call("POST", f"/admin/v2/namespaces/{ns}/permissions/user", ["consume"])
    c.recv(6)
    c.none(0.5)
    c.producer(topic, 1, producer_name="p")
    s.call("DELETE", f"/admin/v2/namespaces/{ns}/permissions/user")
    c.recv_sorted(2, 6)
    c.subscribe(topic, "s", 1)
    c.ask("GET_TOPICS_OF_NAMESPACE", namespace=ns)
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)


@scenario
def questions_of_roles_about_a_consumer(s):
    ns, topic = world(s, user=["consume"], other=["produce"])
    for role in ("user", "other", "boss", "nobody"):
        c = s.connect(role, token=jwt(role))
        c.subscribe(topic, "s-" + role, 1, subType="Shared")
        c.ask("CONSUMER_STATS", consumer_id=1)
        c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
        c.ask("SEEK", consumer_id=1, message_id={"ledgerId": 2**64 - 1, "entryId": 2**64 - 1})
        c.recv_quietly(0.3)
        c.ask("UNSUBSCRIBE", consumer_id=1)
        c.producer(topic, 5, producer_name="p-" + role, initial_subscription_name="init-" + role)
        c.ask("PARTITIONED_METADATA", topic=topic + "-new")
        watch = {"watcher_id": 1, "namespace": ns, "topics_pattern": ".*"}
        found = c.ask("WATCH_TOPIC_LIST", quietly=True, **watch)
        s.note("watch", found and found.type)
    s.call("GET", rest(topic, "/subscriptions"), keep=sorted)
