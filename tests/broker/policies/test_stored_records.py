"""The names of records: sorted, and found by their beginning."""

from __future__ import annotations

import contextlib

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.errors import UnreadableRecordError
from magnetar.broker.policies.namespace_store import NamespaceStore
from magnetar.broker.policies.stored_records import ExistsError, MissingError, Records
from magnetar.broker.policies.values import TenantInfo
from magnetar.broker.settings import Settings
from magnetar.storage.errors import BadVersionError
from tests.twins.memory_metadata import MemoryMetadataStore

NAMES = ["a", "a/b", "a/c", "a0/b", "ab", "ab/c", "b/a"]


@given(
    st.lists(st.tuples(st.sampled_from(["create", "update", "delete", "load"]), st.sampled_from(NAMES)), max_size=30)
)
async def test_the_sorted_names_follow_each_change(steps):
    metadata = MemoryMetadataStore()
    records = Records(metadata, TenantInfo, lambda name: f"/r/{name.replace('/', '_')}")
    for number, (step, name) in enumerate(steps):
        path = f"/r/{name.replace('/', '_')}"
        with contextlib.suppress(ExistsError, MissingError, UnreadableRecordError, BadVersionError):
            if step == "create":
                await records.create(name, TenantInfo())
            elif step == "update":
                await records.update(name, lambda old: msgspec.structs.replace(old, admin_roles=["r"]), TenantInfo())
            elif step == "delete":
                await records.delete(name)
            else:  # another broker removes, damages or corrects the record
                found = await metadata.get(path)
                if found is None or number % 3:
                    await metadata.put(path, (b"{", b"{}")[number % 2])
                else:
                    await metadata.delete(path, found[1])
                await records.load(name)
        names = sorted(each for each in NAMES if each in records)
        assert records.names() == names
        for prefix in ("", "a", "a/", "ab/", "z"):
            assert records.names_under(prefix) == [each for each in names if each.startswith(prefix)]


class CountedName(str):
    """A name that counts the looks at its beginning."""

    __slots__ = ()
    looks = 0

    def startswith(self, *args):
        CountedName.looks += 1
        return super().startswith(*args)


async def test_the_namespaces_of_a_tenant_are_found_without_a_look_at_those_of_others():
    """A start sorted the names of all namespaces for each tenant: 13 s for 5,000 tenants with four namespaces each."""
    store = await NamespaceStore.open(MemoryMetadataStore(), Settings())
    for tenant in range(200):
        await store.create_namespace(CountedName(f"t{tenant:03}/n"), store.new_policies())
    CountedName.looks = 0
    assert store.namespaces_of("t100") == ["t100/n"]
    assert CountedName.looks <= 9
