"""Tokens, roles and permissions; needs the broker of auth.conf. The scenarios sign their own tokens."""

import time

from transcript import jwt, scenario

VALID = {"client_version": "t", "protocol_version": 21}


def world(s, **grants):
    """As super user: a tenant administered by `boss`, a namespace (`grants` are role=[actions] on it) and a topic."""
    s.token = jwt("admin")
    namespace = s.tag + "/ns"
    topic = f"persistent://{namespace}/t"
    s.http(
        "PUT", f"/admin/v2/tenants/{s.tag}", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}, quietly=True
    )
    s.http("PUT", f"/admin/v2/namespaces/{namespace}", {}, quietly=True)
    s.http("PUT", rest(topic), quietly=True)
    for role, actions in grants.items():
        s.http("POST", f"/admin/v2/namespaces/{namespace}/permissions/{role}", actions, quietly=True)
    s.lookup(topic)
    return s.tag, namespace, topic


def rest(topic, more=""):
    return "/admin/v2/" + topic.replace("://", "/") + more


def as_role(s, role, **fields):
    return s.connect(role or "anonymous", token=role and jwt(role), **fields)


def soon(seconds=1):
    """An expiry that is over in 1 to 2 seconds."""
    return int(time.time()) + seconds + 1


def answer(c, token):
    c.send("AUTH_RESPONSE", quietly=True, **VALID, response=dict(auth_method_name="token", auth_data=token.encode()))


@scenario
def connect_with_a_valid_token(s):
    c = s.connect(token=jwt("admin"))
    c.ask("LOOKUP", topic="persistent://public/default/any", authoritative=False)


@scenario
def connect_with_a_token_signed_by_another_key(s):
    c = s.connect(token=jwt("admin", key=b"another key of thirty-two bytes!"))
    c.recv()


@scenario
def connect_with_an_expired_token(s):
    c = s.connect(token=jwt("admin", exp=int(time.time()) - 60))
    c.recv()


@scenario
def connect_without_credentials_is_the_anonymous_role(s):
    """auth.conf names an anonymousUserRole: such a client has no rights until that role is granted some."""
    _, namespace, topic = world(s)
    c = as_role(s, "")
    c.ask("LOOKUP", topic=topic, authoritative=False)
    s.http("POST", f"/admin/v2/namespaces/{namespace}/permissions/anonymous", ["produce"], quietly=True)
    c.producer(topic, 1, producer_name="p")


@scenario
def role_without_rights_is_refused_everything(s):
    _, _, topic = world(s)
    c = as_role(s, "nobody")
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.producer(topic, 1)
    c.subscribe(topic, "sub", 1)
    c.none()


@scenario
def produce_right_is_for_lookup_and_producers_only(s):
    _, _, topic = world(s, writer=["produce"])
    c = as_role(s, "writer")
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.producer(topic, 1, producer_name="p")
    c.publish(1, 0)
    c.recv()
    c.subscribe(topic, "sub", 1)


@scenario
def consume_right_is_for_lookup_and_consumers_only(s):
    _, _, topic = world(s, reader=["consume"])
    c = as_role(s, "reader")
    c.ask("LOOKUP", topic=topic, authoritative=False)
    c.ask("PARTITIONED_METADATA", topic=topic)
    c.subscribe(topic, "sub", 1)
    c.producer(topic, 1, producer_name="p")


@scenario
def super_user_needs_no_grant(s):
    _, _, topic = world(s)
    c = as_role(s, "superUser")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)


@scenario
def tenant_admin_may_use_every_topic_of_the_tenant(s):
    _, namespace, topic = world(s)
    s.lookup(f"persistent://{namespace}/new")
    c = as_role(s, "boss")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)
    c.producer(f"persistent://{namespace}/new", 2, producer_name="p")
    s.http("GET", f"/admin/v2/namespaces/{namespace}/permissions", token=jwt("boss"))
    s.http("PUT", f"/admin/v2/namespaces/{s.tag}/more", {}, token=jwt("boss"))


@scenario
def expired_token_on_a_live_connection_is_challenged(s):
    """authenticationRefreshCheckSeconds is 2; the same role's fresh token keeps the connection."""
    _, _, topic = world(s)
    c = s.connect(token=jwt("admin", exp=soon()))
    c.producer(topic, 1, producer_name="p", quietly=True)
    c.recv()
    answer(c, jwt("admin", exp=soon(60)))
    c.none(2.5)
    c.publish(1, 0)
    c.recv()


@scenario
def unanswered_challenge_closes_the_connection(s):
    c = s.connect(token=jwt("admin", exp=soon()))
    c.recv()
    c.recv()


@scenario
def revoking_a_role_closes_its_producers_and_consumers(s):
    """The connection stays, the role just has no rights any more."""
    _, namespace, topic = world(s, user=["produce", "consume"], other=["produce"])
    c, other = as_role(s, "user"), as_role(s, "other")
    c.producer(topic, 1, producer_name="p", quietly=True)
    c.subscribe(topic, "sub", 2, quietly=True)
    other.producer(topic, 1, quietly=True)
    s.http("DELETE", f"/admin/v2/namespaces/{namespace}/permissions/user")
    c.recv_sorted(2)
    other.none()
    c.producer(topic, 1, producer_name="p")


@scenario
def topic_grant_covers_only_that_topic(s):
    _, namespace, topic = world(s)
    s.http("POST", rest(topic, "/permissions/user"), ["produce"], quietly=True)
    c = as_role(s, "user")
    c.producer(topic, 1, producer_name="p")
    c.subscribe(topic, "sub", 1)
    c.producer(topic + "2", 2, producer_name="p")
    c.ask("LOOKUP", topic=topic + "2", authoritative=False)
    c.producer(topic.replace("persistent", "non-persistent"), 3, producer_name="p")


@scenario
def namespace_permissions_are_granted_replaced_listed_and_revoked(s):
    _, namespace, _ = world(s)
    path = f"/admin/v2/namespaces/{namespace}/permissions"
    s.http("GET", path, keep=True)
    s.http("POST", path + "/user", ["produce"])
    s.http("POST", path + "/other", ["consume"])
    s.http("GET", path, keep=True)
    s.http("POST", path + "/user", ["consume"])
    s.http("GET", path, keep=True)
    s.http("DELETE", path + "/other")
    s.http("GET", path, keep=True)


@scenario
def rest_without_rights_is_401_or_403_by_kind(s):
    """Topic, tenant, cluster and broker calls answer 401, namespace calls 403; public calls answer 200."""
    tenant, namespace, topic = world(s)
    for path in [
        rest(topic, "/stats"),
        rest(topic, "/permissions"),
        f"/lookup/v2/topic/persistent/{namespace}/t",
        "/admin/v2/tenants",
        f"/admin/v2/tenants/{tenant}",
        f"/admin/v2/namespaces/{tenant}",
        "/admin/v2/clusters/standalone",
        "/admin/v2/brokers/health",
        f"/admin/v2/namespaces/{namespace}",
        f"/admin/v2/namespaces/{namespace}/permissions",
        f"/admin/v2/namespaces/{namespace}/retention",
        f"/admin/v2/persistent/{namespace}",
        "/admin/v2/clusters",
        "/admin/v2/brokers/version",
        "/admin/v2/brokers/ready",
    ]:
        s.http("GET", path, token=jwt("nobody"))


@scenario
def rest_with_a_bad_token_counts_as_anonymous(s):
    bad = jwt("admin", key=b"another key of thirty-two bytes!")
    s.http("GET", "/admin/v2/clusters", token=bad)
    s.http("GET", "/admin/v2/tenants", token=bad)
    s.http("GET", "/admin/v2/tenants", token="")
    s.http("GET", "/admin/v2/tenants", token=jwt("admin"))
