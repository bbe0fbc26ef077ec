"""The compiled helper and its Python twin agree on every function, for sound, odd and mutated input."""

import random
import subprocess
import sys
from array import array
from types import SimpleNamespace

import pytest
import twins
from frames_for_tests import frame, run_of, stream
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.protocol import _pure, _pure_looks
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.checksum import crc32c
from magnetar.protocol.runs import EntryFlag

_speedups = pytest.importorskip("magnetar.protocol._speedups")


@pytest.mark.parametrize("check", twins.CHECKS, ids=lambda check: check.__name__)
@given(seed=st.integers(0, 2**60))
@settings(max_examples=150, deadline=None)
def test_twins_agree(check, seed):
    check(_speedups, random.Random(seed))


_WITHOUT_MEMORY = """
import resource, socket
from array import array
from magnetar.protocol import _pure, _speedups

slab, offsets = _pure.stamp(
    bytes(64 << 20), array("q", [0, 64 << 20]).tobytes(), bytes(8), 0, 1, 1, 0, -1, 5, 9
)
ours, peer = socket.socketpair()
ours.setblocking(False)
peer.setblocking(False)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (16 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    print(len(_speedups.send_messages(ours.fileno(), 1, slab, offsets, 0, 1, -1, 0, -1)))
except MemoryError:
    try:
        print("sent", len(peer.recv(1 << 20)))
    except BlockingIOError:
        print("sent nothing")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_no_part_of_a_frame_is_sent_without_memory_for_its_rest():
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_MEMORY], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stdout == "sent nothing\n", done


@given(data=st.binary(max_size=200), limit=st.sampled_from((4, 64, 5_253_120)))
@settings(max_examples=300, deadline=None)
def test_any_bytes_are_cut_alike(data, limit):
    assert _speedups.cut(data, 0, len(data), limit) == _pure.cut(data, 0, len(data), limit)


def test_metadata_of_encrypted_and_compacted_entries_need_no_twin(monkeypatch):
    """The twin took 0.4 s for an entry of 5 MB with 800,000 properties and a key of its encryption."""
    meta = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2, compacted_batch_indexes=[0, 5, -1])
    meta.properties.add(key="", value="")
    meta.encryption_keys.add(key="k", value=b"v").metadata.add(key="entry.format", value="kafka")
    base = pb.BaseCommand(type=pb.BaseCommand.SEND)
    base.send.producer_id = base.send.sequence_id = 1
    for encoded in (meta.SerializeToString(), meta.SerializeToString() + b"\xfa\x01\x02\x07\x08"):  # also packed
        body = len(encoded).to_bytes(4, "big") + encoded
        data = frame(base, b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body)
        slab, offsets = _pure.stamp(*run_of([body]), q(1), 0, 1, 1, 0, -1, 5, 9)
        cut, facts = _pure.cut(data, 0, len(data), 1000), _pure.entry_facts(slab, offsets, 0, 1, True)
        with monkeypatch.context() as without:
            without.setattr(_pure, "look_at_metadata", None)
            without.setattr(_pure, "entry_fact", None)
            assert _speedups.cut(data, 0, len(data), 1000) == cut
            assert _speedups.entry_facts(slab, offsets, 0, 1, True) == facts
        assert facts.any_flags & EntryFlag.ENCRYPTED
        assert not facts.any_flags & EntryFlag.NAMES_FORMAT


@pytest.mark.parametrize(("before", "names"), [(4095, True), (4096, False)])
def test_an_entry_names_its_format_in_one_of_its_first_properties(before, names):
    """To look at 800,000 properties of an entry of 5 MB in an unusual form took the twin 0.3 s."""
    meta = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=2)
    for _ in range(before):
        meta.properties.add(key="", value="")
    meta.properties.add(key="entry.format", value="kafka")
    encoded = meta.SerializeToString()
    for each in (encoded, encoded + b"\x18\x02"):  # also with a repeated field, which is the twin's
        slab, offsets = _pure.stamp(*run_of([len(each).to_bytes(4, "big") + each]), q(1), 0, 1, 1, 0, -1, 5, 9)
        for twin in (_speedups, _pure):
            assert bool(twin.entry_facts(slab, offsets, 0, 1, False).any_flags & EntryFlag.NAMES_FORMAT) is names


NAMED = b"\x0a\x0centry.format"
PAIRS = [b"", b"\x0a\x00", b"\x12\x00", b"\x0a\x00\x12\x00", NAMED + b"\x12\x00", NAMED + b"\x0a\x01k\x12\x00"]
ODD = [
    b"\x2b\x2c",
    b"\x2b" + NAMED + b"\x2c",
    b"\x2b",
    b"\x2c",
    b"\x2b\x34",
    b"\x08\x05",
    b"\x0d",
    b"\x1a\x00",
    b"\x80",
    b"\x07",
]
ODD += [b"\x2b" * 9 + b"\x2c" * 9, b"\x08" + b"\xff" * 10, b"\x8a\x00\x01k", b"\x15\x01\x02\x03\x04", b"\x0a\x05k"]


def length(tag, content):
    return bytes([tag, len(content)]) + content


pairs = st.lists(st.sampled_from(PAIRS + ODD), min_size=1, max_size=3).map(b"".join)
keys = st.tuples(pairs, pairs).map(lambda parts: parts[0] + length(0x1A, parts[1]))
field = st.one_of(
    pairs.map(lambda pair: length(0x22, pair)),
    keys.map(lambda key: length(0x6A, key)),
    st.sampled_from(ODD),
    st.sampled_from([b"\x3a\x00", b"\x3a\x01\xff", b"\xf8\x01\x07", b"\xfa\x01\x02\x07\x08", b"\xfa\x01\x01\x80"]),
    st.sampled_from([b"\x18\x05", b"\xd8\x01\x02", b"\xe8\x01\x01", b"\x98\x01\x09", b"\x53", b"\x54", b"\x50\x01"]),
)


@given(
    fields=st.lists(field, max_size=6), many=st.sampled_from([0, 0, 4095, 4096]), required=st.sampled_from([14, 14, 4])
)
@settings(max_examples=400, deadline=None)
def test_twins_agree_on_metadata_in_unusual_forms(fields, many, required):
    encoded = b"".join([b"\x0a\x01p\x10\x01\x18\x02"[: required // 2], length(0x22, PAIRS[3]) * many, *fields])
    body = len(encoded).to_bytes(4, "big") + encoded + b"payload"
    slab, offsets = _pure.stamp(*run_of([body]), q(1), 0, 1, 1, 0, -1, 5, 9)
    assert _speedups.entry_facts(slab, offsets, 0, 1, True) == _pure.entry_facts(slab, offsets, 0, 1, True)
    base = pb.BaseCommand(type=pb.BaseCommand.SEND)
    base.send.producer_id = base.send.sequence_id = 1
    data = frame(base, b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body)
    assert _speedups.cut(data, 0, len(data), 100_000) == _pure.cut(data, 0, len(data), 100_000)


@pytest.mark.parametrize("codec", [0, 1, 4, 5, 99, 1 << 31, 1 << 32, (1 << 32) + 1, (1 << 64) - 1])
def test_an_entry_of_an_unknown_codec_counts_as_uncompressed(codec):
    """The parser drops a value that the enumeration does not have; the compiled helper believed the claim of the batch."""
    encoded = b"\x0a\x01p\x10\x01\x18\x02\x58\xff\x01\x40" + varint(codec)
    slab, offsets = _pure.stamp(*run_of([len(encoded).to_bytes(4, "big") + encoded + b"x"]), q(1), 0, 1, 1, 0, -1, 5, 9)
    facts = _pure.entry_facts(slab, offsets, 0, 1, True)
    assert _speedups.entry_facts(slab, offsets, 0, 1, True) == facts
    assert facts.total_messages == (255 if codec in (1, 4, (1 << 32) + 1) else 1)


def varint(value):
    size = max(1, -(-value.bit_length() // 7))
    return bytes(value >> 7 * i & 127 | (i < size - 1) << 7 for i in range(size))


def test_the_twin_gets_no_long_lists_of_metadata_in_an_unusual_form(monkeypatch):
    """A repeated field, or a group, gave the twin 800,000 properties of an entry of 5 MB: 0.4 s of the event loop."""
    start, sizes = b"\x0a\x01p\x10\x01\x18\x02\x18\x02", []
    for element in (
        b"\x3a\x00",
        b"\xf8\x01\x07",
        length(0x6A, PAIRS[3]),
        length(0x22, PAIRS[1]),
        length(0x22, PAIRS[3]),
    ):
        encoded = start + element * 20_000
        body = len(encoded).to_bytes(4, "big") + encoded
        slab, offsets = _pure.stamp(*run_of([body]), q(1), 0, 1, 1, 0, -1, 5, 9)
        expected, fact = _pure.entry_facts(slab, offsets, 0, 1, False), _pure.entry_fact
        with monkeypatch.context() as noting:
            noting.setattr(
                _pure, "entry_fact", lambda body, want, fact=fact: (sizes.append(len(body)), fact(body, want))[1]
            )
            assert _speedups.entry_facts(slab, offsets, 0, 1, False) == expected
    assert len(sizes) == 5
    assert max(sizes[:4]) < 100
    assert sizes[4] < 6 * 4096 + 100, "the properties that the twin looks at"


@pytest.mark.parametrize("cut", [_speedups.cut, _pure.cut], ids=["compiled", "pure"])
def test_large_commands_are_refused_before_they_are_parsed(monkeypatch, cut):
    """A SEND beside an ACK of 5 MB, or the type of a command behind it, took the parser 0.13 s of the event loop."""
    base = pb.BaseCommand(type=pb.BaseCommand.SEND)
    base.send.producer_id = base.send.sequence_id = 1
    base.ack.consumer_id, base.ack.ack_type = 1, pb.CommandAck.Individual
    base.ack.message_id.extend([pb.MessageIdData(ledgerId=1, entryId=1)] * 12_000)
    small, parse = frame(base, b"\x00" * 10), []
    encoded = base.SerializeToString()
    late = encoded[2:] * 20 + encoded[:2]
    large = (4 + len(late)).to_bytes(4, "big") + len(late).to_bytes(4, "big") + late
    monkeypatch.setattr(_pure_looks, "pb", SimpleNamespace(BaseCommand=SimpleNamespace(FromString=parse.append)))
    assert cut(small, 0, len(small), 1 << 24)[2] == "SEND does not parse"
    assert cut(large, 0, len(large), 1 << 24)[2] == "command without a known type"
    assert not parse


def q(*values):
    return array("q", values).tobytes()


def test_the_comparison_notices_a_difference():
    wrong = SimpleNamespace(cut=lambda *_: (0, [], None), crc32c=lambda *_: 0)
    for check in (twins.check_cut, twins.check_crc):
        with pytest.raises(AssertionError):
            repeat(check, wrong)


def repeat(check, helper):
    for seed in range(20):
        check(helper, random.Random(seed))


def _commands(items):
    """The single entries of a cut, whatever its grouping into runs."""
    out = []
    for item in items:
        if len(item) == 2:
            out.append(item)
            continue
        producer_id, count, data, offsets, sequences, highest, counts, due, flags = item[:9]
        o, s, h, n = (memoryview(x).cast("q") for x in (offsets, sequences, highest, counts))
        f = memoryview(flags).cast("I")
        d = memoryview(due).cast("q") if due is not None else [0] * count
        out += [(producer_id, data[o[i] : o[i + 1]], s[i], h[i], n[i], d[i], f[i]) for i in range(count)]
    return out


@pytest.mark.parametrize("cut", [_speedups.cut, _pure.cut], ids=["compiled", "pure"])
def test_single_bytes_give_the_same_items_as_all_bytes_at_once(cut):
    for seed in range(6):
        data = stream(random.Random(seed))[:3000]
        consumed, items, error = cut(data, 0, len(data), twins.LIMIT)
        at, found = 0, []
        for end in range(len(data) + 1):
            done, some, wrong = cut(data, at, end, twins.LIMIT)
            assert wrong is None
            found += some
            at = done
        assert (at, error) == (consumed, None)
        assert _commands(found) == _commands(items)


def test_frames_that_look_like_one_run_and_end_one_each_are_cut_alike():
    head = bytes([8, 6, 0x32, 8, 8, 1, 16, 1])
    frames = []
    for k in range(12_000):
        command = head + bytes([8, 1 + k % 2, 16, 5])  # the producer id again: the last value counts
        frames.append((len(command) + 8).to_bytes(4, "big") + len(command).to_bytes(4, "big") + command + b"body")
    data = b"".join(frames)
    _, items, error = _speedups.cut(data, 0, len(data), twins.LIMIT, 45)
    assert (len(items), error) == (12_000, None)
    assert items[:40] == _pure.cut(data[: 40 * len(frames[0])], 0, 40 * len(frames[0]), twins.LIMIT, 45)[1]
