"""An export whose last entries make no message; tests/blackbox/test_cli.py exports from a broker."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from magnetar.cli.commands import export
from magnetar.cli.errors import UnreachableError
from magnetar.client.address import Credentials
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_entry
from tests.client.pushing_topic import PushingTopic, batch

TOPIC = "persistent://public/default/t"


def first_chunk():
    """The first of two chunks, whose producer ended before the second."""
    metadata = pb.MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, uuid="p-1", num_chunks_from_msg=2, chunk_id=0
    )
    metadata.total_chunk_msg_size = 2
    return encode_entry(metadata, b"x"), 1


async def exported(end, *entries):
    found = []
    async with PushingTopic(*entries).broker() as broker:
        target = SimpleNamespace(address=lambda: broker.address, credentials=Credentials())
        sink = SimpleNamespace(add=lambda message: found.append(message.payload))
        total = await export._copy(SimpleNamespace(target=target), TOPIC, {TOPIC: end}, sink)
    assert total == len(found)
    return found


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(export, "_LOOK_S", 0.02)
    monkeypatch.setattr(export, "_SILENCE_S", 0.1)


@pytest.mark.parametrize("last", [first_chunk(), batch(3, compacted_out=[2])], ids=["chunk", "compacted"])
async def test_an_export_ends_behind_an_entry_that_makes_no_last_message(last):
    found = await exported((1, 1), batch(2), last)
    assert found == [b"0", b"1"] + ([b"0", b"1"] if last[1] == 3 else [])


async def test_an_export_fails_when_its_last_entry_does_not_come():
    with pytest.raises(UnreachableError, match=f"missing: {TOPIC} up to 1:7"):
        await exported((1, 7), batch(2))
