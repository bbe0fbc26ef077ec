"""Managed ledgers in Pulsar's layout: golden records, and whole managed ledgers on the in-memory stores."""

from __future__ import annotations

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from magnetar.storage.errors import LedgerFencedError, LedgerListError, ManagedLedgerFencedError
from magnetar.storage.managed.stored_layout import CursorRecord, ListRecord
from magnetar.storage.position import Position
from magnetar.storage.pulsar_layout.pulsar_layout import PulsarLayout
from magnetar.storage.pulsar_layout.pulsar_records_pb2 import ManagedLedgerInfo
from tests.storage.engine_for_tests import settle
from tests.storage.managed_for_tests import KEEP, NAME, Ground, append, message, read_all
from tests.storage.pulsar_layout.golden_nodes import node, nodes
from tests.twins.memory_metadata import MemoryMetadataStore

LAYOUT = PulsarLayout()
ALL = nodes("/managed-ledgers/t1")
LISTS = [value for path, values in ALL.items() if path.count("/") == 5 for value in values]
CURSORS = [value for path, values in ALL.items() if path.count("/") == 6 for value in values]
TOPIC, CURSOR = "/managed-ledgers/t1/n4/persistent/a+b%25%C3%A9", "sub/1 x"


@pytest.mark.parametrize("value", LISTS)
def test_recorded_lists_are_written_back_byte_for_byte(value):
    record = LAYOUT.decode_list(value)
    if value:
        assert LAYOUT.encode_list(record) == value
    else:
        assert record == ListRecord([])


@pytest.mark.parametrize("value", CURSORS)
def test_recorded_cursors_are_written_back_byte_for_byte(value):
    record = LAYOUT.decode_cursor(value)
    if b"Compact" in value:  # the stored horizon is an addition of this project
        assert LAYOUT.decode_cursor(LAYOUT.encode_cursor(record, record.created_ms)) == record
    else:
        assert LAYOUT.encode_cursor(record, record.created_ms) == value


def test_the_records_of_a_recorded_topic():
    record = LAYOUT.decode_list(node("unloaded", TOPIC))
    assert [(slot.ledger_id, slot.entries, bool(slot.closed_at_ms)) for slot in record.ledgers] == [
        (6, 10, True),
        (18, 0, False),
    ]
    assert record.properties == {"index": "9"}
    cursor = LAYOUT.decode_cursor(node("unloaded", f"{TOPIC}/{LAYOUT.cursor_node(CURSOR)}"))
    assert cursor.mark_delete == Position(6, 0)
    assert {ledger: list(held) for ledger, held in cursor.state.deleted.items()} == {6: [3, 4, 7]}
    ended = LAYOUT.decode_list(node("unloaded", "/managed-ledgers/t1/n4/persistent/ended"))
    assert ended.terminated == Position(12, 2)


def test_properties_of_users_have_their_own_names_in_the_node():
    """As Apache Pulsar writes and shows them; in memory they are apart from those of the broker."""
    pulsar = ManagedLedgerInfo()
    in_node = {"own": "a", "index": "7", "pulsar.topic.epoch": "3", "user.x": "b", "": ""}
    for key, value in in_node.items():
        pulsar.properties.add(key=key, value=value)
    record = LAYOUT.decode_list(pulsar.SerializeToString())
    assert record.properties == {
        "user.own": "a",
        "index": "7",
        "pulsar.topic.epoch": "3",
        "user.user.x": "b",
        "user.": "",
    }
    assert LAYOUT.encode_list(record) == pulsar.SerializeToString()


def test_a_property_of_a_user_takes_the_place_of_none_of_the_broker():
    record = ListRecord([], None, {"index": "7", "user.index": "x", "user.pulsar.topic.epoch": "y", "user.a": "b"})
    assert LAYOUT.decode_list(LAYOUT.encode_list(record)).properties == {"index": "7", "user.a": "b"}


def test_names_of_cursors_are_encoded_as_java_does():
    for name in ("s", "sub/1 x", "a+b%:/é", "*-_.~", "ab€"):
        assert LAYOUT.cursor_name(LAYOUT.cursor_node(name)) == name
    assert LAYOUT.cursor_node("sub/1 x") == "sub%2F1+x"
    assert LAYOUT.cursor_node("*-_.~:é") == "*-_.%7E%3A%C3%A9"


def test_records_that_cannot_be_served_are_refused():
    offloaded = ManagedLedgerInfo()
    offloaded.ledgerInfo.add(ledgerId=1, entries=3, size=9, timestamp=5).offloadContext.bookkeeperDeleted = True
    no_number = ManagedLedgerInfo()
    no_number.properties.add(key="index", value="x")
    for value in (b"garbage", offloaded.SerializeToString(), no_number.SerializeToString()):
        with pytest.raises(LedgerListError):
            LAYOUT.decode_list(value)
    for value in (b"", b"garbage"):
        with pytest.raises(LedgerListError):
            LAYOUT.decode_cursor(value)


def test_a_cursor_record_is_never_empty():
    assert LAYOUT.encode_cursor(CursorRecord(), 0)


# --- whole managed ledgers -----------------------------------------------------------------------------------------


class CheckedMetadata(MemoryMetadataStore):
    """Every list that is stored keeps Pulsar's rules."""

    def __init__(self):
        super().__init__()
        self.lists = 0

    async def put(self, path, value, expected_version=None, guard=None):
        if path == f"/managed-ledgers/{NAME}":
            infos = ManagedLedgerInfo.FromString(value).ledgerInfo
            assert all(info.HasField("entries") and info.timestamp for info in infos[:-1])
            self.lists += 1
        return await super().put(path, value, expected_version, guard)

    def snapshot(self):
        copy = CheckedMetadata()
        copy.__dict__.update(super().snapshot().__dict__)
        copy.lists = self.lists
        return copy


def ground():
    return Ground(metadata=CheckedMetadata(), layout=LAYOUT)


async def test_only_the_last_ledger_of_a_stored_list_is_open():
    world = ground()
    ledger = await world.open()
    bodies = [message(b"%d" % number) for number in range(95)]
    for start in range(0, 95, 7):
        await append(ledger, bodies[start : start + 7])
        await settle()
    assert world.metadata.lists >= 10
    for again in (world.after_crash(), await world.restart()):
        found = await read_all((await again.open()).new_read_cursor(Position(-1, -1)))
        assert [(body, index) for _, body, index in found] == [(body, k) for k, body in enumerate(bodies)]


async def test_the_state_of_a_cursor_outlives_crash_and_restart():
    world = ground()
    ledger = await world.open()
    cursor = await ledger.open_cursor(CURSOR, cursor_properties={"k": "v"})
    places = await append(ledger, [message(b"%d" % number) for number in range(25)])
    for number in (0, 3, 4, 7, 12):
        cursor.ack(places[number])
    cursor.ack(places[5], [0b101])
    await cursor.flush()
    for again in (world.after_crash(), await world.restart()):
        loaded = (await again.open()).cursors[CURSOR]
        assert loaded.mark_delete == places[0]
        assert loaded.cursor_properties == {"k": "v"}
        left = [place for place, *_ in await read_all(loaded)]
        assert left == [place for number, place in enumerate(places) if number not in (0, 3, 4, 7, 12)]
        assert loaded.ack_set(places[5]) == [0b101]


async def test_more_holes_than_a_record_takes_stay_in_the_cursor_ledger():
    world = ground()
    ledger = await world.open(
        KEEP.__class__(max_entries_per_ledger=100_000, retention_time_ms=-1, retention_size_bytes=-1)
    )
    cursor = await ledger.open_cursor("s")
    places = await append(ledger, [message(b"x")] * 2500)
    for place in places[1::2]:
        cursor.ack(place)
    again = await world.restart()
    stored = LAYOUT.decode_cursor((await again.metadata.get(f"/managed-ledgers/{NAME}/s"))[0])
    assert stored.ledger_id != -1
    left = await read_all((await again.open()).cursors["s"])
    assert [place for place, *_ in left] == places[::2]


async def test_parts_of_batches_in_a_record_move_to_a_cursor_ledger():
    """Apache Pulsar writes them into the record when it closes a topic, and reads them from cursor ledgers alone: after
    an owner that changed nothing it delivered the acknowledged messages again.
    """
    world = ground()
    ledger = await world.open()
    cursor = await ledger.open_cursor("s", "earliest")
    places = await append(ledger, [message(b"x")] * 3)
    cursor.ack(places[1], [0b101])
    world, path = await world.restart(), f"/managed-ledgers/{NAME}/s"
    stored = LAYOUT.decode_cursor((await world.metadata.get(path))[0])
    state = await LAYOUT.newest_state(world.ledgers, stored.ledger_id, 0)
    await world.metadata.put(path, LAYOUT.encode_cursor(CursorRecord(mark_delete=state.mark_delete, state=state), 0))
    for _ in range(2):
        assert (await world.open()).cursors["s"].ack_set(places[1]) == [0b101]
        world = await world.restart()
        stored = LAYOUT.decode_cursor((await world.metadata.get(path))[0])
        assert stored.ledger_id != -1
        assert (await LAYOUT.newest_state(world.ledgers, stored.ledger_id, 0)).partial == state.partial


async def test_two_owners_cannot_both_write():
    world = ground()
    first = await world.open()
    await append(first, [message(b"1")])
    other = Ground(world.ledgers, world.metadata, LAYOUT)
    second = await other.open()
    await append(second, [message(b"2")])
    with pytest.raises(LedgerFencedError):
        await append(first, [message(b"lost")])
    first.ready_to_create_new_ledger()
    with pytest.raises(ManagedLedgerFencedError):
        await append(first, [message(b"lost")])
    found = await read_all(second.new_read_cursor(Position(-1, -1)))
    assert [body for _, body, _ in found] == [message(b"1"), message(b"2")]


async def test_an_owner_without_an_open_ledger_is_fenced_by_the_next():
    world = ground()
    first = await world.open()
    second = await Ground(world.ledgers, world.metadata, LAYOUT).open()
    with pytest.raises(ManagedLedgerFencedError):
        await append(first, [message(b"lost")])
    await append(second, [message(b"kept")])


async def test_a_topic_that_pulsar_wrote_is_opened():
    """The recorded topic, its ledgers filled with the recorded entries."""
    world = ground()
    name = TOPIC.removeprefix("/managed-ledgers/")
    for path, values in ALL.items():
        if path.startswith(TOPIC):
            await world.metadata.put(path, values[-1])
    world.ledgers._next_id = 6
    writer = await world.ledgers.create({})
    await _fill(writer, [message(b"%d" % number) for number in range(10)])
    await writer.close()
    world.ledgers._next_id = 18
    await world.ledgers.create({})
    ledger = await world.factory.open(name, KEEP)
    left = await read_all(ledger.cursors[CURSOR])
    assert [place.entry_id for place, *_ in left] == [1, 2, 5, 6, 8, 9]
    assert [index for *_, index in left] == [1, 2, 5, 6, 8, 9]
    (place,) = await append(ledger, [message(b"next")])
    assert (await read_all(ledger.cursors[CURSOR]))[0][2] == 10
    assert place.ledger_id > 18


async def test_a_shadow_topic_of_pulsar_is_refused_and_its_source_keeps_its_ledgers():
    """The list of a shadow topic names the ledgers of its source: only the source may recover and delete them."""
    world = ground()
    source = await world.open()
    await append(source, [message(b"%d" % number) for number in range(15)])
    world = await world.restart()
    value, _ = await world.metadata.get(f"/managed-ledgers/{NAME}")
    shadow = ManagedLedgerInfo.FromString(value)
    shadow.properties.add(key="PULSAR.SHADOW_SOURCE", value="persistent://t/n/source")
    name = NAME.rpartition("/")[0] + "/shadow"
    await world.metadata.put(f"/managed-ledgers/{name}", shadow.SerializeToString())
    for attempt in (world.factory.open(name, KEEP), world.factory.delete(name)):
        with pytest.raises(LedgerListError, match=r"a shadow of persistent://t/n/source"):
            await attempt
    found = await read_all((await world.open()).new_read_cursor(Position(-1, -1)))
    assert [body for _, body, _ in found] == [message(b"%d" % number) for number in range(15)]


async def test_a_property_of_a_user_makes_no_shadow_topic():
    world = ground()
    ledger = await world.open()
    await ledger.change_properties(lambda _now: {"user.PULSAR.SHADOW_SOURCE": "persistent://t/n/source", "user.a": "b"})
    assert (await (await world.restart()).open()).properties == {"user.a": "b", "index": "-1"}


async def _fill(writer, bodies):
    from array import array

    from magnetar.protocol.speed import stamp
    from magnetar.storage.managed.slab_append import append_slab
    from magnetar.storage.slab import Slab

    offsets = array("q", [0])
    for body in bodies:
        offsets.append(offsets[-1] + len(body))
    counts = array("q", [1] * len(bodies)).tobytes()
    data, places = stamp(b"".join(bodies), offsets.tobytes(), counts, 0, len(bodies), writer.ledger_id, 0, -1, 1000, -1)
    await append_slab(writer, Slab(writer.ledger_id, 0, data, places))


@settings(max_examples=30, deadline=None)
@for_all(st.lists(st.sampled_from(["append", "ack", "flush", "crash", "restart", "trim"]), max_size=25), st.randoms())
async def test_random_histories_lose_nothing_that_was_confirmed(steps, random):
    world = ground()
    ledger = await world.open()
    cursor = await ledger.open_cursor("s")
    kept, saved = {}, set()
    acked = set()
    for number, step in enumerate(steps):
        if step == "append":
            bodies = [message(b"%d-%d" % (number, k)) for k in range(random.randint(1, 14))]
            kept.update(zip(await append(ledger, bodies), bodies, strict=True))
        elif step == "ack" and kept:
            place = random.choice(sorted(kept))
            cursor.ack(place)
            acked.add(place)
        elif step == "flush":
            await cursor.flush()
            saved = set(acked)
        elif step in ("crash", "restart"):
            world = world.after_crash() if step == "crash" else await world.restart()
            saved = saved if step == "crash" else set(acked)
            ledger = await world.open()
            cursor = ledger.cursors["s"]
            left = {place for place, *_ in await read_all(cursor)}
            assert set(kept) - acked <= left <= set(kept) - saved
            acked = set(kept) - left
            saved = set(acked)
            found = await read_all(ledger.new_read_cursor(Position(-1, -1)))
            assert {place: body for place, body, _ in found} == kept
            assert [index for *_, index in found] == list(range(len(kept)))
