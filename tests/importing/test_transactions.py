"""Transactions over the segments of a directory: the recorded log of a real Kafka, whole and in parts."""

import io
import pathlib
import shutil

import pytest

from magnetar.client.errors import InputError
from magnetar.converters.kafka_entry.import_plan import SequenceMode
from magnetar.importing.progress import Progress
from magnetar.importing.source import Source
from magnetar.importing.transactions import TransactionReader

FOLDER = pathlib.Path(__file__).parents[1] / "vectors" / "kafka_transactions"


@pytest.fixture
def directory(tmp_path):
    target = tmp_path / "orders-0"
    target.mkdir()
    for path in FOLDER.glob("*.log"):
        shutil.copy(path, target)
    return target


def transactions(paths, of, *, mode=None, **options):
    with Source(of, mode=mode) as source:
        return TransactionReader(paths, Progress(io.StringIO()), **options).of(source)


def test_a_directory(directory):
    segments = sorted(directory.glob("*.log"))
    found = transactions(segments, segments[0])
    assert sum(map(len, found.aborted.values())) == 5
    assert found.last_stable_place == 142
    assert transactions(segments, segments[0], skip_open=True).last_stable_place is None


def test_one_segment_whose_transactions_end_in_later_ones(directory):
    """The transaction that begins in the segment of offset 74 is aborted in that of offset 119."""
    segment = directory / "00000000000000000074.log"
    found = transactions([segment], segment)
    assert found.last_stable_place is None
    [(first, marker)] = [each for ranges in found.aborted.values() for each in ranges]
    assert 74 <= first < 89
    assert marker >= 119


def test_the_same_segment_alone_is_open(directory, tmp_path):
    alone = tmp_path / "alone-0"
    alone.mkdir()
    segment = alone / "00000000000000000074.log"
    shutil.copy(directory / segment.name, segment)
    assert transactions([segment], segment).last_stable_place is not None


def test_other_files_are_logs_of_their_own(directory):
    produced = directory / "produced.bin"
    produced.write_bytes(b"".join(path.read_bytes() for path in sorted(directory.glob("*.log"))))
    found = transactions([produced], produced)
    assert sum(map(len, found.aborted.values())) == 5
    assert 0 < found.last_stable_place < produced.stat().st_size
    assert transactions([produced], produced, mode=SequenceMode.OFFSET).last_stable_place == 142


def test_a_segment_that_grew_is_surveyed_again(directory):
    segments = sorted(directory.glob("*.log"))
    last = segments[-1]
    whole = last.read_bytes()
    last.write_bytes(b"")
    reader = TransactionReader(segments, Progress(io.StringIO()))
    with Source(segments[0]) as source:
        assert reader.of(source).last_stable_place is None
    last.write_bytes(whole)
    with Source(last) as source:
        assert reader.of(source).last_stable_place == 142


def test_damage_makes_transactions_doubtful(directory):
    marker_segment = directory / "00000000000000000119.log"
    data = bytearray(marker_segment.read_bytes())
    data[70] ^= 1
    marker_segment.write_bytes(data)
    segments = sorted(directory.glob("*.log"))
    assert transactions(segments, segments[0]).doubtful > 0


def test_files_that_cannot_be_read(directory):
    segments = sorted(directory.glob("*.log"))
    with Source(segments[0]) as source:
        segments[2].unlink()
        segments[2].mkdir()
        with pytest.raises(InputError, match="directory"):
            TransactionReader(segments, Progress(io.StringIO())).of(source)
