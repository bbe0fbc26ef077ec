"""Sessions at /ws/v2 by a real WebSocket client: peers that break the rules, and the rights of web pages.

The recorded scenarios (tests/conformance) cover correct clients.
"""

import base64
import contextlib
import json
import pathlib
import re
import socket
import time

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from magnetar.broker.auth.token_command import create_token
from tests.blackbox.clients import quiet_client

PAYLOAD = base64.b64encode(b"x").decode()


@pytest.fixture(scope="module")
def broker(magnetar_broker_factory):
    return magnetar_broker_factory(webSocketServiceEnabled=True, maxClientMemoryInMB=32)


@pytest.fixture
def opened():
    """Open a session; all are closed at the end of the test."""
    with contextlib.ExitStack() as sessions:

        def open_one(broker, path, **how):
            url = broker.http_url.replace("http", "ws", 1) + "/ws/v2/" + path
            return sessions.enter_context(connect(url, compression=None, proxy=None, ping_interval=None, **how))

        yield open_one


@pytest.fixture
def refused(opened):
    """The status of a session that does not open."""

    def status(broker, path, **how):
        with pytest.raises(InvalidStatus) as failed:
            opened(broker, path, **how)
        return failed.value.response.status_code

    return status


def test_there_are_none_unless_they_are_enabled(magnetar_broker, refused):
    assert refused(magnetar_broker, "producer/persistent/public/default/off") == 404


def test_a_message_goes_from_page_to_program_and_back(broker, opened):
    client = quiet_client(broker.url)
    consumer = client.subscribe("persistent://public/default/both", "sub")
    producer = opened(broker, "producer/persistent/public/default/both")
    ws = opened(broker, "consumer/persistent/public/default/both/ws")
    producer.send(json.dumps({"payload": PAYLOAD, "properties": {"a": "b"}}))
    assert json.loads(producer.recv(10))["result"] == "ok"
    message = consumer.receive(10_000)
    assert (message.data(), message.properties()) == (b"x", {"a": "b"})
    assert json.loads(ws.recv(10))["payload"] == PAYLOAD
    client.close()


def test_a_producer_that_waits_for_each_receipt_gets_them_all_as_texts(broker, opened):
    """The early receipt of a lone producer (`PromptDone`) went into the socket of the session as it was."""
    producer = opened(broker, "producer/persistent/public/default/lone")
    for number in range(40):
        producer.send(json.dumps({"payload": PAYLOAD, "context": str(number)}))
        assert json.loads(producer.recv(10))["context"] == str(number)


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://evil.example", 403), ("null", 403), (None, None), ("own", None)],
)
def test_a_foreign_page_opens_no_session(broker, origin, status, opened, refused):
    path = "producer/persistent/public/default/origin"
    origin = broker.http_url if origin == "own" else origin
    if status is None:
        opened(broker, path, origin=origin).close()
    else:
        assert refused(broker, path, origin=origin) == status


def test_a_name_that_may_be_rebound_is_refused(broker):
    host, port = broker.http_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            b"GET /ws/v2/producer/persistent/public/default/t HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        assert sock.makefile("rb").readline().split()[1] == b"403"


def test_a_lost_client_gives_its_name_back(broker, opened, refused):
    path = "producer/persistent/public/default/names?producerName=mine"
    first = opened(broker, path)
    assert refused(broker, path) == 409
    first.socket.shutdown(socket.SHUT_RDWR)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            opened(broker, path).close()
            return
        except InvalidStatus:
            time.sleep(0.05)
    pytest.fail("the name is still taken")


def test_fragments_make_a_text_and_share_its_limit(broker, opened):
    producer = opened(broker, "producer/persistent/public/default/parts")
    producer.send(iter(['{"payload": "', PAYLOAD, '"}']))
    assert json.loads(producer.recv(10))["result"] == "ok"
    with contextlib.suppress(ConnectionClosed):
        producer.send(iter(["A" * 1000] * 2000))
    with pytest.raises(ConnectionClosed) as closed:
        producer.recv(10)
    assert closed.value.rcvd.code == 1009


def test_a_message_beyond_the_largest_is_refused_alone(magnetar_broker_factory, opened):
    small = magnetar_broker_factory(webSocketServiceEnabled=True, maxMessageSize=1024)
    producer = opened(small, "producer/persistent/public/default/large")
    producer.send(json.dumps({"payload": base64.b64encode(b"x" * 2000).decode(), "context": "large"}))
    producer.send(json.dumps({"payload": PAYLOAD, "context": "small"}))
    answers = [json.loads(producer.recv(10)) for _ in range(2)]
    assert {a["context"]: a["result"] for a in answers} == {"large": "send-error:8", "small": "ok"}


def test_a_consumer_that_does_not_read_costs_a_bounded_memory(broker, opened):
    """40 MiB wait for the consumer, whose share is an eighth of 32 MiB; the broker serves other clients meanwhile."""
    client = quiet_client(broker.url)
    topic = "persistent://public/default/slow"
    client.subscribe(topic, "slow").close()
    producer = client.create_producer(topic)
    for _ in range(640):
        producer.send_async(b"y" * 65536, lambda *_: None)
    producer.flush()
    slow = opened(broker, "consumer/persistent/public/default/slow/slow", max_queue=1)
    reader = opened(broker, "reader/persistent/public/default/slow?messageId=earliest")
    for _ in range(640):
        assert json.loads(reader.recv(30))["payload"]
    got = {json.loads(slow.recv(30))["messageId"] for _ in range(640)}
    assert len(got) == 640
    slow.close()
    reader.close()
    client.close()


def test_a_batch_of_more_messages_than_a_session_takes_apart_stays_in_the_backlog(broker, opened):
    client = quiet_client(broker.url)
    topic = "persistent://public/default/batch"
    consumer = client.subscribe(topic, "sub")
    consumer.close()
    how = {"batching_max_messages": 12_000, "batching_max_publish_delay_ms": 60_000}
    producer = client.create_producer(topic, batching_enabled=True, max_pending_messages=20_000, **how)
    for _ in range(12_000):
        producer.send_async(b"", lambda *_: None)
    producer.flush()
    with pytest.raises(ConnectionClosed) as closed:
        opened(broker, "consumer/persistent/public/default/batch/sub").recv(20)
    assert closed.value.rcvd.code == 1011 and "batch of 12000 messages" in closed.value.rcvd.reason
    again = client.subscribe(topic, "sub")
    assert again.receive(20_000).data() == b""
    client.close()


def test_a_producer_may_send_faster_than_the_disk(broker, opened):
    producer = opened(broker, "producer/persistent/public/default/fast")
    for i in range(3000):
        producer.send(json.dumps({"payload": PAYLOAD, "context": str(i)}))
    contexts = [json.loads(producer.recv(30))["context"] for _ in range(3000)]
    assert contexts == [str(i) for i in range(3000)]


def test_a_stop_says_good_bye(magnetar_broker_factory, opened):
    broker = magnetar_broker_factory(webSocketServiceEnabled=True)
    ws = opened(broker, "consumer/persistent/public/default/stop/sub")
    assert broker.stop() == 0
    with pytest.raises(ConnectionClosed) as closed:
        ws.recv(10)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code in (1001, 1011)


def test_an_idle_session_ends(magnetar_broker_factory, opened):
    broker = magnetar_broker_factory(webSocketServiceEnabled=True, webSocketSessionIdleTimeoutMillis=300)
    ws = opened(broker, "consumer/persistent/public/default/idle/sub")
    with pytest.raises(ConnectionClosed) as closed:
        ws.recv(20)
    assert closed.value.rcvd.code == 1001


def test_the_program_of_the_page_runs(broker, capsys):
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs/websocket.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    exec(program.replace("ws://127.0.0.1:8080", broker.http_url.replace("http", "ws", 1)), {})
    assert "b'one coffee' {'table': '4'}" in capsys.readouterr().out


def test_an_expired_token_ends_the_session(magnetar_broker_factory, opened, refused):
    key_text = "data:;base64," + base64.b64encode(bytes(range(32))).decode()
    broker = magnetar_broker_factory(
        webSocketServiceEnabled=True,
        authenticationEnabled=True,
        authorizationEnabled=True,
        authenticationProviders="token",
        tokenSecretKey=key_text,
        superUserRoles="admin",
        authenticationRefreshCheckSeconds=1,
    )
    ws = None
    for seconds in (2, 6, 18):  # on a busy machine the shorter tokens expire before the session is open
        token = create_token(key_text, "admin", f"{seconds}s")
        with contextlib.suppress(InvalidStatus):
            ws = opened(broker, f"consumer/persistent/public/default/token/sub?token={token}")
            break
    assert ws is not None
    with pytest.raises(ConnectionClosed):
        ws.recv(30)
    assert refused(broker, "consumer/persistent/public/default/token/sub?token=" + token) == 401
