"""The settings of Apache Pulsar for bookies, as options of the client."""

import pytest

from magnetar.bookkeeper.bookies.isolation import IsolationGroups
from magnetar.bookkeeper.bookies.placement import PlacementRules
from magnetar.bookkeeper.bookies.tls import BookieSecurity, BookieTls
from magnetar.bookkeeper.options import ClientOptions
from magnetar.bookkeeper.wire.digest_md5 import DigestCredentials
from magnetar.broker.clustering.bookie_client import client_options
from magnetar.broker.settings_loader import load_settings
from tests.cluster.certificates import issued, pem

PREFIX = "bookkeeperClient"


def options(**changes):
    overrides = [f"{key}={value}" for key, value in changes.items()]
    return client_options(load_settings(None, {}, ["advertisedAddress=h1", *overrides], lambda _: None))


def test_omitted_settings_have_the_defaults_of_the_client():
    own = ClientOptions()
    found = options()
    for name in ("add_timeout_s", "read_timeout_s", "speculative_read_s", "quarantine_s", "quarantine_ratio"):
        assert getattr(found, name) == getattr(own, name)
    assert not found.disk_weights
    assert options(bookkeeperDiskWeightBasedPlacementEnabled="true").disk_weights
    assert (found.placement, found.max_frame_bytes, found.local_host) == (PlacementRules(), own.max_frame_bytes, "h1")


@pytest.mark.parametrize(
    ("key", "value", "name", "expected"),
    [
        ("TimeoutInSeconds", 30, "add_timeout_s", 30.0),
        ("TimeoutInSeconds", 30, "read_timeout_s", 30.0),
        ("SpeculativeReadTimeoutInMillis", 0, "speculative_read_s", 0.0),
        ("SpeculativeReadTimeoutInMillis", 250, "speculative_read_s", 0.25),
        ("HealthCheckQuarantineTimeInSeconds", 1800, "quarantine_s", 1800.0),
        ("HealthCheckEnabled", "false", "quarantine_s", 0.0),
        ("QuarantineRatio", 0.25, "quarantine_ratio", 0.25),
        ("ReorderReadSequenceEnabled", "false", "local_host", ""),
        ("GetBookieInfoIntervalSeconds", 60, "disk_info_interval_s", 60.0),
        ("GetBookieInfoRetryIntervalSeconds", 5, "disk_info_retry_s", 5.0),
        ("RackawarePolicyEnabled", "false", "placement", PlacementRules(rack_aware=False)),
        ("RegionawarePolicyEnabled", "true", "placement", PlacementRules(region_aware=True)),
        ("MinNumRacksPerWriteQuorum", 3, "placement", PlacementRules(min_racks_per_write_quorum=3)),
        ("EnforceMinNumRacksPerWriteQuorum", "true", "placement", PlacementRules(enforce_min_racks=True)),
        ("IsolationGroups", "a, b", "placement", PlacementRules(isolation=IsolationGroups(frozenset("ab")))),
        ("SecondaryIsolationGroups", "c", "placement", PlacementRules()),
    ],
)
def test_each_key(key, value, name, expected):
    assert getattr(options(**{PREFIX + key: value}), name) == expected


def test_primary_and_secondary_groups():
    found = options(bookkeeperClientIsolationGroups="a", bookkeeperClientSecondaryIsolationGroups="b,c")
    assert found.placement.isolation == IsolationGroups(frozenset("a"), frozenset("bc"))


def test_larger_messages_take_larger_frames():
    assert options(maxMessageSize=10 << 20).max_frame_bytes == (10 << 20) + 10 * 1024
    assert options(maxMessageSize=1 << 20).max_frame_bytes == ClientOptions().max_frame_bytes


def login(tmp_path, module="org.apache.zookeeper.server.auth.DigestLoginModule"):
    file = tmp_path / "login.conf"
    file.write_text(f'BookKeeper {{ {module} required username="u" password="p"; }};')
    return {"bookkeeperClientAuthenticationPlugin": PLUGIN, "jaasLoginConfigPath": file}


OTHER = {
    "bookkeeperClientAuthenticationParametersName": "saslJaasClientSectionName",
    "bookkeeperClientAuthenticationParameters": "Other",
}
PLUGIN = "org.apache.bookkeeper.sasl.SASLClientProviderFactory"


def test_connections_are_plain_unless_tls_is_asked_for(tmp_path):
    assert options(bookkeeperTLSKeyFilePath=tmp_path / "none").security == BookieSecurity()


def test_tls_and_a_login(tmp_path):
    (tmp_path / "ca.pem").write_bytes(pem(issued("authority")[0]))
    found = options(
        bookkeeperTLSClientAuthentication="true",
        bookkeeperTLSTrustCertsFilePath=tmp_path / "ca.pem",
        bookkeeper_tlsHostnameVerificationEnabled="true",
        bookkeeperTlsCertFilesRefreshDurationSeconds=7,
        **login(tmp_path),
    ).security
    assert found.tls == BookieTls(trust=f"{tmp_path}/ca.pem", verify_names=True, refresh_s=7.0)
    assert found.credentials == DigestCredentials("u", "p")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bookkeeperTLSClientAuthentication": "true", "bookkeeperTLSKeyFilePath": "none"}, "none"),
        ({"bookkeeperClientAuthenticationPlugin": PLUGIN}, "needs jaasLoginConfigPath"),
        (OTHER, "has no section Other"),
    ],
)
def test_an_unusable_value_names_its_setting(tmp_path, changes, reason):
    more = login(tmp_path) if changes is OTHER else {}
    with pytest.raises(ValueError, match=reason):
        options(**more, **changes)


def test_kerberos_is_refused(tmp_path):
    with pytest.raises(ValueError, match="Kerberos, which is not supported"):
        options(**login(tmp_path, "com.sun.security.auth.module.Krb5LoginModule"))
