"""Record the stored data of an Apache Pulsar cluster: metadata nodes and ledger entries, as golden vectors for the
layout's codecs.

    python tests/cluster/record_layout.py --zk 127.0.0.1:12181 --web http://127.0.0.1:9081 --service pulsar://127.0.0.1:9651 OUT.json

Precondition: a broker of Apache Pulsar runs on ZooKeeper and bookies, on an empty cluster. The file is an object of
stages; each maps a path to ``[value in hex, node version, is ephemeral]``. ``ledgers`` maps a ledger id to the hex of
its entries' payloads, digest removed.
"""

import argparse
import asyncio
import contextlib
import json
import struct
import time

import pulsar
import requests
from kazoo.client import KazooClient

LEFT_OUT = ("/zookeeper", "/ledgers/cookies", "/ledgers/underreplication", "/ledgers/INSTANCEID")


def dump(zk, path="/"):
    """Every node below ``path``."""
    found = {}
    with contextlib.suppress(Exception):
        data, stat = zk.get(path)
        children = zk.get_children(path)
        if (data or not children) and not path.startswith(LEFT_OUT):
            found[path] = [data.hex(), stat.version, stat.ephemeralOwner != 0]
        for child in children:
            found.update(dump(zk, f"{path.rstrip('/')}/{child}"))
    return found


async def read_entry(bookies, ledger_id, entry_id):
    """The payload of an entry from the first bookie that has it, or None."""
    for bookie in bookies:
        host, port = bookie.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(struct.pack(">IIqq", 20, 2 << 24 | 2 << 16, ledger_id, entry_id))
        size = struct.unpack(">I", await reader.readexactly(4))[0]
        reply = await reader.readexactly(size)
        writer.close()
        if struct.unpack(">i", reply[4:8])[0] == 0:
            return reply[24 + 32 :]
    return None


def ledgers_of(nodes):
    return {
        int(path[9:].replace("/", "").replace("L", "")): bytes.fromhex(v[0])
        for path, v in nodes.items()
        if "/L0" in path
    }


async def entries_of(nodes):
    bookies = [p.rsplit("/", 1)[1] for p in nodes if p.startswith("/ledgers/available/") and ":" in p]
    found = {}
    for ledger_id, meta in ledgers_of(nodes).items():
        entries = []
        skip = 8 if b"compacted-ledger" in meta else 4
        while len(entries) < 60 and (entry := await read_entry(bookies, ledger_id, len(entries))) is not None:
            entries.append(entry[skip:].hex())
        found[str(ledger_id)] = entries
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--zk", "--web", "--service"):
        parser.add_argument(name, required=True)
    parser.add_argument("out")
    options = parser.parse_args()
    zk = KazooClient(options.zk)
    zk.start()
    stages, all_entries = {}, {}

    def stage(name):
        stages[name] = dump(zk)
        all_entries.update(asyncio.run(entries_of(stages[name])))

    def call(method, path, body=None):
        answer = requests.request(method, f"{options.web}/admin/v2/{path}", json=body, timeout=30)
        if answer.status_code >= 300:
            print("refused", method, path, answer.status_code, answer.text[:200])

    stage("initialized")
    call("PUT", "tenants/t1", {"adminRoles": ["r1"], "allowedClusters": ["c1"]})
    call("PUT", "namespaces/t1/n1", {"bundles": {"numBundles": 4}})
    call("PUT", "namespaces/t1/n4", {"bundles": {"numBundles": 4}})
    call("PUT", "persistent/t1/n4/p1/partitions", 3)
    requests.put(
        f"{options.web}/admin/v2/persistent/t1/n4/p2/partitions",
        json={"partitions": 2, "properties": {"a": "b"}},
        headers={"Content-Type": "application/vnd.partitioned-topic-metadata+json"},
        timeout=30,
    )
    requests.put(f"{options.web}/admin/v2/persistent/t1/n4/props", json={"b": "a"}, timeout=30)
    call("POST", "namespaces/t1/n1/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5})
    call("POST", "namespaces/t1/n1/messageTTL", 100)
    call("POST", "namespaces/t1/n1/deduplication", True)
    call("POST", "namespaces/t1/n1/permissions/r2", ["consume", "produce"])
    call("POST", "namespaces/t1/n1/backlogQuota", {"limitSize": 1000000, "policy": "producer_exception"})
    call("POST", "namespaces/t1/n1/dispatchRate", {"dispatchThrottlingRateInMsg": 100})
    call(
        "POST",
        "namespaces/t1/n1/persistence",
        {
            "bookkeeperEnsemble": 3,
            "bookkeeperWriteQuorum": 3,
            "bookkeeperAckQuorum": 2,
            "managedLedgerMaxMarkDeleteRate": 0,
        },
    )
    call("POST", "namespaces/t1/n1/delayedDelivery", {"active": True, "tickTime": 1000})
    call("POST", "namespaces/t1/n1/maxConsumersPerTopic", 9)
    call(
        "POST",
        "namespaces/t1/n1/inactiveTopicPolicies",
        {
            "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
            "maxInactiveDurationSeconds": 60,
            "deleteWhileInactive": True,
        },
    )
    client = pulsar.Client(options.service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    topic = "persistent://t1/n4/a b%é"
    consumer = client.subscribe(
        topic,
        "sub/1 x",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        properties={"k": "v"},
    )
    batches = client.subscribe(
        "persistent://t1/n4/batch",
        "s",
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
        batch_index_ack_enabled=True,
    )
    stage("subscribed")
    producer = client.create_producer(topic, batching_enabled=False, producer_name="pa")
    for number in range(10):
        producer.send(b"m%d" % number)
    held = [consumer.receive(10000) for _ in range(10)]
    for number in (0, 3, 4, 7):
        consumer.acknowledge(held[number])
    batcher = client.create_producer(
        "persistent://t1/n4/batch", batching_enabled=True, batching_max_publish_delay_ms=500
    )
    for number in range(10):
        batcher.send_async(b"b%d" % number, lambda *_: None)
    batcher.flush()
    parts = [batches.receive(10000) for _ in range(10)]
    for number in (0, 3, 9):
        batches.acknowledge(parts[number])
    call("POST", "persistent/t1/n4/cmp0/deduplicationEnabled", True)
    call("POST", "persistent/t1/n4/dd/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5})
    call("POST", "persistent/t1/n4/batch/retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5})
    for version, text in enumerate(
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}',
            '{"type":"record","name":"R","fields":[{"name":"a","type":"string"},{"name":"b","type":["null","int"],"default":null}]}',
        )
    ):
        call("POST", "schemas/t1/n4/sch/schema", {"type": "AVRO", "schema": text, "properties": {"v": str(version)}})
    ended = client.create_producer("persistent://t1/n4/ended", batching_enabled=False)
    for _ in range(3):
        ended.send(b"e")
    call("POST", "persistent/t1/n4/ended/terminate")
    compacted = client.create_producer("persistent://t1/n4/cmp", batching_enabled=False)
    for number in range(6):
        compacted.send(b"c%d" % number, partition_key=f"k{number % 2}")
    call("PUT", "persistent/t1/n4/cmp/compaction")
    time.sleep(3)
    stage("serving")
    for name in ("a%20b%25%C3%A9", "batch", "cmp"):
        call("PUT", f"persistent/t1/n4/{name}/unload")
    call("PUT", "namespaces/t1/n4/unload")
    client.close()
    time.sleep(1)
    stage("unloaded")
    stages["entries"] = all_entries
    with open(options.out, "w") as file:
        json.dump(stages, file, indent=1, sort_keys=True, ensure_ascii=False)
    zk.stop()


if __name__ == "__main__":
    main()
