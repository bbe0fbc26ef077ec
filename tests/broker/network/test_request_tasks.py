"""Requests under way: how many, how large, and how their failures are answered."""

import asyncio
from types import SimpleNamespace

import pytest

from magnetar.broker import errors
from magnetar.broker.handlers.request_turns import FEW_REQUESTS, REQUESTS_IN_ONE_ROUND, RequestTurns
from magnetar.broker.handlers.table import HANDLERS
from magnetar.broker.memory_account import MemoryAccount, MemoryLimits
from magnetar.broker.network import request_tasks
from magnetar.broker.network.request_tasks import REQUESTS_HIGH, RequestTasks
from magnetar.broker.slices import IN_SLICES
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.errors import StorageError
from tests.waiting import until

LOOKUP = HANDLERS[pb.BaseCommand.LOOKUP]
COMMAND = pb.CommandLookupTopic(topic="t", request_id=7)


class Owner:
    connection_id = 1

    def __init__(self):
        self.written, self.refused, self.closed, self.holds = [], [], 0, []
        self.loop = asyncio.get_running_loop()
        self.services = SimpleNamespace(request_turns=RequestTurns())

    def write(self, data):
        self.written.append(pb.BaseCommand.FromString(data[8:]).lookupTopicResponse)

    def close(self):
        self.closed += 1

    def refuse(self, reason):
        self.refused.append(reason)

    def hold_reading(self, reason):
        self.holds.append(reason)

    def release_reading(self, reason):
        self.holds.remove(reason)


@pytest.fixture
def account():
    return MemoryAccount(MemoryLimits.of_total(1 << 30, 1 << 20))


@pytest.fixture
async def owner():
    return Owner()


@pytest.fixture
def requests(owner, account):
    return RequestTasks(owner, account.share("here"))


async def test_reading_pauses_at_too_many_and_goes_on_at_half_of_them(requests, owner):
    gates = [asyncio.Event() for _ in range(REQUESTS_HIGH)]
    for gate in gates:
        requests.begin(gate.wait(), LOOKUP, COMMAND, 10)
    assert sorted(owner.holds) == ["requests", IN_SLICES] and len(requests) == REQUESTS_HIGH
    for gate in gates[: REQUESTS_HIGH // 2]:
        gate.set()
    await until(lambda: not owner.holds)
    assert len(requests) == REQUESTS_HIGH // 2
    for gate in gates:
        gate.set()
    await requests.settle()
    assert len(requests) == 0


async def test_requests_with_a_first_answer_hold_no_reading(requests, owner):
    """Such a request waits for other clients, whose commands may come over the same connection."""
    gate = asyncio.Event()
    for _ in range(REQUESTS_HIGH):
        requests.begin(gate.wait(), LOOKUP, COMMAND, 10)
    tasks = [each for each in asyncio.all_tasks() if each.get_name() == LOOKUP.field]
    for task in tasks[: REQUESTS_HIGH // 2]:
        requests.set_aside(task)
    await until(lambda: not owner.holds)
    gate.set()
    await requests.settle()
    for _ in range(REQUESTS_HIGH - 1):
        requests.begin(asyncio.sleep(0), LOOKUP, COMMAND, 10)
    assert "requests" not in owner.holds, "an ended request counts no more"
    requests.begin(asyncio.sleep(0), LOOKUP, COMMAND, 10)
    assert "requests" in owner.holds
    await requests.settle()


async def answer():
    return None


async def test_reading_pauses_for_a_round_when_a_round_has_too_many_requests(requests, owner):
    for _ in range(REQUESTS_IN_ONE_ROUND - 1):
        requests.begin(answer(), LOOKUP, COMMAND, 10)
    assert not owner.holds
    requests.begin(answer(), LOOKUP, COMMAND, 10)
    assert owner.holds == [IN_SLICES]
    await until(lambda: not owner.holds)
    for _ in range(REQUESTS_IN_ONE_ROUND - 1):
        requests.begin(answer(), LOOKUP, COMMAND, 10)
    assert not owner.holds, "a new round"


async def test_few_requests_begin_however_many_other_connections_begin(requests, owner):
    for _ in range(REQUESTS_IN_ONE_ROUND):
        owner.services.request_turns.count(owner.loop)
    for _ in range(FEW_REQUESTS - 1):
        requests.begin(answer(), LOOKUP, COMMAND, 10)
    assert not owner.holds
    requests.begin(answer(), LOOKUP, COMMAND, 10)
    assert owner.holds == [IN_SLICES]
    await until(lambda: not owner.holds)


async def test_commands_that_hold_reading_themselves_are_not_counted(requests, owner):
    for _ in range(2 * REQUESTS_IN_ONE_ROUND):
        requests.begin(answer(), HANDLERS[pb.BaseCommand.ACK], pb.CommandAck(consumer_id=1), 10)
    assert not owner.holds
    await requests.settle()


async def test_a_large_command_counts_until_its_end(requests, account):
    gate = asyncio.Event()
    assert not requests.begin(gate.wait(), LOOKUP, COMMAND, 1000)
    assert account.used_bytes == 0
    assert requests.begin(gate.wait(), LOOKUP, COMMAND, 5000)
    assert account.used_bytes == 60_000
    gate.set()
    await until(lambda: account.used_bytes == 0)


async def test_many_small_requests_in_progress_count_in_steps(requests, account):
    gate = asyncio.Event()
    grown = [requests.begin(gate.wait(), LOOKUP, COMMAND, 10) for _ in range(200)]
    assert [number for number, grows in enumerate(grown, 1) if grows] == [64, 128, 192]
    assert account.used_bytes == 192 * 4096
    gate.set()
    await requests.settle()
    assert account.used_bytes == 0


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (errors.TopicNotFoundError("gone"), pb.TopicNotFound, "gone"),
        (StorageError("full"), pb.PersistenceError, "full"),
        (KeyError("a bug"), pb.UnknownError, "internal error"),
    ],
)
async def test_a_failure_is_answered_with_its_code(requests, owner, error, code, text):
    async def fails():
        raise error

    requests.begin(fails(), LOOKUP, COMMAND, 10)
    await requests.settle()
    (answer,) = owner.written
    assert (answer.error, answer.message, answer.request_id) == (code, text, 7)
    assert not owner.closed and not owner.refused


def test_some_errors_end_the_connection(requests, owner):
    requests.failed(LOOKUP.fail, COMMAND, errors.AuthenticationError("no"))
    assert owner.closed == 1 and len(owner.written) == 1
    requests.failed(LOOKUP.fail, COMMAND, errors.ConnectionFatalError("broken"))
    assert owner.refused == ["broken"] and len(owner.written) == 1


def test_a_request_without_a_reply_fails_in_silence(requests, owner):
    requests.failed(None, COMMAND, errors.TopicNotFoundError("gone"))
    assert not owner.written and not owner.closed


async def test_large_commands_have_places(owner, account):
    """A hundred commands of a MiB were parsed at a time, beyond all limits of the account."""
    first, second = RequestTasks(owner, account.share("here")), RequestTasks(owner, account.share("here"))
    for _ in range(10):
        account.share("here").place(12 << 20, lambda: None)
    ended = asyncio.Event()
    assert first.may_parse(64 * 1024) and not owner.holds
    assert first.may_parse(500_000)
    first.begin(wait_for(ended), LOOKUP, COMMAND, 500_000)
    assert not second.may_parse(500_000)
    assert owner.holds == ["place"]
    await asyncio.sleep(0)
    assert owner.holds == ["place"]
    ended.set()
    await until(lambda: not owner.holds)
    assert second.may_parse(500_000)
    assert not first.may_parse(500_000)
    await until(lambda: not owner.holds)  # the command of the second connection began no task
    assert first.may_parse(500_000)


async def test_a_connection_that_ends_leaves_its_place(owner, account):
    here = account.share("here")
    filling = [here.place(12 << 20, lambda: None) for _ in range(11)]
    first, second = RequestTasks(owner, account.share("here")), RequestTasks(owner, account.share("here"))
    assert not first.may_parse(500_000) and not second.may_parse(500_000)
    first.close()
    filling.pop().leave()
    assert second.may_parse(500_000)


async def test_a_place_is_as_large_as_its_command(owner, account):
    """A command that was done at once left its small place to the large command behind it."""
    first = RequestTasks(owner, account.share("here"))
    filling = [account.share("here").place(12 << 20, lambda: None) for _ in range(10)]
    assert all(each.is_taken for each in filling)
    assert first.may_parse(70_000)
    assert not first.may_parse(1 << 20)
    filling.pop().leave()
    assert first.may_parse(1 << 20)


async def test_a_small_request_does_not_keep_the_place_of_the_command_before(owner, account):
    """A producer that waited for exclusive access kept the place of an acknowledgement before it."""
    first, second = RequestTasks(owner, account.share("here")), RequestTasks(owner, account.share("here"))
    for _ in range(10):
        account.share("here").place(12 << 20, lambda: None)
    ended = asyncio.Event()
    assert first.may_parse(600_000)
    first.begin(wait_for(ended), LOOKUP, COMMAND, 2000)
    assert not second.may_parse(600_000)
    await until(lambda: not owner.holds)
    ended.set()


async def test_a_request_that_takes_long_leaves_its_place(owner, account, monkeypatch):
    """Producers with large schemas that waited for exclusive access kept the commands of all clients out."""
    monkeypatch.setattr(request_tasks, "_PLACE_S", 0.0)
    first, second = RequestTasks(owner, account.share("here")), RequestTasks(owner, account.share("here"))
    for _ in range(10):
        account.share("here").place(12 << 20, lambda: None)
    ended = asyncio.Event()
    assert first.may_parse(600_000)
    first.begin(wait_for(ended), LOOKUP, COMMAND, 600_000)
    assert not second.may_parse(600_000)
    await until(lambda: not owner.holds)
    assert second.may_parse(600_000)
    ended.set()


async def wait_for(event):
    await event.wait()
