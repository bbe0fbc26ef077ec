"""The sum over the statistics of thousands of partitions, each with its own clients."""

import asyncio

from magnetar.broker.admin.stats_json import partitioned_stats

PARTITIONS = 300


class Reads:
    """Reads of members of the partitions, in all and in one turn of the event loop."""

    def __init__(self):
        self.now = self.most = self.total = 0

    def note(self):
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)

    async def run(self):
        while True:
            self.now = 0
            await asyncio.sleep(0)


class Part(dict):
    def __init__(self, reads, values):
        super().__init__(values)
        self._reads = reads

    def __getitem__(self, key):
        self._reads.note()
        return super().__getitem__(key)


def part(reads, number):
    """A partition with a subscription of its own, another that all have, and one or two consumers and producers."""
    figures = dict.fromkeys(
        ("earliestMsgPublishTimeInBacklogs", "oldestBacklogMessageAgeSeconds", "msgRateIn", "averageMsgSize"), 1
    )
    figures |= dict.fromkeys(
        ("lastPublishTimeStamp", "topicCreationTimeStamp", "backlogQuotaLimitSize", "backlogQuotaLimitTime"), number
    )
    consumer = dict.fromkeys(
        (
            *("msgRateOut", "messageAckRate", "msgThroughputOut", "bytesOutCounter", "msgOutCounter"),
            *("msgRateRedeliver", "availablePermits", "unackedMessages", "drainingHashesClearedTotal"),
        ),
        1,
    )
    clients = 1 + number % 2
    subscription = {"earliestMsgPublishTimeInBacklog": 0, "type": "Shared", "consumers": [consumer] * clients}
    publisher = {"msgRateIn": 1.0, "averageMsgSize": 1.0}
    return Part(
        reads,
        figures
        | {
            "subscriptions": {f"own-{number:03}": subscription, "shared": subscription},
            "publishers": [publisher] * clients,
            "compaction": {"lastCompactionRemovedEventCount": 1},
        },
    )


async def test_partitions_with_their_own_subscriptions_are_walked_once():
    """The sum looked through all partitions for each name of a subscription, in one turn of the event loop."""
    reads = Reads()
    parts = {str(number): part(reads, number) for number in range(PARTITIONS)}
    ticks = asyncio.create_task(reads.run())
    found = await partitioned_stats(parts, {}, per_partition=False)
    ticks.cancel()
    assert list(found["subscriptions"]) == [*(f"own-{n:03}" for n in range(PARTITIONS)), "shared"]
    assert len(found["subscriptions"]["own-001"]["consumers"]) == 2
    assert len(found["subscriptions"]["shared"]["consumers"]) == 1 + sum(1 + n % 2 for n in range(1, PARTITIONS))
    assert [row["msgRateIn"] for row in found["publishers"]] == [PARTITIONS, PARTITIONS / 2]
    assert found["compaction"]["lastCompactionRemovedEventCount"] == PARTITIONS
    assert reads.total < 20 * PARTITIONS
    assert reads.most < 5 * PARTITIONS


async def test_a_producer_that_one_partition_alone_has_does_not_make_a_row_of_all():
    reads = Reads()
    parts = {str(number): part(reads, 0) for number in range(PARTITIONS)}
    parts["0"]["publishers"] = parts["0"]["publishers"] * 2000
    found = await partitioned_stats(parts, {}, per_partition=False)
    assert [row["msgRateIn"] for row in found["publishers"]] == [PARTITIONS] + [1.0] * 1999
