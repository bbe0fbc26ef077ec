"""The answers that each role gets on the wire: the error code of every command without a right, and the frames behind
it.
"""

import time

from harness.steps import rest
from harness.tenancy import as_role, grant, world
from transcript import jwt, scenario

OF_NAMESPACE = {
    "writer": ["produce"],
    "reader": ["consume"],
    "functions": ["functions"],
    "both": ["produce", "consume"],
}
OF_TOPIC = {"topic-writer": ["produce"], "topic-reader": ["consume"]}
ROLES = ("", "nobody", "boss", *OF_NAMESPACE, *OF_TOPIC)
STRING = {"name": "s", "schema_data": b"", "type": "String"}


def granted(s, role=""):
    """A namespace and a topic with the grants of the role in the tables."""
    namespace, topic = world(s)
    for place, grants in ((f"/admin/v2/namespaces/{namespace}", OF_NAMESPACE), (rest(topic), OF_TOPIC)):
        grant(s, place, {role: grants[role]} if role in grants else {})
    return namespace, topic


def _declare(name, steps):
    for role in ROLES:

        def run(s, role=role):
            namespace, topic = granted(s, role)
            steps(s, as_role(s, role), namespace, topic)

        run.__name__ = run.__qualname__ = f"{name}_as_{role.replace('-', '_') or 'anonymous'}"
        scenario(run)


def finding(s, c, namespace, topic):
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.ask("PARTITIONED_METADATA", topic=topic)
    frame = c.ask("GET_TOPICS_OF_NAMESPACE", quietly=True, namespace=namespace, mode="PERSISTENT")
    s.note("topics", [frame.type, list(getattr(frame.command, "topics", ()))])


def clients(s, c, namespace, topic):
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 2)


def schemas(s, c, namespace, topic):
    c.ask("GET_SCHEMA", topic=topic)
    c.ask("GET_OR_CREATE_SCHEMA", topic=topic, schema=STRING)


def other_topics(s, c, namespace, topic):
    s.lookup(topic + "2")
    c.producer(topic + "2", 1, producer_name="p")
    c.subscribe(topic + "2", "sub", 2)
    c.ask("LOOKUP", topic=topic + "2", authoritative=False)


for _name, _steps in (
    ("finding_topics", finding),
    ("opening_clients", clients),
    ("asking_for_schemas", schemas),
    ("opening_clients_of_another_topic", other_topics),
):
    _declare(_name, _steps)


@scenario
def connect_with_every_kind_of_bad_token(s):
    past = int(time.time()) - 60
    for i, token in enumerate(
        (
            "garbage",
            "a.b.c",
            jwt("admin", alg="none"),
            jwt("admin", alg="HS512"),
            jwt("admin", key=b"x" * 32),
            jwt("admin", exp=past),
            jwt("admin", nbf=int(time.time()) + 600),
            jwt(""),
            jwt(None),
        )
    ):
        c = s.connect(f"c{i}", token=token)
        c.ask("LOOKUP", topic="persistent://public/default/any", authoritative=False)


@scenario
def connect_with_another_method(s):
    for i, method in enumerate(("tls", "basic", "none", "", "athenz")):
        c = s.connect(f"c{i}", token="", auth_method_name=method, auth_data=jwt("admin").encode())
        c.ask("LOOKUP", topic="persistent://public/default/any", authoritative=False)


@scenario
def rest_with_every_kind_of_bad_token(s):
    for header in (
        "Bearer garbage",
        "Bearer " + jwt("admin", alg="none"),
        "Bearer " + jwt("admin", key=b"x" * 32),
        "Bearer " + jwt("admin", exp=int(time.time()) - 60),
        "Bearer",
        "Basic YWRtaW46YWRtaW4=",
        jwt("admin"),
    ):
        status, _ = s.http("GET", "/admin/v2/tenants", token="", headers={"Authorization": header}, quietly=True)
        s.note("status", status)


@scenario
def fresh_token_of_another_role_is_refused(s):
    """A challenge must be answered by the same role."""
    _, topic = granted(s)
    c = s.connect(token=jwt("admin", exp=int(time.time()) + 2))
    c.producer(topic, 1, producer_name="p", quietly=True)
    c.recv()
    data = {"auth_method_name": "token", "auth_data": jwt("superUser", exp=int(time.time()) + 60).encode()}
    c.send("AUTH_RESPONSE", quietly=True, client_version="t", protocol_version=21, response=data)
    c.recv()
    c.recv()


@scenario
def rights_are_taken_while_producing(s):
    namespace, topic = granted(s, "writer")
    c = as_role(s, "writer")
    c.producer(topic, 1, producer_name="p", quietly=True)
    c.publish(1, 0)
    c.recv()
    s.http("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/writer")
    c.recv()
    c.ask("LOOKUP", topic=topic, authoritative=False)


@scenario
def subscription_prefix_must_be_the_role(s):
    namespace, topic = granted(s, "reader")
    s.call("POST", f"/admin/v2/namespaces/{namespace}/subscriptionAuthMode", "Prefix")
    c = as_role(s, "reader")
    c.subscribe(topic, "other", 1)
    c.subscribe(topic, "reader-1", 2)


@scenario
def subscription_granted_to_another_role(s):
    namespace, topic = granted(s, "reader")
    s.call("POST", f"/admin/v2/namespaces/{namespace}/permissions/subscription/sub", ["another"])
    c = as_role(s, "reader")
    c.subscribe(topic, "sub", 1)
    c.subscribe(topic, "free", 2)


def words(c, type_name, **fields):
    """Asks, and notes type, code and text of the answer."""
    answer = c.ask(type_name, quietly=True, **fields)
    command = answer.command
    code = getattr(command, "error_code", None) or getattr(command, "error", None)
    text = getattr(command, "error_message", None) or getattr(command, "message", None)
    c.session.note(f"{c.name} {type_name}", [answer.type, code, text and text.replace(c.session.tag, "$")])


@scenario
def words_of_refusals_on_the_wire(s):
    namespace, topic = granted(s, "reader")
    s.call("POST", f"/admin/v2/namespaces/{namespace}/subscriptionAuthMode", "Prefix")
    for role in ("reader", "nobody", "another"):
        c = as_role(s, role)
        words(c, "LOOKUP", topic=topic, authoritative=False)
        words(c, "PARTITIONED_METADATA", topic=topic)
        words(c, "PRODUCER", topic=topic, producer_id=1, producer_name="p")
        words(c, "SUBSCRIBE", topic=topic, subscription="other", consumer_id=1, subType="Shared")
        words(c, "SUBSCRIBE", topic=topic, subscription=role + "-1", consumer_id=2, subType="Shared")
        words(c, "GET_TOPICS_OF_NAMESPACE", namespace=namespace, mode="PERSISTENT")
        words(c, "WATCH_TOPIC_LIST", watcher_id=1, namespace=namespace, topics_pattern="none")
    words(as_role(s, "admin"), "GET_SCHEMA", topic=topic)
    words(as_role(s, "boss"), "GET_SCHEMA", topic=topic, schema_version=b"\0" * 8)


@scenario
def empty_original_principals(s):
    """The empty name counts as a role for namespaces, and not for topics; clients without a proof name nothing."""
    namespace, topic = granted(s, "both")
    for role in ("superUser", "boss", "both", "nobody", ""):
        c = as_role(s, role, original_principal="")
        words(c, "LOOKUP", topic=topic, authoritative=False)
        words(c, "PRODUCER", topic=topic, producer_id=1, producer_name=f"p-{role}")
        words(c, "SUBSCRIBE", topic=topic, subscription=f"s-{role}", consumer_id=1, subType="Shared")
        words(c, "GET_TOPICS_OF_NAMESPACE", namespace=namespace, mode="PERSISTENT")
        words(c, "WATCH_TOPIC_LIST", watcher_id=1, namespace=namespace, topics_pattern="none")


@scenario
def principal_of_web_socket_proxies(s):
    """The principal that Apache Pulsar's WebSocket proxy names needs no proxy role, and no right to topics."""
    namespace, topic = granted(s, "both")
    principal = "__websocket_dummy_original_principle"
    for role in ("superUser", "boss", "both", "nobody", ""):
        c = as_role(s, role, original_principal=principal)
        words(c, "LOOKUP", topic=topic, authoritative=False)
        words(c, "PRODUCER", topic=topic, producer_id=1, producer_name=f"p-{role}")
        words(c, "SUBSCRIBE", topic=topic, subscription=f"s-{role}", consumer_id=1, subType="Shared")
        words(c, "GET_TOPICS_OF_NAMESPACE", namespace=namespace, mode="PERSISTENT")
        for path in (rest(topic, "/stats"), f"/admin/v2/namespaces/{namespace}/topics", "/admin/v2/tenants"):
            s.call("GET", path, headers={"X-Original-Principal": principal}, token=role and jwt(role))


@scenario
def first_subscriptions_without_the_prefix_of_their_role(s):
    namespace, topic = world(s, both=["produce", "consume"], writer=["produce"])
    s.http("POST", f"/admin/v2/namespaces/{namespace}/subscriptionAuthMode", "Prefix", quietly=True)
    for role in ("both", "writer"):
        c = as_role(s, role)
        for number, subscription in enumerate(("other", role + "-1")):
            c.producer(topic, number, producer_name=f"{role}-p{number}", initial_subscription_name=subscription)
