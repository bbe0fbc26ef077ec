"""Restoring a moment between two images: exactly the messages stored up to it, at their places, and none is skipped."""

import json
import time
import urllib.request

import pulsar

from magnetar.cli.backup.moments import time_text
from tests.blackbox.clients import id_of, quiet_client, read_all
from tests.blackbox.test_backup import magnetar

APART_S = 0.02
"""Seconds before and after a moment without writes: the unit of a moment is a millisecond."""


def a_moment():
    """Milliseconds of the broker's clock, later than all that was stored before and earlier than all that follows."""
    time.sleep(APART_S)
    moment = time.time_ns() // 1_000_000
    time.sleep(APART_S)
    return moment


def send(producer, first, last):
    """Send the messages `first` to `last`; return their ids."""
    return [id_of(producer.send(b"%d" % number, sequence_id=number)) for number in range(first, last + 1)]


def received(client, topic, subscription, count):
    consumer = client.subscribe(topic, subscription)
    numbers = []
    for _ in range(count):
        message = consumer.receive(60_000)
        consumer.acknowledge(message)
        numbers.append(int(message.data()))
    consumer.close()
    return numbers


def image(broker, folder):
    return json.loads(magnetar("backup", folder, "--data-dir", broker.data_dir, "--json"))


def publish_around_moments(broker, folder):
    """Make an image, publish messages around moments, make another image; return (moments, ids, facts of the images)."""
    client = quiet_client(broker.url)
    client.subscribe("numbers", "reads").close()
    producer = client.create_producer("numbers", producer_name="p", batching_enabled=False)
    ids = send(producer, 0, 99)
    client.create_producer("gone").send(b"0")
    facts = [image(broker, folder)]
    broker.admin("DELETE", "/admin/v2/persistent/public/default/gone?force=true")
    ids += send(producer, 100, 149)
    client.subscribe("fresh", "early").close()
    client.create_producer("fresh").send(b"0")
    moments = [a_moment()]
    client.create_producer("fresh").send(b"1")
    client.create_producer("later").send(b"0")
    ids += send(producer, 150, 199)
    moments.append(a_moment())
    assert received(client, "numbers", "reads", 180) == list(range(180)), "acknowledged behind the first image"
    client.subscribe("numbers", "late").close()
    ids += send(producer, 200, 249)
    client.close()
    facts.append(image(broker, folder))
    return moments, ids, facts


def test_a_moment_between_two_images_has_the_messages_up_to_it(new_broker, tmp_path):
    options = {"brokerDeduplicationEnabled": True, "managedLedgerMaxEntriesPerLedger": 60}
    options |= {"managedLedgerMinLedgerRolloverTimeMinutes": 0, "defaultRetentionTimeInMinutes": -1}
    options |= {"defaultRetentionSizeInMB": -1}
    broker, folder = new_broker(**options), tmp_path / "images"
    moments, ids, facts = publish_around_moments(broker, folder)
    listed = json.loads(magnetar("backup", folder, "--list", "--json"))
    assert len(listed) == 2

    for moment, kept in zip(moments, (150, 200), strict=True):
        target = tmp_path / f"until-{kept}"
        said = json.loads(magnetar("restore", folder, target, "--until", moment, "--json"))
        assert said["moment_ms"] == moment
        assert [facts[0]["image"], facts[1]["image"]] == [str(folder / said[each]) for each in ("before", "behind")]
        assert "intact" in magnetar("verify", target)
        restored = new_broker(target.name, **options)
        found = read_all(restored.url, "numbers")
        assert [int(data) for _, data, _ in found] == list(range(kept))
        assert [place for _, _, place in found] == ids[:kept], "message ids are those of the receipts"
        assert [data for _, data, _ in read_all(restored.url, "fresh")] == [b"0", b"1"][: 1 + (kept == 200)]
        assert ("later" in str(restored.admin("GET", "/admin/v2/persistent/public/default"))) == (kept == 200)
        assert [data for _, data, _ in read_all(restored.url, "gone")] == [b"0"]
        client = quiet_client(restored.url)
        ledger, entry, _ = goes_on(client, kept, ids)
        client.close()
        place = f"{restored.http}/admin/v2/persistent/public/default/numbers/ledger/{ledger}/entry/{entry}"
        with urllib.request.urlopen(place) as answer:
            assert int(answer.headers["X-Pulsar-Broker-Entry-METADATA-index"]) == kept, "the index goes on"
        restored.stop()
    assert [int(data) for _, data, _ in read_all(broker.url, "numbers")] == list(range(250))


def goes_on(client, kept, ids):
    """Check that subscriptions stand as in the image before, that cut messages can be sent again, and that kept messages
    are not stored twice. Returns the id of the first new message.
    """
    assert received(client, "numbers", "reads", kept) == list(range(kept))
    assert received(client, "fresh", "early", 1) == [0], "a subscription that is younger than the image before"
    producer = client.create_producer("numbers", producer_name="p", batching_enabled=False)
    assert producer.last_sequence_id() == kept - 1
    new = send(producer, kept - 10, kept + 9)[10:]
    assert min(new) > ids[-1], "no place of the cut is given again"
    reader = client.create_reader("numbers", pulsar.MessageId.earliest)
    assert [int(reader.read_next(60_000).data()) for _ in range(kept + 10)] == list(range(kept + 10))
    assert not reader.has_message_available()
    reader.close()
    return new[0]


def test_entries_without_broker_timestamps_and_a_truncated_topic(new_broker, tmp_path):
    options = {"brokerEntryMetadataInterceptors": "", "managedLedgerMaxEntriesPerLedger": 15}
    options |= {"managedLedgerMinLedgerRolloverTimeMinutes": 0}
    broker, folder = new_broker(**options), tmp_path / "images"
    client = quiet_client(broker.url)
    producers = []
    for topic in ("kept", "truncated"):
        client.subscribe(topic, "reads").close()
        producers.append(client.create_producer(topic, batching_enabled=False))
        send(producers[-1], 0, 19)
    image(broker, folder)
    for producer in producers:
        send(producer, 20, 39)
    moment = a_moment()
    for producer in producers:
        send(producer, 40, 59)
    broker.admin("DELETE", "/admin/v2/persistent/public/default/truncated/truncate")
    send(producers[1], 60, 69)
    client.close()
    image(broker, folder)
    magnetar("restore", folder, tmp_path / "restored", "--until", moment)
    client = quiet_client(new_broker("restored", **options).url)
    assert received(client, "kept", "reads", 40) == list(range(40)), "cut by publish time"
    assert received(client, "truncated", "reads", 20) == list(range(20)), "what the image before has is there again"
    for topic, last in (("kept", 39), ("truncated", 19)):
        send(client.create_producer(topic, batching_enabled=False), last + 1, last + 1)
        assert received(client, topic, "reads", 1) == [last + 1], "nothing else is behind"
    client.close()


def test_a_history_that_was_left_is_not_joined_with_the_next(new_broker, tmp_path):
    broker, folder = new_broker(), tmp_path / "images"
    client = quiet_client(broker.url)
    producer = client.create_producer("numbers", batching_enabled=False)
    send(producer, 0, 9)
    first = image(broker, folder)
    send(producer, 10, 19)
    moment = image(broker, folder)["moment_ms"] + 1
    client.close()
    broker.stop()
    broker.data_dir.rename(tmp_path / "left")
    magnetar("restore", folder, broker.data_dir, "--at", time_text(first["moment_ms"]))
    broker = new_broker(broker.data_dir.name)
    client = quiet_client(broker.url)
    send(client.create_producer("numbers", batching_enabled=False), 30, 39)
    client.close()
    image(broker, folder)
    said = magnetar("restore", folder, tmp_path / "d", "--until", moment, code=75)
    assert "an older state was restored" in said
    assert not (tmp_path / "d").exists()
    assert not list(tmp_path.glob(".d*"))


def test_moments_that_are_not_covered_are_named(new_broker, tmp_path):
    broker = new_broker()
    broker.stop()
    facts, folder = image(broker, tmp_path / "i"), tmp_path / "i"
    moment = facts["moment_ms"]
    assert "the newest moment" in magnetar("restore", folder, tmp_path / "d", "--until", moment + 1, code=66)
    assert "the oldest moment" in magnetar("restore", folder, tmp_path / "d", "--until", moment - 1, code=66)
    assert "exclude" in magnetar("restore", folder, tmp_path / "d", "--until", "1", "--at", "1", code=2)
    magnetar("restore", folder, tmp_path / "d", "--until", moment)
    assert "intact" in magnetar("verify", tmp_path / "d")
    assert not list(tmp_path.glob(".d*"))
