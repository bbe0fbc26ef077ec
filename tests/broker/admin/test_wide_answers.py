"""Requests about all topics or partitions have places; long answers wait for their peers and count in the account."""

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from magnetar.broker.admin import wide_answers
from magnetar.broker.admin.app import all_routes
from magnetar.broker.admin.elsewhere import together
from magnetar.broker.admin.responses import pieces_of
from magnetar.broker.admin.wide_answers import (
    AT_ONCE,
    AT_ONCE_OF_ADDRESS,
    FEW_CLIENTS,
    FEW_PARTITIONS,
    MOST_WAITING,
    PIECE_BYTES,
    WALKS_AT_ONCE_OF_ADDRESS,
    Bound,
    LongAnswers,
    Walks,
    WideAnswers,
    paced,
)
from magnetar.broker.errors import RestError
from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from tests.broker.admin_fakes import open_client
from tests.waiting import until

ROWS = [{"producerName": f"p{i}", "metadata": {"k": "\x01" * 10_000}} for i in range(30)]
STATS = {"msgRateIn": 0.5, "publishers": ROWS, "subscriptions": {"s": {"type": "Shared", "consumers": []}}, "last": {}}
SCOPE = {"type": "http", "path": "/metrics", "method": "GET"}


class Requests:
    """Requests of many addresses, each of which ends when `end` is set."""

    def __init__(self):
        self.wide, self.working, self.tasks = WideAnswers(), [], []

    def begin(self, address, *, gone=False):
        async def is_disconnected():
            return gone

        end = asyncio.Event()

        async def make():
            self.working.append((address, end))
            await end.wait()
            return Response(b"")

        async def go():
            request = SimpleNamespace(client=SimpleNamespace(host=address), is_disconnected=is_disconnected)
            answer = await self.wide.made(request, make)
            await answer(SCOPE, None, lambda _message: asyncio.sleep(0))

        self.tasks.append(asyncio.ensure_future(go()))
        return self.tasks[-1]

    def of(self, address):
        return [end for other, end in self.working if other == address]


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_address_has_two_places_and_gets_the_next_when_an_answer_is_read():
    requests = Requests()
    for _ in range(5):
        requests.begin("a")
    requests.begin("b")
    await settle()
    assert len(requests.of("a")) == AT_ONCE_OF_ADDRESS
    assert len(requests.of("b")) == 1
    for number in range(5):
        requests.of("a")[number].set()
        await settle()
    assert [task.done() for task in requests.tasks] == [True] * 5 + [False]
    requests.of("b")[0].set()
    await settle()
    assert requests.wide._places._held == {}


async def test_all_addresses_together_have_a_bounded_number_of_places():
    requests = Requests()
    for number in range(2 * AT_ONCE):
        requests.begin(f"{number}")
    await settle()
    assert len(requests.working) == AT_ONCE
    while any(not task.done() for task in requests.tasks):
        for _, end in requests.working:
            end.set()
        await settle()
    assert len(requests.working) == 2 * AT_ONCE


async def test_an_address_with_a_request_waits_for_no_second_request_of_other_addresses():
    """Eight addresses whose 256 requests each are not read kept the scrapes of a ninth address out for two hours."""
    requests = Requests()
    others = [f"10.0.0.{k}" for k in range(AT_ONCE // AT_ONCE_OF_ADDRESS)]
    for other in others:
        for _ in range(10):
            requests.begin(other)
    await settle()
    requests.begin("10.0.1.1")
    await settle()
    ended = 0
    while not requests.of("10.0.1.1"):
        requests.working[ended][1].set()
        ended += 1
        await settle()
    assert ended <= len(others) + 1
    while ended < len(requests.working):
        requests.working[ended][1].set()
        ended += 1
        await settle()
    await asyncio.gather(*requests.tasks)
    assert not requests.wide._places._waiting


async def test_requests_that_are_cancelled_in_the_turn_of_their_places_take_no_place():
    requests = Requests()
    requests.wide._places._held["10.0.0.1"] = AT_ONCE_OF_ADDRESS
    cancelled = [requests.begin("10.0.0.1") for _ in range(AT_ONCE_OF_ADDRESS)]
    later = requests.begin("10.0.0.1")
    await settle()
    for each in cancelled:
        each.cancel()
    for _ in range(AT_ONCE_OF_ADDRESS):
        requests.wide._places.leave("10.0.0.1")
    await settle()
    assert all(each.cancelled() for each in cancelled)
    (end,) = requests.of("10.0.0.1")
    end.set()
    await later
    assert (requests.wide._places._held.total(), requests.wide._places._waiting) == (0, {})


async def test_requests_that_wait_have_a_bound_and_those_of_clients_that_left_do_no_work():
    requests = Requests()
    for _ in range(AT_ONCE_OF_ADDRESS):
        requests.begin("a")
    await settle()
    waiting = [requests.begin("a", gone=True) for _ in range(MOST_WAITING)]
    await settle()
    refused = requests.begin("a")
    await settle()
    assert isinstance(refused.exception(), RestError)
    waiting[0].cancel()
    requests.of("a")[0].set()
    await settle()
    await asyncio.wait(waiting, timeout=10)
    assert {type(task.exception()) for task in waiting[1:]} == {ClientDisconnect}
    assert len(requests.working) == AT_ONCE_OF_ADDRESS
    requests.of("a")[1].set()
    await settle()
    assert requests.wide._places._held == {}


async def test_a_peer_that_does_not_read_loses_its_place(monkeypatch):
    monkeypatch.setattr(wide_answers, "SENT_WITHIN_S", 0.01)
    requests = Requests()

    async def make():
        return Response(b"x")

    async def never(_message):
        await asyncio.Event().wait()

    request = SimpleNamespace(client=None)
    answer = await requests.wide.made(request, make)
    await answer(SCOPE, None, never)
    assert requests.wide._places._held == {}


async def test_a_request_that_fails_as_its_turn_comes_gives_up_its_place():
    """The look for the end of its connection failed while the memory was short; its place was never free again."""
    wide, end = WideAnswers(), asyncio.Event()

    async def broken():
        raise RestError(429, "no memory")

    async def make():
        await end.wait()
        raise RestError(404, "nothing there")

    requests = [wide.made(SimpleNamespace(client=None, is_disconnected=broken), make) for _ in range(5)]
    tasks = [asyncio.ensure_future(each) for each in requests]
    await settle()
    end.set()
    await asyncio.wait(tasks, timeout=10)
    assert [task.exception().status for task in tasks] == [404, 404, 429, 429, 429]
    assert wide._places._held == {}


async def test_a_failed_request_gives_up_its_place():
    wide = WideAnswers()

    async def make():
        raise RestError(404, "nothing there")

    with pytest.raises(RestError):
        await wide.made(SimpleNamespace(client=None), make)
    assert wide._places._held == {}


def test_the_routes_that_walk_through_all_topics_have_places():
    wide = {row.path.rpartition("/")[2] or "metrics/" for row in all_routes() if row.is_wide}
    of_partitions = {"partitioned-stats", "partitioned-internalStats"}
    assert wide == {"metrics", "metrics/", "topics", "bookieops"} | of_partitions


@pytest.fixture
def share():
    return MemoryAccount(MemoryLimits(10 << 20, 5 << 20, 1 << 20)).share("a")


async def sent_by(answer, share, most=10 << 20, method="GET"):
    """The messages of an answer, and the most bytes that the share had meanwhile."""
    messages, held = [], []

    async def send(message):
        messages.append(message)
        held.append(share.used)

    async def receive():
        await asyncio.Event().wait()

    scope = SCOPE | {"method": method}
    await answer(scope, receive, paced(scope, receive, send, share, most))
    return messages, max(held)


async def test_a_long_answer_goes_in_pieces_and_counts(share):
    text = bytes(range(256)) * 1000
    messages, held = await sent_by(Response(text), share)
    assert messages[0]["type"] == "http.response.start"
    assert b"".join(each["body"] for each in messages[1:]) == text
    assert max(len(each["body"]) for each in messages[1:]) <= PIECE_BYTES
    assert [each.get("more_body", False) for each in messages[1:]] == [True] * (len(messages) - 2) + [False]
    assert held == len(text)
    assert (await sent_by(Response(text), share, 1000))[1] == 1000


async def test_there_is_no_memory_for_a_long_answer(share):
    messages, _ = await sent_by(Response(b"x" * (2 << 20)), share)
    assert messages[0]["status"] == 429
    assert len(messages) == 2
    share.set("answer", 2 << 20)
    messages, _ = await sent_by(Response(b"short"), share)
    assert [messages[0]["status"], messages[1]["body"]] == [200, b"short"]


async def test_metrics_are_shown_while_the_memory_is_short(share):
    async def parts():
        yield b"x" * (PIECE_BYTES + 1)
        yield b"y"

    share.set("body", 2 << 20)
    messages, _ = await sent_by(StreamingResponse(parts()), share)
    assert messages[0]["status"] == 200
    assert sum(len(each["body"]) for each in messages[1:]) == PIECE_BYTES + 2


async def test_a_request_whose_change_is_made_is_not_refused(share):
    share.set("body", 2 << 20)
    messages, _ = await sent_by(Response(b"x" * (PIECE_BYTES + 1)), share, method="POST")
    assert messages[0]["status"] == 200


@pytest.mark.parametrize("path", ["/metrics", "broker-stats/topics", "clusters"])
async def test_requests_without_a_body_need_no_memory_for_it(path):
    """The answers that are streams failed behind their start, as they look for the end of the connection."""
    call = await open_client()
    call.broker.memory.share("another").set("frame", 1 << 40)
    assert (await call("GET", path)).status == 200
    assert (await call("POST", "namespaces/public/default/permissions/r", ["consume"])).status == 429


@pytest.mark.parametrize("value", [STATS, {}, {"a": 1}, {"a": {}}, {"a": {"b": [{}]}, "c": None, "d": [1, "x"]}])
async def test_pieces_of_an_answer_are_its_json(value):
    assert msgspec.json.decode(b"".join(pieces_of(value))) == value
    assert b"".join(pieces_of(value)) == msgspec.json.encode(value)


async def turns_of(work):
    turns, task = 0, asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return turns, task


async def test_long_statistics_are_encoded_in_turns():
    """Producers with 64 KiB of metadata made 90 MB of statistics, encoded in one turn of 0.3 s."""
    turns, task = await turns_of(LongAnswers().json(STATS))
    assert turns > len(msgspec.json.encode(STATS)) / (4 * PIECE_BYTES)
    assert task.result().body == msgspec.json.encode(STATS)


async def test_one_long_answer_is_encoded_at_a_time():
    answers = LongAnswers()
    first = asyncio.ensure_future(answers.json(STATS))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(answers.json(STATS))
    short = await answers.json({"a": 1})
    assert short.body == b'{"a":1}'
    assert not first.done()
    await first
    assert not second.done()
    await second


@pytest.mark.parametrize("value", [STATS, {"publishers": ROWS}])
async def test_statistics_beyond_the_bound_are_refused(value):
    size = len(msgspec.json.encode(value))
    assert len((await LongAnswers().json(value, Bound(size, "remedy"))).body) == size
    with pytest.raises(RestError, match="1 MiB of statistics: remedy") as refused:
        await LongAnswers().json(value, Bound(size - 3, "remedy"))
    assert refused.value.status == 429


class Walking:
    """Requests about a topic of many partitions, each at work on its first partition until it may go on."""

    def __init__(self):
        self.call = SimpleNamespace(
            walks=Walks(), api=SimpleNamespace(peers=None), request=SimpleNamespace(client=SimpleNamespace(host="a"))
        )
        self.begun, self.go_on = 0, asyncio.Event()

    async def _work(self, part):
        self.begun += part == 0
        await self.go_on.wait()
        return part

    def begin(self, partitions):
        return asyncio.ensure_future(together(self.call, range(partitions), self._work))


async def test_few_requests_of_an_address_work_on_many_partitions_at_a_time():
    """Requests whose clients leave go on: a thousand of them had their turns in each round of the event loop."""
    walking = Walking()
    tasks = [walking.begin(FEW_PARTITIONS + 1) for _ in range(6)]
    await settle()
    assert walking.begun == WALKS_AT_ONCE_OF_ADDRESS
    few = walking.begin(FEW_PARTITIONS)
    await settle()
    assert walking.begun == WALKS_AT_ONCE_OF_ADDRESS + 1
    tasks[0].cancel()
    await settle()
    assert walking.begun == WALKS_AT_ONCE_OF_ADDRESS + 2, "the place of the cancelled request"
    walking.go_on.set()
    assert [len(found) for found in await asyncio.gather(*tasks[1:])] == [FEW_PARTITIONS + 1] * 5
    assert await few == list(range(FEW_PARTITIONS))
    assert (walking.call.walks._places._held, walking.call.walks._places._waiting) == ({}, {})


async def test_more_requests_about_many_partitions_are_refused():
    walking = Walking()
    tasks = [walking.begin(FEW_PARTITIONS + 1) for _ in range(WALKS_AT_ONCE_OF_ADDRESS + MOST_WAITING)]
    await settle()
    with pytest.raises(RestError) as refused:
        await walking.begin(FEW_PARTITIONS + 1)
    assert refused.value.status == 429
    walking.go_on.set()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("route", "method"), [("stats", "stats"), ("internalStats", "internal_stats"), ("internal-info", "internal_info")]
)
async def test_statistics_of_a_topic_with_many_clients_have_places(monkeypatch, route, method):
    """Each of 60 requests held the figures of 12,000 producers, gathered in one turn: a PING waited for 0.6 s."""
    client, go_on = await open_client(), asyncio.Event()
    await client("PUT", "persistent/public/default/t")
    begun = 0

    async def nothing(*_arguments):
        return {}

    stats = getattr(client.topics, method, nothing)

    async def waiting(*arguments, **more):
        nonlocal begun
        begun += 1
        await go_on.wait()
        return await stats(*arguments, **more)

    monkeypatch.setattr(client.topics, method, waiting, raising=False)
    asked = []
    for clients, at_work in ((FEW_CLIENTS + 1, 1), (FEW_CLIENTS, 1 + 6)):
        monkeypatch.setattr(client.topics, "client_count", lambda _name, clients=clients: clients)
        asked += [asyncio.ensure_future(client("GET", f"persistent/public/default/t/{route}")) for _ in range(6)]
        await until(lambda at_work=at_work: begun >= at_work)
        await settle()
        assert begun == at_work
    go_on.set()
    assert [each.status for each in await asyncio.gather(*asked)] == [200] * 12


async def test_statistics_of_many_clients_are_made_for_two_addresses_at_a_time():
    """Figures of 16,000 consumers and producers, made for 16 addresses at the same time, took hundreds of MB."""
    crowds, worked, go_on = WideAnswers().crowds, [], asyncio.Event()

    async def ask(address):
        async def is_disconnected():
            return False

        request = SimpleNamespace(client=SimpleNamespace(host=address), is_disconnected=is_disconnected)
        async with crowds.place(request, FEW_CLIENTS + 1):
            worked.append(address)
            await go_on.wait()

    tasks = [asyncio.ensure_future(ask(address)) for address in "aabcd"]
    await settle()
    assert worked == ["a", "b"]
    go_on.set()
    await asyncio.gather(*tasks)
    assert sorted(worked) == ["a", "a", "b", "c", "d"]


async def test_statistics_for_a_client_that_has_left_take_no_place():
    """Behind 60 such requests the next client of the address waited for minutes on a busy machine."""
    crowds, worked, go_on = WideAnswers().crowds, [], asyncio.Event()

    async def ask(name, *, gone=False):
        async def is_disconnected():
            return gone

        request = SimpleNamespace(client=SimpleNamespace(host="a"), is_disconnected=is_disconnected)
        async with crowds.place(request, FEW_CLIENTS + 1):
            worked.append(name)
            await go_on.wait()

    tasks = [asyncio.ensure_future(ask("first"))]
    left = [asyncio.ensure_future(ask("left", gone=True)) for _ in range(5)]
    tasks.append(asyncio.ensure_future(ask("last")))
    await settle()
    go_on.set()
    await asyncio.gather(*tasks)
    found = await asyncio.gather(*left, return_exceptions=True)
    assert worked == ["first", "last"]
    assert all(isinstance(each, ClientDisconnect) for each in found)
    assert (crowds._places._held, crowds._places._waiting) == ({}, {})
