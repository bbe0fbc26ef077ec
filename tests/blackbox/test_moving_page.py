"""The blocks of docs/from-pulsar.md move a broker. The old broker is one of this project: tests need no Java. By hand
the same blocks moved Apache Pulsar 4.2.4 (docs/evidence.md).
"""

import json
import re
import subprocess
import sys

import pulsar
import pytest

from tests.blackbox.clients import quiet_client
from tests.blackbox.test_docs_run import ENV, ROOT, blocks, running_in

PARTITIONS = ("orders-partition-0", "orders-partition-1")
SCHEMA = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"}]}'
POLICIES = {
    "retention": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
    "maxProducers": 20,
    "publishRate": {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1},
}


def messages_of(broker, topic):
    client = quiet_client(broker.url)
    reader = client.create_reader(f"persistent://acme/shop/{topic}", pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        message = reader.read_next(10_000)
        found.append((message.data(), message.partition_key(), message.properties(), message.event_timestamp()))
    client.close()
    return found


def fill(old):
    """A tenant with policies, topics, a schema, messages and a subscription, on the old broker."""

    def put(path, body=None, method="PUT"):
        old.admin(method, f"/admin/v2/{path}", None if body is None else json.dumps(body).encode())

    put("tenants/acme", {"adminRoles": ["boss"], "allowedClusters": ["standalone"]})
    put("namespaces/acme/shop", {"message_ttl_in_seconds": 3600, "bundles": {"numBundles": 8}})
    put("namespaces/public/default/messageTTL", 77, "POST")
    put("namespaces/acme/shop/permissions/app", ["produce"], "POST")
    put("persistent/acme/shop/orders/partitions", 2)
    put("persistent/acme/shop/audit")
    put("persistent/acme/shop/a%20b-partition-x")
    put("persistent/acme/shop/audit/properties", {"owner": "me"})
    put("persistent/acme/shop/audit/permissions/auditor", ["consume"], "POST")
    for name, value in POLICIES.items():
        put(f"persistent/acme/shop/orders/{name}", value, "POST")
    put("persistent/acme/shop/audit/retention", POLICIES["retention"], "POST")
    put("persistent/acme/shop/audit/messageTTL?messageTTL=3000", method="POST")
    put("persistent/acme/shop/audit/backlogQuota", {"limitSize": 1000, "policy": "producer_exception"}, "POST")
    put("schemas/acme/shop/orders/schema", {"type": "AVRO", "schema": SCHEMA, "properties": {}}, "POST")
    client = quiet_client(old.url)
    for topic in (*PARTITIONS, "audit"):
        producer = client.create_producer(f"persistent://acme/shop/{topic}")
        for number in range(20):
            producer.send(
                b"%d" % number,
                partition_key=f"key-{number % 3}",
                properties={"n": str(number)},
                event_timestamp=number + 1,
            )
    client.close()


@pytest.mark.timeout(180)
def test_blocks_of_the_page_move_a_broker(new_broker, tmp_path):
    old, new = new_broker("old"), new_broker("new")

    def local(block):
        for port, address in (("6650", old.url), ("16650", new.url)):
            block = block.replace(f"pulsar://127.0.0.1:{port}", address)
        return block.replace("http://127.0.0.1:8080", old.http).replace("http://127.0.0.1:18080", new.http)

    fill(old)
    (program,), (replay,) = blocks("from-pulsar.md", "python"), blocks("from-pulsar.md", "sh")
    run = running_in(tmp_path)
    assert run(sys.executable, "-c", local(program)).stdout == "moved acme/shop\nmoved public/default\n"
    paths = [
        "tenants/acme",
        "namespaces/acme/shop",
        "namespaces/public/default",
        "persistent/acme/shop/partitioned",
        "persistent/acme/shop",
    ]
    paths += [f"persistent/acme/shop/orders/{name}" for name in POLICIES]
    paths += [f"persistent/acme/shop/audit/{name}" for name in ("retention", "messageTTL", "backlogQuotaMap")]
    for path in paths:
        assert json.loads(new.admin("GET", f"/admin/v2/{path}")) == json.loads(old.admin("GET", f"/admin/v2/{path}"))
    assert json.loads(new.admin("GET", "/admin/v2/persistent/acme/shop/audit/properties"))["owner"] == "me"
    schema = json.loads(new.admin("GET", "/admin/v2/schemas/acme/shop/orders/schema"))
    assert (schema["type"], schema["data"]) == ("AVRO", SCHEMA)

    for _ in range(2):  # the page promises that a second run stores nothing
        done = subprocess.run(
            ["bash", "-e", "-c", local(replay)], cwd=tmp_path, env=ENV, capture_output=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        for topic in (*PARTITIONS, "audit"):
            assert messages_of(new, topic) == messages_of(old, topic) != []

    page = re.findall(
        r"^        (magnetar subscriptions create .*)$", (ROOT / "docs/from-pulsar.md").read_text(), re.MULTILINE
    )
    run(*local(page[0]).split())
    assert json.loads(new.admin("GET", "/admin/v2/persistent/acme/shop/orders/subscriptions")) == ["billing"]
    again = run(sys.executable, "-c", local(program), check=False)
    assert again.returncode == 1 and "Cannot delete non empty namespace" in again.stderr
