import io

import pytest

from magnetar.converters.entry import Entry
from magnetar.converters.kafka.batch_builder import BatchOptions, build_record_batch, seal_batch
from magnetar.converters.kafka.codecs import Codec
from magnetar.converters.kafka.message_builder import build_message_set
from magnetar.converters.kafka.record_batch import RecordBatch
from magnetar.converters.kafka.records import Record
from magnetar.importing.errors import DamageError
from magnetar.importing.planning import FilePolicy, file_steps
from magnetar.importing.progress import FileReport, Progress
from magnetar.importing.source import Source

PARTS = [
    build_record_batch([Record(n, 5, b"k", b"%d" % n * 50)], BatchOptions(codec=Codec.GZIP)) for n in range(10, 15)
]
BIG = 5 << 20


class Run:
    """A planning of a file, with its output."""

    def __init__(self, path, data, *, skip=True, check_records=False):
        path.write_bytes(data)
        self.said = io.StringIO()
        self.source = Source(path)
        self.report = FileReport(path.name, self.source.name, self.source.size, "offset")
        self.policy = FilePolicy(self.report, Progress(self.said), skip=skip, check_records=check_records)

    def offsets(self, resume_after=-1, **options):
        steps = file_steps(self.source, self.policy, resume_after, **({"max_entry_bytes": BIG} | options))
        return [RecordBatch(bytes(Entry(s.entry.data).payload)).base_offset for s in steps if s.entry is not None]


@pytest.fixture
def run(tmp_path):
    started = []

    def start(data, **options):
        started.append(Run(tmp_path / "00000000000000000000.log", data, **options))
        return started[-1]

    yield start
    for each in started:
        each.source.close()


def flipped(part, at):
    at %= len(part)
    return part[:at] + bytes([part[at] ^ 1]) + part[at + 1 :]


def test_whole(run):
    made = run(b"".join(PARTS))
    assert made.offsets() == [10, 11, 12, 13, 14]
    assert made.offsets(resume_after=12) == [13, 14]
    assert made.offsets(resume_after=12, confirm=True) == [12, 13, 14]
    assert made.said.getvalue() == ""


def test_a_wrong_checksum_stops_behind_earlier_batches(run):
    data = PARTS[0] + flipped(PARTS[1], -1) + PARTS[2]
    made, got = run(data, skip=False), []
    with pytest.raises(DamageError, match=rf"position {len(PARTS[0])}: .*checksum.*--on-damage skip"):
        got.extend(s.next_position for s in file_steps(made.source, made.policy, -1, max_entry_bytes=BIG))
    assert got == [len(PARTS[0])]


def test_the_option_leaves_it_out_and_reports_once(run):
    made = run(PARTS[0] + flipped(PARTS[1], -1) + PARTS[2])
    for _ in range(2):
        assert made.offsets() == [10, 12]
    start, end = len(PARTS[0]), len(PARTS[0] + PARTS[1])
    assert [(d["position"], d["next_position"]) for d in made.report.damage] == [(start, end)]
    assert made.said.getvalue().count("warning") == 1


def test_records_that_do_not_decode_behind_a_right_checksum(run):
    body = bytearray(PARTS[1])
    body[61:] = bytes(len(body) - 61)  # no gzip any more
    seal_batch(body, 0, len(body))
    data = PARTS[0] + bytes(body) + PARTS[2]
    assert run(data).offsets() == [10, 11, 12]
    assert run(data, check_records=True).offsets() == [10, 12]


def test_a_torn_tail(run):
    data = b"".join(PARTS[:2]) + PARTS[2][:30]
    made = run(data)
    assert made.offsets() == [10, 11]
    assert made.report.torn_at == len(PARTS[0] + PARTS[1])
    assert "30 bytes of it are there" in made.said.getvalue()
    strict = run(data, skip=False)
    with pytest.raises(DamageError, match="run again when the file is whole"):
        strict.offsets()


def test_entries_above_the_limit(run):
    huge = build_record_batch([Record(11, 5, None, bytes(9_000))])
    made = run(PARTS[0] + huge + PARTS[2])
    assert made.offsets(max_entry_bytes=8_000) == [10, 12]
    assert "maxMessageSize" in made.report.damage[0]["reason"]


def test_offsets_that_do_not_ascend(run):
    made = run(PARTS[2] + PARTS[1])
    with pytest.raises(DamageError, match="--sequence-ids position"):
        made.offsets()


def test_plain_messages_in_front_of_damage_are_stored_before_it_stops(run):
    parts = [build_message_set([Record(n, 5, b"k", b"v")], 1) for n in range(4)]
    for broken in (flipped(parts[2], -1), flipped(parts[2], 9), parts[2][:20]):
        made, got = run(b"".join(parts[:2]) + broken + parts[3], skip=False), []
        with pytest.raises(DamageError, match=f"position {len(parts[0] + parts[1])}"):
            got.extend(
                s.entry.highest_sequence_id for s in file_steps(made.source, made.policy, -1, max_entry_bytes=BIG)
            )
        assert got == [1]


def test_a_size_that_covers_later_batches(run):
    """The frame of the damaged batch covers good batches: they are found inside it."""
    data = bytearray(b"".join(PARTS))
    at = len(PARTS[0])
    data[at + 8 : at + 12] = (len(PARTS[1] + PARTS[2]) + 20).to_bytes(4, "big")
    made = run(bytes(data))
    assert made.offsets() == [10, 12, 13, 14]
    [damage] = made.report.damage
    assert (damage["position"], damage["next_position"]) == (at, at + len(PARTS[1]))
