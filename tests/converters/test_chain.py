import pickle
import zlib

import pytest

from magnetar.converters.chain import ConverterChain, loaded
from magnetar.converters.entry import build_entry
from magnetar.converters.errors import ConversionError, ConversionTooLargeError
from magnetar.converters.interface import MAX_MESSAGES_WITH_HOLES, Conversion, ExpansionLimits
from magnetar.converters.kafka_entry.single_message import HOLE
from magnetar.converters.outcome import ConversionFailure, Converted, FailureReason
from magnetar.converters.registry import load_chain
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.pulsar_api_pb2 import LZ4, ZLIB, MessageMetadata


def metadata(name="test", **fields):
    made = MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, **fields)
    if name is not None:
        made.properties.add(key="entry.format", value=name)
    return made


def entry(name="test", payload=b"payload", **fields):
    return build_entry(metadata(name, **fields).SerializeToString(), payload)


def plain(source, **fields):
    """New metadata without the format, as every converter makes it."""
    made = MessageMetadata()
    made.CopyFrom(source)
    del made.properties[:]
    for field, value in fields.items():
        setattr(made, field, value)
    return made


class Fake:
    """A converter whose parts are given."""

    def __init__(self, name="fake", formats=frozenset(("test",)), accepts=lambda *_: True, convert=None):
        self.name, self.version, self.entry_formats = name, "1", formats
        self._accepts = accepts
        self._convert = convert or (lambda source, payload: Conversion(plain(source), bytes(payload).upper()))
        self.calls = self.closed = 0

    def accepts(self, source, head):
        self.calls += 1
        return self._accepts(source, head)

    def convert(self, source, payload):
        return self._convert(source, payload)

    def close(self):
        self.closed += 1


def chain_of(*converters, **limits):
    return ConverterChain([loaded(each) for each in converters], ExpansionLimits(**limits))


def convert(chain, data):
    chosen = chain.select(data)
    assert chosen is not None
    return chain.convert(data, chosen)


def test_an_empty_chain_selects_nothing():
    chain = ConverterChain()
    assert not chain
    assert chain.by_format_only
    assert chain.select(entry()) is None
    assert chain.select(b"garbage") is None


def test_the_first_that_accepts_is_the_only_one():
    no, yes, never = Fake("no", accepts=lambda *_: False), Fake("yes"), Fake("never")
    chain = chain_of(no, yes, never)
    assert chain
    assert chain.select(entry()).name == "yes"
    assert (no.calls, yes.calls, never.calls) == (1, 1, 0)


def test_the_format_is_an_index():
    other, generic, mine = Fake("other", frozenset(("x",))), Fake("generic", None, lambda *_: False), Fake("mine")
    assert chain_of(other, mine).select(entry("none")) is None
    assert chain_of(other, mine).select(entry(None)) is None
    assert (other.calls, mine.calls) == (0, 0)
    assert chain_of(other, mine).select(entry("TEST")).name == "mine"
    assert not chain_of(generic, mine).by_format_only
    assert chain_of(generic, mine).select(entry()).name == "mine"
    assert chain_of(generic, mine).select(entry(None)) is None
    assert chain_of(generic, mine).select(entry("unheard")) is None
    assert generic.calls == 3


def test_configured_order_counts_between_generic_and_indexed():
    assert chain_of(Fake("any", None), Fake("mine")).select(entry()).name == "any"
    assert chain_of(Fake("mine"), Fake("any", None)).select(entry()).name == "mine"


def test_accepts_sees_metadata_and_a_head():
    seen = []
    chain_of(Fake(accepts=lambda source, head: seen.append((source, bytes(head))) or True)).select(
        entry(payload=b"x" * 100)
    )
    assert seen == [(metadata(), b"x" * 64)]


@pytest.mark.parametrize(
    "fields", [{"chunk_id": 0}, {"num_chunks_from_msg": 2}, {"marker_type": 21}, {"encrypted": True}, {"codec": 9}]
)
def test_entries_that_are_never_offered(fields):
    made = metadata()
    raw = b""
    if fields.pop("encrypted", False):
        made.encryption_keys.add(key="k", value=b"v")
    if codec := fields.pop("codec", None):
        raw = bytes([0x40, codec])
    for field, value in fields.items():
        setattr(made, field, value)
    data = build_entry(made.SerializeToString() + raw, b"")
    assert chain_of(Fake(), Fake("any", None)).select(data) is None


@pytest.mark.parametrize(
    "data", [b"", b"\x0e\x01", b"\x00\x00\x00\x20\x0a\x0centry.format", b"\xff" * 40], ids=range(4)
)
def test_unreadable_entries_are_not_offered(data):
    assert chain_of(Fake()).select(data) is None
    assert chain_of(Fake(formats=None)).select(data) is None


def test_entries_without_checksum_are_converted_and_get_one():
    data = entry()[6:]
    result = convert(chain_of(Fake()), data)
    assert result.entry[:6] == b"\x0e\x01" + crc32c(result.entry[6:]).to_bytes(4, "big")


def test_a_conversion():
    data = entry(num_messages_in_batch=1, payload=b"\x00\x00\x00\x02\x18\x03abc")
    chain = chain_of(Fake(convert=lambda source, _: Conversion(plain(source), b"\x00\x00\x00\x02\x18\x02zz")))
    before = bytes(data)
    result = convert(chain, data)
    expected = build_entry(
        plain(metadata(), num_messages_in_batch=1).SerializeToString(), b"\x00\x00\x00\x02\x18\x02zz"
    )
    assert result == Converted(expected, 1)
    assert convert(chain, data) == result, "the same bytes give the same bytes"
    assert data == before


def test_identity_returns_the_very_object():
    chain = chain_of(Fake(convert=Conversion))
    for data in (entry(), entry(payload=zlib.compress(b"abc"), compression=ZLIB, uncompressed_size=3)):
        result = convert(chain, data)
        assert result.entry is data
        assert result.identity


def test_the_payload_is_decompressed_for_the_converter():
    seen = []

    def look(source, payload):
        seen.append((source.HasField("compression"), source.HasField("uncompressed_size"), bytes(payload)))
        return Conversion(plain(source), payload)

    data = entry(payload=zlib.compress(b"abc"), compression=ZLIB, uncompressed_size=3)
    result = convert(chain_of(Fake(convert=look)), data)
    assert seen == [(False, False, b"abc")]
    assert result.entry == build_entry(plain(metadata()).SerializeToString(), b"abc")


def test_large_outputs_are_compressed_when_asked_for():
    def blow(source, _payload):
        return Conversion(plain(source), bytes(100_000), compress=True)

    result = convert(chain_of(Fake(convert=blow)), entry())
    size = int.from_bytes(result.entry[6:10], "big")
    made = MessageMetadata.FromString(result.entry[10 : 10 + size])
    assert (made.compression, made.uncompressed_size) == (LZ4, 100_000)
    assert len(result.entry) < 2_000
    small = convert(chain_of(Fake(convert=lambda s, _: Conversion(plain(s), bytes(1000), compress=True))), entry())
    assert len(small.entry) > 1_000


def fail(error):
    def convert(source, payload):
        raise error

    return convert


def mutate(source, payload):
    source.producer_name = "x"
    return Conversion(source, payload)


@pytest.mark.parametrize(
    ("behaviour", "reason", "defect"),
    [
        (fail(ConversionError("bad data")), FailureReason.EXCEPTION, False),
        (fail(ConversionTooLargeError("big")), FailureReason.OVERSIZE, False),
        (fail(ZeroDivisionError("oops")), FailureReason.EXCEPTION, True),
        (fail(MemoryError()), FailureReason.EXCEPTION, True),
        (fail(RecursionError()), FailureReason.EXCEPTION, True),
        (lambda *_: None, FailureReason.INVALID, True),
        (lambda *_: b"garbage", FailureReason.INVALID, True),
        (lambda s, p: Conversion(s, bytes(p)), FailureReason.INVALID, True),  # entry.format is still there
        (lambda s, p: Conversion(plain(s, num_messages_in_batch=2), p), FailureReason.INVALID, True),
        (lambda s, p: Conversion(plain(s, sequence_id=9), p), FailureReason.INVALID, True),
        (lambda s, p: Conversion(plain(s), 5), FailureReason.EXCEPTION, True),
        (mutate, FailureReason.INVALID, True),
        (lambda s, p: Conversion(plain(s), bytes(2_000)), FailureReason.OVERSIZE, False),
        (lambda s, p: Conversion(plain(s, partition_key="k" * 990), bytes(20)), FailureReason.OVERSIZE, False),
    ],
)
def test_whatever_a_converter_does_harms_its_entry_only(behaviour, reason, defect):
    chain = chain_of(Fake(convert=behaviour), max_entry_bytes=1_000)
    result = convert(chain, entry())
    assert isinstance(result, ConversionFailure)
    assert (result.reason, result.converter, result.defect) == (reason, "fake", defect)
    assert result.message


def test_corruption_is_not_laundered():
    called = []
    chain = chain_of(Fake(convert=lambda *_: called.append(1)))
    data = bytearray(entry())
    data[-1] ^= 1
    result = convert(chain, bytes(data))
    assert (result.reason, result.defect, called) == (FailureReason.CHECKSUM, False, [])


def test_outer_bombs_are_refused_by_their_declared_size():
    data = entry(payload=zlib.compress(bytes(100_000)), compression=ZLIB, uncompressed_size=100_000)
    result = convert(chain_of(Fake(), max_entry_bytes=5_000), data)
    assert result.reason is FailureReason.OVERSIZE


@pytest.mark.parametrize(("holes", "reason"), [(1, FailureReason.OVERSIZE), (MAX_MESSAGES_WITH_HOLES + 1, None)])
def test_holes_among_more_messages_than_an_acknowledgement_names(holes, reason):
    messages = MAX_MESSAGES_WITH_HOLES + 1
    payload = HOLE * holes + b"\x00\x00\x00\x02\x18\x00" * (messages - holes)
    fake = Fake(convert=lambda source, _: Conversion(plain(source), payload, tuple(range(holes))))
    result = convert(chain_of(fake), entry(payload=bytes(1 << 20), num_messages_in_batch=messages))
    assert getattr(result, "reason", None) is reason


def test_an_accepts_that_raises_shows_in_the_conversion():
    def broken(*_):
        raise OSError("no")

    chain = chain_of(Fake(accepts=broken, convert=fail(OSError("still no"))))
    assert convert(chain, entry()).message == "OSError: still no"


def test_tags_name_version_and_settings():
    one, same, other = (loaded(Fake(), settings) for settings in ([("a", "1")], [("a", "1")], [("a", "2")]))
    assert one.tag == same.tag != other.tag
    assert one.tag.startswith("fake/1/")


def test_close_reaches_every_converter():
    class Stuck(Fake):
        def close(self):
            raise OSError("stuck")

    last = Fake("last")
    failures = chain_of(Stuck("stuck"), last).close()
    assert [(name, str(error)) for name, error in failures] == [("stuck", "stuck")]
    assert last.closed == 1


def test_chains_and_results_travel_between_processes():
    """So that a pool of processes can convert: `pool.submit(chain.convert, data, chosen)`."""
    chain = load_chain(["kafka", "bytes"], {"kafka.mode": "kop"}).chain
    copy = pickle.loads(pickle.dumps(chain))
    data = entry("bytes")
    chosen = chain.select(data)
    expected = chain.convert(data, chosen)
    assert copy.convert(data, pickle.loads(pickle.dumps(chosen))) == expected
    failure = chain.convert(data[:-1] + b"?", chosen)
    assert failure.reason is FailureReason.CHECKSUM
    assert pickle.loads(pickle.dumps([expected, failure])) == [expected, failure]
