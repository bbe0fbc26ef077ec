from array import array

from magnetar.protocol import _pure
from magnetar.protocol.runs import EntryFlag, EntryRun

DATA = bytes.fromhex("000000270000000808063204080110070e015dbb2b140000000c0a017010071880d095ffbc3168656c6c6f")


def test_a_slice_equals_a_cut_of_its_part():
    second = DATA.replace(bytes.fromhex("08011007"), bytes.fromhex("08011008"), 1)
    data = DATA + second + DATA
    whole = EntryRun.from_cut(_pure.cut(data, 0, len(data), 1000)[1][0])
    assert (whole.count, whole.ascending) == (3, False)
    part = EntryRun.from_cut(_pure.cut(DATA + second, 0, 2 * len(DATA), 1000)[1][0])
    assert whole.slice(0, 2) == part
    assert part.ascending
    assert [whole.sequence(i) for i in range(3)] == [7, 8, 7]
    assert whole.slice(2, 3).offset_view().tolist() == [0, len(DATA) - 16]


def test_a_run_of_one_entry_of_the_broker():
    run = EntryRun.single(b"body", num_messages=0, flags=EntryFlag.MARKER)
    assert (run.count, run.size_bytes, run.total_messages, bytes(run.entry(0))) == (1, 4, 0, b"body")
    assert run.flags == array("I", [EntryFlag.MARKER]).tobytes()


def test_gaps_count_for_no_entry():
    data = DATA + DATA + DATA
    plain = EntryRun.from_cut(_pure.cut(data, 0, len(data), 1000)[1][0])
    run = EntryRun.from_cut(_pure.cut(data, 0, len(data), 1000, 40)[1][0])
    assert (run.size_bytes, len(run.data)) == (plain.size_bytes, plain.size_bytes + 3 * 40)
    part = run.slice(1, 3)
    assert (part.gap, part.size_bytes) == (40, plain.slice(1, 3).size_bytes)
    assert [bytes(part.entry(i)) for i in range(2)] == [bytes(plain.entry(i)) for i in range(2)]
    assert run.largest_entry_bytes() == len(plain.entry(0))
