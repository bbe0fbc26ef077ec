"""Calls of a broker to the brokers of its cluster: redirects are followed, refusals come back as they are."""

from __future__ import annotations

import asyncio
import http.server
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from magnetar.broker.admin.peer_calls import PeerCalls
from magnetar.broker.admin_backend import topic_directory
from magnetar.broker.admin_backend.topic_directory import CalledTopics
from magnetar.broker.compat import rest_refusals
from magnetar.broker.errors import RestError
from magnetar.broker.topics.subscribe_request import SubscribeRequest
from magnetar.client.address import Credentials
from magnetar.protocol.topic_name import TopicName
from tests.waiting import until

NAME = TopicName.parse("persistent://t/n/a b")
PATH = "/admin/v2/persistent/t/n/a%20b"


class Owner(http.server.BaseHTTPRequestHandler):
    """Answers each path with the answer of the test; the server keeps the requests."""

    def answer(self):
        size = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.requests.append((self.command, self.path, self.headers.get("authorization"), body))
        status, headers, answer = self.server.answers.get(self.path, (204, {}, b""))
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - the base class names them so

    def log_message(self, *_):
        """Print no line."""


@pytest.fixture
def owner():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Owner)
    server.requests, server.answers = [], {}
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def calls(owner):
    return PeerCalls(lambda: owner.url, Credentials(token="abc"))


async def test_the_credentials_of_the_broker_never_go_to_a_proxy(owner, monkeypatch):
    resolve = socket.getaddrinfo

    def without_names(host, *arguments, **options):
        if host == "broker.invalid":
            raise socket.gaierror
        return resolve(host, *arguments, **options)

    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", owner.url)
    monkeypatch.setattr("urllib.request._opener", None)  # the opener keeps the proxies of its first request
    monkeypatch.setattr("socket.getaddrinfo", without_names)
    with pytest.raises(RestError, match="does not answer"):
        await PeerCalls(lambda: "http://broker.invalid:8080", Credentials(token="abc")).call("POST", "/a")
    assert not owner.requests


async def test_a_call_carries_the_credentials_of_the_broker_and_follows_redirects(owner, calls):
    owner.answers["/a"] = 307, {"location": f"{owner.url}/b?authoritative=true"}, b""
    owner.answers["/b?authoritative=true"] = 200, {}, b'{"x":1}'
    assert await calls.call("POST", "/a", {"y": 2}) == {"x": 1}
    assert owner.requests[1] == ("POST", "/b?authoritative=true", "Bearer abc", {"y": 2})
    assert await calls.call("PUT", "/empty") is None


@pytest.mark.parametrize("name", ["..", ".", "%2e%2E"])
async def test_a_name_of_dots_makes_no_call(owner, calls, name):
    """Apache Pulsar would resolve the path to the topic, and delete it by the rights of this broker."""
    with pytest.raises(RestError) as refused:
        await calls.call("DELETE", f"/admin/v2/persistent/t/n/p-partition-0/subscription/{name}?force=true")
    assert (refused.value.status, owner.requests) == (400, [])


async def test_a_refusal_keeps_its_status_and_reason(owner, calls):
    owner.answers["/a"] = 412, {}, b'{"reason":"in use"}'
    owner.answers["/b"] = 500, {}, b"<html>"
    with pytest.raises(RestError, match="in use") as refused:
        await calls.call("DELETE", "/a")
    assert refused.value.status == 412
    with pytest.raises(RestError) as refused:
        await calls.call("DELETE", "/b")
    assert refused.value.status == 500


async def test_a_broker_that_does_not_answer_is_unavailable():
    with pytest.raises(RestError) as refused:
        await PeerCalls(lambda: "http://127.0.0.1:9", Credentials()).call("GET", "/a")
    assert refused.value.status == 503


async def test_an_answer_that_is_not_http_is_unavailable():
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"what?\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        with pytest.raises(RestError) as refused:
            await PeerCalls(lambda: url, Credentials()).call("GET", "/a")
        assert refused.value.status == 503
    finally:
        server.close()


async def test_a_refusal_of_the_brokers_own_credentials_is_not_shown_as_one_of_the_clients(owner, calls):
    owner.answers["/a"] = 401, {}, b'{"reason":"no token"}'
    with pytest.raises(RestError, match=r"brokerClientAuthenticationPlugin.*no token") as refused:
        await calls.call("GET", "/a")
    assert refused.value.status == 500


async def test_a_refusal_that_comes_slowly_holds_up_no_other_work():
    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 409 Conflict\r\ncontent-length: 18\r\n\r\n")
        await writer.drain()
        while not waiting.done() and len(turns) < 20:  # the reason comes after turns of the loop
            turns.append(await asyncio.sleep(0.005))
        writer.write(b'{"reason":"in use"}'[:18])
        writer.close()

    turns, server = [], await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    waiting = asyncio.create_task(PeerCalls(lambda: url, Credentials()).call("GET", "/a"))
    try:
        with pytest.raises(RestError) as refused:
            await asyncio.wait_for(waiting, 30)
        assert refused.value.status == 409
    finally:
        server.close()


async def test_calls_that_wait_hold_up_no_other_work_on_threads():
    came, go_on = asyncio.Event(), asyncio.Event()

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        came.set()
        await go_on.wait()
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    waiting = asyncio.create_task(PeerCalls(lambda: url, Credentials()).call("GET", "/a"))
    try:
        await came.wait()
        other = asyncio.create_task(asyncio.to_thread(int, "7"))
        done, _ = await asyncio.wait([other], timeout=30)
        assert other in done
    finally:
        go_on.set()
        assert await waiting is None
        server.close()


async def test_topics_of_other_brokers(owner, calls):
    topics = CalledTopics(calls)
    await topics.unload(NAME)
    await topics.delete(NAME, force=False)
    owner.answers[f"{PATH}?force=true"] = 404, {}, b'{"reason":"gone"}'
    await topics.delete(NAME, force=True)
    await topics.find_owner(NAME)
    assert [(method, path) for method, path, *_ in owner.requests] == [
        ("PUT", f"{PATH}/unload"),
        ("DELETE", f"{PATH}?force=false"),
        ("DELETE", f"{PATH}?force=true"),
        ("GET", PATH.replace("/admin/v2/", "/lookup/v2/topic/")),
    ]


async def test_the_brokers_of_the_cluster(owner, calls):
    owner.answers["/admin/v2/brokers"] = 200, {}, b'["b1:8080","b2:8080"]'
    assert await CalledTopics(calls).brokers() == ["b1:8080", "b2:8080"]


async def test_durable_subscriptions_of_another_broker_come_with_their_properties(owner, calls):
    stats = {
        "s": {"isDurable": True, "isReplicated": True, "subscriptionProperties": {"k": "v"}},
        "t": {"isDurable": True, "isReplicated": False, "subscriptionProperties": {}},
        "reader-1": {"isDurable": False, "isReplicated": False, "subscriptionProperties": {}},
    }
    owner.answers[f"{PATH}/stats"] = 200, {}, json.dumps({"subscriptions": stats}).encode()
    found = await CalledTopics(calls).durable(NAME)
    assert [(each.subscription, each.properties, each.replicated) for each in found] == [
        ("s", {"k": "v"}, True),
        ("t", {}, False),
    ]
    assert all(each.from_earliest for each in found)


async def test_a_subscription_of_another_broker_is_created_with_its_properties(owner, calls):
    path = f"{PATH}/subscription/a%252Fb?replicated=true"
    request = SubscribeRequest("a/b", from_earliest=True, properties={"k": "v"}, replicated=True)
    await CalledTopics(calls).subscribe(NAME, request)
    owner.answers[path] = 409, {}, json.dumps({"reason": rest_refusals.SUBSCRIPTION_EXISTS.text}).encode()
    await CalledTopics(calls).subscribe(NAME, request)  # the subscription exists, and stays as it is
    first = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1, "properties": {"k": "v"}}
    assert [(method, where, body) for method, where, _, body in owner.requests] == [("PUT", path, first)] * 2


async def test_a_subscription_waits_until_the_other_broker_has_heard_of_the_partition(owner, calls, monkeypatch):
    monkeypatch.setattr(topic_directory, "_RETRY_S", 0.0)
    path = f"{PATH}/subscription/s?replicated=false"
    refusal = json.dumps({"reason": rest_refusals.PARTITION_METADATA_MISSING.text}).encode()
    owner.answers[path] = 409, {}, refusal
    waiting = asyncio.create_task(CalledTopics(calls).subscribe(NAME, SubscribeRequest("s")))
    await until(lambda: len(owner.requests) >= 2)
    assert not waiting.done()
    del owner.answers[path]
    await asyncio.wait_for(waiting, 30)
    owner.answers[path] = 409, {}, refusal
    monkeypatch.setattr(topic_directory, "_NEWS_S", 0.0)
    with pytest.raises(RestError):
        await CalledTopics(calls).subscribe(NAME, SubscribeRequest("s"))
