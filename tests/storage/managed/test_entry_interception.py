"""The general way to stamp entries: the same bytes as the fast way without added fields, whole records with added
fields.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from magnetar.protocol import speed
from magnetar.protocol.pulsar_api_pb2 import BrokerEntryMetadata
from magnetar.storage.errors import EntryTooLargeError
from magnetar.storage.managed.entry_index import broker_index
from magnetar.storage.managed.entry_interception import Stamping, stamp_with
from magnetar.storage.position import EARLIEST
from tests.storage.managed_for_tests import KEEP, Ground, append, entries_of, given, read_all, run_of


class Source:
    """Puts timestamp, index and another field before each entry."""

    def __init__(self, extra=b"", max_bytes=256):
        self.extra, self.max_bytes = extra, max_bytes
        self.calls = []

    def prefixes(self, managed_ledger, run, start, end, stamping):
        self.calls.append((managed_ledger, start, end))
        index, found = stamping.index_before, []
        for count in memoryview(run.num_messages).cast("q")[start:end]:
            metadata = BrokerEntryMetadata()
            if stamping.timestamp_ms >= 0:
                metadata.broker_timestamp = stamping.timestamp_ms
            if stamping.index_before >= -1 and count > 0:
                index += count
                metadata.index = index
            data = metadata.SerializeToString() + self.extra
            found.append(b"\x0e\x02" + len(data).to_bytes(4, "big") + data if data and count > 0 else b"")
        return found


@pytest.mark.parametrize("stamping", [(5000, 41), (5000, -2), (-1, -1), (-1, -2), (5000, 1 << 40)])
@pytest.mark.parametrize("counts", [[1, 1, 1], [3, 0, 2], [1, -7, 300]])
def test_without_additions_it_gives_the_bytes_of_the_fast_way(stamping, counts):
    run = run_of([b"a", b"", b"ccc" * 50], counts)
    for start, end in ((0, 3), (1, 3), (1, 2)):
        fast = speed.stamp(run.data, run.offsets, run.num_messages, start, end, 7, 9, 8, *stamping)
        assert stamp_with(Source(), "t", run, start, end, 7, 9, 8, Stamping(*stamping)) == fast


async def test_additions_are_stored_and_the_index_goes_on_over_a_restart_and_without_them():
    extra = bytes([0xC2, 0x3E, 2]) + b"hi"  # field 1000, two bytes
    source = Source(extra)
    ground = Ground()
    ledger = await ground.open(replace(KEEP, entry_metadata=source))
    await append(ledger, [b"one", b"two"], [1, 3])
    ground = await ground.restart()
    ledger = await ground.open(KEEP)
    await append(ledger, [b"three"])
    found = await read_all(ledger.new_read_cursor(EARLIEST))
    assert [(body, index) for _, body, index in found] == [(b"one", 0), (b"two", 3), (b"three", 4)]
    spans = await given(ledger.new_read_cursor(EARLIEST).read(10, 1 << 20))
    body = spans[0].body(0)
    assert bytes(body[6 : speed.after_prefix(body)]).endswith(extra)
    assert broker_index(body) == 0
    facts = spans[0].slab.facts()
    assert memoryview(facts.broker_timestamp).cast("q")[0] == -1


async def test_a_run_over_a_rollover_is_asked_for_piece_by_piece():
    source = Source()
    ledger = await Ground().open(replace(KEEP, entry_metadata=source))
    await append(ledger, [b"%d" % k for k in range(23)])
    assert [(start, end) for _, start, end in source.calls] == [(0, 10), (10, 20), (20, 23)]
    found = entries_of(await given(ledger.new_read_cursor(EARLIEST).read(100, 1 << 20)))
    assert [index for _, _, index in found] == list(range(len(found)))


async def test_room_is_kept_for_added_metadata():
    ground = Ground()
    ground.ledgers.max_record_bytes = 1000
    ledger = await ground.open(replace(KEEP, entry_metadata=Source(b"\xc2\x3e\x64" + b"x" * 100, max_bytes=200)))
    await append(ledger, [b"y" * 760])
    with pytest.raises(EntryTooLargeError):
        await append(ledger, [b"y" * 800])
    ledger.set_config(KEEP)
    await append(ledger, [b"y" * 800])
