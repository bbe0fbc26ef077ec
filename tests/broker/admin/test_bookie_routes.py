"""Routes of bookies on a broker of a cluster; a broker alone: the conformance scenarios."""

import dataclasses

import pytest

from magnetar.broker.policies.values import BookieAffinity
from tests.broker.admin_fakes import open_client

RACKS = "bookies/racks-info"
AFFINITY = "namespaces/public/default/persistence/bookieAffinity"
INFO = {"rack": "/r1", "hostname": "h"}


class FakeBookies:
    """BookiesApi in memory."""

    def __init__(self):
        self.groups, self.used, self.kept = {}, False, None

    async def known(self):
        return ["b1:3181", "b2:3181"]

    async def racks(self):
        return self.groups

    async def change_racks(self, change):
        self.groups = change(self.groups)

    async def affinity(self, _namespace):
        return self.used, self.kept

    async def set_affinity(self, _namespace, groups):
        self.used, self.kept = True, groups


async def in_cluster():
    call = await open_client()
    call.broker.bookies = FakeBookies()
    return call


async def test_all_bookies():
    answer = await (await in_cluster())("GET", "bookies/all")
    assert answer.json == {"bookies": [{"bookieId": "b1:3181"}, {"bookieId": "b2:3181"}]}
    assert (await (await open_client())("GET", "bookies/all")).json == {"bookies": []}


async def test_a_bookie_is_in_one_group():
    for call in (await in_cluster(), await open_client()):
        await call("POST", f"{RACKS}/b1:3181?group=one", INFO)
        await call("POST", f"{RACKS}/b2:3181?group=one", {"rack": "/r2"})
        await call("POST", f"{RACKS}/b1:3181?group=two", INFO)
        shown = (await call("GET", RACKS)).json
        assert shown == {"one": {"b2:3181": {"rack": "/r2"}}, "two": {"b1:3181": INFO}}
        assert (await call("GET", f"{RACKS}/b1:3181")).json == INFO
        assert (await call("DELETE", f"{RACKS}/b1:3181")).status == 204
        assert (await call("GET", f"{RACKS}/b1:3181")).status == 404
        assert (await call("DELETE", f"{RACKS}/b1:3181")).status == 404
        assert (await call("GET", RACKS)).json == {"one": {"b2:3181": {"rack": "/r2"}}}
        assert (await call("POST", f"{RACKS}/b3:3181?group=", {})).status == 204
        assert (await call("GET", f"{RACKS}/b3:3181")).json == {}


@pytest.mark.parametrize(("regions", "refused"), [(False, ["/a/b", "a/b/c"]), (True, ["/a", "/a/b/c", ""])])
async def test_a_rack_is_in_as_many_regions_as_the_placement_expects(regions, refused):
    call = await in_cluster()
    settings = dataclasses.replace(call.broker.settings, bookkeeper_client_regionaware_policy_enabled=regions)
    call.broker.settings = settings
    for rack in refused:
        assert (await call("POST", f"{RACKS}/b1:3181?group=g", {"rack": rack})).status == 412
    taken = "/a/b" if regions else "a/"
    assert (await call("POST", f"{RACKS}/b1:3181?group=g", {"rack": taken})).status == 204
    call.broker.settings = dataclasses.replace(settings, bookkeeper_client_rackaware_policy_enabled=False)
    assert (await call("POST", f"{RACKS}/b1:3181?group=g", {"rack": refused[0]})).status == 204


async def test_groups_of_a_namespace():
    call = await in_cluster()
    assert (await call("GET", AFFINITY)).status == 404
    body = {"bookkeeperAffinityGroupPrimary": "red", "bookkeeperAffinityGroupSecondary": "blue"}
    assert (await call("POST", AFFINITY, body)).status == 204
    assert call.broker.bookies.kept == BookieAffinity(
        bookkeeper_affinity_group_primary="red", bookkeeper_affinity_group_secondary="blue"
    )
    assert (await call("GET", AFFINITY)).json == body
    assert (await call("DELETE", AFFINITY)).status == 204
    answer = await call("GET", AFFINITY)
    assert (answer.status, answer.raw) == (200, b"")
