"""The roles that may open WebSocket sessions; needs the broker of auth.conf."""

import base64

from harness.tenancy import world
from transcript import jwt, scenario

KINDS = (("producer", ()), ("consumer", ("sub",)), ("reader", ()))


def all_kinds(s, topic, role, **how):
    for kind, more in KINDS:
        own = tuple(f"{part}-{role}" for part in more)
        s.web_socket(kind, topic, *own, name=f"{kind} of {role}", **how).close()


@scenario
def ws_rights(s):
    _, topic = world(s, both=["produce", "consume"], sends=["produce"], reads=["consume"])
    for role in ("admin", "boss", "both", "sends", "reads", "none"):
        all_kinds(s, topic, role, token=jwt(role))
    all_kinds(s, topic, "nobody", token="")
    all_kinds(s, topic, "liar", token=jwt("admin", key=b"another key of thirty-two bytes!"))
    all_kinds(s, topic, "broken", token="x")


@scenario
def ws_token_in_the_address(s):
    _, topic = world(s, both=["produce", "consume"])
    s.token = ""
    path = "/ws/v2/producer/" + topic.replace("://", "/") + "?token="
    for name, token in (("right", jwt("both")), ("bearer", "Bearer%20" + jwt("both")), ("wrong", "x")):
        s.web_socket_at(path + token, name=name, shown=path + name)


@scenario
def ws_sessions_work_with_their_own_rights(s):
    _, topic = world(s, sends=["produce"], reads=["consume"])
    c = s.web_socket("consumer", topic, "sub", token=jwt("reads"))
    p = s.web_socket("producer", topic, token=jwt("sends"))
    p.ask(payload=base64.b64encode(b"x").decode())
    got = c.recv()
    c.send(messageId=got["messageId"])
    c.none()


@scenario
def ws_rights_on_a_subscription(s):
    _, topic = world(s, reads=["consume"], other=["consume"])
    namespace = topic.split("://")[1].rpartition("/")[0]
    s.web_socket("consumer", topic, "sub", token=jwt("reads")).close()
    s.http("POST", f"/admin/v2/namespaces/{namespace}/permissions/subscription/sub", ["reads"], keep=None)
    s.web_socket("consumer", topic, "sub", token=jwt("reads"), name="reads").close()
    s.web_socket("consumer", topic, "sub", token=jwt("other"), name="other").close()


@scenario
def ws_rights_by_prefix(s):
    _, topic = world(s, reads=["consume"])
    namespace = topic.split("://")[1].rpartition("/")[0]
    s.http("POST", f"/admin/v2/namespaces/{namespace}/subscriptionAuthMode", "Prefix", keep=None)
    s.web_socket("consumer", topic, "sub", token=jwt("reads"), name="c1").close()
    s.web_socket("consumer", topic, "reads-sub", token=jwt("reads"), name="c2").close()
    s.web_socket("reader", topic, token=jwt("reads"), name="r1").close()
    s.web_socket("reader", topic, token=jwt("reads"), name="r2", readerName="reads").close()


@scenario
def ws_rights_on_namespaces_that_are_not_there(s):
    s.token = ""
    for topic in ("persistent://none/ns/t", "persistent://public/none/t"):
        for role in ("admin", "somebody"):
            s.web_socket("producer", topic, name=role, token=jwt(role)).close()
            s.web_socket("consumer", topic, "sub", name=role, token=jwt(role)).close()


@scenario
def ws_stats_rights(s):
    _, topic = world(s, both=["produce", "consume"])
    topic = topic.replace("://", "/")
    for role in ("admin", "boss", "both", ""):
        for path in ("stats", "metrics", f"{topic}/stats"):
            s.http("GET", f"/admin/v2/proxy-stats/{path}", token=role and jwt(role))
