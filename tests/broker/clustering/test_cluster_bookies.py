"""Racks and groups of bookies in Apache Pulsar's nodes."""

import json

import pytest

from magnetar.bookkeeper.bookies.isolation import IsolationGroups
from magnetar.broker.clustering.cluster_bookies import ClusterBookies
from magnetar.broker.errors import MetadataError
from magnetar.broker.policies.values import BookieAffinity, BundlesData
from tests.twins.memory_metadata import MemoryMetadataStore

BUNDLES = BundlesData(boundaries=["0x00000000", "0xffffffff"], num_bundles=1)
NODE = "/admin/local-policies/t/n"
LEDGER = {"pulsar/managed-ledger": "t/n/persistent/topic"}
GROUPS = BookieAffinity(bookkeeper_affinity_group_primary="red", bookkeeper_affinity_group_secondary="blue,green")


@pytest.fixture
def store():
    return MemoryMetadataStore()


def bookies(store, strict=False):
    return ClusterBookies(store, "/ledgers", {"t/n": BUNDLES}.get, strict=strict)


async def stored(store, path):
    return json.loads((await store.get(path))[0])


async def test_bookies_are_those_that_have_registered(store):
    for name in ("b2:3181", "b1:3181"):
        await store.put(f"/ledgers/cookies/{name}", b"")
    assert await bookies(store).known() == ["b1:3181", "b2:3181"]


async def test_racks_are_changed_beside_those_of_others(store):
    made = bookies(store)
    assert await made.racks() == {}
    await made.change_racks(lambda groups: groups | {"a": {"b1": {"rack": "/r1", "hostname": "h"}}})
    assert await made.racks() == await stored(store, "/bookies") == {"a": {"b1": {"rack": "/r1", "hostname": "h"}}}
    put, forestalled = store.put, []

    async def forestalled_put(path, value, version=None):
        if not forestalled:
            forestalled.append(await put(path, b'{"b":{}}'))
        return await put(path, value, version)

    store.put = forestalled_put
    await made.change_racks(lambda groups: groups | {"c": {}})
    assert await made.racks() == {"b": {}, "c": {}}


@pytest.mark.parametrize("data", [b"{", b'{"\xff":{}}', b'{"a":{"b":{"c":"\xff"}}}'])
async def test_racks_that_cannot_be_read_are_not_overwritten(store, data):
    await store.put("/bookies", data)
    with pytest.raises(MetadataError, match="/bookies cannot be read"):
        await bookies(store).change_racks(lambda groups: groups)
    assert (await store.get("/bookies"))[0] == data


async def test_groups_of_a_namespace_stand_in_its_local_policies_beside_the_bundles(store):
    made = bookies(store)
    assert await made.affinity("t/n") == (False, None)
    await made.set_affinity("t/n", GROUPS)
    assert await stored(store, NODE) == {
        "bundles": {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1},
        "migrated": False,
        "bookieAffinityGroup": {
            "bookkeeperAffinityGroupPrimary": "red",
            "bookkeeperAffinityGroupSecondary": "blue,green",
        },
    }
    assert await made.affinity("t/n") == (True, GROUPS)
    await store.put(NODE, json.dumps(await stored(store, NODE) | {"unknown": 7}).encode())
    await made.set_affinity("t/n", None)
    assert await made.affinity("t/n") == (True, None)
    assert (await stored(store, NODE))["unknown"] == 7


async def test_a_ledger_gets_the_groups_of_its_namespace(store):
    made, strict = bookies(store), bookies(store, strict=True)
    assert await made.isolation_of(LEDGER) is None
    assert await strict.isolation_of(LEDGER) == IsolationGroups()
    await made.set_affinity("t/n", GROUPS)
    expected = IsolationGroups(frozenset({"red"}), frozenset({"blue", "green"}))
    for each in (made, strict):
        assert await each.isolation_of(LEDGER) == expected
        assert await each.isolation_of({"component": "schema"}) is None


@pytest.mark.parametrize(
    "data",
    [
        *(b"{", b"[]", b'{"bookieAffinityGroup":3}', b'{"bookieAffinityGroup":"\xff"}'),
        pytest.param(b'{"unknown":' + b"[" * 100_000, id="deep"),
    ],
)
async def test_groups_that_cannot_be_read_keep_no_ledger_from_being_made(store, data):
    await store.put(NODE, data)
    assert await bookies(store).isolation_of(LEDGER) is None
    with pytest.raises(MetadataError):
        await bookies(store).affinity("t/n")
