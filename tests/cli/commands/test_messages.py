"""Messages as the commands show them, and the requests of `peek`; tests/blackbox/test_cli.py runs the commands against
a broker.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from types import SimpleNamespace

import pytest

from magnetar.cli import session
from magnetar.cli.commands import messages
from magnetar.cli.commands.messages import _line, peek, shown_message
from magnetar.cli.errors import NotFoundError
from magnetar.cli.main import main
from magnetar.client import sending
from magnetar.client.errors import RetryError
from magnetar.client.messages import EntryReader
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry

TOPIC = "/admin/v2/persistent/public/default/t"


class Web:
    """The admin API of a broker whose topic has the subscription `s` without a backlog. As in Apache Pulsar, a request
    for a message of a missing subscription creates the subscription.
    """

    def __init__(self, _target):
        self.subscriptions = ["s"]

    def get(self, path):
        assert path == f"{TOPIC}/subscriptions"
        return list(self.subscriptions)

    def fetch(self, method, path):
        name = path.removeprefix(f"{TOPIC}/subscription/").partition("/")[0]
        self.subscriptions += [name] if name not in self.subscriptions else []
        raise NotFoundError(f"{method} {path}: Message not found")


@pytest.fixture
def web(monkeypatch):
    found = Web(None)
    monkeypatch.setattr(session, "Web", lambda _target: found)
    return found


def test_peek_at_a_missing_subscription_creates_no_subscription(web, capsys):
    assert main(["peek", "t", "misspelt"]) == 66
    assert "has no subscription 'misspelt'" in capsys.readouterr().err
    assert web.subscriptions == ["s"]


def test_peek_at_an_empty_backlog(web, capsys):
    assert main(["peek", "t", "s"]) == 0
    assert capsys.readouterr().err == "no message waits\n"


KEYS = {
    "text": ({"partition_key": "alice"}, {"key": "alice"}, "alice"),
    "base64 of a text": ({"partition_key": "YWxpY2U=", "partition_key_b64_encoded": True}, {"key": "alice"}, "alice"),
    "base64": ({"partition_key": "/wA=", "partition_key_b64_encoded": True}, {"key_base64": "/wA="}, "0xff00"),
    "empty": ({"partition_key": ""}, {"key": ""}, ""),
    "none": ({}, {}, "-"),
}


def read(**fields):
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)
    (found,) = EntryReader("t").messages(pb.MessageIdData(ledgerId=1, entryId=2), encode_entry(metadata, b""))
    return found


@pytest.mark.parametrize(("stored", "fields", "text"), KEYS.values(), ids=list(KEYS))
def test_the_key_of_a_message_is_shown_as_its_bytes(stored, fields, text):
    shown = shown_message(read(**stored))
    assert {name: value for name, value in shown.items() if name.startswith("key")} == fields
    assert _line(read(**stored), verbose=True).split("  ")[2] == text


class OneEntry:
    """The admin API of a broker whose topic has the subscription `s` and a single entry."""

    def __init__(self, body, headers):
        self._entry = body, {"X-Pulsar-Message-ID": "1:2"} | headers

    def get(self, _path):
        return ["s"]

    def fetch(self, method, path):
        if not path.endswith("/position/1"):
            raise NotFoundError(path)
        return self._entry


def peeked(body, headers, *, as_json):
    found = []
    out = SimpleNamespace(as_json=as_json, line=found.append, text=found.append)
    peek.callback.__wrapped__(SimpleNamespace(web=OneEntry(body, headers), out=out), "t", "s", 2)
    (one,) = found
    return one


@pytest.mark.parametrize(("stored", "fields", "text"), KEYS.values(), ids=list(KEYS))
def test_a_peek_shows_keys_and_tombstones_like_tail(stored, fields, text):
    single = pb.SingleMessageMetadata(payload_size=0, null_value=True, **stored)
    body, headers = encode_batch([(single, b"")]), {"X-Pulsar-num-batch-message": "1"}
    shown = peeked(body, headers, as_json=True)
    assert shown == {"message_id": "1:2:0", "publish_time": 0, "payload": None} | fields
    assert peeked(body, headers, as_json=False) == f"1:2:0  {text}  (null)"


def test_a_peek_of_an_entry_that_is_no_batch_decodes_its_key():
    headers = {"X-Pulsar-partition-key": "YWxpY2U=", "X-Pulsar-partition-key-b64-encoded": "true"}
    assert peeked(b"v", headers, as_json=False) == "1:2  alice  v"
    assert peeked(b"", headers | {"X-Pulsar-null-value": "true"}, as_json=False) == "1:2  alice  (null)"


def test_different_keys_that_are_no_text_stay_different(monkeypatch):
    """Each such key became a text with replacement characters: two keys were equal."""
    reading, writing = os.pipe()
    os.write(writing, b"\xff|one\n\xfe|two\nplain|three\nno key\n")
    os.close(writing)
    with open(reading, "rb") as lines:
        monkeypatch.setattr(sys, "stdin", lines)
        found = list(messages._payloads((), (), "\udcfd", "|"))
    assert found == [(b"one", b"\xff"), (b"two", b"\xfe"), (b"three", "plain"), (b"no key", b"\xfd")]


@pytest.mark.parametrize("command", [["produce"], ["admin", "topics", "stats"], ["client", "produce", "-m", "x"]])
@pytest.mark.parametrize("topic", ["\udcff", "persistent://public/default/a\udcff"])
def test_an_argument_that_is_no_text_is_an_error_of_the_command_line(command, topic, capsys, monkeypatch):
    """A topic with a byte that is no UTF-8 ended in a traceback."""

    async def connected(*_):
        return SimpleNamespace(ask=lambda build: build(1), close=lambda: None)

    monkeypatch.setattr(sending, "open_connection", connected)
    assert main([*command, topic, *(["x"] if command == ["produce"] else [])]) in {1, 2}
    text = capsys.readouterr().err
    assert "an argument is no text in UTF-8" in text
    assert "\\udcff" in text


def test_a_failure_that_no_caller_awaits_leaves_no_word_of_the_event_loop(caplog):
    """Ctrl-C in `magnetar produce` printed a traceback for each message in flight."""

    async def lost():
        part = sending._Part("t", asyncio.Semaphore(1), None)
        part.producers = SimpleNamespace(connection=SimpleNamespace(max_message_bytes=1000, write=lambda _: None))
        part.opened = SimpleNamespace(producer_id=1, name="p", schema_version=b"")
        waiting = part.send(sending.Outgoing(b"x"), 0)
        part.on_failed(RetryError("lost"))
        with pytest.raises(RetryError):
            part.send(sending.Outgoing(b"y"), 0)
        del waiting
        gc.collect()

    asyncio.run(lost())
    assert caplog.records == []
