import errno

import pyarrow as pa
import pytest

from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.sink.staging import Staging, StagingError
from tests.pipeline.lake.power_loss import Power


def batches(*numbers):
    return [pa.RecordBatch.from_pydict({"value": [n]}) for n in numbers]


def rows(staging, batch_id, name):
    return [n for batch in staging.rows(batch_id, name) for n in batch.column(0).to_pylist()]


def test_staged_rows_are_read_in_order(tmp_path):
    staging = Staging(f"file:{tmp_path}/x", "sink")
    name, count = staging.stage(3, 1, "a", batches(1, 2, 3))
    assert count == 3
    assert staging.stage(3, 2, "a", []) == ("", 0)
    assert rows(Staging(f"{tmp_path}/x", "sink"), 3, name) == [1, 2, 3]


def test_a_task_that_fails_leaves_no_part_of_its_file(tmp_path):
    """On a full disk each attempt would take more of the space."""

    def failing():
        yield from batches(1)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        Staging(str(tmp_path), "sink").stage(0, 0, "a", failing())
    assert list((tmp_path / "sink" / "0").iterdir()) == []


def test_a_task_whose_file_does_not_get_on_the_disk_leaves_no_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Staging, "_sync", full)
    with pytest.raises(OSError, match="No space left"):
        Staging(str(tmp_path), "sink").stage(0, 0, "a", batches(1))
    assert list((tmp_path / "sink" / "0").iterdir()) == []


def test_the_first_manifest_decides(tmp_path):
    staging = Staging(str(tmp_path), "sink")
    assert staging.manifest(0) is None
    assert staging.publish(0, ["a", "b"]) == ["a", "b"]
    assert staging.publish(0, ["c"]) == ["a", "b"]
    assert staging.manifest(0) == ["a", "b"]


def test_a_manifest_is_there_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    staging = Staging(str(tmp_path), "sink")

    class FullError(Exception):
        pass

    def move(*_args):
        raise FullError

    class Files:
        def __getattr__(self, name):
            return move if name == "move" else getattr(staging_files, name)

    staging_files, staging._files = staging._files, Files()
    with pytest.raises(FullError):
        staging.publish(0, ["a"])
    staging._files = staging_files
    assert staging.manifest(0) is None
    assert staging.publish(0, ["b"]) == ["b"]


def test_numbers_of_partitions_are_those_of_the_first_attempt(tmp_path):
    counts = Staging(str(tmp_path), "sink").partition_counts(0, 1)
    assert counts.known("t") is None
    counts.keep("t", 2)
    counts.keep("u", 3)
    again = Staging(str(tmp_path), "sink")
    assert [again.partition_counts(0, 1).known(topic) for topic in ("t", "u", "v")] == [2, 3, None]
    assert again.partition_counts(0, 0).known("t") is None
    assert again.partition_counts(1, 1).known("t") is None


def test_only_sent_batches_are_forgotten(tmp_path):
    staging = Staging(str(tmp_path), "sink")
    for batch_id in (0, 1, 2, 10):
        staging.publish(batch_id, [staging.stage(batch_id, 0, "a", batches(batch_id))[0]])
    staging.mark_sent(0, {})
    staging.mark_sent(2, {})
    staging.mark_sent(10, {})
    staging.forget_before(10)
    assert [batch_id for batch_id in (0, 1, 2, 10) if staging.manifest(batch_id)] == [1, 10]
    assert staging.is_sent(10)
    assert not staging.is_sent(1)


def test_a_stream_that_begins_anew_does_not_take_files_of_its_predecessor(tmp_path):
    staging = Staging(str(tmp_path), "sink")
    staging.check_newest(0)
    staging.publish(4, ["a"])
    staging.mark_sent(4, {})
    staging.check_newest(4)
    staging.check_newest(5)
    with pytest.raises(StagingError, match=r"has rows of batch 4, and this is batch 0.*another sinkId"):
        staging.check_newest(0)


def test_lost_and_damaged_files(tmp_path):
    staging = Staging(str(tmp_path), "sink")
    with pytest.raises(StagingError, match="driver and executors share"):
        rows(staging, 0, "none.arrow")
    name, _ = staging.stage(0, 0, "a", batches(1, 2))
    file = tmp_path / "sink" / "0" / name
    file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(StagingError, match="cannot be read"):
        rows(staging, 0, name)


def test_unknown_file_systems():
    with pytest.raises(OptionError, match="stagingDirectory"):
        Staging("gopher://x/y", "sink")


def test_a_loss_of_power_keeps_a_decision_and_its_rows(tmp_path, monkeypatch):
    power = Power(tmp_path / "staging", monkeypatch)
    staging = Staging(power.root, "sink")
    names = [staging.stage(7, task, "a", batches(task, 10 + task))[0] for task in range(2)]
    staging.publish(7, names)
    during = list(power.lost)
    power.lost.clear()
    power.look()
    monkeypatch.undo()
    for image in during:
        power.put_back(image)
        for name in staging.manifest(7) or ():
            assert rows(staging, 7, name), "a manifest names files that are on the disk"
    for image in power.lost:
        power.put_back(image)
        assert staging.manifest(7) == names
        assert [rows(staging, 7, name) for name in names] == [[0, 10], [1, 11]]
