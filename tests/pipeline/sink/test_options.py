import pickle

import pytest

from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.sink.options import SINK_OPTIONS, Guarantee, SinkOptions
from magnetar.protocol import pulsar_api_pb2 as pb


def test_defaults():
    stream = SinkOptions.parse({"checkpointLocation": "/c/"}, streaming=True)
    assert (stream.guarantee, stream.staging, stream.exactly_once) == (Guarantee.STAGED, "/c/sink-staging", True)
    batch = SinkOptions.parse({}, streaming=False)
    assert (batch.guarantee, batch.batch_messages, batch.exactly_once) == (Guarantee.AT_LEAST_ONCE, 1000, False)
    assert pickle.loads(pickle.dumps(batch)) == batch


def test_names_without_case():
    options = SinkOptions.parse({"TOPIC": "t", "Compressiontype": "lz4", "batchingenabled": "false"}, streaming=False)
    assert (options.topic, options.compression, options.batch_messages) == ("persistent://public/default/t", 2 - 1, 0)


@pytest.mark.parametrize(
    ("options", "streaming", "text"),
    [
        ({"guarantee": "exactly-once"}, False, "sinkId"),
        ({"guarantee": "exactly-once-staged"}, False, "is for streams"),
        ({}, True, "stagingDirectory"),
        ({"guarantee": "most"}, True, "at-least-once, exactly-once"),
        ({"compressionType": "rar"}, False, "compressionType"),
        ({"columnStyle": "x"}, False, "columnStyle"),
        ({"topic": "a/b"}, False, "option topic"),
        ({"batchingMaxMessages": "0"}, False, "at least 1"),
        ({"guarante": "exactly-once"}, False, "did you mean guarantee"),
        ({"encryptionKeys": "app"}, False, "NAME=FILE"),
        ({"pulsar.producer.cryptoKeyReader": "x"}, False, "encrypts with encryptionKeys"),
    ],
)
def test_bad_options_name_themselves(options, streaming, text):
    with pytest.raises(OptionError, match=text):
        SinkOptions.parse(
            {"topic": "t", "stagingdirectory": "/s"} | options if text == "is for streams" else options,
            streaming=streaming,
        )


def test_every_option_of_the_table_has_an_effect():
    """A value that no option takes is refused, or the parsed options differ."""
    telling = {
        "topic": "other",
        "guarantee": "exactly-once",
        "sinkId": "another",
        "stagingDirectory": "/other",
        "routing": "partition",
        "valueMode": "json",
        "recordName": "Other",
        "columnStyle": "kafka",
        "compressionType": "ZSTD",
        "checkDeduplication": "false",
        "enableDeduplication": "true",
        "registerSchema": "false",
        "batchingEnabled": "false",
        "batchByKey": "true",
        "chunkingEnabled": "true",
        "batchingMaxMessages": "3",
        "batchingMaxBytes": "3",
        "encryptionKeys": "app=/keys/app.pem",
        "maxPendingBytes": "3",
        "sendTimeoutMs": "3",
    }
    base = {"checkpointLocation": "/c", "sinkId": "s", "topic": "t"}
    assert {option.name for option in SINK_OPTIONS} == telling.keys()
    for name, value in telling.items():
        changed = {key: text for key, text in base.items() if key != name} | {name: value}
        assert SinkOptions.parse(changed, streaming=True) != SinkOptions.parse(base, streaming=True), name


def test_the_documentation_has_every_option():
    import pathlib

    page = (pathlib.Path(__file__).parents[3] / "docs" / "pipeline" / "sink.md").read_text()
    for option in SINK_OPTIONS:
        assert f"| `{option.name}` | {option.default} | {option.doc} |" in page, "regenerate the table of options"


def test_names_of_pulsar_spark():
    given = {"topic": "t", "pulsar.producer.batchingEnabled": "false", "pulsar.producer.sendTimeoutMs": "5"}
    found = SinkOptions.parse(given | {"sendTimeoutMs": "9"}, streaming=False)
    assert (found.batch_messages, found.timeout_s) == (0, 0.009)
    assert SinkOptions.parse({"Pulsar.Producer.CompressionType": "LZ4"}, streaming=False).compression == pb.LZ4
    with pytest.raises(OptionError, match="batchingMaxMessages"):
        SinkOptions.parse({"pulsar.producer.batchingMaxMessages": "x"}, streaming=False)
