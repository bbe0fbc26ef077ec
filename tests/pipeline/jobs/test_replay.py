"""Replay of topics and tables: order, completeness, exactly once when repeated."""

import json
import urllib.request

import pulsar
import pytest

from magnetar.pipeline.errors import CorruptEntryError, DataLossError, NoSuchTopicError
from magnetar.pipeline.jobs import replay as replay_module
from magnetar.pipeline.jobs.export import ExportJob
from magnetar.pipeline.jobs.maintenance import join_small_files
from magnetar.pipeline.jobs.replay import ReplayState, replay_table, replay_topics, sink_options
from magnetar.pipeline.lake.committer import open_table
from magnetar.pipeline.lake.errors import NotATableError
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.options import SourceOptions
from tests.pipeline.keys_for_tests import Keys


@pytest.fixture
def connection(jobs_broker):
    return {"service.url": jobs_broker.url, "admin.url": jobs_broker.http_url}


@pytest.fixture
def received(client):
    """All messages of a topic, in order."""

    def read(topic):
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(10_000))
        reader.close()
        return found

    return read


@pytest.fixture
def target(topic):
    return f"{topic}-again"


SENT = [
    {"content": b"%d" % n, "partition_key": f"k{n % 5}", "properties": {"n": str(n)}, "event_timestamp": 1000 + n}
    for n in range(300)
]


def same(message, sent):
    return (message.data(), message.partition_key(), message.properties(), message.event_timestamp()) == (
        sent["content"],
        sent["partition_key"],
        sent["properties"],
        sent["event_timestamp"],
    )


def test_a_topic(connection, topic, target, publish, received, runner, progress):
    publish(topic, SENT, batching_enabled=True)
    options = SourceOptions.parse(connection | {"topic": topic})
    report = replay_topics(options, sink_options(connection, target, None, {}), runner, progress)
    assert report == {"partitions": 1, "stored": 300, "known": 0}
    got = received(target)
    assert len(got) == 300
    assert all(same(message, sent) for message, sent in zip(got, SENT, strict=True))


def test_repeated_and_killed_it_is_exactly_once(
    connection, topic, target, publish, received, runner, progress, tmp_path, monkeypatch
):
    publish(topic, SENT)
    options = SourceOptions.parse(connection | {"topic": topic})
    more = {"enableDeduplication": "true"}

    def run():
        sink = sink_options(connection, target, "copy", more)
        state = ReplayState(tmp_path / "state.json")
        return replay_topics(options, sink, runner, progress, replay_id="copy", state=state)

    batches = replay_module._batches

    def dies(piece):
        for number, batch in enumerate(batches(piece)):
            yield batch.slice(0, batch.num_rows // 2) if number == 0 else batch
            raise ConnectionResetError

    monkeypatch.setattr(replay_module, "_batches", dies)
    with pytest.raises(ConnectionResetError):
        run()
    monkeypatch.undo()
    publish(topic, SENT[:10])  # later messages are not part of this replay
    report = run()
    assert report["stored"] + report["known"] == 300
    assert run()["stored"] == 0
    assert [message.data() for message in received(target)] == [each["content"] for each in SENT]


def test_encrypted_messages_are_never_copied(connection, topic, target, publish, received, runner, progress, tmp_path):
    publish(topic, SENT, batching_enabled=True, encryption_key="app", crypto_key_reader=Keys(tmp_path))
    sink = sink_options(connection, target, None, {})
    with pytest.raises(CorruptEntryError, match="the payload is encrypted"):
        replay_topics(SourceOptions.parse(connection | {"topic": topic}), sink, runner, progress)
    keys = {"decryptionKeys": f"{tmp_path}/private.pem"}
    replay_topics(SourceOptions.parse(connection | {"topic": topic} | keys), sink, runner, progress)
    assert [message.data() for message in received(target)] == [each["content"] for each in SENT]


def test_a_table(connection, topic, target, publish, received, runner, progress, tmp_path):
    publish(topic, SENT)
    table = open_table("delta", str(tmp_path / "t"))
    ExportJob(SourceOptions.parse(connection | {"topic": topic}), table, round_bytes=10_000).run(runner, progress)
    assert len(table.files()) > 1
    report = replay_table(table, sink_options(connection, target, None, {}), runner, progress)
    assert report["stored"] == 300
    assert all(same(message, sent) for message, sent in zip(received(target), SENT, strict=True))


def test_an_empty_table(connection, target, runner, progress, tmp_path):
    with pytest.raises(NotATableError, match="no data files"):
        replay_table(
            open_table("delta", str(tmp_path / "t")), sink_options(connection, target, None, {}), runner, progress
        )


@pytest.fixture
def replayed(connection, target, runner, progress, tmp_path):
    """replayed(topic, sink options, **source options): one run of the replay with the id `copy`."""

    def run(topic, more=(), **given):
        options = SourceOptions.parse(connection | {"topic": topic} | given)
        sink = sink_options(connection, target, "copy", {"enableDeduplication": "true", **dict(more)})
        return replay_topics(options, sink, runner, progress, replay_id="copy", state=ReplayState(tmp_path / "s.json"))

    return run


def test_another_set_of_rows_is_another_replay(replayed, connection, topic, target, publish, tmp_path):
    """A change of any option that decides about the rows, their order or their partitions makes another replay."""
    publish(topic, SENT[:20])
    assert replayed(topic)["stored"] == 20
    assert replayed(topic)["known"] == 20
    for given in (
        {"startingOffsets": "latest"},
        {"endingOffsets": json.dumps({topic: 5})},
        {"onCorrupt": "quarantine"},
        {"onEncrypted": "quarantine"},
        {"decryptionKeys": f"{tmp_path}/k.pem"},
        {"readCompacted": "true"},
    ):
        with pytest.raises(OptionError, match="another --id"):
            replayed(topic, **given)
    publish(f"{topic}-other", SENT[:1])
    with pytest.raises(OptionError, match="another source selection"):
        replayed(f"{topic}-other")
    for more in ({"routing": "partition"}, {"batchingMaxMessages": "7"}):
        with pytest.raises(OptionError, match="another sink"):
            replayed(topic, more)
    assert replayed(topic, splitBytes="1000", pollTimeoutMs="60000")["stored"] == 0


def delete(broker, topic):
    path = topic.replace("persistent://", "/admin/v2/persistent/")
    urllib.request.urlopen(urllib.request.Request(f"{broker.http_url}{path}?force=true", method="DELETE")).close()


@pytest.mark.parametrize("later", [10, 20, 40])
def test_a_source_that_was_made_anew_ends_the_replay(replayed, jobs_broker, topic, target, publish, received, later):
    publish(topic, SENT[:20])
    replayed(topic)
    delete(jobs_broker, topic)
    with pytest.raises(NoSuchTopicError):
        replayed(topic)
    publish(topic, SENT[100 : 100 + later])
    with pytest.raises(DataLossError, match="created again"):
        replayed(topic, failOnDataLoss="false")
    assert len(received(target)) == 20


def test_a_table_that_grew_and_one_whose_files_were_joined(
    connection, topic, target, publish, received, runner, progress, tmp_path
):
    table = open_table("parquet", str(tmp_path / "t"))
    job = ExportJob(SourceOptions.parse(connection | {"topic": topic}), table)
    for part in (SENT[:20], SENT[20:40]):
        publish(topic, part)
        job.run(runner, progress)
    sink = sink_options(connection, target, "copy", {"enableDeduplication": "true"})

    def run():
        return replay_table(table, sink, runner, progress, replay_id="copy", state=ReplayState(tmp_path / "s.json"))

    assert run()["stored"] == 40
    publish(topic, SENT[40:60])
    job.run(runner, progress)
    assert run() == {"partitions": 1, "stored": 0, "known": 40}, "what the table has got since is not part of it"
    join_small_files(table, runner, progress)
    with pytest.raises(OptionError, match="has lost 2 files"):
        run()
    assert [message.data() for message in received(target)] == [each["content"] for each in SENT[:40]]


def test_a_file_that_is_no_state(tmp_path):
    path = tmp_path / "state.json"
    for text in ("[]", "{}", "torn"):
        path.write_text(text)
        with pytest.raises(OptionError, match="no state of a replay"):
            ReplayState(path).pinned({}, dict)


def test_rows_that_compaction_changes_are_not_replayed_by_number(connection, topic, target, publish, tmp_path):
    publish(topic, SENT[:1])
    options = SourceOptions.parse(connection | {"topic": topic, "readCompacted": "true"})
    sink, state = sink_options(connection, target, "id", {}), ReplayState(tmp_path / "state.json")
    with pytest.raises(OptionError, match="without an id"):
        replay_topics(options, sink, None, None, replay_id="id", state=state)
    assert not list(tmp_path.iterdir())


def test_partitions_keep_the_order_of_their_keys(
    connection, topic, target, publish, client, runner, progress, jobs_broker
):
    for name in (topic, target):
        path = name.replace("persistent://", "/admin/v2/persistent/")
        request = urllib.request.Request(f"{jobs_broker.http_url}{path}/partitions", b"3", method="PUT")
        request.add_header("Content-Type", "application/json")
        urllib.request.urlopen(request).close()
    publish(topic, SENT)
    options = SourceOptions.parse(connection | {"topic": topic})
    report = replay_topics(options, sink_options(connection, target, None, {}), runner, progress)
    assert report["stored"] == 300
    consumer = client.subscribe(target, "s", initial_position=pulsar.InitialPosition.Earliest)
    by_key = {}
    for _ in range(300):
        message = consumer.receive(10_000)
        by_key.setdefault(message.partition_key(), []).append(message.event_timestamp())
    assert all(times == sorted(times) for times in by_key.values())


FIRST = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}
LATER = FIRST | {"fields": [*FIRST["fields"], {"name": "amount", "type": "int", "default": 1}]}


def typed(definition):
    return pulsar.schema.AvroSchema(None, schema_definition=definition)


def test_every_version_of_a_schema(connection, topic, target, client, runner, progress):
    client.subscribe(topic, "keep").close()
    client.create_producer(target, schema=typed(LATER)).close()  # there the later definition is version 0
    for definition, values in ((FIRST, [{"item": "a"}]), (LATER, [{"item": "b", "amount": 2}])):
        producer = client.create_producer(topic, schema=typed(definition))
        for value in values * 5:
            producer.send_async(value, None)
        producer.flush()
        producer.close()
    options = SourceOptions.parse(connection | {"topic": topic})
    report = replay_topics(options, sink_options(connection, target, None, {}), runner, progress)
    assert report["stored"] == 10
    reader = client.create_reader(target, pulsar.MessageId.earliest, schema=typed(LATER))
    found = [reader.read_next(10_000) for _ in range(10)]
    assert [(m.value()["item"], m.value()["amount"]) for m in found] == [("a", 1)] * 5 + [("b", 2)] * 5


def test_a_target_that_refuses_the_schema_gets_no_message(connection, topic, target, client, runner, progress):
    client.subscribe(topic, "keep").close()
    client.create_producer(target, schema=pulsar.schema.StringSchema()).close()
    producer = client.create_producer(topic, schema=typed(FIRST))
    producer.send({"item": "a"})
    options = SourceOptions.parse(connection | {"topic": topic})
    with pytest.raises(OptionError, match="registerSchema=false"):
        replay_topics(options, sink_options(connection, target, None, {}), runner, progress)
    bare = sink_options(connection, target, None, {"registerSchema": "false"})
    assert replay_topics(options, bare, runner, progress)["stored"] == 1
