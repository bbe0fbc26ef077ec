"""Compaction keeps the newest message of each key, compared with a dict, and leaves no staged files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipeline.errors import CorruptEntryError
from magnetar.pipeline.jobs import key_compaction
from magnetar.pipeline.jobs.key_compaction import NotEmptyError, compact_topics, is_in, newest
from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.options import SourceOptions
from tests.pipeline.keys_for_tests import Keys


@pytest.fixture
def options(jobs_broker, topic):
    given = {"service.url": jobs_broker.url, "admin.url": jobs_broker.http_url, "topic": topic, "minPartitions": "4"}
    return SourceOptions.parse(given)


@pytest.fixture
def sent(topic, publish):
    messages = [{"content": b"%d" % n, "partition_key": f"k{n % 13}"} for n in range(200)]
    messages += [{"content": b"", "partition_key": "k3"}, {"content": b"no key"}]
    publish(topic, messages, batching_enabled=True)
    return {f"k{n % 13}".encode(): b"%d" % n for n in range(200) if n % 13 != 3}


def rows(table):
    found = {}
    for file in table.files():
        read = pq.read_table(table.place.absolute(file.path), partitioning=None)
        found |= dict(zip(read["__key"].to_pylist(), read["value"].to_pylist(), strict=True))
    return found


@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_the_newest_of_each_key(options, topic, sent, runner, progress, tmp_path, table_format):
    table = open_table(table_format, str(tmp_path / "t"))
    report = compact_topics(options, table, runner, progress)
    assert rows(table) == sent
    assert (report["rows"], report["keys"], report["messages"]) == (12, 13, 202)
    assert table.committed([topic]) == {topic: 202}
    assert [each.path for each in table.place.list() if "_staging" in each.path] == []
    with pytest.raises(NotEmptyError):
        compact_topics(options, table, runner, progress)


def test_messages_without_a_key_are_kept_on_request(options, sent, runner, progress, tmp_path):
    table = open_table("parquet", str(tmp_path / "t"))
    compact_topics(options, table, runner, progress, keep_without_key=True)
    assert rows(table) == sent | {None: b"no key"}


def test_a_message_without_a_key_shares_its_key_with_no_key_of_a_client():
    """A client may choose any bytes, also those that stand for the index of a message without a key."""
    keys = [b"\0\0no key\x002", None, b"\0\x014", None, b"\0a", b"\0\0a", b"a"]
    columns = {"__key": pa.array(keys, pa.binary()), "__index": pa.array(range(1, 8), pa.int64())}
    columns |= {"__nullValue": pa.array([False] * 7), "__size": pa.array([1] * 7, pa.int32())}
    batch = pa.record_batch(columns)
    kept = newest(key_compaction._keys_of(batch, keep_without_key=True))
    assert kept["index"].to_pylist() == [1, 2, 3, 4, 5, 6, 7]
    kept = newest(key_compaction._keys_of(batch, keep_without_key=False))
    assert kept["index"].to_pylist() == [1, 3, 5, 6, 7]


def test_tombstones_remove_their_key(options, sent, runner, progress, tmp_path, monkeypatch):
    """The official Python client publishes no null values, so the test sets the column that marks them."""
    keys_of = key_compaction._keys_of

    def with_tombstone(batch, **wanted):
        at = batch.schema.get_field_index("__nullValue")
        dead = pa.array([index == 199 for index in batch.column("__index").to_pylist()])
        return keys_of(batch.set_column(at, batch.schema.field(at), dead), **wanted)

    monkeypatch.setattr(key_compaction, "_keys_of", with_tombstone)
    table = open_table("parquet", str(tmp_path / "t"))
    compact_topics(options, table, runner, progress)
    assert rows(table) == {key: value for key, value in sent.items() if key != b"k4"}


def test_encrypted_batches_end_it_or_are_opened(jobs_broker, topic, publish, runner, progress, tmp_path):
    keys = Keys(tmp_path)
    publish(
        topic,
        [{"content": b"%d" % n, "partition_key": f"k{n % 3}"} for n in range(20)],
        batching_enabled=True,
        encryption_key="app",
        crypto_key_reader=keys,
    )
    given = {"service.url": jobs_broker.url, "admin.url": jobs_broker.http_url, "topic": topic}
    table = open_table("parquet", str(tmp_path / "t"))
    with pytest.raises(CorruptEntryError, match="encrypted"):
        compact_topics(SourceOptions.parse(given), table, runner, progress)
    given["decryptionKeys"] = f"{tmp_path}/private.pem"
    compact_topics(SourceOptions.parse(given), table, runner, progress)
    assert rows(table) == {b"k0": b"18", b"k1": b"19", b"k2": b"17"}


def test_a_failure_leaves_no_staging_and_no_table(options, sent, topic, runner, progress, tmp_path, monkeypatch):
    def fails(_):
        raise ConnectionResetError

    monkeypatch.setattr(key_compaction, "write_kept", fails)
    table = open_table("parquet", str(tmp_path / "t"))
    with pytest.raises(ConnectionResetError):
        compact_topics(options, table, runner, progress)
    assert table.place.list() == []
    assert table.committed([topic]) == {}


@given(st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=20))
def test_newest_beside_a_dict(keys):
    table = pa.Table.from_pydict(
        {"key": keys, "index": list(range(len(keys))), "tombstone": [False] * len(keys)}, key_compaction._KEYS
    )
    found = newest(table)
    assert dict(zip(found["key"].to_pylist(), found["index"].to_pylist(), strict=True)) == {
        key: index for index, key in enumerate(keys)
    }


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-5, 5)))
def test_membership_beside_a_set(values, kept):
    import numpy as np

    found = is_in(np.array(values, np.int64), np.unique(np.array(kept, np.int64)))
    assert found.tolist() == [value in set(kept) for value in values]
