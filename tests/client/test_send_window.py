"""Entries without a receipt: order, bounds, and outcomes."""

import asyncio

import pytest

from magnetar.client.errors import DeduplicationError, RefusedError, RetryError
from magnetar.client.producers import Receipt
from magnetar.client.send_window import SendWindow


def stored(sequence_id, entry_id=0):
    return Receipt(sequence_id, 1, entry_id)


async def test_receipts_take_items_in_order_and_mark_known_messages():
    seen = []
    window = SendWindow(lambda item, receipt: seen.append((item, receipt.is_new)))
    for k, item in enumerate("abc"):
        window.add(k, 10, item)
    for k, entry_id in enumerate((0, -1, 5)):
        window.on_receipt(stored(k, entry_id))
    await window.wait_empty()
    assert seen == [("a", True), ("b", False), ("c", True)]


@pytest.mark.parametrize(("entries", "size"), [(2, 1), (100, 500)])
async def test_entries_and_bytes_are_bounded(entries, size):
    window = SendWindow(lambda *_: None, max_entries=entries, max_bytes=1000)
    for k in range(2):
        await window.wait_room(size)
        window.add(k, size, None)
    waiting = asyncio.ensure_future(window.wait_room(size))
    await asyncio.sleep(0)
    assert not waiting.done()
    window.on_receipt(stored(0))
    await waiting


async def test_items_without_receipt_may_be_sent_again_by_another_producer():
    window = SendWindow(lambda *_: None, max_bytes=30)
    for k, item in enumerate("abc"):
        assert window.has_room(10)
        window.add(k, 10, item)
    assert not window.has_room(1)
    window.on_receipt(stored(0))
    assert window.has_room(10)
    window.on_failed(RetryError("the connection is lost"))
    assert not window.has_room(10)
    assert (len(window), window.items()) == (2, ["b", "c"])


async def test_one_entry_larger_than_the_window_may_be_sent():
    await SendWindow(lambda *_: None, max_bytes=10).wait_room(1000)


async def test_a_receipt_that_is_not_the_one_waited_for_ends_it():
    window = SendWindow(lambda *_: None)
    window.add(3, 1, None)
    window.on_receipt(stored(4))
    with pytest.raises(RetryError, match="receipt for 4"):
        await window.wait_empty()


async def test_the_first_failure_counts():
    def refuses(_item, _receipt):
        raise DeduplicationError("stored twice")

    window = SendWindow(refuses)
    window.add(0, 1, None)
    window.on_receipt(stored(0))
    window.on_failed(RefusedError("later"))
    for wait in (window.wait_room(1), window.wait_empty()):
        with pytest.raises(DeduplicationError, match="stored twice"):
            await wait


async def test_a_waiting_sender_hears_that_the_producer_is_gone():
    window = SendWindow(lambda *_: None)
    window.add(0, 1, None)
    waiting = asyncio.ensure_future(window.wait_empty())
    await asyncio.sleep(0)
    window.on_failed(RetryError("gone"))
    with pytest.raises(RetryError, match="gone"):
        await waiting
