"""The sources of settings, their precedence, and errors about wrong values."""

import errno
import os
import re
from pathlib import Path

import pytest

from magnetar.broker.settings import Settings
from magnetar.broker.settings_docs import CONFIGURATION_FILE
from magnetar.broker.settings_loader import SettingsError, load_settings


def load(file=None, environment=None, overrides=(), warnings=None):
    return load_settings(file, environment or {}, overrides, [].append if warnings is None else warnings.append)


@pytest.fixture
def conf(tmp_path):
    def write(text):
        file = tmp_path / "broker.conf"
        file.write_text(text)
        return file

    return write


def test_nothing_given_is_the_defaults():
    assert load() == Settings()


def test_generated_configuration_file_is_the_defaults_without_a_warning():
    warnings = []
    assert load(CONFIGURATION_FILE, warnings=warnings) == Settings()
    assert warnings == []


def test_command_line_beats_environment_beats_file(conf):
    file = conf("maxMessageSize=2000\nkeepAliveIntervalSeconds = 2\nclusterName=from-file\n")
    environment = {
        "PULSAR_PREFIX_keepAliveIntervalSeconds": "3",
        "PULSAR_PREFIX_clusterName": "env",
        "maxMessageSize": "9",
    }
    settings = load(file, environment, ["clusterName=cli"])
    assert settings.max_message_size == 2000
    assert settings.keep_alive_interval_seconds == 3
    assert settings.cluster_name == "cli"


def test_kinds_of_values(conf):
    settings = load(
        conf(
            "# a comment\n\n! another\n"
            "allowAutoTopicCreation=FALSE\nmanagedLedgerDefaultMarkDeleteRateLimit=0.5\nsuperUserRoles=a, b,,\n"
            "brokerServicePortTls=\nwebServicePort=0\ntokenSecretKey=data:;base64,AQID=\n"
        )
    )
    assert settings.allow_auto_topic_creation is False
    assert settings.managed_ledger_default_mark_delete_rate_limit == 0.5
    assert settings.super_user_roles == ("a", "b")
    assert settings.broker_service_port_tls is None
    assert settings.web_service_port == 0
    assert settings.token_secret_key == "data:;base64,AQID="


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("maxMessageSize=ten", ["maxMessageSize", "'ten'", "an integer from 1024 to 1073741824"]),
        ("maxMessageSize=10", ["'10'", "from 1024 to 1073741824"]),
        ("brokerServicePort=65536", ["'65536'", "from 0 to 65535"]),
        ("allowAutoTopicCreation=maybe", ["'maybe'", "true or false"]),
        ("allowAutoTopicCreationType=round", ["'round'", "non-partitioned, partitioned"]),
        ("subscriptionTypesEnabled=Shared,Own", ["a list of Exclusive, Shared"]),
        ("managedLedgerDefaultMarkDeleteRateLimit=nan-ish", ["a number of at least 0.01"]),
        ("managedLedgerDefaultMarkDeleteRateLimit=NaN", ["'NaN'", "a number of at least 0.01"]),
        ("loadBalancerCPUResourceWeight=inf", ["'inf'", "a number of at least 0"]),
        pytest.param("maxUnackedMessagesPerConsumer=" + "1" * 400, ["an integer of at least 0"], id="400 digits"),
        ("maxMessageSize=5_000", ["'5_000'", "an integer from 1024"]),
        ("just-a-word", ["expected key=value", "'just-a-word'"]),
        ("authorizationEnabled=true", ["authenticationEnabled"]),
        ("webServicePortTls=8443", ["tlsCertificateFilePath"]),
        ("brokerServicePort=", ["nothing to listen on"]),
        ("defaultRetentionSizeInMB=5", ["defaultRetentionTimeInMinutes"]),
        ("advertisedListeners=here", ["advertisedListeners", "'here'", "<name>:<url>", "pulsar+ssl://"]),
        ("maxMessageSize=5MB", ["'5MB'", "an integer from 1024 to 1073741824 (unit: bytes)"]),
        ("clusterName=a/b", ["clusterName", "'a/b'", "letters, digits"]),
        ("httpAllowedHosts=https://mq.example.org", ["httpAllowedHosts", "'https://mq.example.org'", "without scheme"]),
        ("httpAllowedHosts=mq.example.org:8080", ["'mq.example.org:8080'", "without scheme and port"]),
        ("dataDir=~/data", ["dataDir", "'~/data'", "~ has no meaning", "the whole path"]),
        ("messageConverterSettings=kafka.mode=kop", ["messageConverterSettings needs messageConverters"]),
        ('clusterName="mine"', ["clusterName", "quotes", "leave them out"]),
        ("superUserRoles='admin'", ["superUserRoles", "quotes", "leave them out"]),
        ('superUserRoles="admin",proxy', ["superUserRoles", "quotes", "leave them out"]),
        ('superUserRoles=admin, "proxy"', ["superUserRoles", "quotes", "leave them out"]),
    ],
)
def test_errors_of_invalid_values_name_the_allowed_values(override, words):
    with pytest.raises(SettingsError) as e:
        load(overrides=[override])
    for word in words:
        assert word in str(e.value)


def test_lines_of_another_form_are_reported_beside_all_other_problems(conf):
    """Each start reported a single line."""
    file = conf("brokerServicePort 6650\nmaxMessageSize=x\nclusterName: a\n")
    with pytest.raises(SettingsError) as e:
        load(file)
    assert [text.partition(", ")[2] for text in e.value.problems] == [
        "line 1: expected key=value, found 'brokerServicePort 6650'",
        "line 3: expected key=value, found 'clusterName: a'",
        "line 2: maxMessageSize cannot be 'x': must be an integer from 1024 to 1073741824 (unit: bytes)",
    ]


@pytest.mark.parametrize("key", ["tokenSecretKey", "brokerClientAuthenticationParameters"])
@pytest.mark.parametrize(
    "form",
    [
        "{}: hush",
        "{} hush",
        "{}:hush",
        '{{"{}": "hush"}}',
        "- {}: hush",
        "export {} hush",
        "{}=x\\\nhush",
        "{} x\\\nhush",
    ],
)
def test_a_line_of_another_form_shows_no_secret(conf, key, form):
    with pytest.raises(SettingsError) as e:
        load(conf(form.format(key)))
    assert f"found '{key} (hidden)'" in str(e.value)
    assert "hush" not in str(e.value)


def test_a_line_behind_that_of_a_secret_is_shown(conf):
    with pytest.raises(SettingsError) as e:
        load(conf("tokenSecretKey=x\nbrokerServicePort 6650\n"))
    assert "found 'brokerServicePort 6650'" in str(e.value)


def test_all_problems_are_reported_at_once_with_their_place(conf):
    file = conf("maxMessageSize=x\n\nkeepAliveIntervalSeconds=0\n")
    with pytest.raises(SettingsError) as e:
        load(file)
    assert len(e.value.problems) == 2
    assert "line 1" in e.value.problems[0]
    assert "line 3" in e.value.problems[1]


def test_a_line_without_equals_sign_is_an_error(conf):
    with pytest.raises(SettingsError, match="line 2"):
        load(conf("clusterName=a\nnonsense\n"))


def test_secrets_are_not_shown():
    from magnetar.broker.settings import SETTINGS

    assert SETTINGS["tokenSecretKey"].secret


def test_keys_of_apache_pulsar_without_meaning_here_are_accepted_with_one_note(conf):
    warnings = []
    load(conf("managedLedgerMaxEnsembleSize=1\ndbStorage_x=1\n"), warnings=warnings)
    assert warnings == ["of no effect here and ignored: managedLedgerMaxEnsembleSize, dbStorage_x"]


@pytest.mark.parametrize("hosts", ["*", "mq.example.org", "10.0.0.5, [::1], mq_1"])
def test_names_of_a_proxy(hosts):
    assert load(overrides=[f"httpAllowedHosts={hosts}"]).http_allowed_hosts


def test_a_file_of_windows(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_bytes(b"\xef\xbb\xbfclusterName=mine\r\nbrokerServicePort=1234\r\n")
    settings = load(file)
    assert (settings.cluster_name, settings.broker_service_port) == ("mine", 1234)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory; name a file of key=value lines"),
        (Path.mkdir, "Is a directory; name a file of key=value lines"),
        (lambda path: path.write_bytes(b"port=1\xff"), "byte 6 is no text in UTF-8; name a file of key=value lines"),
    ],
)
def test_a_file_that_cannot_be_read_has_a_remedy(tmp_path, content, words):
    path = tmp_path / "broker.conf"
    if content is not None:
        content(path)
    with pytest.raises(SettingsError, match=re.escape(f"cannot read {path}: {words}")):
        load_settings(path, {}, [], pytest.fail)


def test_a_file_without_the_right_to_read_names_the_user(tmp_path, monkeypatch):
    def refuse(path, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_text", refuse)  # root may read every file
    words = f"cannot read {tmp_path}/x: Permission denied; user {os.geteuid()} must have the right to read it"
    with pytest.raises(SettingsError, match=re.escape(words)):
        load_settings(tmp_path / "x", {}, [], pytest.fail)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("authenticationEnable", "authenticationEnabled"),
        ("authentication_enabled", "authenticationEnabled"),
        ("AUTHORIZATIONENABLED", "authorizationEnabled"),
        ("maxMesageSize", "maxMessageSize"),
        ("brokerServicePortTLS", "brokerServicePortTls"),
        ("webServiceTlsPort", "webServicePortTls"),
    ],
)
@pytest.mark.parametrize("source", ["file", "environment", "command line"])
def test_an_unknown_key_stops_the_start_with_the_nearest_name(key, meant, source, conf):
    text = f"{key}=true"
    given = {
        "file": lambda: load(conf(text)),
        "environment": lambda: load(environment={f"PULSAR_PREFIX_{key}": "true"}),
        "command line": lambda: load(overrides=[text]),
    }
    with pytest.raises(SettingsError, match=f"{source}.*: unknown setting {key}; did you mean {meant}\\?"):
        given[source]()


def test_an_unknown_key_without_a_near_one():
    with pytest.raises(SettingsError, match=r"unknown setting zzz; docs/settings.md lists all keys"):
        load(overrides=["zzz=1"])


@pytest.mark.parametrize("key", ["kafkaListeners", "kafkaMetadataTenant", "kopAllowedNamespaces", "entryFormat"])
def test_a_key_of_kafka_on_pulsar_names_the_way_from_there(key):
    with pytest.raises(
        SettingsError, match=f"unknown setting {key}; leave the key of Kafka-on-Pulsar out: .*converters"
    ):
        load(overrides=[f"{key}=x"])


def test_a_key_of_kafka_on_pulsar_may_be_listed(conf):
    warnings = []
    load(conf("kafkaListeners=PLAINTEXT://127.0.0.1:9092\nunknownSettings=list"), warnings=warnings)
    assert warnings == ["unknown and ignored (unknownSettings=list): kafkaListeners"]


def test_files_of_other_versions_may_be_listed_but_never_for_security():
    warnings = []
    load(
        overrides=["unknownSettings=list", "someKeyOfTomorrow=1", "loadBalancerTransferEnabled=true"], warnings=warnings
    )
    assert warnings == [
        "of no effect here and ignored: loadBalancerTransferEnabled",
        "unknown and ignored (unknownSettings=list): someKeyOfTomorrow",
    ]
    for typo in ("authenticationEnable", "authorisationEnabled", "superUserRole", "tlsRequireTrustedClientCert"):
        with pytest.raises(SettingsError, match=f"unknown setting {typo}; did you mean"):
            load(overrides=["unknownSettings=list", f"{typo}=true"])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["tlsRequireTrustedClientCertOnConnect=true"], "needs tlsTrustCertsFilePath"),
        (
            [
                "tlsRequireTrustedClientCertOnConnect=true",
                "tlsAllowInsecureConnection=true",
                "tlsTrustCertsFilePath=/ca.pem",
            ],
            "tlsAllowInsecureConnection=true contradict",
        ),
    ],
)
def test_client_certificates_that_cannot_be_checked_are_not_demanded(overrides, words):
    with pytest.raises(SettingsError, match=words):
        load(overrides=overrides)


@pytest.mark.parametrize("key", ["tokenSecretKey", "basicAuthConf", "brokerClientAuthenticationParameters"])
def test_secrets_on_the_command_line_are_warned_of(key):
    warnings = []
    load(overrides=[f"{key}=s3cret"], warnings=warnings)
    assert "visible to every user" in warnings[0]
    assert f"PULSAR_PREFIX_{key}" in warnings[0]
    assert "s3cret" not in "".join(warnings)
    warnings.clear()
    load(overrides=[f"{key}=file:///etc/secret"], environment={"PULSAR_PREFIX_tokenSecretKey": "s"}, warnings=warnings)
    assert "visible" not in "".join(warnings)


def test_an_empty_path_of_the_data_directory_is_refused(conf):
    """The text of an unset variable of a shell made ./data the data directory."""
    for sources in (
        {"file": conf("dataDir=")},
        {"environment": {"PULSAR_PREFIX_dataDir": " "}},
        {"overrides": ["dataDir="]},
    ):
        with pytest.raises(SettingsError, match="the path in dataDir is empty; leave the key out"):
            load(**sources)
    assert load(conf("dataDir="), overrides=["dataDir=/srv/x"]).data_dir == "/srv/x"


@pytest.mark.parametrize("key", ["superUserRoles", "anonymousUserRole", "tokenSecretKey", "maxMessageSize"])
def test_bytes_that_are_no_text_are_refused(key):
    """The byte 0xff of an environment made a super user of each token whose role has the escape of a lone surrogate."""
    text = os.fsdecode(b"adm\xff")
    for sources in ({"environment": {f"PULSAR_PREFIX_{key}": text}}, {"overrides": [f"{key}={text}"]}):
        with pytest.raises(SettingsError, match=f"{key} cannot be .*: the value must be text in UTF-8"):
            load(**sources)


def test_the_data_directory_may_have_a_name_that_is_no_text():
    path = os.fsdecode(b"/srv/\xff")
    assert load(overrides=[f"dataDir={path}"]).data_dir == path


def test_an_empty_value_is_the_default(conf):
    settings = load(conf("maxMessageSize=\nbindAddress=\nclusterName=\nmanagedLedgerDefaultMarkDeleteRateLimit=\n"))
    assert settings == Settings()


def test_variables_without_the_prefix_have_no_effect_and_a_warning():
    warnings = []
    with pytest.raises(SettingsError, match="must be PULSAR_PREFIX_authenticationEnabled"):
        load(environment={"authenticationEnabled": "true"}, warnings=warnings)
    both = {"authenticationEnabled": "true", "PULSAR_PREFIX_authenticationEnabled": "false", "maxMessageSize": "9"}
    assert load(environment=both, warnings=warnings) == Settings()
    assert [text.split()[2] for text in warnings] == ["authenticationEnabled", "maxMessageSize"]


def test_a_key_with_two_values_in_a_file(conf):
    warnings = []
    settings = load(conf("clusterName=a\nmaxTenants=1\nclusterName=b\nmaxTenants=1\n"), warnings=warnings)
    assert settings.cluster_name == "b"
    (text,) = warnings
    assert "line 3: clusterName was given before" in text
    assert "line 1) with another value; the last one counts" in text


def test_an_audience_that_is_not_looked_at():
    with pytest.raises(SettingsError, match="tokenAudience needs tokenAudienceClaim"):
        load(overrides=["tokenAudience=us"])


def test_two_listeners_on_one_port_are_a_problem():
    with pytest.raises(SettingsError, match="brokerServicePort and webServicePort are both 6650: each needs a port"):
        load(overrides=["webServicePort=6650"])
    assert load(overrides=["brokerServicePort=0", "webServicePort=0"]).web_service_port == 0
