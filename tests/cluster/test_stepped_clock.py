"""The wall clock of one broker is set a day ahead, an hour back, and right again: nothing is lost, no topic changes its
owner, the leader stays, and delayed messages follow the clock that is right again.
"""

from __future__ import annotations

import time

import pulsar
import pytest
import requests

from tests.cluster.broker_processes import connect, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.scenes import SESSION_S, SHORT_LEDGERS, busiest, end, loaded, members_named, owners, two_members

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]
DAY_S, HOUR_S = 86_400, 3600
BRIEF_S = 4
KEEP = {"defaultRetentionTimeInMinutes": 600, "defaultRetentionSizeInMB": 100}
TOPIC = "persistent://public/default/stepped"
SEQUENCE = f"{TOPIC}-sequence"
"""A topic of its own: tests run in any order."""


def set_clock(member, ahead_s):
    path = member.directory / f"{member.name}.conf.clock"
    path.with_suffix(".new").write_text(str(ahead_s))
    path.with_suffix(".new").rename(path)
    time.sleep(0.5)


def stepped(members):
    for each in members:
        each.program = "tests.cluster.stepped_broker"
    return members


def seen(members):
    """The members and the leader in the view of each broker."""
    ask = [(each, f"{each.http}/admin/v2/brokers") for each in members]
    return [
        (sorted(requests.get(f"{url}/c1", timeout=30).json()), requests.get(f"{url}/leaderBroker", timeout=30).json())
        for _, url in ask
    ]


def test_brokers_keep_their_topics_and_nothing_is_lost(cluster, tmp_path):
    initialize(cluster)
    names = stepped(two_members(tmp_path, cluster.zookeeper, **SHORT_LEDGERS, **KEEP))
    with serving(names) as members, loaded(members) as load:
        owner = busiest(members, load)
        served, listed = owners(members, load), seen(members)
        for ahead_s in (DAY_S, -HOUR_S, 0):
            load.mark()
            set_clock(owner, ahead_s)
            time.sleep(2 * SESSION_S)
            load.more()
            assert load.longest_silence() < BRIEF_S, ahead_s
            assert owners(members, load) == served
            assert seen(members) == listed
        end("a clock of one broker set a day ahead and an hour back", load, BRIEF_S)


def test_delayed_messages_follow_the_clock_of_their_broker(cluster, tmp_path):
    initialize(cluster)
    with serving(stepped(members_named(("c1",), tmp_path, cluster.zookeeper, **KEEP))) as (member,):
        client = connect(member)
        consumer = client.subscribe(TOPIC, "s", pulsar.ConsumerType.Shared)
        producer = client.create_producer(TOPIC)
        set_clock(member, -HOUR_S)
        producer.send(b"behind", deliver_at=int((time.time() + 5) * 1000))
        with pytest.raises(pulsar.Timeout):
            consumer.receive(8000)
        set_clock(member, 0)
        assert consumer.receive(90_000).data() == b"behind"
        set_clock(member, DAY_S)
        producer.send(b"ahead", deliver_at=int((time.time() + HOUR_S) * 1000))
        assert consumer.receive(60_000).data() == b"ahead"
        client.close()


def test_a_producer_goes_on_with_its_sequence_across_a_step(cluster, tmp_path):
    initialize(cluster)
    settings = {"brokerDeduplicationEnabled": "true", **SHORT_LEDGERS, **KEEP}
    with serving(stepped(members_named(("d1",), tmp_path, cluster.zookeeper, **settings))) as (member,):
        client = connect(member)
        producer = client.create_producer(SEQUENCE, "p", batching_enabled=False)
        for number, ahead_s in enumerate((0, DAY_S, -HOUR_S, 0)):
            set_clock(member, ahead_s)
            for sequence in range(100 * number, 100 * (number + 1)):
                producer.send(b"%d" % sequence, sequence_id=sequence)
            producer.send(b"again", sequence_id=100 * number)
        assert requests.put(f"{member.http}/admin/v2/{SEQUENCE.replace('://', '/')}/unload", timeout=30).ok
        producer.send(b"again", sequence_id=50)
        reader = client.create_reader(SEQUENCE, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(30_000).data())
        assert found == [b"%d" % number for number in range(400)]
        client.close()
