"""Rights granted and revoked between commands, and their effect on the clients of the role."""

import time

from harness.steps import rest
from harness.tenancy import as_role, world
from transcript import jwt, scenario


def grant(s, namespace, role, *actions):
    s.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/{role}", list(actions))


def grant_topic(s, topic, role, *actions):
    s.call("POST", rest(topic, f"/permissions/{role}"), list(actions))


def rights(c, topic, i):
    """The present rights of the role on the topic; the ids are free again on return."""
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.producer(topic, 100 + i, producer_name=f"p{i}")
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=100 + i)
    c.subscribe(topic, f"s{i}", 100 + i)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=100 + i)


@scenario
def namespace_grants_come_and_go(s):
    namespace, topic = world(s)
    c = as_role(s, "user")
    rights(c, topic, 0)
    for i, actions in enumerate((["produce"], ["consume"], ["produce", "consume"], ["functions"], []), 1):
        grant(s, namespace, "user", *actions)
        rights(c, topic, i)
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/user")
    rights(c, topic, 9)


@scenario
def topic_grants_come_and_go(s):
    _, topic = world(s)
    c = as_role(s, "user")
    for i, actions in enumerate((["produce"], ["consume"], ["produce", "consume"], ["functions"], [])):
        grant_topic(s, topic, "user", *actions)
        rights(c, topic, i)
    s.call("DELETE", rest(topic, "/permissions/user"))
    rights(c, topic, 9)


@scenario
def grants_of_both_kinds_add_up(s):
    namespace, topic = world(s)
    c = as_role(s, "user")
    grant(s, namespace, "user", "produce")
    grant_topic(s, topic, "user", "consume")
    rights(c, topic, 0)
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/user")
    rights(c, topic, 1)
    grant(s, namespace, "user", "produce")
    s.call("DELETE", rest(topic, "/permissions/user"))
    rights(c, topic, 2)


@scenario
def grants_on_a_partitioned_topic_are_for_its_partitions(s):
    namespace, _ = world(s)
    topic = f"persistent://{namespace}/p"
    s.call("PUT", rest(topic, "/partitions"), 2)
    for name in (topic, topic + "-partition-0", topic + "-partition-1"):
        s.lookup(name)
    c = as_role(s, "user")
    grant_topic(s, topic, "user", "produce", "consume")
    rights(c, topic + "-partition-0", 0)
    rights(c, topic + "-partition-1", 1)
    c.ask("PARTITIONED_METADATA", topic=topic)
    s.call("GET", rest(topic + "-partition-0", "/permissions"), keep=True)
    s.call("DELETE", rest(topic, "/permissions/user"))
    rights(c, topic + "-partition-0", 2)
    d = as_role(s, "other")
    grant_topic(s, topic + "-partition-0", "other", "produce")
    rights(d, topic + "-partition-0", 3)
    rights(d, topic + "-partition-1", 4)
    d.ask("PARTITIONED_METADATA", topic=topic)
    s.call("GET", rest(topic, "/permissions"), keep=True)
    s.call("GET", rest(topic + "-partition-0", "/permissions"), keep=True)


@scenario
def grants_on_a_non_persistent_topic(s):
    _, topic = world(s)
    other = "non-" + topic
    s.lookup(other)
    c = as_role(s, "user")
    grant_topic(s, other, "user", "produce", "consume")
    rights(c, other, 0)
    rights(c, topic, 1)
    s.call("GET", rest(other, "/permissions"), keep=True)
    s.call("DELETE", rest(other, "/permissions/user"))
    rights(c, other, 2)


@scenario
def revoked_producer_and_consumer_by_kind_of_grant(s):
    """A role with two grants keeps the rights of the other grant."""
    namespace, topic = world(s)
    grant(s, namespace, "user", "produce", "consume")
    grant_topic(s, topic, "user", "produce")
    c = as_role(s, "user")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "s", 2)
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/user")
    c.recv(3)
    c.none(0.5)
    c.publish(1, 0)
    c.recv()
    s.call("DELETE", rest(topic, "/permissions/user"))
    c.recv(3)
    c.none(0.3)


@scenario
def grant_replaced_by_a_smaller_one(s):
    namespace, topic = world(s)
    grant(s, namespace, "user", "produce", "consume")
    c = as_role(s, "user")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "s", 2)
    grant(s, namespace, "user", "consume")
    c.recv(3)
    c.none(0.5)
    grant(s, namespace, "user", "produce")
    c.recv(3)
    c.none(0.5)


@scenario
def revoked_clients_of_a_non_persistent_topic(s):
    namespace, topic = world(s)
    topic = "non-" + topic
    s.lookup(topic)
    grant(s, namespace, "user", "produce", "consume")
    c = as_role(s, "user")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "s", 2)
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/user")
    c.recv_sorted(2, 3)
    c.none(0.3)


@scenario
def revoked_clients_of_partitions(s):
    namespace, topic = world(s)
    s.call("PUT", rest(topic + "p", "/partitions"), 2)
    grant_topic(s, topic + "p", "user", "produce", "consume")
    c = as_role(s, "user")
    for i in range(2):
        s.lookup(f"{topic}p-partition-{i}")
        c.producer(f"{topic}p-partition-{i}", i, producer_name="p")
        c.subscribe(f"{topic}p-partition-{i}", "s", 10 + i)
    s.call("DELETE", rest(topic + "p", "/permissions/user"))
    c.recv_sorted(4, 3)
    c.none(0.3)


@scenario
def revoked_reader_and_shared_consumers(s):
    namespace, topic = world(s)
    grant(s, namespace, "user", "consume")
    grant(s, namespace, "other", "consume")
    c, d = as_role(s, "user"), as_role(s, "other")
    c.subscribe(topic, "s", 1, subType="Shared")
    d.subscribe(topic, "s", 1, subType="Shared")
    c.subscribe(topic, "r", 2, durable=False)
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/user")
    c.recv_sorted(2, 3)
    d.none(0.3)


@scenario
def revoked_waiting_producer(s):
    namespace, topic = world(s)
    grant(s, namespace, "user", "produce")
    a = as_role(s, "admin")
    a.producer(topic, 1, producer_name="a", producer_access_mode="Exclusive")
    c = as_role(s, "user")
    c.producer(topic, 1, producer_name="p", producer_access_mode="WaitForExclusive")
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/user")
    c.none(1)
    a.ask("CLOSE_PRODUCER", producer_id=1)
    c.recv(2)


@scenario
def sends_behind_a_revocation(s):
    namespace, topic = world(s)
    grant(s, namespace, "user", "produce")
    c = as_role(s, "user")
    c.producer(topic, 1, producer_name="p")
    c.publish(1, 0)
    c.recv()
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/user")
    c.recv(3)
    c.publish(1, 1)
    c.none(0.5)
    c.ask("CLOSE_PRODUCER", producer_id=1)
    c.producer(topic, 1, producer_name="p")
    grant(s, namespace, "user", "produce")
    c.producer(topic, 1, producer_name="p")
    c.publish(1, 1)
    c.recv()


@scenario
def frames_behind_a_revocation_of_a_consumer(s):
    namespace, topic = world(s)
    grant(s, namespace, "user", "consume")
    c = as_role(s, "user")
    c.subscribe(topic, "s", 1, permits=5)
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/user")
    c.recv(3)
    c.send("FLOW", consumer_id=1, messagePermits=5)
    c.send("ACK", consumer_id=1, ack_type="Individual", message_id=[dict(ledgerId=1, entryId=0)])
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("CLOSE_CONSUMER", consumer_id=1)


@scenario
def administrator_of_a_tenant_no_more(s):
    namespace, topic = world(s)
    c = as_role(s, "boss")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "s", 1)
    s.call("POST", f"/admin/v2/tenants/{s.tag}", {"adminRoles": ["other"], "allowedClusters": ["standalone"]})
    c.none(1)
    c.producer(topic, 2, producer_name="p2")
    c.subscribe(topic, "s2", 2)
    c.publish(1, 0)
    c.recv()
    as_role(s, "other").producer(topic, 1, producer_name="q")


@scenario
def administrator_who_is_revoked_a_grant_keeps_all(s):
    namespace, topic = world(s)
    grant(s, namespace, "boss", "produce")
    grant(s, namespace, "superUser", "produce")
    c, d = as_role(s, "boss"), as_role(s, "superUser")
    c.producer(topic, 1, producer_name="p")
    d.producer(topic, 1, producer_name="q")
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/boss")
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/superUser")
    c.none(0.7)
    d.none(0.1)


@scenario
def deleted_topic_forgets_its_grants(s):
    namespace, topic = world(s)
    grant_topic(s, topic, "user", "produce")
    c = as_role(s, "user")
    c.producer(topic, 1, producer_name="p")
    s.call("DELETE", rest(topic, "?force=true"))
    c.recv(3)
    c.producer(topic, 2, producer_name="p")
    s.call("PUT", rest(topic))
    c.producer(topic, 3, producer_name="p")
    s.call("GET", rest(topic, "/permissions"), keep=True)


@scenario
def rights_of_the_anonymous(s):
    namespace, topic = world(s)
    c = as_role(s, "")
    rights(c, topic, 0)
    grant(s, namespace, "anonymous", "produce", "consume")
    rights(c, topic, 1)
    d = as_role(s, "anonymous", "proven")
    rights(d, topic, 2)
    c.producer(topic, 1, producer_name="p")
    d.producer(topic, 1, producer_name="q")
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/anonymous")
    c.recv(3)
    d.recv(3)


@scenario
def subscription_modes_of_a_namespace(s):
    namespace, topic = world(s)
    grant(s, namespace, "user", "consume", "produce")
    c, boss, root = as_role(s, "user"), as_role(s, "boss"), as_role(s, "superUser")
    for mode in ("Prefix", "None"):
        s.call("POST", f"/admin/v2/namespaces/{namespace}/subscriptionAuthMode", mode)
        for i, name in enumerate(("user", "user-1", "userx", "User", "other", "xuser", "")):
            for client in (c, boss, root):
                client.subscribe(topic, name, i)
                client.ask("CLOSE_CONSUMER", quietly=True, consumer_id=i)
        c.subscribe(topic, "reader-x", 30, durable=False)
        c.producer(topic, 31, producer_name="p" + mode, initial_subscription_name="first")
        c.producer(topic, 32, producer_name="q" + mode, initial_subscription_name="user-first")


@scenario
def subscription_mode_set_while_consuming(s):
    namespace, topic = world(s)
    grant(s, namespace, "user", "consume")
    c = as_role(s, "user")
    c.subscribe(topic, "other", 1)
    c.subscribe(topic, "user-1", 2)
    s.call("POST", f"/admin/v2/namespaces/{namespace}/subscriptionAuthMode", "Prefix")
    c.recv(3)
    c.none(0.5)


@scenario
def subscription_given_to_roles(s):
    namespace, topic = world(s)
    for role in ("one", "two", "three"):
        grant(s, namespace, role, "consume")
    path = f"/admin/v2/namespaces/{namespace}/permissions/subscription/sub"
    clients = [as_role(s, role) for role in ("one", "two", "three", "boss", "superUser", "nobody")]

    def each(i):
        for c in clients:
            c.subscribe(topic, "sub", i)
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=i)

    each(0)
    s.call("POST", path, ["one"])
    each(1)
    s.call("POST", path, ["two", "nobody"])
    each(2)
    s.call("DELETE", path + "/two")
    each(3)
    s.call("POST", path, [])
    each(4)


@scenario
def subscription_given_to_another_while_consuming(s):
    namespace, topic = world(s)
    grant(s, namespace, "user", "consume")
    c = as_role(s, "user")
    c.subscribe(topic, "sub", 1)
    c.subscribe(topic, "free", 2)
    s.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/subscription/sub", ["other"])
    c.recv(3)
    c.none(0.5)


@scenario
def namespace_deleted_and_made_again_has_no_grants(s):
    namespace, topic = world(s)
    grant(s, namespace, "user", "produce")
    c = as_role(s, "user")
    c.ask("LOOKUP", topic=topic, authoritative=False)
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}?force=true")
    c.ask("LOOKUP", topic=topic, authoritative=False)
    s.call("PUT", f"/admin/v2/namespaces/{namespace}", {})
    c.ask("LOOKUP", topic=topic, authoritative=False)
    s.call("GET", f"/admin/v2/namespaces/{namespace}/permissions", keep=True)


def soon(seconds=1):
    return int(time.time()) + seconds + 1


@scenario
def expired_without_the_feature_closes(s):
    """A connection that cannot answer a challenge is closed."""
    c = s.connect(token=jwt("admin", exp=soon()), feature_flags={"supports_auth_refresh": False})
    c.recv()
    d = s.connect(token=jwt("admin", exp=soon()), protocol_version=13)
    d.recv()


@scenario
def expired_clients_go_on_until_they_are_asked(s):
    _, topic = world(s)
    c = s.connect(token=jwt("admin", exp=soon()))
    c.producer(topic, 1, producer_name="p")
    c.recv()
    c.publish(1, 0)
    c.recv()
    c.recv()


@scenario
def challenge_answered_badly(s):
    _, topic = world(s)
    for i, token in enumerate((jwt("admin", key=b"x" * 32), jwt("nobody"), jwt("admin", exp=int(time.time()) - 50))):
        c = s.connect(f"c{i}", token=jwt("admin", exp=soon()))
        c.recv()
        data = {"auth_method_name": "token", "auth_data": token.encode()}
        c.send("AUTH_RESPONSE", quietly=True, client_version="t", protocol_version=21, response=data)
        c.recv()
        c.recv()


@scenario
def order_of_closes_at_a_revocation(s):
    namespace, topic = world(s)
    for action, ids in (("consume", range(1, 6)), ("produce", range(1, 8))):
        grant(s, namespace, "user", "produce", "consume")
        c = as_role(s, "user")
        names = ("zz", "b", "sub", "a", "s1") if action == "consume" else ("zz", "b", "a", "p", "producer-1", "q", "x")
        for i, name in zip(ids, names, strict=True):
            if action == "consume":
                c.subscribe(topic, name, i, quietly=True)
            else:
                c.producer(topic, i, quietly=True, producer_name=name)
        s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/user")
        told = [f.command for f in iter(lambda c=c: c.recv_quietly(1.5), None) if f.type.startswith("CLOSE_")]
        s.note(action, [getattr(x, "producer_id", getattr(x, "consumer_id", None)) for x in told])
