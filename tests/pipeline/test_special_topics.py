"""Topics that are compacted, and topics with encrypted messages, through the source's own options."""

import json
import random

import pulsar
import pytest

from magnetar.pipeline.catalog import Catalog
from magnetar.pipeline.errors import CorruptEntryError
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.options import SourceOptions
from magnetar.pipeline.source.row_source import RowSource
from magnetar.pipeline.source.values import choose_values
from magnetar.pipeline.source_plan import SourcePlan
from tests.blackbox import foreign
from tests.pipeline import entries_for_tests
from tests.pipeline.keys_for_tests import Keys
from tests.pipeline.test_read_paths import catalog_of, covered_of
from tests.waiting import wait_for


@pytest.fixture
def client(log_broker):
    client = pulsar.Client(log_broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    yield client
    client.close()


def rows_of(broker, topic, **more):
    """The rows that a query with these options has."""
    given = {"service.url": broker.url, "admin.url": broker.http_url, "topic": topic, **more}
    options = SourceOptions.parse(given)
    source, plan = RowSource.of(options, choose_values(options)), SourcePlan(options)
    logs = plan.logs()
    tasks = plan.tasks(plan.starting(logs), plan.ending(logs), logs)
    return [row for task in tasks for batch in source.batches(task) for row in batch.to_pylist()]


def compact(broker, topic):
    admin = Catalog(SourceOptions.parse({"admin.url": broker.http_url, "topic": topic}).connect.admin())
    path = f"/admin/v2/{topic.replace('://', '/')}/compaction"
    admin._ask(path, "PUT")
    wait_for(lambda: admin._ask(path)["status"] == "SUCCESS", 60, "the compaction")


@pytest.mark.parametrize("batch", [1, 10])
def test_read_compacted_gives_the_newest_message_of_each_key(log_broker, client, fresh_topic, batch):
    producer = client.create_producer(
        fresh_topic,
        batching_enabled=batch > 1,
        batching_max_messages=max(batch, 2),
        batching_max_publish_delay_ms=1000,
    )
    for k in range(60):
        producer.send_async(b"%d" % k, None, partition_key=f"k{k % 7}")
    producer.flush()
    compact(log_broker, fresh_topic)
    for k in range(60, 70):  # behind the horizon of the compaction: as in the log
        producer.send_async(b"%d" % k, None, partition_key=f"k{k % 7}")
    producer.flush()
    whole = rows_of(log_broker, fresh_topic)
    assert [row["__index"] for row in whole] == list(range(70))
    found = rows_of(log_broker, fresh_topic, readCompacted="true")
    assert [int(row["value"]) for row in found] == [*range(53, 60), *range(60, 70)]
    by_index = {row["__index"]: row for row in whole}
    for row in found:
        assert row["value"] == by_index[row["__index"]]["value"]
    reader = client.create_reader(fresh_topic, pulsar.MessageId.earliest, is_read_compacted=True)
    theirs = []
    while reader.has_message_available():
        message = reader.read_next(30_000)
        if message.data():  # this client also returns messages that compaction removed, without data
            theirs.append(message)
    assert [(m.message_id().serialize(), m.data()) for m in theirs] == [(r["__messageId"], r["value"]) for r in found]
    # Ledger files contain the log, not its compacted form.
    storage = {"storage.url": str(log_broker.data_dir)}
    assert rows_of(log_broker, fresh_topic, readCompacted="true", **storage) == found


@pytest.mark.parametrize("pieces", ["1", "4"])
@pytest.mark.parametrize("removed", [[4], range(5)], ids=["last", "all"])
def test_read_compacted_of_a_topic_whose_last_messages_compaction_removed(
    log_broker, client, fresh_topic, removed, pieces
):
    producer = client.create_producer(fresh_topic, batching_enabled=False)
    for k in range(40):
        producer.send_async(b"%d" % k, None, partition_key=f"k{k % 5}")
    for k in removed:
        producer.send_async(b"", None, partition_key=f"k{k}")
    producer.flush()
    compact(log_broker, fresh_topic)
    found = rows_of(log_broker, fresh_topic, readCompacted="true", pollTimeoutMs="10000", minPartitions=pieces)
    assert [int(row["value"]) for row in found] == [k for k in range(35, 40) if k % 5 not in removed]


@pytest.fixture
def half_encrypted(client, fresh_topic, tmp_path):
    """Two plain messages, three encrypted messages, a plain message."""
    plain = client.create_producer(fresh_topic, batching_enabled=False)
    secret = client.create_producer(
        fresh_topic, encryption_key="app", crypto_key_reader=Keys(tmp_path), batching_enabled=False
    )
    for k, producer in enumerate([plain, plain, secret, secret, secret, plain]):
        producer.send(b"%d" % k)
    return fresh_topic


def test_encrypted_messages_are_handed_over(log_broker, half_encrypted):
    rows = rows_of(log_broker, half_encrypted, columns="value,__index,__encryptionContext")
    assert [row["__index"] for row in rows] == list(range(6))
    assert [row["value"] == b"%d" % k for k, row in enumerate(rows)] == [True, True, False, False, False, True]
    assert [row["__encryptionContext"] is None for row in rows] == [True, True, False, False, False, True]
    assert rows[2]["__encryptionContext"]["keys"][0]["name"] == "app"


def test_encrypted_messages_fail_the_job_where_they_are_not_wanted(log_broker, half_encrypted):
    with pytest.raises(CorruptEntryError, match="onEncrypted=deliver"):
        rows_of(log_broker, half_encrypted, onEncrypted="fail")


def test_encrypted_messages_are_passed_over_in_quarantine(log_broker, half_encrypted, caplog):
    rows = rows_of(log_broker, half_encrypted, onEncrypted="quarantine")
    assert [row["value"] for row in rows] == [b"0", b"1", b"5"]
    assert caplog.text.count("the payload is encrypted") == 3


@pytest.mark.parametrize("way", ["broker", "segment"])
def test_chunks_on_both_sides_of_the_border_of_ledgers_are_joined(log_broker, fresh_topic, way):
    """Also where the range begins behind the border, or between the chunks before it."""
    payload = bytes(range(200))
    chunks = entries_for_tests.chunks(payload, [10] * 12)
    before, behind = ([entries_for_tests.plain(b"%d" % k) for k in range(14)], [entries_for_tests.plain(b"behind")])
    places = foreign.publish(log_broker, fresh_topic, [*before, *chunks, *behind])
    assert [ledger for ledger, _ in places[14:27]] == [places[0][0]] * 6 + [places[27][0]] * 7
    assert places[0][0] != places[27][0]
    more = {}
    if way == "segment":
        more = {"storage.url": str(log_broker.data_dir), "readMode": "segment"}
        log = catalog_of(log_broker).range(fresh_topic, ledgers=True)
        wait_for(lambda: covered_of(log_broker, log, 28, files=2)[-1].end == 28, subject="all entries in ledger files")
    joined = [payload, b"behind"]
    assert [row["value"] for row in rows_of(log_broker, fresh_topic, **more)][14:] == joined
    for first in (14, 15, 19, 20, 21, 26):
        start = json.dumps({fresh_topic: first})
        found = rows_of(log_broker, fresh_topic, startingOffsets=start, columns="value,__messageId,__entryId", **more)
        assert [row["value"] for row in found] == joined
    end = json.dumps({fresh_topic: 26})
    assert len(rows_of(log_broker, fresh_topic, endingOffsets=end, **more)) == 14


KINDS = {
    "single": {"batching_enabled": False},
    "compressed": {"batching_enabled": False, "compression_type": pulsar.CompressionType.ZSTD},
    "batch": {"batching_max_messages": 20, "batching_max_publish_delay_ms": 500},
    "compressed batch": {
        "batching_max_messages": 20,
        "batching_max_publish_delay_ms": 500,
        "compression_type": pulsar.CompressionType.LZ4,
    },
}


@pytest.mark.parametrize("way", ["broker", "segment"])
def test_messages_encrypted_by_the_official_client_are_decrypted(log_broker, client, fresh_topic, tmp_path, way):
    keys, sent = Keys(tmp_path), []
    for kind, options in KINDS.items():
        producer = client.create_producer(fresh_topic, encryption_key="app", crypto_key_reader=keys, **options)
        for k in range(20):
            sent.append(f"{kind} {k} ".encode() * (k + 1))
            producer.send_async(sent[-1], None, partition_key=f"k{k}")
        producer.flush()
        producer.close()
    more = {"storage.url": str(log_broker.data_dir)} if way == "segment" else {}
    given = {"columns": "value,__key,__index,__encryptionContext", "decryptionKeys": f"app={tmp_path}/private.pem"}
    rows = rows_of(log_broker, fresh_topic, **more, **given)
    assert [row["value"] for row in rows] == sent
    assert [row["__index"] for row in rows] == list(range(len(sent)))
    assert [row["__key"] for row in rows] == [b"k%d" % (k % 20) for k in range(len(sent))]
    assert not any(row["__encryptionContext"] for row in rows)


@pytest.mark.parametrize("codec", [pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4])
def test_chunks_that_the_official_client_encrypts_are_decrypted(log_broker, client, fresh_topic, tmp_path, codec):
    producer = client.create_producer(
        fresh_topic,
        encryption_key="app",
        crypto_key_reader=Keys(tmp_path),
        batching_enabled=False,
        chunking_enabled=True,
        compression_type=codec,
    )
    payload = random.Random(1).randbytes(11 << 20)
    for each in (b"before", payload, b"behind"):
        producer.send(each)
    keys = {"decryptionKeys": f"{tmp_path}/private.pem"}
    rows = rows_of(log_broker, fresh_topic, columns="value,__index", **keys)
    assert [row["value"] for row in rows] == [b"before", payload, b"behind"]
    last = json.dumps({fresh_topic: rows[1]["__index"]})
    assert rows_of(log_broker, fresh_topic, columns="value,__index", startingOffsets=last, **keys) == rows[1:]


def test_a_key_of_another_reader_follows_on_encrypted(log_broker, half_encrypted, tmp_path):
    (tmp_path / "other").mkdir()
    Keys(tmp_path / "other")
    keys = {"decryptionKeys": f"app={tmp_path}/other/private.pem"}
    with pytest.raises(CorruptEntryError, match="encrypted for the keys 'app'"):
        rows_of(log_broker, half_encrypted, **keys)
    assert len(rows_of(log_broker, half_encrypted, onEncrypted="quarantine", **keys)) == 3
    assert len(rows_of(log_broker, half_encrypted, onEncrypted="deliver", **keys)) == 6


def test_other_words_are_refused():
    with pytest.raises(OptionError, match="onEncrypted is deliver, fail or quarantine"):
        SourceOptions.parse({"topic": "t", "onEncrypted": "ignore"})
