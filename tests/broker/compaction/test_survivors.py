"""The survivors of a compaction among messages in chunks."""

from __future__ import annotations

import pytest

from magnetar.broker.compaction import survivors
from magnetar.broker.compaction.examine import Examined, Keyed, Kind, digest_of
from magnetar.broker.compaction.key_table import KeyTable
from magnetar.broker.compaction.survivors import Findings
from tests.broker.compaction_for_tests import Bench, single


def chunks(key, uuid, count, of):
    return [
        single(key, b"%d" % k, uuid=uuid, chunk_id=k, num_chunks_from_msg=of, total_chunk_msg_size=of)
        for k in range(count)
    ]


async def test_chunks_of_a_message_live_and_die_together():
    bench = await Bench().open()
    ids = await bench.publish(
        *chunks("a", "p-1", 3, 3), *chunks("a", "p-2", 3, 3), single("b"), *chunks("b", "p-3", 2, 3)
    )
    await bench.compact()
    assert [value[0] for value in await bench.values()] == ids[3:]
    last = await bench.publish(
        single("b", b"2", uuid="p-3", chunk_id=2, num_chunks_from_msg=3, total_chunk_msg_size=3), single("a", b"")
    )
    await bench.compact()
    assert [value[0] for value in await bench.values()] == [*ids[7:], last[0]]


@pytest.mark.parametrize("again", [[2], [1, 2], [0, 1, 2]])
async def test_chunks_that_were_sent_again_leave_their_message_whole(again):
    """A producer that lost the receipts of the last chunks sends these chunks again; the last chunk alone stayed."""
    bench = await Bench().open()
    message = chunks("a", "p-1", 3, 3)
    ids = await bench.publish(*message, *[message[k] for k in again])
    await bench.compact()
    newest = ids[3:] if len(again) == 3 else ids[:3]
    assert [value[0] for value in await bench.values()] == newest
    copies = await bench.publish(message[2], single("b"))
    await bench.compact()
    assert [value[0] for value in await bench.values()] == [*newest, copies[1]]


async def test_a_chunk_that_was_sent_again_hides_no_newer_value():
    bench = await Bench().open()
    message = chunks("a", "p-1", 2, 2)
    ids = await bench.publish(*message, single("a"), message[1])
    await bench.compact()
    assert [value[0] for value in await bench.values()] == [ids[2]]


async def test_chunks_beyond_the_limit_stay(monkeypatch):
    """Each unfinished message took 270 bytes of memory, without a bound."""
    monkeypatch.setattr(survivors, "MOST_CHUNKS", 4)
    bench = await Bench().open()
    ids = await bench.publish(
        *[chunk for number in range(6) for chunk in chunks("a", f"p-{number}", 1, 2)],
        *[chunks("a", f"p-{number}", 2, 2)[1] for number in range(6)],
    )
    await bench.compact()
    assert [value[0] for value in await bench.values()] == [*ids[:2], ids[5], ids[11]]


async def test_chunks_of_more_messages_than_the_limit_stay(monkeypatch):
    monkeypatch.setattr(survivors, "MOST_CHUNKS", 4)
    bench = await Bench().open()
    ids = await bench.publish(*[chunk for number in range(4) for chunk in chunks("a", f"p-{number}", 3, 3)])
    await bench.compact()
    assert [value[0] for value in await bench.values()] == [*ids[6:8], *ids[9:]]


def test_remembered_chunks_have_a_bound(monkeypatch):
    monkeypatch.setattr(survivors, "MOST_CHUNKS", 100)
    findings = Findings(KeyTable())
    for number in range(1000):
        keyed = (Keyed(0, digest_of("a"), is_tombstone=False),)
        message = digest_of(f"m{number // 3 if number < 500 else number}")
        findings.add(1, Examined(Kind.CHUNK, 1, keyed, (message, number % 3, number < 500 and number % 3 == 2)))
    assert findings.weight_bytes <= 24 * 200 + 24
    assert sum(map(len, findings._open.values())) + sum(map(len, findings._groups.values())) <= 200
    findings.settle()
    assert findings.survivors >= 700
