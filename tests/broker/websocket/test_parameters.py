"""Query parameters of sessions; the recorded scenarios have the refusals of Apache Pulsar."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.websocket.errors import SessionRefusedError
from magnetar.broker.websocket.parameters import ConsumerParameters, ProducerParameters, ReaderParameters
from magnetar.broker.websocket.session import parse_path
from magnetar.protocol import pulsar_api_pb2 as pb

NAMES = (
    *("producerName", "initialSequenceId", "hashingScheme", "messageRoutingMode", "compressionType", "encryptionKeys"),
    *("sendTimeoutMillis", "batchingEnabled", "batchingMaxMessages", "batchingMaxPublishDelay", "receiverQueueSize"),
    *("subscriptionType", "subscriptionMode", "subscriptionInitialPosition", "consumerName", "priorityLevel"),
    *("negativeAckRedeliveryDelay", "ackTimeoutMillis", "maxRedeliverCount", "deadLetterTopic", "pullMode"),
    *("messageId", "readerName", "cryptoFailureAction"),
)
QUERIES = st.dictionaries(
    st.sampled_from(NAMES), st.sampled_from(["", "x", "0", "-1", "1", "5000", "true", "LZ4", "Shared", "AAAA"])
)


def status_of(parse, value):
    """The status of the refusal, None without a refusal."""
    try:
        parse(value)
    except SessionRefusedError as e:
        return e.status if e.reason else 0
    return None


def test_defaults_are_those_of_apache_pulsar():
    producer, consumer, reader = (kind.of({}) for kind in (ProducerParameters, ConsumerParameters, ReaderParameters))
    assert (producer.routing, producer.hashing, producer.batching) == ("SinglePartition", "JavaStringHash", False)
    assert (consumer.window, consumer.durable, consumer.nack_delay_ms) == (1000, True, 60_000)
    assert consumer.subscription_type == pb.CommandSubscribe.Exclusive
    assert (reader.start, reader.window) == ("latest", 1000)


def test_a_window_has_a_bound():
    assert ConsumerParameters.of({"receiverQueueSize": "1000000"}).window == 1000
    assert ConsumerParameters.of({"receiverQueueSize": "0"}).window == 1


@pytest.mark.parametrize(("kind", "name"), [(ProducerParameters, "producerName"), (ConsumerParameters, "consumerName")])
def test_a_blank_name_is_refused(kind, name):
    assert status_of(kind.of, {name: " "}) == 400
    assert kind.of({name: " a"}).name == " a"


@given(QUERIES)
def test_any_query_is_taken_or_refused_with_a_status(query):
    for kind in (ProducerParameters, ConsumerParameters, ReaderParameters):
        assert status_of(kind.of, query) in (None, 400, 500)


def test_a_client_may_encrypt_by_itself():
    keys = {"app": {"keyValue": base64.b64encode(b"secret").decode(), "metadata": {"version": "1"}}}
    query = {
        "encryptionKeys": base64.b64encode(json.dumps(keys).encode()).decode(),
        "batchingEnabled": "true",
        "compressionType": "LZ4",
    }
    found = ProducerParameters.of(query)
    assert [(key.key, key.value) for key in found.encryption_keys] == [("app", b"secret")]
    assert (found.batching, found.compression) == (False, pb.NONE)


@pytest.mark.parametrize("text", ["", " ", "e30=", "bnVsbA=="])
def test_a_parameter_of_keys_without_keys_is_refused(text):
    assert status_of(ProducerParameters.of, {"encryptionKeys": text}) == 500


@pytest.mark.parametrize(
    ("path", "kind", "topic", "subscription"),
    [
        ("/ws/v2/producer/persistent/public/default/t", "producer", "persistent://public/default/t", ""),
        ("/ws/v2/reader/non-persistent/public/default/a%2Cb", "reader", "non-persistent://public/default/a,b", ""),
        ("/ws/v2/consumer/persistent/public/default/t/s%2Fs", "consumer", "persistent://public/default/t", "s/s"),
    ],
)
def test_names_in_paths(path, kind, topic, subscription):
    found = parse_path(path)
    assert (found.kind, str(found.topic), found.subscription) == (kind, topic, subscription)


@given(
    st.lists(
        st.sampled_from(["ws", "v2", "producer", "consumer", "persistent", "a", "", "%2F", "%00", "é"]), max_size=9
    )
)
def test_any_path_is_a_session_or_a_status(parts):
    assert status_of(parse_path, "/" + "/".join(parts)) in (None, 400, 404, 500)
