"""Administrators of tenants, roles of subscriptions and the anonymous: their rights when tenants and topics change."""

import time

from harness.steps import rest
from harness.tenancy import as_role, grant
from transcript import encode, jwt, scenario

STRING = {"name": "s", "schema_data": b"", "type": "String"}


def world(s, admins=("boss",), **grants):
    s.token = jwt("admin")
    namespace = s.tag + "/ns"
    topic = f"persistent://{namespace}/t"
    tenant(s, *admins, method="PUT")
    s.http("PUT", f"/admin/v2/namespaces/{namespace}", {}, quietly=True)
    s.http("PUT", rest(topic), quietly=True)
    grant(s, f"/admin/v2/namespaces/{namespace}", grants)
    s.lookup(topic)
    return namespace, topic


def tenant(s, *admins, method="POST"):
    info = {"adminRoles": list(admins), "allowedClusters": ["standalone"]}
    s.call(method, f"/admin/v2/tenants/{s.tag}", info)


def may(s, c, topic, i):
    """The present rights of the role, as a note: answers to LOOKUP, PRODUCER and SUBSCRIBE."""
    found = c.ask("LOOKUP", quietly=True, topic=topic, authoritative=False)
    made = c.producer(topic, 100 + i, quietly=True, producer_name=f"{c.name}-{i}")
    read = c.subscribe(topic, f"{c.name}-{i}", 100 + i, quietly=True)
    s.note(f"{c.name} {i}", [found.command.error, made.type, read.type])
    c.ask("CLOSE_PRODUCER", quietly=True, producer_id=100 + i)
    c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=100 + i)


@scenario
def anonymous_administrator(s):
    _, topic = world(s, admins=("anonymous",))
    may(s, as_role(s, ""), topic, 0)
    may(s, as_role(s, "anonymous", "proven"), topic, 1)
    tenant(s)
    may(s, as_role(s, ""), topic, 2)


@scenario
def administrators_of_every_number(s):
    _, topic = world(s, admins=())
    clients = [as_role(s, role) for role in ("boss", "other", "nobody")]
    for i, admins in enumerate(((), ("boss",), ("boss", "other"), ("other", "other"), ("",), ("boss ",))):
        tenant(s, *admins)
        for c in clients:
            may(s, c, topic, i)


@scenario
def administrator_no_more_and_a_policy_changes(s):
    """Clients are looked at again when the namespace changes."""
    namespace, topic = world(s)
    c = as_role(s, "boss")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)
    tenant(s, "other")
    c.none(0.5)
    s.call("POST", f"/admin/v2/namespaces/{namespace}/messageTTL", 100)
    c.recv_sorted(2, 3)
    c.none(0.3)


@scenario
def administrator_no_more_and_a_topic_policy_changes(s):
    _, topic = world(s)
    c = as_role(s, "boss")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)
    tenant(s, "other")
    s.call("POST", rest(topic, "/maxConsumers"), 100)
    c.recv(5)
    c.none(0.5)


@scenario
def administrator_no_more_and_a_policy_of_a_non_persistent_topic_changes(s):
    _, topic = world(s)
    topic = "non-" + topic
    s.lookup(topic)
    c = as_role(s, "boss")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)
    tenant(s, "other")
    s.call("POST", rest(topic, "/maxConsumers"), 100)
    c.none(3)


@scenario
def administrator_no_more_and_the_topic_is_unloaded(s):
    _, topic = world(s)
    c = as_role(s, "boss")
    c.producer(topic, 1, producer_name="p")
    tenant(s, "other")
    s.call("PUT", rest(topic, "/unload"))
    c.recv()
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.producer(topic, 1, producer_name="p")


@scenario
def clients_of_a_deleted_tenant(s):
    namespace, topic = world(s, user=["produce", "consume"])
    c, boss = as_role(s, "user"), as_role(s, "boss")
    c.producer(topic, 1, producer_name="p")
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}?force=true")
    c.recv(5)
    s.call("DELETE", f"/admin/v2/tenants/{s.tag}")
    for client in (c, boss, as_role(s, "superUser")):
        client.ask("LOOKUP", topic=topic, authoritative=False)
        client.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
        client.ask("GET_TOPICS_OF_NAMESPACE", namespace=namespace, mode="PERSISTENT")


@scenario
def who_makes_topics_by_use(s):
    namespace, _ = world(s, writer=["produce"], reader=["consume"], none=[])
    for i, role in enumerate(("writer", "reader", "none", "boss")):
        c = as_role(s, role)
        for kind in ("persistent", "non-persistent"):
            topic = f"{kind}://{namespace}/new{i}"
            for name in (topic, topic + "a", topic + "b"):
                s.lookup(name)
            c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
            c.producer(topic + "a", 1, producer_name="p")
            c.subscribe(topic + "b", "sub", 1)
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=1)
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=1)


@scenario
def who_makes_partitioned_topics_by_asking(s):
    namespace, _ = world(s, writer=["produce"], reader=["consume"], functions=["functions"])
    policy = {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2}
    s.call("POST", f"/admin/v2/namespaces/{namespace}/autoTopicCreation", policy)
    for role in ("writer", "reader", "functions", "nobody", "boss"):
        c = as_role(s, role)
        topic = f"persistent://{namespace}/{role}"
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=True)
        c.ask("PARTITIONED_METADATA", topic=topic, metadata_auto_creation_enabled=False)
    s.call("GET", f"/admin/v2/persistent/{namespace}/partitioned", keep=True)


@scenario
def system_topics_and_roles(s):
    namespace, topic = world(s, both=["produce", "consume"])
    s.http("POST", rest(topic, "/maxConsumers"), 5, quietly=True)
    for role in ("both", "boss", "superUser"):
        c = as_role(s, role)
        for i, name in enumerate(("__change_events", "__transaction_buffer_snapshot", "__transaction_pending_ack")):
            place = f"persistent://{namespace}/{name}"
            s.lookup(place)
            c.ask("LOOKUP", topic=place, authoritative=False)
            c.producer(place, i, producer_name=f"{role}-p")
            c.ask("CLOSE_PRODUCER", quietly=True, producer_id=i)


@scenario
def consumer_does_everything_its_right_is_for(s):
    _, topic = world(s, reader=["consume"])
    c, admin = as_role(s, "reader"), as_role(s, "admin")
    admin.producer(topic, 1, quietly=True, producer_name="p")
    c.subscribe(topic, "sub", 1, permits=5)
    admin.publish(1, 0)
    admin.recv()
    c.recv()
    c.ask("GET_LAST_MESSAGE_ID", consumer_id=1)
    c.ask("SEEK", consumer_id=1, message_publish_time=1)
    c.subscribe(topic, "sub", 1)
    c.ask("UNSUBSCRIBE", consumer_id=1)
    c.ask("WATCH_TOPIC_LIST", watcher_id=1, namespace=s.tag + "/ns", topics_pattern="none")


@scenario
def requests_of_two_rights_in_one_write(s):
    _, topic = world(s, writer=["produce"])
    c = as_role(s, "writer")
    requests = [
        encode("LOOKUP", topic=topic, request_id=1, authoritative=False),
        encode("PRODUCER", topic=topic, producer_id=1, request_id=2, producer_name="p"),
        encode("SUBSCRIBE", topic=topic, subscription="s", subType="Shared", consumer_id=1, request_id=3),
        encode("PARTITIONED_METADATA", topic=topic, request_id=4),
    ]
    c.raw(b"".join(requests), "LOOKUP, PRODUCER, SUBSCRIBE, PARTITIONED_METADATA")
    c.recv_sorted(4)


@scenario
def grants_before_and_after_partitions_are_added(s):
    namespace, _ = world(s)
    topic = f"persistent://{namespace}/p"
    s.call("PUT", rest(topic, "/partitions"), 1)
    s.call("POST", rest(topic, "/permissions/user"), ["produce", "consume"])
    s.call("POST", rest(topic, "/partitions"), 3)
    c = as_role(s, "user")
    for i in range(3):
        s.lookup(f"{topic}-partition-{i}")
        may(s, c, f"{topic}-partition-{i}", i)
    s.call("POST", rest(topic + "-partition-1", "/permissions/other"), ["produce"])
    d = as_role(s, "other")
    for i in range(3):
        may(s, d, f"{topic}-partition-{i}", i)
    s.call("DELETE", rest(topic + "-partition-1", "/permissions/user"))
    may(s, c, f"{topic}-partition-1", 5)
    s.call("DELETE", rest(topic + "-partition-1", "/permissions/other"))
    may(s, d, f"{topic}-partition-1", 6)


@scenario
def grants_on_topics_that_are_not_there(s):
    namespace, topic = world(s)
    for name in (topic + "-none", topic + "-none-partition-0", "non-" + topic, f"persistent://{s.tag}/none/t"):
        s.call("POST", rest(name, "/permissions/user"), ["produce"])
        s.call("GET", rest(name, "/permissions"), keep=True)
        s.call("DELETE", rest(name, "/permissions/user"))
    s.call("DELETE", rest(topic, "/permissions/never"))
    s.call("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/never")


@scenario
def deleted_partitioned_topic_forgets_its_grants(s):
    namespace, _ = world(s)
    topic = f"persistent://{namespace}/p"
    c = as_role(s, "user")
    s.call("PUT", rest(topic, "/partitions"), 2)
    s.call("POST", rest(topic, "/permissions/user"), ["produce"])
    s.call("POST", rest(topic + "-partition-1", "/permissions/user"), ["consume"])
    s.call("DELETE", rest(topic, "/partitions?force=true"))
    s.call("PUT", rest(topic, "/partitions"), 2)
    for i in range(2):
        s.lookup(f"{topic}-partition-{i}")
        may(s, c, f"{topic}-partition-{i}", i)
    s.call("GET", rest(topic, "/permissions"), keep=True)
    s.call("GET", rest(topic + "-partition-1", "/permissions"), keep=True)


@scenario
def actions_that_are_none(s):
    namespace, topic = world(s)
    c = as_role(s, "user")
    for i, actions in enumerate(
        (["Produce"], ["PRODUCE"], ["produce", "produce"], ["nothing"], ["produce", "nothing"])
    ):
        s.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/user", actions)
        s.call("GET", f"/admin/v2/namespaces/{namespace}/permissions", keep=True)
        may(s, c, topic, i)


@scenario
def prefix_mode_and_readers(s):
    namespace, topic = world(s, user=["consume"])
    s.call("POST", f"/admin/v2/namespaces/{namespace}/subscriptionAuthMode", "Prefix")
    c = as_role(s, "user")
    for i, (name, more) in enumerate(
        (
            ("reader-1", {"durable": False}),
            ("user-reader", {"durable": False}),
            ("multiTopicsReader-1", {"durable": False}),
            ("user", {}),
        )
    ):
        c.subscribe(topic, name, i, **more)
    s.lookup("non-" + topic)
    c.subscribe("non-" + topic, "other", 10)
    c.subscribe("non-" + topic, "user-x", 11)
    c.ask("UNSUBSCRIBE", consumer_id=3)


@scenario
def prefix_mode_and_roles_of_the_subscription(s):
    namespace, topic = world(s, user=["consume"], other=["consume"])
    s.call("POST", f"/admin/v2/namespaces/{namespace}/subscriptionAuthMode", "Prefix")
    s.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/subscription/user-1", ["other"])
    for role in ("user", "other", "boss"):
        c = as_role(s, role)
        for i, name in enumerate(("user-1", "user-2", "other-1")):
            c.subscribe(topic, name, i)
            c.ask("CLOSE_CONSUMER", quietly=True, consumer_id=i)


@scenario
def prefix_mode_over_rest(s):
    namespace, topic = world(s, user=["consume"], maker=["produce"])
    n = f"/admin/v2/namespaces/{namespace}"
    s.call("POST", n + "/subscriptionAuthMode", "Prefix")
    s.call("POST", n + "/permissions/subscription/listed", ["user"])
    calls = (
        ("PUT", "", "earliest"),
        ("POST", "/skip_all", None),
        ("GET", "/position/1", None),
        ("POST", "/resetcursor/0", None),
        ("GET", "/properties", None),
        ("DELETE", "", None),
    )
    for subscription in ("sub", "user-1", "listed"):
        for role in ("user", "maker", "nobody", "boss"):
            path = rest(topic, f"/subscription/{subscription}")
            token = jwt(role)
            found = [s.http(method, path + more, body, quietly=True, token=token)[0] for method, more, body in calls]
            s.note(f"{role} {subscription}", [200 if status == 204 else status for status in found])


@scenario
def names_of_methods_and_versions_of_old_clients(s):
    """Tokens work with any protocol version; a challenge needs the feature."""
    for version in (0, 1, 10, 13, 14, 21, 100):
        c = s.connect(f"v{version}", token=jwt("admin"), protocol_version=version, quietly=True)
        c.ask("LOOKUP", topic="persistent://public/default/any", authoritative=False)


@scenario
def challenge_of_each_version(s):
    clients = [
        s.connect(f"v{version}", token=jwt("admin", exp=int(time.time()) + 2), protocol_version=version)
        for version in (0, 13, 14, 21)
    ]
    for c in clients:
        c.recv()
    for c in clients:
        c.recv()


@scenario
def fresh_token_before_the_old_one_is_over(s):
    c = s.connect(token=jwt("admin", exp=int(time.time()) + 3))
    data = {"auth_method_name": "token", "auth_data": jwt("admin").encode()}
    c.send("AUTH_RESPONSE", quietly=True, client_version="t", protocol_version=21, response=data)
    c.none(6)
    c.ask("LOOKUP", topic="persistent://public/default/any", authoritative=False)


@scenario
def shorter_token_as_an_answer(s):
    """The broker requests a new token when the second token expires before the first."""
    c = s.connect(token=jwt("admin", exp=int(time.time()) + 1000))
    data = {"auth_method_name": "token", "auth_data": jwt("admin", exp=int(time.time()) + 2).encode()}
    c.send("AUTH_RESPONSE", quietly=True, client_version="t", protocol_version=21, response=data)
    c.recv(8)
    c.recv(8)
