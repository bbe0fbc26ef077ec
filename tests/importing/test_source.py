import pytest

from magnetar.client.errors import InputError
from magnetar.converters.kafka_entry.import_plan import SequenceMode
from magnetar.importing.source import Source, find_files
from tests.blackbox.kafka_files import SEGMENT, segment

DATA = segment(5_000)


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / SEGMENT).write_bytes(DATA)
    return folder / SEGMENT


def name_of(path, **options):
    with Source(path, **options) as source:
        return source.name


def test_the_name_stays_while_the_file_grows_and_differs_between_files(path, tmp_path):
    name = name_of(path)
    path.write_bytes(DATA + segment(3_000, seed=2))  # offsets that begin anew do not matter
    assert name_of(path) == name
    other = tmp_path / "orders-1"
    other.mkdir()
    (other / SEGMENT).write_bytes(DATA)
    assert len({name, name_of(other / SEGMENT), name_of(path, mode=SequenceMode.POSITION)}) == 3
    assert name_of(path, label="x") == name_of(other / SEGMENT, label="x")


def test_damage_behind_the_first_batch_does_not_change_the_name(path):
    name = name_of(path)
    path.write_bytes(DATA[:3_000] + bytes(7) + DATA[3_007:])
    assert name_of(path) == name


def test_the_sequence_mode_of_a_file(path):
    with Source(path) as source:
        assert source.mode is SequenceMode.OFFSET
    produced = path.with_name("produced.bin")
    produced.write_bytes(DATA)
    with Source(produced) as source:
        assert source.mode is SequenceMode.POSITION
    with Source(produced, mode=SequenceMode.OFFSET) as source:
        assert source.mode is SequenceMode.OFFSET


def test_the_batches_are_those_of_the_file_as_it_was_opened(path):
    with Source(path) as source:
        path.write_bytes(DATA + DATA)
        assert sum(item.batch.size_in_bytes for item in source.log().batches()) == len(DATA) == source.size


@pytest.mark.parametrize("data", [b"", b"no batches at all in here, only text", DATA[:40]])
def test_files_without_a_batch(path, data):
    path.write_bytes(data)
    with pytest.raises(InputError, match="no Kafka record batch"):
        Source(path)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="No such file"):
        Source(tmp_path / "absent")


def test_directories_stand_for_their_segments_in_order(path):
    later = path.with_name("00000000000000000200.log")
    later.write_bytes(DATA)
    path.with_name("00000000000000000000.index").write_bytes(b"x")
    assert find_files([path.parent, path]) == [path, later, path]
    for each in (path, later):
        each.unlink()
    with pytest.raises(InputError, match="no segments"):
        find_files([path.parent])


def test_a_log_directory_of_kafka_names_a_partition(path):
    with pytest.raises(InputError, match=r"give the directory of a partition, such as .*orders-0$"):
        find_files([path.parent.parent])
