"""The audit reports each defect with its place, and no false defects."""

import html.parser
import json
import shutil

import pulsar
import pytest

from magnetar.client.address import Credentials
from magnetar.client.admin import AdminApi
from magnetar.pipeline.entry_chunk import EntryChunk
from magnetar.pipeline.jobs.audit import audit_topics, cursor_findings, ledgers_of, orphan_ledgers
from magnetar.pipeline.jobs.audit_command import as_page, as_text
from magnetar.pipeline.jobs.audit_facts import KINDS, StretchAudit, join
from magnetar.pipeline.options import SourceOptions
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.layout import Layout
from tests.pipeline.jobs.test_export import flip, sealed_copy

TOPIC = "persistent://public/default/t"


def body(index, *, messages=1, time=None, producer="p", sequence=None, damage=False):
    """An entry as stored, with the index of its last message."""
    metadata = pb.MessageMetadata(
        producer_name=producer, sequence_id=index if sequence is None else sequence, publish_time=1
    )
    if messages > 1:
        metadata.num_messages_in_batch = messages
    inner = metadata.SerializeToString()
    rest = len(inner).to_bytes(4, "big") + inner + b"payload"
    entry = pb.BrokerEntryMetadata(
        index=index, broker_timestamp=1000 + index if time is None else time
    ).SerializeToString()
    head = b"\x0e\x02" + len(entry).to_bytes(4, "big") + entry
    whole = head + b"\x0e\x01" + crc32c(rest).to_bytes(4, "big") + rest
    return whole[:-1] + b"!" if damage else whole


def audited(*bodies, first=0, ledger=3):
    audit = StretchAudit(TOPIC)
    audit.add(EntryChunk.of_bodies(TOPIC, bodies, ledger_id=ledger, first=first))
    return audit.facts


def kinds(facts):
    return [(each.kind, each.where) for each in facts.findings]


def test_a_sound_stretch():
    facts = audited(body(0), body(4, messages=4), body(5))
    assert kinds(facts) == []
    assert (facts.entries, facts.messages, facts.first_index, facts.end_index) == (3, 6, 0, 6)


def test_a_wrong_checksum():
    assert kinds(audited(body(0), body(1, damage=True), body(2)))[0] == ("corrupt-entry", "3:1")


@pytest.mark.parametrize(("after", "kind"), [(3, "index-gap"), (1, "index-repeat")])
def test_indexes(after, kind):
    facts = audited(body(0), body(1), body(after, sequence=9, time=2000))
    assert kinds(facts) == [(kind, "3:2")]


def test_broker_times():
    assert kinds(audited(body(0), body(1, time=900), body(2))) == [("broker-time-backwards", "3:1")]


def test_duplicates_by_producer_and_sequence_id():
    facts = audited(body(0), body(1, sequence=0), body(2, producer="q", sequence=0))
    assert kinds(facts) == [("duplicate-sequence-id", "3:1")]


def test_missing_entries():
    audit = StretchAudit(TOPIC)
    audit.add(EntryChunk.of_bodies(TOPIC, [body(0)], ledger_id=3))
    audit.add(EntryChunk.of_bodies(TOPIC, [body(1)], ledger_id=3, first=2))
    assert kinds(audit.facts) == [("missing-entry", "3:2")]


def test_stretches_are_compared_at_their_borders():
    whole = join([audited(body(0), body(1)), audited(body(2), ledger=4), audited(body(5), ledger=5)])
    assert kinds(whole) == [("index-gap", "5:0")]
    assert (whole.entries, whole.end_index) == (4, 6)
    backwards = join([audited(body(0)), audited(body(1, time=500, sequence=0), ledger=4)])
    assert kinds(backwards) == [("broker-time-backwards", "4:0"), ("duplicate-sequence-id", "4:0")]


@pytest.mark.parametrize("border", [2, 3, 4, 5])
def test_an_entry_across_a_border_counts_once(border):
    shared = body(5, messages=4)
    left, right = StretchAudit(TOPIC), StretchAudit(TOPIC)
    left.add(EntryChunk.of_bodies(TOPIC, [body(1, messages=2), shared], ledger_id=3), 0, border)
    right.add(EntryChunk.of_bodies(TOPIC, [shared, body(6)], ledger_id=3, first=1), border, 7)
    whole = join([left.facts, right.facts])
    assert kinds(whole) == []
    assert (whole.entries, whole.messages, whole.end_index) == (3, 7, 7)


def test_cursors():
    stats = {
        "lastConfirmedEntry": "5:9",
        "cursors": {"fine": {"markDeletePosition": "5:9"}, "ahead": {"markDeletePosition": "5:10"}},
    }
    assert [each.where for each in cursor_findings(TOPIC, stats)] == ["ahead"]


def test_a_topic_that_is_deleted_meanwhile_has_no_cursors():
    assert list(cursor_findings("t", {})) == []


def test_ledgers_that_stats_name():
    stats = {
        "ledgers": [{"ledgerId": 1}],
        "schemaLedgers": [{"ledgerId": 2}],
        "compactedLedger": {"ledgerId": 3},
        "cursors": {"s": {"cursorLedger": 4, "properties": {"#pulsar.internal.delayed.bucket_1_2": 5}}},
    }
    assert ledgers_of(stats) == {1, 2, 3, 4, 5}


@pytest.fixture
def options(jobs_broker):
    def make(topic, storage=None, **more):
        given = {"service.url": jobs_broker.url, "admin.url": jobs_broker.http_url, "topic": topic} | more
        if storage is not None:
            given["storage.url"] = str(storage)
        return SourceOptions.parse(given | {"onCorrupt": "quarantine"})

    return make


def test_a_real_topic_is_sound(options, jobs_broker, topic, publish, client, runner, progress):
    publish(topic, [b"%d" % n for n in range(150)])
    publish(topic, [bytes(100)] * 100, batching_enabled=True, compression_type=pulsar.CompressionType.ZSTD)
    publish(topic, [bytes(300_000)], chunking_enabled=True, max_pending_messages=10)
    for storage in (None, jobs_broker.data_dir):
        report = audit_topics(options(topic, storage), runner, progress).to_json()
        own = [each for each in report["findings"] if each["topic"] == topic]
        assert own == []
        assert report["topics"][0]["messages"] == 251
        assert report["errors"] == 0


def test_one_flipped_bit_is_found(options, jobs_broker, topic, publish, runner, progress, tmp_path):
    payload = b"payload of " + topic.encode()
    publish(topic, [b"before", payload, *(b"%d" % n for n in range(120))])
    admin = AdminApi(jobs_broker.http_url, Credentials())
    stats = admin.call("GET", topic.replace("persistent://", "/admin/v2/persistent/") + "/internalStats")
    ledger_id = stats["ledgers"][0]["ledgerId"]
    copy = sealed_copy(jobs_broker, tmp_path / "copy", ledger_id)
    flip(copy, payload)
    report = audit_topics(options(topic, copy), runner, progress).to_json()
    damaged = [each for each in report["findings"] if each["kind"] == "corrupt-entry"]
    assert [each["where"] for each in damaged] == [f"{ledger_id}:1"]
    assert report["errors"] >= 1
    assert "DAMAGED" in as_text(report)


def test_orphan_ledger_files(jobs_broker, topic, publish, tmp_path):
    publish(topic, [b"x"] * 120)
    admin = AdminApi(jobs_broker.http_url, Credentials())
    path = topic.replace("persistent://", "/admin/v2/persistent/")
    ledger_id = admin.call("GET", f"{path}/internalStats")["ledgers"][0]["ledgerId"]
    copy = sealed_copy(jobs_broker, tmp_path / "copy", ledger_id)
    before = {each.where for each in orphan_ledgers(str(copy), admin)}
    assert str(ledger_id) not in before
    layout = Layout(str(copy))
    shutil.copy(layout.ledger(ledger_id), layout.ledger(999_999))
    after = {each.where for each in orphan_ledgers(str(copy), admin)}
    assert after - before == {"999999"}


class Balanced(html.parser.HTMLParser):
    """Every tag that opens also closes; nothing is loaded from elsewhere."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attributes):
        assert tag not in {"script", "link", "img", "iframe"}
        if tag not in {"meta", "line", "rect", "polyline"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_escapes_names():
    report = {
        "entries": 1,
        "messages": 1,
        "errors": 1,
        "bytes": 9,
        "counts": {"index-gap": 1},
        "topics": [{"topic": "<script>alert(1)</script>"}],
        "findings": [{"severity": "error", "kind": "index-gap", "topic": "a<b", "where": "1:2", "detail": "x & y"}],
    }
    page = as_page(report)
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "&lt;script&gt;" in page
    json.dumps(report)


def test_every_kind_has_a_severity():
    assert set(KINDS.values()) == {"error", "warning"}
