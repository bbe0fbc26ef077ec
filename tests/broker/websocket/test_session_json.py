"""The JSON of WebSocket sessions."""

import base64
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.websocket.session_json import (
    MessageTextError,
    MissingValueError,
    ack_text,
    decode_command,
    decode_message,
    decode_message_id,
    encode_message_id,
    error_text,
)
from magnetar.protocol import pulsar_api_pb2 as pb

NOW = 1_700_000_000_000


def test_a_message_with_everything():
    text = json.dumps(
        {
            "payload": base64.b64encode(b"x").decode(),
            "context": 7,
            "properties": {"a": 1, "b": True},
            "key": "k",
            "replicationClusters": ["c"],
            "eventTime": "2024-02-03T04:05:06.789+02:00",
            "deliverAfterMs": 5,
            "unknown": [{}],
        }
    )
    found = decode_message(text, NOW)
    assert (found.payload, found.context, found.key, found.replicate_to) == (b"x", "7", "k", ["c"])
    assert found.properties == {"a": "1", "b": "true"}
    assert found.event_time_ms == 1_706_925_906_789
    assert found.deliver_at_ms == NOW + 5


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", 3),
        ("no json", 3),
        ("[]", 3),
        ('{"payload": {}}', 3),
        ('{"payload": "YQ==", "properties": []}', 3),
        ('{"payload": "YQ==", "deliverAt": 1e400}', 3),
        ("[" * 100_000, 3),
        ("null", 7),
        ("{}", 7),
        ('{"payload": "*"}', 7),
        ('{"payload": "YQ==", "eventTime": "2024-02-03"}', 7),
        ('{"payload": "YQ==", "eventTime": "2024-02-03T04:05:06"}', 7),
    ],
)
def test_a_refused_publish_names_the_reason(text, error):
    with pytest.raises(MessageTextError) as failed:
        decode_message(text, NOW)
    assert failed.value.error == error


def test_a_property_without_a_value_ends_the_session():
    with pytest.raises(MissingValueError, match="key: a"):
        decode_message('{"payload": "", "properties": {"a": null}}', NOW)


def test_texts_that_are_no_utf8_are_repaired():
    found = decode_message('{"payload": "", "key": "\\ud800", "context": "\\udfff"}', NOW)
    assert found.key == "?"
    json.loads(error_text(8, "reason", found.context))


@given(st.text(max_size=200))
def test_any_text_is_a_message_or_a_documented_error(text):
    with contextlib.suppress(MessageTextError, MissingValueError):
        decode_message(text, NOW)
    with contextlib.suppress(MessageTextError):
        decode_command(text)


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_any_value_of_any_field_is_taken_or_refused(value):
    for name in ("payload", "key", "properties", "eventTime", "deliverAt", "compressionType", "encryptionParam"):
        with contextlib.suppress(MessageTextError, MissingValueError):
            decode_message(json.dumps({"payload": "", name: value}), NOW)


@pytest.mark.parametrize(("codec", "found"), [("LZ4", pb.LZ4), ("lz4", None), ("x", None), (None, None)])
def test_an_unknown_codec_of_a_message_is_none(codec, found):
    assert decode_message(json.dumps({"payload": "", "compressionType": codec}), NOW).compression == found


@pytest.mark.parametrize("text", [None, 1, "*", "", "AAAA", "CAE="])
def test_invalid_message_ids(text):
    with pytest.raises(ValueError):
        decode_message_id(text)


def test_message_ids_come_back():
    message_id = pb.MessageIdData(ledgerId=3, entryId=4, partition=1, batch_index=2, batch_size=5)
    assert decode_message_id(encode_message_id(message_id)) == message_id


def test_answers_are_those_of_apache_pulsar():
    message_id = pb.MessageIdData(ledgerId=43, entryId=0, batch_size=0)
    assert ack_text(message_id, "c") == (
        b'{"result":"ok","messageId":"CCsQADAA","context":"c","errorCode":0,"schemaVersion":0}'
    )
    assert json.loads(error_text(7, "why", None)) == {
        "result": "send-error:7", "errorMsg": "why", "errorCode": 0, "schemaVersion": 0
    }  # fmt: skip
