"""Tests of the harness: its bytes against known vectors, the values that it makes neutral and those that it keeps."""

import contextlib
import io
import pathlib
import socket
import struct
import sys
import threading
import time
import urllib.request

import pytest

HERE = pathlib.Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

import strolls  # noqa: E402
import transcript  # noqa: E402
import walks  # noqa: E402
from harness import clock, figures, runner, words  # noqa: E402
from harness.session import Session  # noqa: E402
from harness.wire import Frame, framed, plain  # noqa: E402

PING, PONG = transcript.encode("PING"), transcript.encode("PONG")
CONNECTED = transcript.encode("CONNECTED", server_version="stub", protocol_version=21)


@pytest.fixture
def stub_url():
    """A server that answers CONNECT and is silent from then on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(CONNECTED)
                while connection.recv(1 << 16):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"pulsar://127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


class SlowBroker:
    """Answers CONNECT and PING; while held it answers nothing, and from then on sends a late SUCCESS to new
    connections.
    """

    def __init__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"pulsar://127.0.0.1:{self.server.getsockname()[1]}"
        self.free, self.asked = threading.Event(), threading.Event()
        self.free.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                threading.Thread(target=self._serve, args=self.server.accept()[:1], daemon=True).start()
            except OSError:
                return

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as stream:
            while head := stream.read(4):
                body = stream.read(int.from_bytes(head))
                held = not self.free.is_set()
                if held:
                    self.asked.set()
                    self.free.wait(10)
                if Frame(body).type == "PING":
                    connection.sendall(PONG)
                elif held:
                    connection.sendall(transcript.encode("SUCCESS", request_id=1))
                else:
                    connection.sendall(CONNECTED)


@pytest.fixture
def slow_broker():
    broker = SlowBroker()
    yield broker
    broker.free.set()
    broker.server.close()


@pytest.fixture
def session():
    return Session("name", "pulsar://127.0.0.1:1", "http://127.0.0.1:1")


def test_send_frame_is_the_known_vector():
    vector = (
        "000000270000000808063204080110070e015dbb2b140000000c0a017010071880d095ffbc3168656c6c6f"  # from real clients
    )
    assert transcript.encode_send(1, 7, b"hello").hex() == vector


def test_ping_frame_is_the_known_vector():
    assert transcript.encode("PING").hex() == "00000009000000050812920100"


def test_message_frame_is_taken_apart():
    base = transcript.pb.BaseCommand(type="MESSAGE")
    base.message.consumer_id = 3
    base.message.message_id.ledgerId, base.message.message_id.entryId = 1, 2
    entry_metadata = transcript.pb.BrokerEntryMetadata(broker_timestamp=5, index=9).SerializeToString()
    send = transcript.encode_send(1, 0, b"payload")
    entry = send[send.index(b"\x0e\x01") :]
    prefix = b"\x0e\x02" + struct.pack(">I", len(entry_metadata)) + entry_metadata
    frame = Frame(framed(base, prefix + entry)[4:])
    assert (frame.type, frame.crc, frame.payload) == ("MESSAGE", True, b"payload")
    assert plain(frame.entry_metadata) == {"broker_timestamp": 5, "index": 9}
    broken = bytearray(framed(base, entry)[4:])
    broken[-1] ^= 1
    assert Frame(bytes(broken)).crc is False


def test_ledger_ids_are_numbered_as_they_appear(session):
    ids = [{"ledgerId": n, "entryId": 0} for n in (70, 5, 70, 2**64 - 1)]
    assert [session.neutral(i)["ledgerId"] for i in ids] == ["L1", "L2", "L1", "none"]


def test_figures_of_ledgers_are_in_the_order_of_their_ids(session):
    found = {"ledgers": [{"ledgerId": 10, "entries": 0}, {"ledgerId": 9, "entries": 105}]}
    assert list(figures._flat(session, found)) == [("ledgers.0.entries", 105)]


def test_times_and_own_names_are_neutral_and_the_rest_is_not(session):
    said = {
        "publish_time": 1,
        "index": 7,
        "message": "text",
        "topic": f"x/{session.tag}",
        "producer_name": "standalone-1-2",
    }
    assert session.neutral(said) == {"publish_time": "T", "index": 7, "topic": "x/$", "producer_name": "generated"}


def test_own_names_have_one_length(monkeypatch):
    tags = set()
    for pid, thread, nanoseconds in ((1, 0, 0), (2**16 + 5, 7, 16**8 + 9), (4321, 2**40 - 1, 2**50 - 1)):
        with monkeypatch.context() as patch:
            patch.setattr("os.getpid", lambda pid=pid: pid)
            patch.setattr("threading.get_ident", lambda thread=thread: thread)
            patch.setattr("time.monotonic_ns", lambda nanoseconds=nanoseconds: nanoseconds)
            session = Session("very_long_names", "pulsar://127.0.0.1:1", "http://127.0.0.1:1", clock=clock.WallClock())
        tags.add(session.tag)
    assert len(tags) == 3
    assert {len(tag) for tag in tags} == {len("very_long_names-") + 16}


def test_words_of_refusals_are_kept_without_varying_parts():
    said = {"error": "ServiceNotReady", "message": "topic (t) not served by this instance:127.0.0.1:8080. Please redo."}
    words.set_words(said)
    assert said == {"error": "ServiceNotReady", "words": "topic (t) not served by this instance:BROKER. Please redo."}
    generated = {"message": "Topic has an existing exclusive producer: standalone-0-1154"}
    words.set_words(generated)
    assert generated == {"words": "Topic has an existing exclusive producer: GENERATED"}
    nested = {"message": {"ledgerId": 1}}
    words.set_words(nested)
    assert nested == {"message": {"ledgerId": 1}}


def test_words_are_compared_unless_the_scenario_leaves_them_out():
    want, got = ([f'c1 < ERROR {{"request_id": 1, "words": "{text}"}}'] for text in "ab")
    assert runner.compare(want, got) and runner.compare(want, got, "a scenario")
    assert not runner.compare(want, got, next(iter(words.LEFT_OUT)))


def test_chosen_names_stay(session):
    session.saw_sent({"producer_name": "mine"})
    assert session.neutral({"producer_name": "mine"}) == {"producer_name": "mine"}


def test_silence_is_a_difference(stub_url):
    def asks(s):
        s.connect().send("LOOKUP", topic="t", request_id=1)
        s.connections[0].recv(0.1)

    runner.SCENARIOS["asks"] = asks
    try:
        lines = runner.Runner(stub_url, "http://127.0.0.1:1").run_one("asks")
    finally:
        del runner.SCENARIOS["asks"]
    assert lines[-1] == "c1 < NOTHING {}"
    assert runner.compare(['c1 < LOOKUP_RESPONSE {"request_id": 1}'], lines[-1:])


def test_a_broker_that_cannot_answer_is_waited_for(slow_broker):
    with clock.BrokerClock(slow_broker.url) as time_of_broker:
        s = Session("waits", slow_broker.url, "http://127.0.0.1:1", clock=time_of_broker)
        c = s.connect()
        slow_broker.free.clear()
        assert slow_broker.asked.wait(10)  # the clock's PING: from here on nothing is answered
        c.send("LOOKUP", topic="t", request_id=1)
        threading.Timer(0.5, slow_broker.free.set).start()
        assert c.recv(0.1).type == "SUCCESS"
        assert time_of_broker.lost > 0.1
        assert c.recv(0.1) is None
        s.finish()


def test_a_broker_that_never_answers_again_is_not_waited_for(slow_broker, monkeypatch):
    monkeypatch.setattr(clock, "SLICE_SECONDS", 0.01)
    monkeypatch.setattr(clock, "PATIENCE", 3)
    with clock.BrokerClock(slow_broker.url) as time_of_broker:
        s = Session("gives_up", slow_broker.url, "http://127.0.0.1:1", clock=time_of_broker)
        c = s.connect()
        slow_broker.free.clear()
        assert slow_broker.asked.wait(10)
        assert c.recv(0.1) is None
        slow_broker.free.set()
        s.finish()


def test_time_lost_while_a_scenario_slept_is_waited_for_once():
    class Clock:
        lost = 0.0

        def now(self):
            return time.monotonic()

    s = Session("slept", "pulsar://127.0.0.1:1", "http://127.0.0.1:1", clock=Clock())
    assert s.owed() == 0
    s.clock.lost = 1.5
    assert s.owed() == 1.5
    s.repaid()
    assert s.owed() == 0
    s.clock.lost = 100
    assert s.owed() == 2


def test_answered_requests_take_no_time_from_the_steps_of_a_scenario(monkeypatch):
    class Clock:
        lost, time = 0.0, 0.0

        def now(self):
            return self.time

    class Answer(io.BytesIO):
        status, headers = 200, {}

    def answer(*_, **__):
        s.clock.time += 20
        return Answer(b"{}")

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    s = Session("asks", "pulsar://127.0.0.1:1", "http://127.0.0.1:1", clock=Clock())
    s.clock.time += 29
    for _ in range(16):
        s.http("GET", "/metrics", quietly=True)
    s.clock.time += 1
    with pytest.raises(TimeoutError, match="30 seconds are over"):
        s.http("GET", "/metrics", quietly=True)


def test_a_scenario_that_breaks_ends_with_its_error(stub_url):
    def breaks(s):
        s.connect()
        raise ValueError("why")

    runner.SCENARIOS["breaks"] = breaks
    try:
        assert runner.Runner(stub_url, "http://127.0.0.1:1").run_one("breaks") == ["! ValueError: why"]
    finally:
        del runner.SCENARIOS["breaks"]


def test_two_scenarios_may_not_share_a_name():
    def twice(_):
        pass

    runner.scenario(twice)
    try:
        with pytest.raises(ValueError, match="twice"):
            runner.scenario(twice)
    finally:
        del runner.SCENARIOS["twice"]


def test_a_seed_is_one_stroll_of_known_steps():
    plans = [strolls.Plan(seed, 40) for seed in range(50)]
    assert [p.steps for p in plans] == [strolls.Plan(seed, 40).steps for seed in range(50)]
    assert all(callable(getattr(strolls.Player, name)) for p in plans for name, *_ in p.steps)
    assert {name for p in plans for name, *_ in p.steps} == {"call", "publish", "join", "leave"}


def test_bodies_of_a_stroll_are_compared_without_times_and_ledgers():
    body = {"lastPublishTimeStamp": 5, "x-1/t": {"position": "17:3", "msgRateIn": 0.5}, "limitTime": 7}
    assert list(strolls._lines(strolls._calm(body, tag="x-1"))) == [(".$/t.position", "L:3"), (".limitTime", 7)]


@pytest.mark.parametrize("kind", walks.TYPES)
def test_a_seed_is_one_walk_of_known_steps(kind):
    plans = [walks.Plan(seed, 18, [kind]) for seed in range(50)]
    assert [p.steps for p in plans] == [walks.Plan(seed, 18, [kind]).steps for seed in range(50)]
    assert len({repr(p.steps) for p in plans}) == 50
    assert all(callable(getattr(walks.Player, name)) for p in plans for name, *_ in p.steps)


def test_a_walk_differs_when_none_of_its_logs_is_the_oracles():
    class Broker:
        def __init__(self, *logs):
            self.logs = iter(logs)

        def run_one(self, _name):
            return next(self.logs)

    def verdict(oracle, ours):
        return walks.walk("walk", Broker(*oracle), Broker(*ours))[0]

    assert verdict([["a"]], [["a"]]) == "equal"
    assert verdict([["a"], ["b"]], [["b"], ["c"]]) == "equal"
    assert verdict([["a"]] * 3, [["b"]] * 3) == "differs"
    assert verdict([["a"], ["b"], ["a"]], [["c"]] * 3) == "unsteady"
    assert verdict([["a"], ["! TimeoutError"], ["a"]], [["c"]] * 3) == "broken"
    assert verdict([["a"]] * 3, [["! TimeoutError"]] * 3) == "differs"
