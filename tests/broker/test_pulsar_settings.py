"""Every key of Apache Pulsar's broker.conf and standalone.conf: in force, without effect, or refused."""

import fnmatch
import pathlib
import re

import pytest

from magnetar.broker.setting_areas.ignored import CHOICES, IGNORED, NOTHING_TO_PROTECT, OLDER, is_ignored
from magnetar.broker.setting_areas.refused import REFUSED
from magnetar.broker.settings import SETTINGS
from magnetar.broker.settings_loader import SettingsError, load_settings

TABLE = pathlib.Path(__file__).resolve().parent.parent / "vectors" / "pulsar_settings.tsv"
ROWS = [line.split("\t") for line in TABLE.read_text().splitlines() if not line.startswith(("#", "key\t"))]
DEFAULTS = {key: default for key, default, _ in ROWS}


def load(overrides, warnings=None):
    return load_settings(None, {}, overrides, [].append if warnings is None else warnings.append)


def test_every_key_of_apache_pulsar_has_one_fate():
    for key in DEFAULTS:
        assert [key in SETTINGS, is_ignored(key) and key not in REFUSED, key in REFUSED].count(True) == 1, key


def test_defaults_that_differ_from_those_of_apache_pulsar_are_deliberate():
    differing = {
        row.key
        for row in SETTINGS.values()
        if row.source == "Apache Pulsar broker.conf" and row.default_text != DEFAULTS.get(row.key, row.default_text)
    }
    assert differing == {
        "brokerClientAuthenticationPlugin",  # empty: the same as the class without authentication
        "brokerEntryMetadataInterceptors",  # docs/differences.md
        "clusterName",  # Apache Pulsar's standalone.conf has it
        "loadBalancerOverrideBrokerNicSpeedGbps",  # 0: the same as none
        "managedLedgerDefaultAckQuorum",  # this and the next two: Apache Pulsar's standalone.conf has 1 too
        "managedLedgerDefaultEnsembleSize",
        "managedLedgerDefaultWriteQuorum",
        "subscriptionTypesEnabled",  # the same types in another order
        "tokenAuthClaim",  # the claim that Apache Pulsar uses when it is empty
    }


def test_no_key_is_in_two_tables():
    assert not IGNORED & REFUSED.keys()
    assert not REFUSED.keys() & SETTINGS.keys()
    assert not IGNORED & SETTINGS.keys()


def test_refused_keys_are_those_of_apache_pulsar_with_a_remedy():
    assert REFUSED.keys() <= DEFAULTS.keys()
    for key, refusal in REFUSED.items():
        assert refusal.remedy, key
        assert not refusal.allows("on-purpose"), key


def test_the_files_of_apache_pulsar_start_a_broker_and_list_keys_without_effect(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in DEFAULTS.items()))
    warnings = []
    settings = load_settings(file, {}, [], warnings.append)
    assert settings.max_message_size == 5 * 1024 * 1024
    assert settings.cluster_name == "standalone"
    assert len(warnings) == 1
    listed = set(warnings[0].partition(": ")[2].split(", "))
    assert listed == {key for key in DEFAULTS if key not in SETTINGS}


@pytest.mark.parametrize("key", REFUSED)
def test_a_protection_that_is_not_kept_stops_the_start(key):
    with pytest.raises(SettingsError, match=rf"command line: {key}=(on-purpose|\(hidden\)) has no effect here: ."):
        load([f"{key}=on-purpose"])


@pytest.mark.parametrize("key", REFUSED)
def test_its_default_does_not(key):
    load([f"{key}={DEFAULTS[key]}"])
    load([f"{key}="])


def test_tls_is_enabled_by_its_ports(tmp_path):
    for name in ("key.pem", "cert.pem"):
        (tmp_path / name).write_text("x")
    files = [f"tlsCertificateFilePath={tmp_path}/cert.pem", f"tlsKeyFilePath={tmp_path}/key.pem"]
    for key in REFUSED["tlsEnabled"].kept_by:
        load([*files, "tlsEnabled=true", f"{key}=6651"])
    with pytest.raises(SettingsError, match="tlsEnabled=true has no effect here: set brokerServicePortTls"):
        load([*files, "tlsEnabled=true"])


def test_keys_of_earlier_versions_have_no_effect():
    assert not OLDER & (DEFAULTS.keys() | SETTINGS.keys())
    warnings = []
    load([f"{key}=30" for key in sorted(OLDER)], warnings)
    assert warnings == [f"of no effect here and ignored: {', '.join(sorted(OLDER))}"]


SOUNDS_LIKE_PROTECTION = re.compile(
    "max|limit|throttl|rate(?!d)|auth|tls|ssl|secret|token|role|strict|threshold|enforce|verify|quota|allow|password|"
    "timeout|acl|require|check|disable",
    re.IGNORECASE,
)


def test_every_protection_without_effect_has_a_reason():
    concerned = {key for key in IGNORED if SOUNDS_LIKE_PROTECTION.search(key)}
    assert len(concerned) > 100
    unexplained = {k for k in concerned if not any(fnmatch.fnmatchcase(k, p) for p in NOTHING_TO_PROTECT)}
    assert unexplained == set(), "implement it, refuse it, or say why nothing is open without it"
    idle = {p for p in NOTHING_TO_PROTECT if not any(fnmatch.fnmatchcase(key, p) for key in IGNORED)}
    assert idle == set()


@pytest.mark.parametrize("key", CHOICES)
def test_a_value_with_which_apache_pulsar_does_not_start_stops_the_start(key):
    """Though the key has no effect. The case counts, as in Apache Pulsar."""
    for value in (*CHOICES[key], ""):
        load([f"{key}={value}"])
    for value in ("lz4", "GZIP"):
        with pytest.raises(SettingsError, match=rf"line: {key} cannot be '{value}': must be one of NONE, LZ4,"):
            load([f"{key}={value}"])


def test_the_keys_of_choices_are_ignored_keys():
    assert CHOICES.keys() <= IGNORED


def test_a_start_with_transactions_says_that_they_are_not_served(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("transactionCoordinatorEnabled=true\n")
    said = []
    load_settings(file, {}, ["unknownSettings=list"], said.append)
    assert any("transactions are not served" in text for text in said)
    file.write_text("transactionCoordinatorEnabled=false\n")
    said = []
    load_settings(file, {}, ["unknownSettings=list"], said.append)
    assert not any("transactions are not served" in text for text in said)
