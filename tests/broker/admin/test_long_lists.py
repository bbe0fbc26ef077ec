"""Lists of many topics of a namespace: the work of a turn of the loop, and the answers."""

import ast
import asyncio
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import magnetar.broker.admin
from magnetar.broker.admin import broker_stats, responses
from magnetar.broker.admin.wide_answers import WALKS_AT_ONCE_OF_ADDRESS
from magnetar.broker.auth.authorizer import Target
from magnetar.broker.policies import records
from magnetar.broker.policies.records import BundlesData, bundle_finder, bundle_of, even_bundles, hash_of
from magnetar.broker.slices import ITEMS_IN_ONE_TURN, SLICE_ITEMS, in_turns
from magnetar.protocol.topic_name import TopicName
from tests.broker.admin_fakes import open_client

PREFIX = "persistent://public/default/"
TOPICS = [f"{PREFIX}topic-{i * 7919 % 3000}" for i in range(3000)]
BUNDLE = bundle_of(TOPICS[0], even_bundles(4))


class Turns:
    """Counts notes between two turns of the event loop."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0

    def note(self) -> None:
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)

    async def run(self) -> None:
        while True:
            self.now = 0
            await asyncio.sleep(0)


@pytest.fixture
async def listed(monkeypatch):
    """(a client of a broker with 3,000 topics and a system topic, the `Turns` that count parsed names)"""
    call, turns = await open_client(), Turns()
    topics = call.broker.operations.directory
    topics.plain.update(dict.fromkeys([*TOPICS, PREFIX + "__change_events"]))
    topics.partitioned.update(dict.fromkeys([*TOPICS, PREFIX + "__change_events"], 1))
    parse, loaded = TopicName.parse, topics.loaded_names("public/default")
    monkeypatch.setattr(topics, "loaded_names", lambda _namespace: loaded)

    def counted_parse(text):
        turns.note()
        return parse(text)

    def counted_hash(topic):
        turns.note()
        return hash_of(topic)

    monkeypatch.setattr(TopicName, "parse", counted_parse)
    monkeypatch.setattr(records, "hash_of", counted_hash)
    ticks = asyncio.create_task(turns.run())
    yield call, turns
    ticks.cancel()


@pytest.mark.parametrize(
    "path",
    [
        "namespaces/public/default/topics",
        "persistent/public/default",
        "persistent/public/default/partitioned",
        f"persistent/public/default?bundle={BUNDLE}",
        f"namespaces/public/default/{BUNDLE}/topicHashPositions",
    ],
)
async def test_a_list_of_many_topics_is_made_in_slices(listed, path):
    call, turns = listed
    answer = (await call("GET", path)).json
    assert turns.total >= len(TOPICS)
    assert turns.most < 600, "names looked at in one turn"
    if "Positions" in path:
        assert answer["topicHashPositions"] == {
            n: hash_of(n) for n in [*TOPICS, PREFIX + "__change_events"] if bundle_of(n, even_bundles(4)) == BUNDLE
        }
    else:
        assert answer == sorted(n for n in TOPICS if "?" not in path or bundle_of(n, even_bundles(4)) == BUNDLE)


async def test_non_persistent_topics_are_listed_by_bundle_and_slot():
    """The order that Apache Pulsar gave for these names, behind the persistent topics."""
    call = await open_client()
    prefix = "non-persistent://public/listed/"
    await call("PUT", "namespaces/public/listed")
    names = ["t", "q", "a", "b10", "b9", "zz", "Upper", "n1", "n2", "n3", "n4", "n5"]
    by_slot = ["Upper", "t", "n4", "q", "a", "n1", "n5", "zz", "n3", "b10", "n2", "b9"]
    stored = ["persistent://public/listed/y", "persistent://public/listed/x"]
    call.broker.operations.directory.plain.update(dict.fromkeys([*stored, *(prefix + name for name in names)]))
    found = [prefix + name for name in by_slot]
    assert (await call("GET", "non-persistent/public/listed")).json == found
    assert (await call("GET", "namespaces/public/listed/topics?mode=ALL")).json == sorted(stored) + found
    assert (await call("GET", "non-persistent/public/listed/0x00000000_0x40000000")).json == found[:3]


class Encoder:
    """Encodes, and notes how many names a turn of the loop encodes."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def encode(self, value: object) -> bytes:
        for _ in value if isinstance(value, list) else ():
            self.turns.note()
        return msgspec.json.encode(value)


async def test_a_list_of_many_namespaces_is_made_in_slices(monkeypatch):
    call, turns = await open_client(), Turns()
    monkeypatch.setattr(responses, "msgspec", SimpleNamespace(json=Encoder(turns)))
    records_of = call.broker.namespaces.namespaces
    names = [f"public/n{number * 7919 % 5000:04}" for number in range(5000)]
    found = dict.fromkeys([*names, "publicly/other"], records_of.get("public/default"))
    monkeypatch.setattr(records_of, "_values", found)
    monkeypatch.setattr(records_of, "_names", sorted(found))
    ticks = asyncio.create_task(turns.run())
    assert (await call("GET", "namespaces/public")).json == sorted(names)
    ticks.cancel()
    assert turns.total == len(names)
    assert turns.most < 2500, "names encoded in one turn"


@pytest.mark.parametrize("names", [[], ["a"], [f'"{number}' for number in range(4096)], ["b"] * 4097])
async def test_a_list_in_slices_is_the_list(names):
    assert (await responses.list_response(names)).body == msgspec.json.encode(names)


async def test_figures_of_many_topics_are_written_as_they_are_sent(monkeypatch):
    """All of them were in memory at once: with 250 MB of metadata of producers 1.5 GB of JSON a request."""
    written = []

    async def topic_in_bundle(stats):
        written.append(stats)
        return {"x": stats, "publishers": [{"y": "z" * 100}] * 2}

    monkeypatch.setattr(broker_stats, "topic_in_bundle", topic_in_bundle)
    topics = {f"n{number}": {"persistent": {'t"': number, "u": -1}, "other": {}} for number in range(1000)}
    parts = []
    async for part in broker_stats._in_chunks(broker_stats._object(topics)):
        assert len(written) < 150 * (len(parts) + 1)
        parts.append(part)
    assert max(map(len, parts)) < 20_000
    rows = [{"y": "z" * 100}] * 2
    assert msgspec.json.decode(b"".join(parts)) == {
        name: {
            "persistent": {'t"': {"x": number, "publishers": rows}, "u": {"x": -1, "publishers": rows}},
            "other": {},
        }
        for number, name in enumerate(topics)
    }
    assert [part async for part in broker_stats._in_chunks(broker_stats._object({}))] == [b"{}"]


@pytest.mark.parametrize("boundaries", [["0x0", "0x40000000", "0x9", "0xffffffff"], ["0x80000000", "0xffffffff"], []])
def test_the_bundle_of_a_topic_is_the_last_that_begins_before_it(boundaries):
    bundles = BundlesData(boundaries=boundaries)
    find = bundle_finder(bundles)
    for name in TOPICS[:200]:
        begun = [r for r in records.bundle_ranges(bundles) if int(r.partition("_")[0], 16) <= hash_of(name)]
        assert find(name) == (begun[-1] if begun else "0x00000000_0xffffffff")


async def test_partitions_come_a_few_a_turn():
    turns = Turns()
    ticks = asyncio.create_task(turns.run())
    await asyncio.sleep(0)
    parts = [TopicName.parse(name) for name in TOPICS[:200]]
    found = []
    async for part in in_turns(parts):
        turns.note()
        found.append(part)
    ticks.cancel()
    assert found == parts
    assert turns.most <= ITEMS_IN_ONE_TURN


def _takes_partitions(loop):
    called = loop.iter.func if isinstance(loop.iter, ast.Call) else None
    return isinstance(called, ast.Name) and called.id.endswith("_parts")


def test_no_call_about_partitions_awaits_in_a_plain_loop():
    """With loaded partitions such a loop handles ten thousand of them in one turn: it must use ``in_turns``."""
    plain = []
    for path in sorted(Path(magnetar.broker.admin.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            loops = [node] if isinstance(node, ast.For) else getattr(node, "generators", [])
            waits = any(isinstance(inner, ast.Await) for inner in ast.walk(node))
            plain += [
                f"{path.name}:{node.lineno}"
                for loop in loops
                if waits and _takes_partitions(loop) and not getattr(loop, "is_async", 0)
            ]
    assert plain == []


async def test_the_backlog_of_many_subscriptions_is_cleared_in_slices(monkeypatch):
    """A topic with 8,000 subscriptions held the loop for 98 ms."""
    call, turns = await open_client(), Turns()
    assert (await call("PUT", "persistent/public/default/t")).status == 204
    found = call.broker.operations.directory.plain[PREFIX + "t"]["subscriptions"]
    found |= {f"s{number}": {} for number in range(1000)}
    checked, skip = Turns(), call.broker.operations.subscriptions.skip

    async def counted_skip(*given):
        turns.note()
        await skip(*given)

    def counted_target(*given, target=Target.of_topic):
        checked.note()
        return target(*given)

    monkeypatch.setattr(call.broker.operations.subscriptions, "skip", counted_skip)
    monkeypatch.setattr(Target, "of_topic", counted_target)
    ticks = [asyncio.create_task(each.run()) for each in (turns, checked)]
    assert (await call("POST", "namespaces/public/default/clearBacklog")).status == 204
    for tick in ticks:
        tick.cancel()
    assert turns.total == sum("skipped" in each for each in found.values()) == 1000
    assert turns.most <= ITEMS_IN_ONE_TURN
    assert checked.total >= 1000
    assert checked.most <= 2 * SLICE_ITEMS


@pytest.mark.parametrize("path", ["clearBacklog", "clearBacklog/s", "unsubscribe/s"])
async def test_requests_about_all_subscriptions_of_many_topics_give_way_and_have_places(monkeypatch, path):
    """The topics were cleared in one turn, 0.1 ms each; 150 such requests for 600 topics made a PING wait for 1.2 s."""
    call, turns = await open_client(), Turns()
    operations, under_way, most = call.broker.operations.subscriptions, set(), [0]
    for number in range(200):
        name = f"persistent/public/default/t{number}"
        assert (await call("PUT", name)).status == 204
        assert (await call("PUT", f"{name}/subscription/s")).status == 204
    for method in ("skip", "delete_subscription"):
        work = getattr(operations, method)

        async def noted(*args, work=work, **named):
            turns.note()
            under_way.add(asyncio.current_task())
            most[0] = max(most[0], sum(not task.done() for task in under_way))
            return await work(*args, **named)

        monkeypatch.setattr(operations, method, noted)
    ticks = asyncio.create_task(turns.run())
    await asyncio.gather(*(call("POST", f"namespaces/public/default/{path}") for _ in range(12)))
    ticks.cancel()
    assert turns.total >= 200
    assert turns.most <= WALKS_AT_ONCE_OF_ADDRESS * ITEMS_IN_ONE_TURN
    assert most[0] <= WALKS_AT_ONCE_OF_ADDRESS
