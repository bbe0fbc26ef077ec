from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.dispatchers.ports import Order, Transformed
from magnetar.broker.foreign_entries.batch import STORED, TAKEN_OUT, Batch, Item, ack_set
from magnetar.converters.outcome import Converted
from tests.broker.dispatch_fakes import entry, slab_of


def sent(spans):
    """(entry id, body) of each entry, in order."""
    return [(s.slab.position(k).entry_id, bytes(s.slab.body(k))) for s in spans for k in range(s.start, s.end)]


def test_all_stored_is_the_very_list():
    spans = [slab_of(1, 0, [entry()] * 3).slice(0, 3)]
    batch = Batch(spans, [Item(0, 1, None)], Order.NONE)
    batch.settle(batch.next(), STORED)
    assert batch.is_settled
    assert batch.result() is spans


RESULTS = st.sampled_from([None, STORED, TAKEN_OUT, b"converted", "stop"])


@given(st.lists(st.lists(RESULTS, min_size=1, max_size=6), min_size=1, max_size=3))
def test_every_entry_is_sent_once_in_order_or_accounted_for(results):
    first, spans, items = 0, [], []
    for number, each in enumerate(results):
        slab = slab_of(1, first, [entry(b"stored")] * (len(each) + 2))
        spans.append(slab.slice(1, 1 + len(each)))
        items += [Item(number, 1 + k, None) for k, result in enumerate(each) if result is not None]
        first += len(each) + 2
    batch = Batch(spans, items, Order.TOTAL)
    plan = [result for each in results for result in each if result is not None]
    for item, result in zip(items, plan, strict=True):
        if result == "stop":
            batch.stop_at(item)
            break
        batch.settle(item, result)
    found = batch.result()
    expected, stopped = [], False
    rest = []
    for span, each in zip(spans, results, strict=True):
        for k, result in enumerate(each, span.start):
            position = span.slab.position(k).entry_id
            stopped = stopped or result == "stop"
            if stopped:
                rest.append(position)
            elif result is not TAKEN_OUT:
                expected.append((position, b"converted" if result == b"converted" else entry(b"stored")))
    if isinstance(found, Transformed):
        assert sent(found.spans) == expected
        assert [position for position, _ in sent(found.rest)] == rest
    else:
        assert found is spans
        assert set(plan) <= {STORED}


def test_ack_sets_are_words_of_java():
    assert ack_set(Converted(b"", 3, (1,))) == [0b101]
    assert ack_set(Converted(b"", 65, (64,))) == [-1, 0]
    assert ack_set(Converted(b"", 65, (63,))) == [(1 << 63) - 1, 1]
