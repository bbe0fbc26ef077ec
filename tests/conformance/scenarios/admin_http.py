"""HTTP itself: methods, slashes, content types, letters of names, flags in queries, older paths."""

import socket

from harness.steps import rest
from transcript import scenario


def statuses(s, *steps, **how):
    """Only the status of each, 200 and 204 apart."""
    for method, path, *body in steps:
        status, _ = s.http(method, path, body[0] if body else None, quietly=True, **how)
        s.note(method, [path, status])


@scenario
def http_trailing_and_double_slashes(s):
    path = rest(s.topic())
    statuses(s, ("PUT", path + "/"), ("GET", path + "/stats/"), ("GET", path + "//stats"), ("GET", path.replace("public/", "public//")),
             ("GET", "/admin/v2/clusters/"), ("GET", "/admin/v2/tenants/"), ("GET", "/admin/v2//tenants"), ("GET", "/admin/v2/tenants/public/"),
             ("GET", "/admin/v2/namespaces/public/default/"), ("GET", "/admin/v2/namespaces/public/"), ("GET", "/admin/v2/namespaces/"), ("GET", "/admin/v2/namespaces"),
             ("GET", "/admin/v2/persistent/public/default/"), ("GET", "/admin/v2/brokers/"), ("GET", "/admin/v2/brokers/version/"),
             ("DELETE", path + "/"))  # fmt: skip


@scenario
def http_paths_of_nothing(s):
    statuses(s, ("GET", "/"), ("GET", "/admin"), ("GET", "/admin/"), ("GET", "/admin/v2"), ("GET", "/admin/v2/"), ("GET", "/admin/v2/nothing"),
             ("GET", "/admin/v3"), ("GET", "/admin/v4/clusters"), ("GET", "/lookup"), ("GET", "/lookup/v2"), ("GET", "/lookup/v2/topic"),
             ("GET", "/lookup/v2/topic/persistent/public/default"), ("GET", "/metrics/"), ("GET", "/topics"),
             ("POST", "/admin/v2/clusters"), ("PUT", "/admin/v2/tenants"), ("POST", "/admin/v2/nothing", {}))  # fmt: skip


@scenario
def http_methods_of_a_topic(s):
    path = rest(s.topic())
    s.call("PUT", path)
    for method in ("GET", "HEAD", "POST", "PATCH", "OPTIONS", "TRACE"):
        statuses(
            s, (method, path), (method, path + "/stats"), (method, path + "/retention"), (method, path + "/nothing")
        )


@scenario
def http_methods_of_namespaces_and_clusters(s):
    for path in (
        "/admin/v2/namespaces/public/default",
        "/admin/v2/namespaces/public/default/retention",
        "/admin/v2/clusters",
        "/admin/v2/tenants/public",
    ):
        for method in ("HEAD", "PATCH", "OPTIONS"):
            statuses(s, (method, path))


@scenario
def http_allowed_methods(s):
    path = rest(s.topic())
    for method, where in (
        ("POST", path),
        ("PATCH", path + "/retention"),
        ("OPTIONS", path + "/retention"),
        ("PUT", path + "/stats"),
    ):
        s.http(method, where, quietly=True)
        allowed = s.http_headers.get("Allow") or ""
        s.note(method, [where, *sorted(each.strip() for each in allowed.split(",") if each)])


@scenario
def http_content_types_of_answers(s):
    path = rest(s.topic())
    s.call("PUT", path)
    for where in (path + "/stats", path + "/nothing", rest(s.topic("gone")) + "/stats", "/admin/v2/clusters", "/admin/v2/brokers/version",
                  "/admin/v2/brokers/ready", "/lookup/v2/topic/persistent/public/default/t", "/lookup/v2/topic/persistent/public/default/t/bundle", path + "/retention",
                  "/admin/v2/namespaces/public/default/antiAffinity", "/admin/v2/namespaces/public/default/messageTTL", path + "/properties", "/admin/v2/resource-quotas",
                  "/admin/v2/broker-stats/topics", "/admin/v2/broker-stats/metrics", "/metrics"):  # fmt: skip
        status, _ = s.http("GET", where, quietly=True)
        kind = s.http_headers.get("Content-Type") or ""
        s.note("answer", [where, status, kind.lower().replace(" ", "").partition(";")[0]])


@scenario
def http_content_types_of_requests(s):
    ns = "/admin/v2/namespaces/" + s.namespace()
    path = rest(s.topic())
    s.call("PUT", path)
    for kind in (
        "application/json",
        "application/json;charset=utf-8",
        "text/json",
        "text/plain",
        "application/xml",
        "*/*",
        "application/x-www-form-urlencoded",
        "nonsense",
        "application/vnd.api+json",
    ):
        for method, where, raw in (
            ("POST", path + "/maxProducers", b"5"),
            ("PUT", path + "/subscription/s-" + kind[:4], b'"earliest"'),
            ("POST", "/admin/v2/namespaces/public/default/antiAffinity-none", b"x"),
            ("PUT", ns, b"{}"),
        ):
            status, _ = s.http(method, where, raw=raw, headers={"Content-Type": kind}, quietly=True)
            s.note(kind, [method, where, status])
    s.call("DELETE", ns)


@scenario
def http_odd_content_types_of_requests(s):
    """An invalid header is refused everywhere; wildcards and types without a reader also where there is no body."""
    ns = "/admin/v2/namespaces/" + s.namespace()
    s.http("PUT", ns, {}, quietly=True)
    topic = s.topic()
    path, partitioned = rest(topic), rest(s.topic("partitioned"))
    s.http("PUT", path, quietly=True)
    s.http("PUT", partitioned + "/partitions", 3, quietly=True)
    requests = (
        *(("POST", ns + "/messageTTL", b"5"), ("POST", ns + "/messageTTL", b""), ("POST", ns + "/antiAffinity", b"g")),
        *(("POST", ns + "/retention", b"{}"), ("POST", ns + "/retention", b""), ("GET", ns + "/retention", None)),
        *(
            ("PUT", path, b""),
            ("PUT", path, b"{}"),
            ("POST", path + "/retention", b""),
            ("POST", path + "/retention", b"{}"),
        ),
        *(("POST", partitioned + "/partitions", b"3"), ("POST", partitioned + "/partitions", b"")),
        *(("DELETE", rest(s.topic("gone")), b""), ("PUT", path + "/unload", b""), ("GET", path + "/stats", None)),
        *(("PUT", path + "/subscription/s", b""), ("POST", path + "/subscription/s/resetcursor", b"")),
    )
    for kind in ("", ";", ",", "a/b, c/d", "application/json;a", "application/json;a=", "application/json;;a=b", "*/*", "text/*",
                 "application/*", "text/plain", "a/b"):  # fmt: skip
        for method, where, raw in requests:
            status, _ = s.http(method, where, raw=raw, headers={"Content-Type": kind}, quietly=True)
            s.note(kind, [method, where, (raw or b"").decode(), status])


@scenario
def http_accepted_types(s):
    path = rest(s.topic())
    s.call("PUT", path)
    for kind in (
        "application/json",
        "text/plain",
        "application/xml",
        "*/*",
        "text/html, application/json;q=0.5",
        "nonsense",
    ):
        for where in (
            path + "/stats",
            path + "/retention",
            "/admin/v2/clusters",
            "/lookup/v2/topic/persistent/public/default/t",
        ):
            status, _ = s.http("GET", where, headers={"Accept": kind}, quietly=True)
            s.note(kind, [where, status])


@scenario
def http_flags_in_queries(s):
    """Texts that count as true, and texts that are no truth value."""
    path = rest(s.topic())
    for flag in (
        "force=true",
        "force=TRUE",
        "force=True",
        "force=1",
        "force=",
        "force",
        "force=yes",
        "force=false",
        "force=true&force=false",
        "Force=true",
    ):
        s.call("PUT", path)
        s.connect().producer("persistent://" + path.removeprefix("/admin/v2/persistent/"), 1, quietly=True)
        s.call("DELETE", f"{path}?{flag}")


@scenario
def http_numbers_in_paths_and_queries(s):
    path = rest(s.topic())
    s.call("PUT", path + "/subscription/s", "earliest")
    for number in ("1", "-1", "0", "1.5", "x", "", "%201", "+1", "01", "99999999999", "99999999999999999999"):
        statuses(s, ("POST", f"{path}/subscription/s/skip/{number}"), ("POST", f"{path}/subscription/s/expireMessages/{number}"), ("POST", f"{path}/subscription/s/resetcursor/{number}"),
                 ("GET", f"{path}/subscription/s/position/{number}"), ("GET", f"{path}/getMessageIdByIndex?index={number}"), ("GET", f"{path}/examinemessage?messagePosition={number}"),
                 ("POST", f"{path}/messageTTL?messageTTL={number}"), ("GET", f"{path}/messageid/{number}"))  # fmt: skip


@scenario
def http_letters_of_topic_names(s):
    s.lookup("persistent://public/default/t")
    for name in (
        "a%20b",
        "a%2Fb",
        "%E4%BD%A0",
        "a%3Ab",
        "a+b",
        "a%2Bb",
        "a%25b",
        "a;b",
        "a,b",
        "a@b",
        "a%3Fb",
        "a%23b",
        "%FF",
        "a%00b",
        ".",
        "..",
        "a..b",
        "%2E%2E",
        "-partition-0",
        "a-partition-x",
        "a-partition-01",
        "a-partition--1",
    ):
        path = f"/admin/v2/persistent/public/default/{s.tag}{name}"
        s.call("PUT", path)
        s.call("GET", path + "/partitions")
    s.call(
        "GET",
        "/admin/v2/persistent/public/default",
        keep=lambda names: sorted(n.rpartition("/")[2].removeprefix(s.tag) for n in names if s.tag in n),
    )


@scenario
def http_letters_of_tenants_and_namespaces(s):
    for name in ("a b", "a/b", "ä", "a:b", "a+b", "a.b", "a=b", "a_b", "a@b", "%", "A"):
        from urllib.parse import quote

        s.call("PUT", f"/admin/v2/tenants/{s.tag}{quote(name, safe='')}", {"allowedClusters": ["standalone"]})
        s.call("PUT", f"/admin/v2/namespaces/public/{s.tag}{quote(name, safe='')}")
        s.call("PUT", f"/admin/v2/clusters/{s.tag}{quote(name, safe='')}", {"serviceUrl": "http://h:1"})
        s.call("DELETE", f"/admin/v2/clusters/{s.tag}{quote(name, safe='')}")


@scenario
def http_paths_with_clusters(s):
    """The older form prop/cluster/namespace/topic."""
    s.call("PUT", f"/admin/namespaces/public/standalone/{s.tag}")
    for where in (f"/admin/persistent/public/standalone/{s.tag}", f"/admin/v2/persistent/public/standalone/{s.tag}/t", f"/lookup/v2/topic/persistent/public/standalone/{s.tag}/t",
                  f"/lookup/v2/destination/persistent/public/standalone/{s.tag}/t", "/admin/clusters", "/admin/properties", "/admin/namespaces/public", "/admin/tenants", "/admin/brokers/standalone",
                  "/admin/broker-stats/metrics", "/admin/v2/persistent/public/standalone/default/t/stats"):  # fmt: skip
        statuses(s, ("GET", where))


@scenario
def http_empty_and_broken_bodies(s):
    ns = "/admin/v2/namespaces/" + s.namespace()
    s.call("PUT", ns)
    path = rest(s.topic())
    s.call("PUT", path)
    for raw in (
        b"",
        b" ",
        b"null",
        b"{",
        b"[]",
        b"{}",
        b'""',
        b"0",
        b"true",
        b'{"a":}',
        b"\xff\xfe",
        b'{"limitSize": NaN}',
        b'{"limitSize": 1,}',
        b"// c\n{}",
        b"{'a':1}",
        b"1 2",
        b"{}{}",
    ):
        for method, where in (("POST", ns + "/retention"), ("POST", ns + "/messageTTL"), ("POST", ns + "/deduplication"), ("POST", path + "/maxConsumers"), ("PUT", path + "/subscription/s"), ("PUT", path + "/properties"),
                              ("POST", path + "/subscription/s/resetcursor"), ("PUT", ns + "/schemaCompatibilityStrategy"), ("POST", "/admin/v2/tenants/" + s.tag), ("POST", ns + "/permissions/r")):  # fmt: skip
            status, _ = s.http(method, where, raw=raw, quietly=True)
            s.note(str(raw), [method, where, status])


@scenario
def roots_of_the_api(s):
    """Without a slash at their end they redirect; other paths do not. GET and POST would follow the redirect."""
    for method in ("PUT", "DELETE", "OPTIONS"):
        for path in (
            "/admin/v2",
            "/admin/v3",
            "/lookup",
            "/topics",
            "/topics?a=b&c=%20d",
            "/admin",
            "/lookup/v2",
            "/nope",
        ):
            s.call(method, path, show=["Location"])
        for path in ("/admin/v2/", "/lookup/", "/topics/"):
            s.call(method, path, show=["Location"])


@scenario
def http_options_in_the_accepted_type(s):
    texts = ("", "*/*", "text/*", "application/json", "application/json, text/plain", "text/plain;q=0.1, text/html")
    for path in (
        "/admin/v2/clusters",
        "/admin/v2/clusters/standalone",
        "/admin/v2/persistent/a/b/c",
        "/topics/persistent/a/b/c",
    ):
        for accepted in texts:
            headers = {"Accept": accepted} if accepted else {}
            text = s.http("OPTIONS", path, headers=headers, quietly=True)[1]
            s.note(f"{path} {accepted}", [s.http_headers.get("Allow"), s.http_headers.get("Content-Type"), text])


@scenario
def first_lines_of_refusals(s):
    """The words behind the status, which clients show for an answer without a reason of its own."""
    address = s.http_base.removeprefix("http://")
    for method, path in (
        ("DELETE", f"/admin/v2/resourcegroups/{s.tag}"),
        ("GET", f"/admin/v2/persistent/public/{s.tag}/t/stats"),
        ("PUT", "/admin/v2/clusters"),
        ("PUT", f"/admin/v2/clusters/{s.tag}"),
        ("PUT", f"/admin/v2/clusters/{s.tag}%20"),
        ("GET", "/ws/v2/producer/foo/public/default/t"),
    ):
        upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" if path[1] == "w" else ""
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" if upgrade else "Content-Length: 0\r\n"
        with socket.create_connection((s.host, int(address.rpartition(":")[2])), 60) as c:
            c.sendall(f"{method} {path} HTTP/1.1\r\nHost: {address}\r\n{upgrade}{key}\r\n".encode())
            s.note(f"{method} {path}".replace(s.tag, "$"), c.makefile("rb").readline().decode().strip())
