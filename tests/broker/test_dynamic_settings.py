"""Settings changed while the broker runs: in force at once, after a restart, and gone when removed."""

import pytest

from magnetar.broker.dynamic_settings import DynamicSettings
from magnetar.broker.settings import SETTINGS, Settings
from tests.twins.memory_metadata import MemoryMetadataStore


@pytest.fixture
def metadata():
    return MemoryMetadataStore()


@pytest.fixture
def changes():
    return []


@pytest.fixture
async def dynamic(metadata, changes):
    found = DynamicSettings(metadata, Settings(max_tenants=7))
    await found.load()
    found.listen(lambda: changes.append(True))
    return found


def settings_of(dynamic):
    return dynamic._settings


async def test_a_change_is_in_force_and_told(dynamic, changes):
    await dynamic.change("maxTenants", "9")
    assert settings_of(dynamic).max_tenants == 9
    assert dynamic.values == {"maxTenants": "9"}
    assert changes == [True]


async def test_a_change_before_the_parts_listen_reaches_them(metadata, changes):
    """Another broker changes a setting while this broker starts."""
    dynamic = DynamicSettings(metadata, Settings())
    await dynamic.load()
    other = DynamicSettings(metadata, Settings())
    await other.change("maxTenants", "9")
    await dynamic.load()
    dynamic.listen(lambda: changes.append(settings_of(dynamic).max_tenants))
    assert changes == [9]
    await other.change("maxTenants", "10")
    await dynamic.load()
    assert changes == [9, 10]


async def test_parts_that_begin_to_listen_get_no_call_without_a_change(metadata, changes):
    await DynamicSettings(metadata, Settings()).change("maxTenants", "9")
    dynamic = DynamicSettings(metadata, Settings())
    await dynamic.load()
    dynamic.listen(lambda: changes.append(True))
    assert changes == []


async def test_a_change_outlives_the_broker(dynamic, metadata):
    await dynamic.change("maxTenants", "9")
    await dynamic.change("subscriptionTypesEnabled", "Exclusive, Shared")
    settings = Settings()
    await DynamicSettings(metadata, settings).load()
    assert settings.max_tenants == 9
    assert settings.subscription_types_enabled == ("Exclusive", "Shared")


async def test_a_removed_setting_has_the_value_of_the_start(dynamic, metadata, changes):
    await dynamic.change("maxTenants", "9")
    await dynamic.remove("maxTenants")
    await dynamic.remove("maxTenants")
    assert settings_of(dynamic).max_tenants == 7
    assert dynamic.values == {}
    assert len(changes) == 2
    settings = Settings()
    await DynamicSettings(metadata, settings).load()
    assert settings.max_tenants == 0


@pytest.mark.parametrize(("key", "text"), [("maxTenants", "many"), ("loadBalancerTransferEnabled", "false")])
async def test_a_setting_without_effect_is_kept_and_changes_nothing(dynamic, changes, key, text):
    before = dict(settings_of(dynamic).__dict__)
    await dynamic.change(key, text)
    assert settings_of(dynamic).__dict__ == before
    assert dynamic.values == {key: text}
    assert changes == []
    await dynamic.remove(key)
    assert dynamic.values == {}


async def test_changes_of_two_brokers_that_share_the_node_are_both_kept(dynamic, metadata, changes):
    other = DynamicSettings(metadata, Settings())
    await other.load()
    await other.change("maxTenants", "9")
    await dynamic.change("brokerShutdownTimeoutMs", "5000")  # the version that this broker knows is an old one
    assert dynamic.values == {"maxTenants": "9", "brokerShutdownTimeoutMs": "5000"}
    assert settings_of(dynamic).max_tenants == 9
    await other.load()
    assert other.values == dynamic.values
    await other.remove("maxTenants")
    count = len(changes)
    await dynamic.load()
    assert settings_of(dynamic).max_tenants == 7
    assert len(changes) == count + 1
    await dynamic.load()
    assert len(changes) == count + 1  # without a change no listener is called


@pytest.mark.parametrize("stored", [b"", b"{", b'["a"]', b'{"maxTenants": 9}', b'{"maxTenants":"\xff"}'])
async def test_a_node_that_cannot_be_read_changes_nothing(dynamic, metadata, stored):
    await dynamic.change("maxTenants", "9")
    await metadata.put("/admin/configuration", stored)
    await dynamic.load()
    assert settings_of(dynamic).max_tenants == 9
    await dynamic.change("maxTenants", "8")  # and is written anew
    assert settings_of(dynamic).max_tenants == 8


def test_settings_of_ours_that_may_change_are_known_to_both():
    assert {"maxTenants", "superUserRoles", "subscriptionTypesEnabled"} <= set(DynamicSettings.names) & SETTINGS.keys()
    assert not {"brokerServicePort", "clusterName", "dataDir"} & set(DynamicSettings.names)


def test_only_known_settings_change():
    with pytest.raises(AttributeError, match="no such setting"):
        Settings().change("no_such", 1)
