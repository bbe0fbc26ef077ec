"""Decisions of deduplication against a naive twin."""

import asyncio
import itertools
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from magnetar.broker.admin_backend.topic_figures import internal_stats
from magnetar.broker.topics import deduplication_cursor
from magnetar.broker.topics.deduplication import CURSOR_NAME, SequenceTable, Verdict
from magnetar.broker.topics.names_room import NamesRoom
from magnetar.protocol import entry_columns, metadata
from magnetar.protocol.metadata import parse_metadata
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata
from magnetar.protocol.runs import EntryFlag, EntryRun
from magnetar.storage.errors import StorageFullError, StorageUnavailableError
from tests.broker.topic_for_tests import TopicBench, publish
from tests.storage.managed_for_tests import append, everything, settle

NO_MINIMUM_AGE = {"managed_ledger_min_ledger_rollover_time_minutes": 0}
PART = EntryFlag.CHUNK | EntryFlag.NOT_LAST_CHUNK  # a chunk that is not the last of its message


def run_of(entries):
    """A run of (sequence, highest, flags)."""
    any_flags = all_flags = 0
    flags = []
    for _, highest, own in entries:
        flag = own | (EntryFlag.HAS_HIGHEST if highest else 0)
        any_flags |= flag
        flags.append(flag)
    sequences = [s for s, _, _ in entries]
    return EntryRun(
        1,
        len(entries),
        b"x" * len(entries),
        array("q", range(len(entries) + 1)).tobytes(),
        array("q", sequences).tobytes(),
        array("q", [h for _, h, _ in entries]).tobytes(),
        array("q", [1] * len(entries)).tobytes(),
        None,
        array("I", flags).tobytes(),
        int(any_flags),
        all_flags,
        len(entries),
        all(a < b for a, b in itertools.pairwise(sequences)),
        len(entries),
    )


def test_an_entry_with_a_negative_sequence_id_ends_below_zero():
    table = SequenceTable()
    run = run_of([(-5, 0, 0), (-4, 0, 0), (0, 0, 0)])
    assert list(table.judge("a", run)) == [(0, 1, Verdict.NEW), (1, 2, Verdict.UNKNOWN), (2, 3, Verdict.NEW)]
    table = SequenceTable()
    alone = run_of([(-5, 0, 0)])
    assert list(table.judge("a", alone)) == [(0, 1, Verdict.NEW)]
    table.stored("a", alone, 1)
    assert (table.last_sequence_id("a"), table.persisted) == (-1, {"a": -1})
    assert list(table.judge("a", alone)) == [(0, 1, Verdict.DUPLICATE)]


class Naive:
    def __init__(self):
        self.pushed, self.persisted = {}, {}

    def judge(self, name, sequence, highest, flags):
        if flags & EntryFlag.MARKER or flags & PART == PART:
            return Verdict.NEW
        high, pushed = max(sequence, highest), self.pushed.get(name)
        if pushed is not None and sequence <= pushed:
            persisted = self.persisted.get(name)
            return Verdict.DUPLICATE if persisted is not None and sequence <= persisted else Verdict.UNKNOWN
        self.pushed[name] = high
        return Verdict.NEW


ENTRY = st.tuples(
    st.integers(0, 30),
    st.sampled_from([0, 0, 3]),
    st.sampled_from([0, 0, 0, PART, EntryFlag.NOT_LAST_CHUNK, EntryFlag.CHUNK, EntryFlag.MARKER]),
).map(lambda e: (e[0], e[0] + e[1] if e[1] else 0, int(e[2])))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(ENTRY, min_size=1, max_size=6), st.booleans()), max_size=12))
def test_runs_are_judged_as_their_single_entries(publishes):
    table, naive = SequenceTable(), Naive()
    for name, entries, stored in publishes:
        run = run_of(entries)
        parts = list(table.judge(name, run))
        assert [i for part in parts for i in range(part[0], part[1])] == list(range(run.count))
        verdicts = [verdict for start, end, verdict in parts for _ in range(start, end)]
        assert verdicts == [naive.judge(name, *entry) for entry in entries]
        if stored:
            for start, end, verdict in parts:
                if verdict is Verdict.NEW:
                    table.stored(name, run.slice(start, end), end - start)
                    for sequence, highest, flags in entries[start:end]:
                        if not (flags & EntryFlag.MARKER or flags & PART == PART):
                            naive.persisted[name] = max(naive.persisted.get(name, -1), sequence, highest)
        assert table.pushed == naive.pushed
        assert table.persisted == naive.persisted


def test_after_a_failed_append_unstored_entries_are_new_again():
    table = SequenceTable()
    assert list(table.judge("p", run_of([(1, 0, 0)]))) == [(0, 1, Verdict.NEW)]
    table.stored("p", run_of([(1, 0, 0)]), 1)
    assert list(table.judge("p", run_of([(2, 0, 0)]))) == [(0, 1, Verdict.NEW)]
    assert list(table.judge("p", run_of([(2, 0, 0)]))) == [(0, 1, Verdict.UNKNOWN)]
    table.reset_pushed()
    assert list(table.judge("p", run_of([(2, 0, 0)]))) == [(0, 1, Verdict.NEW)]


def test_snapshot_limits_names_and_inactive_producers_are_forgotten():
    table = SequenceTable()
    for i, name in enumerate("abc"):
        table.replayed(name, i)
        table.left(name, i * 100)
    assert len(table.snapshot(2)) == 2
    assert table.purge_inactive(150) == 2
    assert table.snapshot(10) == {"c": 2}
    assert table.last_sequence_id("a") == -1


def test_the_names_of_absent_producers_have_a_limit_of_bytes():
    """20,000 names of 1,000 characters cost 61 MiB until the timeout, and there was no limit."""
    table, names = SequenceTable(), [f"{number:1000}" for number in range(40_000)]
    table.replayed("present", 7)
    table.replayed("returns", 8)
    table.left("returns", 0.0)
    for name in names:
        table.replayed(name, 1)
        table.left(name, 1.0)
        if name is names[1000]:
            table.joined("returns")
            table.left("returns", 1.0)
    assert 10_000 <= len(table.persisted) == len(table.pushed) < 10_600
    assert table.last_sequence_id("present") == 7
    assert [table.last_sequence_id(name) for name in (names[0], names[-10_000], names[-1])] == [-1, 1, 1]
    assert table.last_sequence_id("returns") == -1
    table.purge_inactive(2.0)
    assert table.persisted == {"present": 7}


def left(table, name):
    table.replayed(name, 1)
    table.left(name, 1.0)


def test_all_topics_together_have_a_limit_of_names():
    """40,000 names of 1,000 characters on 20 topics took 42 MB; only each topic had a limit."""
    room = NamesRoom(most=1 << 20, free=64 << 10)
    large, small = SequenceTable(room.of_topic("t", "t/n")), SequenceTable(room.of_topic("t", "t/n"))
    names = [f"{number:1000}" for number in range(1000)]
    taken = 0
    while large.admits(names[taken]):
        left(large, names[taken])
        taken += 1
    assert 320 < taken < 340
    assert large.admits(names[0]), "its name takes no more room"
    assert small.admits("new"), "a topic with few names has room"
    other = 0
    while small.admits(names[other]):
        left(small, names[other])
        other += 1
    assert 160 < other < 170, "an even share of the room"
    assert not large.forgotten and len(large.persisted) == taken
    large.joined(names[7])
    assert large.admits(names[7]), "it is present"
    large.close()
    assert small.admits("new")
    small.purge_inactive(2.0)
    assert room.used == 0


def test_at_the_load_of_a_topic_names_beyond_the_limit_of_all_topics_are_forgotten():
    room = NamesRoom(most=1 << 20, free=64 << 10)
    others = [room.of_topic("t", "t/n") for _ in range(63)]
    for other in others:
        other.count(1 << 14)
    table, names = SequenceTable(room.of_topic("t", "t/n")), [f"{number:1000}" for number in range(100)]
    for name in names:
        table.found(name, 3, 1.0)
    assert 15 < len(table.persisted) < 25 and table.forgotten == 100 - len(table.persisted)
    assert [table.last_sequence_id(name) for name in (names[0], names[-1])] == [-1, 3]


def test_a_receipt_for_a_forgotten_producer_does_not_bring_its_name_back():
    """Thousands of producers that left with a message under way stayed for ever, beside the limit."""
    table, sent = SequenceTable(), run_of([(5, 0, 0)])
    list(table.judge("forgotten", sent))
    table.left("forgotten", 1.0)
    for number in range(12_000):
        table.left(f"{number:1000}", 1.0)
    table.stored("forgotten", sent, 1)
    assert "forgotten" not in table.persisted


def test_characters_of_four_bytes_count_as_four():
    """Python takes four bytes for each character of a name with such a character: the table took 42 MiB by itself."""
    table = SequenceTable()
    for number in range(10_000):
        table.left(f"{number:999}\N{GRINNING FACE}", 1.0)
    assert 2_500 <= len(table.inactive_since_s) < 2_800


async def test_snapshots_by_entries_keep_a_pause():
    bench = TopicBench(broker_deduplication_enabled=True, broker_deduplication_entries_interval=10)
    topic = await bench.open()
    deduplication, cursor = topic.deduplication, topic.ledger.cursors[CURSOR_NAME]
    taken = []
    for _ in range(6):
        ids = await bench.publish(*[b"x"] * 10)
        run = run_of([(k, k, 0) for k in range(10)])
        deduplication.table.pushed["p"] = 9
        deduplication.stored("p", run, 10, ids[-1])
        await settle(50)
        taken.append(cursor.mark_delete == ids[-1])
        bench.pass_time(0.03)
    assert taken == [True, False, False, False, True, False]


async def test_a_snapshot_that_the_end_of_the_topic_overtakes_is_no_bug():
    bench = TopicBench(broker_deduplication_enabled=True, broker_deduplication_entries_interval=1)
    topic = await bench.open()
    bench.pass_time(1)
    with capture_logs() as logs:
        ids = await bench.publish(b"x")
        topic.ledger._cursors.stop_saving()
        topic.deduplication.stored("p", run_of([(5, 0, 0)]), 1, ids[-1])
        await settle(50)
        await topic.close()
    assert [entry for entry in logs if entry["log_level"] == "error"] == []
    assert (await bench.open()).deduplication.table.persisted == {"p": 5}
    await bench.close()


@pytest.mark.parametrize("lost", ["entry", "ledger"])
async def test_a_topic_with_unreadable_entries_is_loaded_and_goes_on(lost):
    bench = TopicBench(broker_deduplication_enabled=True, managed_ledger_max_entries_per_ledger=3, **NO_MINIMUM_AGE)
    await bench.open()
    await bench.subscribe("keeps")
    positions = await bench.publish(b"a", b"b", b"c", b"d", b"e")
    bench.ground = bench.ground.after_crash()
    store = bench.ground.ledgers
    if lost == "entry":
        store.corrupt |= {positions[1], positions[4]}
    else:
        del store._ledgers[positions[0].ledger_id]
    with capture_logs() as logs:
        bench = TopicBench(
            bench.ground, broker_deduplication_enabled=True, managed_ledger_max_entries_per_ledger=3, **NO_MINIMUM_AGE
        )
        topic = await bench.open()
    reported = [entry["position"] for entry in logs if entry["event"] == "deduplication.entry_unreadable"]
    assert reported == ([str(positions[1]), str(positions[4])] if lost == "entry" else [str(positions[0])])
    assert topic.deduplication.enabled
    await topic.recall_last_publish()
    await bench.publish(b"f")
    await bench.close()


async def test_a_topic_is_loaded_while_the_disk_is_full():
    """The load replays many entries, and the snapshot behind them finds no space; consumers need the topic."""
    bench = TopicBench(broker_deduplication_enabled=True)
    await bench.open()
    await bench.subscribe("keeps")
    publish(bench.topic, 5)
    await settle()
    bench.ground = bench.ground.after_crash()
    bench.ground.ledgers.fail_appends = StorageFullError("full")
    bench = TopicBench(bench.ground, broker_deduplication_enabled=True, broker_deduplication_entries_interval=1)
    topic = await bench.open()
    assert topic.deduplication.table.last_sequence_id("p") == 5
    bench.ground.ledgers.fail_appends = None
    bench.pass_time(2)
    await settle()
    bench.ground = bench.ground.after_crash()
    topic = await bench.open()
    assert topic.ledger.cursors[CURSOR_NAME].position_properties == {"p": 5}
    await bench.close()


async def test_a_lost_snapshot_is_made_again_from_all_entries_of_the_topic():
    """The cursor of the snapshot falls back to an older position; the producers of earlier entries stay known."""
    bench = TopicBench(broker_deduplication_enabled=True, broker_deduplication_entries_interval=2)
    topic = await bench.open()
    await bench.subscribe("keeps")
    ids = await bench.publish(*[b"x"] * 3)
    topic.deduplication.stored("p", run_of([(5, 0, 0)]), 1, ids[-1])
    await topic.deduplication.snapshot()
    bench.ground = bench.ground.after_crash()
    ledgers = bench.ground.ledgers
    for ledger_id in [
        each for each in ledgers._ledgers if each not in {slot.ledger_id for slot in topic.ledger.ledgers}
    ]:
        del ledgers._ledgers[ledger_id]
    with capture_logs() as logs:
        topic = await TopicBench(bench.ground, broker_deduplication_enabled=True).open()
    assert [entry["fallback"] for entry in logs if entry["event"] == "cursor.state_lost"]
    assert list(topic.deduplication.table.persisted) == ["p"], "as the entries say"


async def test_entries_of_the_cache_are_replayed_in_slices(monkeypatch):
    """After damage the broker replays the whole topic; after an unload and load all of its entries may be in the cache."""
    monkeypatch.setattr(deduplication_cursor, "_REPLAY_ENTRIES", 1)
    bench = TopicBench(broker_deduplication_enabled=True)
    topic = await bench.open()
    await bench.subscribe("keeps")
    await bench.publish(*[b"x"] * 30)
    turns = 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    topic.deduplication.enabled = False
    topic.ledger.cursors[CURSOR_NAME].state_lost = True
    task = asyncio.create_task(others())
    await topic.deduplication.switch(on=True)
    task.cancel()
    assert turns >= 30
    await bench.close()


async def replayed(entries):
    """The table behind the replay of entries with this metadata, and how often other tasks had a turn meanwhile."""
    bench, turns = TopicBench(broker_deduplication_enabled=True), 0
    topic = await bench.open()
    await bench.subscribe("keeps")
    bodies = [MessageMetadata(publish_time=1, **fields).SerializeToString() for fields in entries]
    await append(topic.ledger, [len(raw).to_bytes(4, "big") + raw for raw in bodies])

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    topic.deduplication.enabled = False
    topic.ledger.cursors[CURSOR_NAME].state_lost = True
    task = asyncio.create_task(others())
    await topic.deduplication.switch(on=True)
    task.cancel()
    found = topic.deduplication.table
    await bench.close()
    return found, turns


async def test_entries_that_claim_endless_names_leave_none_of_them():
    """A thousand entries with names of five MB each took all memory when the topic was loaded, at each start."""
    names = ["p", "x" * 1_000_000, "y" * 1025, "z" * 1024]
    table, _ = await replayed({"producer_name": name, "sequence_id": 7} for name in names)
    assert table.persisted == dict.fromkeys(("p", "z" * 1024), 7)


async def test_megabytes_of_metadata_are_replayed_in_slices():
    """A read of 8 MiB of short fields took a quarter of a second in one turn."""
    fields = {"producer_name": "p", "sequence_id": 1, "replicate_to": [""] * 50_000}
    few = (await replayed([fields] * 2))[1]
    assert (await replayed([fields] * 30))[1] >= few + 9


async def test_a_name_that_is_no_text_leaves_a_snapshot_that_can_be_read():
    """The replay kept the name as bytes, and the next load found the state of the cursor damaged."""
    bench = TopicBench(broker_deduplication_enabled=True)
    topic = await bench.open()
    await bench.subscribe("keeps")
    raw = MessageMetadata(producer_name="name", sequence_id=7, publish_time=1).SerializeToString()
    await append(topic.ledger, [len(raw).to_bytes(4, "big") + raw.replace(b"name", b"n\xffme")])
    for _ in range(2):
        await topic.deduplication.snapshot()
        topic = await bench.reopen()
        assert not topic.ledger.cursors[CURSOR_NAME].state_lost
        assert topic.deduplication.table.persisted == {"n\ufffdme": 7}
    await bench.close()


@pytest.mark.skipif(not entry_columns.COMPILED, reason="the pure twin makes an object for each field")
async def test_an_entry_with_megabytes_of_properties_is_replayed_without_an_object_for_each(monkeypatch):
    """Each entry with 5 MB of short properties took a turn of 80 ms."""
    monkeypatch.setattr(metadata, "parse_metadata", None)
    pairs = [{"key": "", "value": ""}] * 20_000
    fields = {"producer_name": "p", "sequence_id": 3, "highest_sequence_id": 9, "properties": pairs}
    table, _ = await replayed([fields, {**fields, "producer_name": "m", "marker_type": 1}])
    assert table.persisted == {"p": 9}


async def test_an_entry_whose_append_failed_and_that_exists_after_all_is_stored_once():
    """Bookies may have stored an entry whose answers were lost; the client sends the message again."""
    bench = TopicBench(broker_deduplication_enabled=True)
    reopened = []
    bench.context.taken_over = lambda _: reopened.append(bench.tasks.spawn(bench.reopen(), "reopen"))
    topic, ledgers = await bench.open(), bench.ground.ledgers
    await bench.subscribe("keeps")
    publish(topic, 0)
    await settle()
    ledgers.hold()
    publish(topic, 1)
    await settle()
    writer = ledgers._ledgers[topic.ledger.last_confirmed.ledger_id]
    slab = writer._pending[0][0]
    ledgers.fail_appends = StorageUnavailableError("no answer")
    ledgers.release()
    await settle()
    writer._confirm(slab)
    ledgers.fail_appends = None
    for _ in range(2):
        publish(bench.topic, 1)
        await settle(100)
    entries = await everything(bench.topic.ledger)
    assert [parse_metadata(entry).sequence_id for _, entry, _ in entries] == [0, 1]
    assert len(reopened) == 1
    await bench.close()


async def test_the_last_publish_of_a_lost_ledger_is_unknown():
    bench = TopicBench()
    await bench.open()
    (position,) = await bench.publish(b"a")
    topic = await bench.reopen()
    del bench.ground.ledgers._ledgers[position.ledger_id]
    await topic.recall_last_publish()
    assert topic.publishing.last_publish_ms == 0
    await bench.close()


@pytest.mark.parametrize("known", [False, True])
async def test_deduplication_that_is_turned_off_while_it_is_turned_on_stays_off(monkeypatch, known):
    bench = TopicBench()
    topic = await bench.open()
    gate = asyncio.Event()
    open_cursor = topic.ledger.open_cursor

    async def open_late(*args):
        if known:
            await open_cursor(*args)
        await gate.wait()
        return await open_cursor(*args)

    monkeypatch.setattr(topic.ledger, "open_cursor", open_late)
    turning_on = asyncio.ensure_future(bench.set_namespace(deduplication_enabled=True))
    await settle()
    await bench.set_namespace(deduplication_enabled=False)
    gate.set()
    await turning_on
    assert (topic.deduplication.enabled, CURSOR_NAME in topic.ledger.cursors) == (False, False)


@pytest.mark.parametrize("on", [True, False])
async def test_a_switch_of_deduplication_that_the_store_refuses_is_tried_again(on):
    bench = TopicBench()
    topic = await bench.open()
    await bench.set_namespace(deduplication_enabled=not on)
    bench.ground.metadata.fail_writes = StorageFullError("full")
    with pytest.raises(StorageFullError):
        await bench.set_namespace(deduplication_enabled=on, max_unacked_messages_per_consumer=7)
    assert topic.subscriptions._config.max_unacked_messages_per_consumer == 7
    bench.ground.metadata.fail_writes = None
    await bench.set_namespace(max_unacked_messages_per_consumer=8)
    assert (topic.deduplication.enabled, CURSOR_NAME in topic.ledger.cursors) == (on, on)


async def test_deduplication_whose_end_is_not_stored_can_be_turned_on_again():
    bench = TopicBench(broker_deduplication_enabled=True)
    topic = await bench.open()
    publish(topic, 5)
    await settle()
    bench.ground.metadata.fail_writes = StorageFullError("full")
    with pytest.raises(StorageFullError):
        await bench.set_namespace(deduplication_enabled=False)
    bench.ground.metadata.fail_writes = None
    await bench.set_namespace(deduplication_enabled=True)
    assert topic.deduplication.enabled
    assert topic.deduplication.table.last_sequence_id("p") == 5
    await bench.close()


async def test_the_statistics_show_the_cursor_of_deduplication_whose_end_is_not_stored():
    """The statistics had the status 500 until the unload of the topic."""
    bench = TopicBench(broker_deduplication_enabled=True)
    await bench.open()
    topic = await bench.reopen()
    bench.ground.metadata.fail_writes = StorageFullError("full")
    with pytest.raises(StorageFullError):
        await bench.set_namespace(deduplication_enabled=False)
    shown = (await internal_stats(topic))["cursors"]
    assert list(shown) == [CURSOR_NAME]
    bench.ground.metadata.fail_writes = None
    await bench.close()
