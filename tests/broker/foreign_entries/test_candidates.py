from magnetar.broker.foreign_entries.candidates import Candidates, entry_bytes, stored_entry
from magnetar.broker.foreign_entries.loading import is_foreign
from magnetar.converters.chain import ConverterChain, loaded
from magnetar.converters.examples import BytesConverter, RejectAllConverter
from magnetar.storage.slab import Span
from tests.broker.dispatch_fakes import entry, slab_of
from tests.broker.foreign_entries.converting_for_tests import foreign

BYTES = ConverterChain([loaded(BytesConverter())])


class Counted(ConverterChain):
    asked = 0

    def select(self, data):
        self.asked += 1
        return super().select(data)


def found(candidates, slab, start=0, end=None):
    return [(k, chosen.name) for k, chosen in candidates.of(Span(slab, start, slab.count if end is None else end))]


def test_entries_of_a_format_are_found():
    slab = slab_of(1, 0, [entry(), foreign(), foreign(entry_format="other"), foreign(entry_format="BYTES"), entry()])
    candidates = Candidates(BYTES)
    assert found(candidates, slab) == [(1, "bytes"), (3, "bytes")]
    assert found(candidates, slab, 2, 4) == [(3, "bytes")]
    assert found(candidates, slab, 4) == []


def test_a_slab_is_looked_at_once():
    chain = Counted([loaded(BytesConverter())])
    candidates = Candidates(chain)
    slab = slab_of(1, 0, [foreign(), entry()])
    for _ in range(3):
        assert found(candidates, slab) == [(0, "bytes")]
    assert chain.asked == 1
    other = Candidates(Counted([]))
    assert found(other, slab) == []
    assert found(candidates, slab) == [(0, "bytes")]


def test_ordinary_slabs_are_passed_by():
    chain = Counted([loaded(BytesConverter())])
    assert found(Candidates(chain), slab_of(1, 0, [entry(b"entry.format")] * 3)) == []
    assert chain.asked == 0


def test_large_payloads_are_not_searched_but_their_metadata_is():
    slab = slab_of(1, 0, [foreign(bytes(10_000)), foreign(b"\x0a\x0centry.format" * 1000, None)])
    assert found(Candidates(BYTES), slab) == [(0, "bytes")]


class Picky(RejectAllConverter):
    """Accepts no entry, and must inspect every entry."""

    entry_formats = None


def test_a_converter_without_formats_is_not_called():
    chain = Counted([loaded(RejectAllConverter())])
    assert found(Candidates(chain), slab_of(1, 0, [entry(), entry()])) == []
    assert chain.asked == 0


def test_a_converter_for_every_entry_is_called_once_for_each():
    chain = Counted([loaded(Picky()), loaded(BytesConverter())])
    candidates = Candidates(chain)
    slab = slab_of(1, 0, [entry(), foreign(), entry()])
    assert found(candidates, slab, 0, 1) == []
    assert chain.asked == 1
    assert found(candidates, slab) == found(candidates, slab) == [(1, "bytes")]
    assert chain.asked == 3


def test_declined_entries_are_not_met_again():
    candidates = Candidates(BYTES)
    slab = slab_of(1, 0, [foreign(), foreign()])
    candidates.declined(slab, 0)
    assert found(candidates, slab) == [(1, "bytes")]


def test_the_prefix_is_no_part_of_the_entry():
    data = foreign(b"payload")
    slab = slab_of(1, 0, [b"\x0e\x02\x00\x00\x00\x02\x08\x05" + data])
    assert stored_entry(slab, 0) == data
    assert entry_bytes(slab, 0) == len(data) + 8
    assert found(Candidates(BYTES), slab) == [(0, "bytes")]


def test_broken_metadata_has_no_converter():
    broken = b"\x00\x00\xff\xff\x0a\x0centry.format"
    slab = slab_of(1, 0, [broken, foreign()])
    assert found(Candidates(BYTES), slab) == [(1, "bytes")]


def test_large_metadata_are_parsed_by_a_worker():
    chain = Counted([loaded(BytesConverter())])
    candidates = Candidates(chain)
    slab = slab_of(1, 0, [foreign(producer_name="p" * 70_000), foreign(producer_name="p" * 60_000)])
    (_, chosen), (_, small) = candidates.of(Span(slab, 0, 2))
    assert (chain.asked, is_foreign(chosen), is_foreign(small)) == (1, True, False)
    assert (chosen.name, chosen.tag) == (small.name, small.tag)


def test_large_metadata_without_a_format_have_no_converter():
    slab = slab_of(1, 0, [foreign(), foreign(entry_format=None, producer_name="p" * 70_000)])
    assert found(Candidates(BYTES), slab) == [(0, "bytes")]
