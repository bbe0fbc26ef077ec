"""Warnings about settings that leave the broker open."""

import pytest

from magnetar.broker.open_doors import is_readable_by_others, warnings_of_open_doors, warnings_of_readable_files
from magnetar.broker.settings import Settings
from magnetar.broker.settings_loader import load_settings

PROVEN = {"authentication_enabled": True, "authorization_enabled": True, "authentication_providers": ("token",)}


def warnings(**settings):
    return warnings_of_open_doors(Settings(**settings))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_a_laptop_gets_no_warning(address):
    assert warnings(bind_address=address) == []
    assert warnings(**PROVEN, super_user_roles=("admin",), bind_address="0.0.0.0") == []


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "mq.example.org"])
def test_a_network_without_authentication(address):
    (text,) = warnings(bind_address=address)
    assert f"bindAddress={address} without authenticationEnabled=true" in text


def test_settings_without_effect():
    (text,) = warnings(token_secret_key="s", super_user_roles=("admin",))
    assert text.startswith("tokenSecretKey, superUserRoles: of no effect without authenticationEnabled=true")
    assert "=s" not in text


def test_a_certificate_that_no_listener_uses():
    (text,) = warnings(tls_certificate_file_path="/cert.pem", tls_key_file_path="/key.pem")
    assert text.startswith("tlsCertificateFilePath, tlsKeyFilePath: of no effect without brokerServicePortTls")
    assert warnings(tls_certificate_file_path="/cert.pem", web_service_port_tls=8443) == []


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_an_advertised_address_that_leads_each_client_to_itself(address):
    (text,) = warnings(advertised_address=address)
    assert text.startswith(f"advertisedAddress={address}: a client on another machine connects to itself")


def test_roles_that_may_do_everything():
    (text,) = warnings(**PROVEN | {"authorization_enabled": False})
    assert "every role may do everything" in text
    (text,) = warnings(**PROVEN, anonymous_user_role="any", super_user_roles=("any",))
    assert "anonymousUserRole is one of superUserRoles" in text


def test_keys_and_passwords_that_every_user_can_read(tmp_path):
    files = [tmp_path / name for name in ("key.pem", "secret.key", "users")]
    for file in files:
        file.write_text("s")
        file.chmod(0o644)
    settings = Settings(
        tls_key_file_path=str(files[0]), token_secret_key=f"file://{files[1]}", basic_auth_conf=str(files[2])
    )
    warnings = warnings_of_readable_files(settings)
    assert [text.partition(":")[0] for text in warnings] == ["tlsKeyFilePath", "tokenSecretKey", "basicAuthConf"]
    assert all(f"chmod o-rwx {file}" in text for file, text in zip(files, warnings, strict=True))
    for file in files:
        file.chmod(0o640)  # a group of its own may read keys: that of ssl-cert
    assert warnings_of_readable_files(settings) == []


def test_values_that_name_no_file_give_no_warning(tmp_path):
    settings = Settings(
        token_secret_key="data:;base64,AQID", basic_auth_conf="x" * 10_000, tls_key_file_path="/nowhere"
    )
    assert warnings_of_readable_files(settings) == []
    assert not is_readable_by_others(tmp_path / "\0")


def test_a_settings_file_that_holds_a_secret(tmp_path):
    file, warnings = tmp_path / "broker.conf", []
    file.write_text("clusterName=c\ntokenSecretKey=data:;base64,AQID\n")
    file.chmod(0o644)
    load_settings(file, {}, [], warnings.append)
    assert f"{file} holds tokenSecretKey and every user" in warnings[0]
    assert "AQID" not in warnings[0]
    for text, mode in (("tokenSecretKey=file:///etc/key\n", 0o644), ("tokenSecretKey=s\n", 0o640)):
        warnings.clear()
        file.write_text(text)
        file.chmod(mode)
        load_settings(file, {}, [], warnings.append)
        assert warnings == []
