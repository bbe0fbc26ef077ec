"""Topics, partitioned topics, subscriptions, messages and schemas over REST."""

import json

import pytest

from magnetar.broker.admin.api import MessagePosition, StoredMessage
from magnetar.broker.errors import RestError, TopicNotFoundError
from magnetar.broker.settings import Settings
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.storage.position import Position
from tests.broker.admin_fakes import open_client

NS = "persistent/public/default"
T = NS + "/t"


@pytest.fixture
async def call():
    client = await open_client()
    await client("PUT", T)
    return client


async def test_topic_life(call):
    assert (await call("PUT", T)).status == 409
    assert (await call("GET", NS)).json == ["persistent://public/default/t"]
    assert (await call("GET", T + "/partitions")).json == {"partitions": 0, "deleted": False}
    assert (await call("GET", T + "/subscriptions")).json == []
    assert (await call("PUT", T + "/unload")).status == 204
    assert (await call("DELETE", T)).status == 204
    assert (await call("DELETE", T)).status == 404
    assert (await call("GET", NS)).json == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "stats"),
        ("GET", "internalStats"),
        ("GET", "partitions"),
        ("GET", "subscriptions"),
        ("GET", "lastMessageId"),
        ("GET", "compaction"),
        ("PUT", "unload"),
        ("PUT", "compaction"),
        ("POST", "terminate"),
        ("DELETE", "truncate"),
        ("DELETE", "partitions"),
        ("POST", "subscription/s/skip/1"),
        ("POST", "subscription/s/skip_all"),
        ("DELETE", "subscription/s"),
        ("GET", "permissions"),
    ],
)
async def test_unknown_topics_are_404(call, method, path):
    assert (await call(method, f"{NS}/none/{path}")).status == 404
    assert (await call(method, f"persistent/public/none/t/{path}")).status == 404


async def test_topic_with_clients_needs_force(call):
    call.topics.busy.add("persistent://public/default/t")
    assert (await call("DELETE", T)).status == 412
    assert (await call("DELETE", T + "?force=true")).status == 204


async def test_names_with_a_slash_and_other_signs_are_one_part_of_the_path(call):
    assert (await call("PUT", NS + "/a%20b%25c")).status == 204
    assert "persistent://public/default/a b%c" in call.topics.plain
    assert (await call("GET", NS + "/a%20b%25c/stats")).status == 200
    assert (await call("GET", NS + "/..%2f..%2fetc%2fpasswd/stats")).status == 412
    assert (await call("GET", NS + "/%zz/stats")).status == 400
    assert (await call("GET", NS + "/%ff/stats")).status == 400


async def test_paths_that_lead_nowhere(call):
    for path in ("nothing", "/nothing", "/status/x", "persistent"):
        assert (await call("GET", "/admin/v2/" + path.lstrip("/"))).status == 404
    assert (await call("PATCH", T)).status == 405


async def test_partitioned_topic_life(call):
    path = NS + "/p"
    assert (await call("PUT", path + "/partitions", 2)).status == 204
    assert (await call("PUT", path + "/partitions", 2)).status == 409
    assert (await call("PUT", path)).status == 409
    assert (await call("GET", NS + "/partitioned")).json == ["persistent://public/default/p"]
    assert (await call("GET", NS)).json == [
        f"persistent://public/default/{n}" for n in ("p-partition-0", "p-partition-1", "t")
    ]
    assert (await call("GET", path + "/partitions")).json["partitions"] == 2
    assert (await call("GET", path + "-partition-0/partitions")).json["partitions"] == 0
    assert (await call("POST", path + "/partitions", 3)).status == 204
    assert (await call("POST", path + "/partitions", 3)).status == 204
    assert (await call("POST", path + "/partitions", 2)).status == 422
    assert (await call("POST", NS + "/t/partitions", 2)).status == 409
    assert (await call("DELETE", path)).status == 409
    assert (await call("DELETE", T + "/partitions")).status == 409
    assert (await call("DELETE", path + "/partitions")).status == 204
    assert (await call("GET", path + "/partitions")).status == 404


async def test_a_partitioned_topic_that_is_being_deleted_shows_its_mark(call):
    await call("PUT", NS + "/p/partitions", 2)
    call.topics.ending.add("persistent://public/default/p")
    assert (await call("GET", NS + "/p/partitions")).json["deleted"] is True


@pytest.mark.parametrize(("body", "status"), [(0, 406), (-1, 406), (None, 500), ("x", 400), ("2", 204)])
async def test_bad_numbers_of_partitions(call, body, status):
    assert (await call("PUT", NS + "/p/partitions", body)).status == status


async def test_partitions_of_an_unknown_topic_may_be_those_of_automatic_creation(call):
    assert (await call("GET", NS + "/new/partitions?checkAllowAutoCreation=true")).json["partitions"] == 0


async def test_partition_names_need_their_topic(call):
    assert (await call("PUT", NS + "/zz-partition-7")).status == 412


async def test_routes_that_partitioned_topics_refuse(call):
    path = NS + "/p"
    await call("PUT", path + "/partitions", 2)
    for method, part, body in (
        ("POST", "terminate", None),
        ("POST", "subscription/s/skip/1", None),
        ("POST", "subscription/s/resetcursor", {"ledgerId": 0, "entryId": 0}),
        ("GET", "subscription/s/position/1", None),
        ("GET", "messageid/0", None),
        ("POST", "subscription/s/analyzeBacklog", None),
    ):
        assert (await call(method, f"{path}/{part}", body)).status == 405, part
    assert (await call("GET", path + "/stats")).status == 404


@pytest.mark.parametrize("kind", ["partitioned-stats", "partitioned-internalStats"])
@pytest.mark.parametrize("gone", [TopicNotFoundError("p-partition-1"), RestError(404, "p-partition-1")])
async def test_statistics_leave_out_a_partition_that_is_deleted_meanwhile(call, monkeypatch, kind, gone):
    """A thousand partitions take seconds: a request got 404 when a check for inactive topics deleted one of them."""
    path = NS + "/p"
    await call("PUT", path + "/partitions", 2)

    def missing(real):
        async def found(name, *arguments, **more):
            if name.local_name == "p-partition-1":
                raise gone
            return await real(name, *arguments, **more)

        return found

    for name in ("stats", "internal_stats"):
        monkeypatch.setattr(call.topics, name, missing(getattr(call.topics, name)))
    found = await call("GET", f"{path}/{kind}")
    assert found.status == 200
    assert list(found.json["partitions"]) == ["persistent://public/default/p-partition-0"]


async def test_partitioned_topics_hand_on_to_all_partitions(call):
    path = NS + "/p"
    await call("PUT", path + "/partitions", 2)
    assert (await call("PUT", path + "/subscription/s", "earliest")).status == 204
    assert (await call("GET", path + "/subscriptions")).json == ["s"]
    assert (await call("POST", path + "/subscription/s/skip_all")).status == 204
    assert len([c for c in call.topics.calls if c[0] == "skip"]) == 2
    stats = (await call("GET", path + "/partitioned-stats")).json
    assert stats["msgInCounter"] == 10
    assert stats["metadata"]["partitions"] == 2
    assert stats["subscriptions"]["s"]["msgBacklog"] == 6
    assert len(stats["partitions"]) == 2
    assert (await call("GET", path + "/partitioned-stats?perPartition=false")).json["partitions"] == {}
    assert (await call("POST", path + "/terminate/partitions")).json["1"]["ledgerId"] == 7
    assert (await call("DELETE", path + "/subscription/s")).status == 204


@pytest.mark.parametrize(
    ("body", "start"),
    [
        (None, "latest"),
        ("latest", "latest"),
        ("earliest", "earliest"),
        ({"ledgerId": 7, "entryId": 2}, MessagePosition(7, 2)),
        ({"ledgerId": 2**63 - 1, "entryId": 2**63 - 1}, "latest"),
        ({"ledgerId": -1, "entryId": -1}, "earliest"),
    ],
)
async def test_subscription_is_created_at(call, body, start):
    assert (await call("PUT", T + "/subscription/s", body)).status == 204
    assert call.topics.plain["persistent://public/default/t"]["subscriptions"]["s"]["start"] == start
    assert (await call("PUT", T + "/subscription/s", body)).status == 409


async def test_subscription_creates_its_topic_only_if_that_is_allowed(call):
    assert (await call("PUT", NS + "/new/subscription/s")).status == 204
    await call("POST", "namespaces/public/default/autoTopicCreation", {"allowAutoTopicCreation": False})
    assert (await call("PUT", NS + "/newer/subscription/s")).status == 412


async def test_subscription_with_consumers_needs_force(call):
    await call("PUT", T + "/subscription/s")
    call.topics.busy.add(("persistent://public/default/t", "s"))
    assert (await call("DELETE", T + "/subscription/s")).status == 412
    assert (await call("DELETE", T + "/subscription/s?force=true")).status == 204
    assert (await call("DELETE", T + "/subscription/s")).status == 404


async def test_cursor_operations(call):
    await call("PUT", T + "/subscription/s")
    kept = call.topics.plain["persistent://public/default/t"]["subscriptions"]["s"]
    assert (await call("POST", T + "/subscription/s/skip/3")).status == 204
    assert kept["skipped"] == 3
    assert (await call("POST", T + "/subscription/s/resetcursor/123")).status == 204
    assert kept["start"] == 123
    body = {"ledgerId": 7, "entryId": 2, "partitionIndex": -1, "batchIndex": -1}
    assert (await call("POST", T + "/subscription/s/resetcursor", body)).status == 204
    assert kept["start"] == (MessagePosition(7, 2), False)
    assert (await call("POST", T + "/subscription/s/resetcursor", body | {"excluded": True})).status == 204
    assert kept["start"] == (MessagePosition(7, 2), True)
    assert (await call("POST", T + "/subscription/s/resetcursor")).status == 500
    assert (await call("POST", T + "/subscription/s/skip/x")).status == 404
    assert (await call("POST", T + "/subscription/s/expireMessages/5")).status == 204
    assert kept["expired"] == 5
    assert (await call("POST", T + "/subscription/s/expireMessages/99")).status == 409
    assert (await call("POST", T + "/all_subscription/expireMessages/5")).status == 204
    assert (await call("POST", T + "/subscription/s/expireMessages", body)).status == 204
    assert kept["expired"] == MessagePosition(7, 2)
    assert (await call("POST", T + "/subscription/s/expireMessages", body | {"partitionIndex": 1})).status == 412


async def test_subscription_properties(call):
    await call("PUT", T + "/subscription/s")
    assert (await call("PUT", T + "/subscription/s/properties", {"k": "v"})).status == 204
    assert (await call("GET", T + "/subscription/s/properties")).json == {"k": "v"}
    assert (await call("GET", T + "/subscription/none/properties")).status == 404


async def test_properties_with_the_value_null(call):
    await call("PUT", T + "/subscription/s")
    some = {"a": None, "b": "1"}
    assert (await call("PUT", NS + "/none/properties", some)).status == 404
    assert (await call("PUT", T + "/subscription/none/properties", some)).status == 404
    assert (await call("PUT", T + "/properties", some)).status == 500
    assert (await call("PUT", T + "/subscription/s/properties", some)).status == 500


@pytest.mark.parametrize(
    "name", ["p-partition-0-partition-0", "q-partition-0-partition-5", "q-partition-x-partition-0"]
)
async def test_a_partition_of_a_partition_is_not_created(call, name):
    await call("PUT", NS + "/p/partitions", 2)
    assert (await call("PUT", f"{NS}/{name}")).status == 409


async def test_topic_properties(call):
    assert (await call("PUT", T + "/properties", {"a": "1", "b": "2"})).status == 204
    assert (await call("DELETE", T + "/properties?key=a")).status == 204
    assert (await call("GET", T + "/properties")).json == {"b": "2"}


def stored(payload=b"m1", **metadata):
    message = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1_700_000_000_000, **metadata)
    raw = message.SerializeToString()
    entry = (
        b"\x0e\x02" + (4).to_bytes(4, "big") + pb.BrokerEntryMetadata(index=9, broker_timestamp=1).SerializeToString()
    )
    return StoredMessage(Position(7, 1), entry + len(raw).to_bytes(4, "big") + raw + payload)


async def test_message_is_shown_with_its_metadata_in_headers(call):
    await call("PUT", T + "/subscription/s")
    properties = [pb.KeyValue(key="k", value="v")]
    call.topics.messages[2] = stored(partition_key="key", event_time=1_700_000_000_001, properties=properties)
    answer = await call("GET", T + "/subscription/s/position/2")
    assert answer.raw == b"m1"
    assert answer.headers["x-pulsar-message-id"] == "7:1"
    assert answer.headers["x-pulsar-publish-time"] == "2023-11-14T22:13:20Z"
    assert answer.headers["x-pulsar-event-time"] == "2023-11-14T22:13:20.001Z"
    assert answer.headers["x-pulsar-producer-name"] == "p"
    assert answer.headers["x-pulsar-sequence-id"] == "1"
    assert answer.headers["x-pulsar-partition-key"] == "key"
    assert json.loads(answer.headers["x-pulsar-property"]) == {"k": "v"}
    assert answer.headers["x-pulsar-broker-entry-metadata-index"] == "9"
    assert "x-pulsar-num-batch-message" not in answer.headers
    assert (await call("GET", T + "/subscription/s/position/3")).status == 404


async def test_header_values_cannot_add_headers(call):
    await call("PUT", T + "/subscription/s")
    call.topics.messages[1] = stored(partition_key="a\r\nX-Evil: 1")
    answer = await call("GET", T + "/subscription/s/position/1")
    assert answer.headers["x-pulsar-partition-key"] == "a  X-Evil: 1"


async def test_messages_by_position_time_and_end(call):
    call.topics.messages[(7, 1)] = stored(num_messages_in_batch=3)
    answer = await call("GET", T + "/ledger/7/entry/1")
    assert answer.headers["x-pulsar-num-batch-message"] == "3"
    assert (await call("GET", T + "/ledger/7/entry/2")).status in (404, 500)
    call.topics.messages[("earliest", 1)] = stored()
    assert (await call("GET", T + "/examinemessage?initialPosition=earliest&messagePosition=1")).raw == b"m1"
    assert (await call("GET", T + "/examinemessage")).status == 412
    assert (await call("GET", T + "/messageid/5")).json["entryId"] == 5
    assert (await call("GET", T + "/lastMessageId")).json == {
        "ledgerId": 7,
        "entryId": -1,
        "partitionIndex": -1,
        "batchSize": 0,
        "batchIndex": -1,
    }


async def test_terminate_and_compaction(call):
    assert (await call("POST", T + "/terminate")).json["entryId"] == 2
    assert (await call("PUT", T + "/compaction")).status == 204
    assert (await call("GET", T + "/compaction")).json == {"status": "NOT_RUN", "lastError": ""}
    assert (await call("GET", T + "/offload")).json["status"] == "NOT_RUN"


async def test_stats_have_pulsars_names(call):
    await call("PUT", T + "/subscription/s")
    stats = (await call("GET", T + "/stats")).json
    assert stats["msgInCounter"] == 5
    assert stats["backlogQuotaLimitSize"] == -1
    assert stats["ownerBroker"] == "localhost:8080"
    subscription = stats["subscriptions"]["s"]
    assert subscription["msgBacklog"] == 3
    assert subscription["isDurable"] is True
    assert "activeConsumerName" not in subscription


async def test_limit_of_partitions():
    call = await open_client(Settings(max_num_partitions_per_partitioned_topic=2))
    assert (await call("PUT", NS + "/p/partitions", 3)).status == 406
    assert (await call("PUT", NS + "/p/partitions", 2)).status == 204
    assert (await call("POST", NS + "/p/partitions", 3)).status == 422


# --- schemas -----------------------------------------------------------------------------------------------------


def record(*fields):
    return json.dumps({"type": "record", "name": "R", "fields": list(fields)})


INT = {"name": "a", "type": "int"}
OPTIONAL = {"name": "b", "type": ["null", "string"], "default": None}
S = "schemas/public/default/t"


def avro(text):
    return {"type": "AVRO", "schema": text, "properties": {"k": "v"}}


async def test_schema_versions(call):
    assert (await call("GET", S + "/schema")).status == 404
    first, second = record(INT), record(INT, OPTIONAL)
    assert (await call("POST", S + "/schema", avro(first))).json == {"version": {"version": 0}}
    assert (await call("POST", S + "/schema", avro(first))).json == {"version": {"version": 0}}
    assert (await call("POST", S + "/schema", avro(second))).json == {"version": {"version": 1}}
    latest = (await call("GET", S + "/schema")).json
    assert (latest["version"], latest["type"], latest["data"], latest["properties"]) == (1, "AVRO", second, {"k": "v"})
    assert (await call("GET", S + "/schema/0")).json["data"] == first
    assert (await call("GET", S + "/schema/7")).status == 404
    assert [x["version"] for x in (await call("GET", S + "/schemas")).json["getSchemaResponses"]] == [0, 1]
    assert (await call("POST", S + "/version", avro(second))).json == {"version": 1}


async def test_schema_that_does_not_fit_or_parse(call):
    await call("POST", S + "/schema", avro(record(INT)))
    other = avro(record(INT | {"type": "string"}))
    assert (await call("POST", S + "/schema", other)).status == 409
    assert (await call("POST", S + "/version", other)).json == {"version": -1}
    assert (await call("POST", S + "/schema", avro("zzz"))).status == 422
    assert (await call("POST", S + "/schema", avro("zzz") | {"type": "FOO"})).status == 500
    assert (await call("POST", S + "/schema", {})).status == 500
    nowhere = await call("POST", "schemas/public/none/t/schema", avro(record(INT)))
    assert (nowhere.status, nowhere.json["reason"]) == (404, "Namespace does not exist")
    answer = await call("POST", S + "/compatibility", avro(record(INT)))
    assert (answer.status, answer.json) == (202, {"schemaCompatibilityStrategy": "FULL", "compatibility": True})
    assert (await call("POST", S + "/compatibility", other)).status == 500


async def test_schema_deletion(call):
    await call("POST", S + "/schema", avro(record(INT)))
    assert (await call("DELETE", S + "/schema")).json == {"version": 1}
    assert (await call("GET", S + "/schema")).status == 404
    assert (await call("POST", S + "/schema", avro(record(INT | {"type": "string"})))).json == {
        "version": {"version": 2}
    }
    assert (await call("DELETE", S + "/schema?force=true")).json == {"version": -1}
    assert (await call("POST", S + "/schema", avro(record(INT)))).json == {"version": {"version": 0}}


async def test_a_partitioned_topic_without_use(call):
    call.topics.partitioned["non-persistent://public/default/p"] = 2
    stats = (await call("GET", "non-persistent/public/default/p/partitioned-stats")).json
    assert (stats["oldestBacklogMessageAgeSeconds"], stats["subscriptions"]) == (0, {})
    assert sorted(stats["partitions"]) == [f"non-persistent://public/default/p-partition-{i}" for i in (0, 1)]


async def test_routes_that_non_persistent_topics_have_and_refuse(call):
    path = "non-persistent/public/default/n"
    await call("PUT", path)
    assert (await call("GET", path + "/internalStats")).json["numberOfEntries"] == 0
    stats = (await call("GET", path + "/stats")).json
    assert stats["msgDropRate"] == 0
    assert "deduplicationStatus" not in stats
    assert (await call("PUT", path + "/subscription/s")).status == 400
    assert (await call("POST", path + "/terminate")).status == 406
    for method, part, status in (
        ("GET", "lastMessageId", 405),
        ("PUT", "compaction", 500),
        ("GET", "offload", 500),
        ("POST", "trim", 405),
        ("GET", "properties", 406),
        ("GET", "getMessageIdByIndex?index=0", 405),
        ("POST", "all_subscription/expireMessages/1", 405),
    ):
        assert (await call(method, f"{path}/{part}")).status == status
    assert (await call("DELETE", path + "/truncate")).status == 412


@pytest.mark.parametrize("peers", [[], ["away"]])
async def test_topics_of_another_cluster_are_refused_or_asked_for_there(call, peers):
    clusters = "/admin/v2/clusters/"
    await call("PUT", clusters + "away", {"serviceUrl": "http://away:1/x"})
    await call("POST", clusters + "standalone/peers", peers)
    await call("PUT", "/admin/v2/tenants/u", {"adminRoles": [], "allowedClusters": ["standalone", "away"]})
    await call("PUT", "/admin/v2/namespaces/u/n")
    await call("PUT", "persistent/u/n/p/partitions", 2)
    assert (await call("POST", "/admin/v2/namespaces/u/n/replication", ["away"])).status == 200
    for method, path in (("GET", "p/partitions"), ("GET", "none/stats"), ("PUT", "new"), ("DELETE", "p/truncate")):
        answer = await call(method, f"persistent/u/n/{path}?a=b")
        if peers:
            place = f"http://away:1/admin/v2/persistent/u/n/{path}?a=b"
            assert (answer.status, answer.headers["location"]) == (307, place)
        else:
            assert answer.status == 412
            assert "Namespace missing local cluster name in clusters list" in answer.json["reason"]
    assert (await call("GET", "persistent/u/n")).status == 200
    assert (await call("DELETE", "persistent/u/n/p/partitions")).status == 204, "data stay removable"
