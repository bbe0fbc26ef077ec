import ssl

import pytest

from magnetar.client.address import Address, Credentials, is_loopback, read_token
from magnetar.client.errors import InputError
from tests.broker.admin.test_admin_server import Certificates


@pytest.mark.parametrize(
    ("url", "expected", "web"),
    [
        ("pulsar://broker:7000", Address("broker", 7000, tls=False), "http://broker:8080"),
        ("pulsar://broker", Address("broker", 6650, tls=False), "http://broker:8080"),
        ("pulsar+ssl://broker", Address("broker", 6651, tls=True), "https://broker:8443"),
        ("pulsar://[::1]:1", Address("::1", 1, tls=False), "http://[::1]:8080"),
    ],
)
def test_service_urls(url, expected, web):
    assert Address.parse(url) == expected
    assert Address.parse(url).web_url() == web


@pytest.mark.parametrize("url", ["http://broker:8080", "broker:6650", "pulsar://", "pulsar://broker:x", ""])
def test_texts_that_are_no_address(url):
    with pytest.raises(InputError, match="no service URL"):
        Address.parse(url)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("::", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_addresses_of_this_machine_alone(host, expected):
    assert is_loopback(host) is expected


def test_tokens_stay_out_of_the_process_list(tmp_path, monkeypatch):
    (tmp_path / "token").write_text(" from-file\n")
    monkeypatch.setenv("IMPORT_TOKEN", "from-env")
    assert read_token(None) is None
    assert read_token("ey.J.x") == "ey.J.x"
    assert read_token(f"file:{tmp_path}/token") == "from-file"
    assert read_token("env:IMPORT_TOKEN") == "from-env"
    for absent in ("env:IMPORT_NO_TOKEN", f"file:{tmp_path}/none"):
        with pytest.raises(InputError, match=r"token (file|env)[^\[]*$"):
            read_token(absent)


def test_authentication_methods_of_credentials():
    assert Credentials().auth() == ("", b"")
    assert Credentials(token="t").auth() == ("token", b"t")
    assert Credentials(tls_cert="c").auth() == ("tls", b"")


def test_a_token_in_a_file_is_read_anew_each_time(tmp_path):
    file = tmp_path / "token"
    file.write_text("first")
    credentials = Credentials(token=f"file:{file}")
    assert credentials.auth() == ("token", b"first")
    file.write_text("second")
    assert credentials.auth() == ("token", b"second")
    assert credentials.authorization() == "Bearer second"


def test_user_and_password():
    credentials = Credentials(basic="u:p")
    assert credentials.auth() == ("basic", b"u:p")
    assert credentials.authorization() == "Basic dTpw"
    assert Credentials().authorization() is None


def test_tls(tmp_path):
    authority = Certificates(tmp_path)
    certificate, key = authority.make("me")
    strict = Credentials(tls_trust_certs=authority.authority[0], tls_cert=certificate, tls_key=key).tls_context()
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert not Credentials(tls_hostname_verification=False).tls_context().check_hostname
    assert Credentials(tls_allow_insecure=True).tls_context().verify_mode is ssl.CERT_NONE
    with pytest.raises(InputError, match=r"TLS file cannot be used: /nowhere\.pem: No such file"):
        Credentials(tls_trust_certs="/nowhere.pem").tls_context()
    with pytest.raises(InputError, match=f"TLS file cannot be used: {certificate}, /nowhere.pem: No such file"):
        Credentials(tls_cert=certificate, tls_key="/nowhere.pem").tls_context()
    with pytest.raises(InputError, match=f"{certificate}: no certificate, or no private key, in PEM form; a file of"):
        Credentials(tls_cert=certificate).tls_context()
    other = authority.make("other")[1]
    with pytest.raises(InputError, match=f"{certificate}, {other}: the private key does not belong to the certificate"):
        Credentials(tls_cert=certificate, tls_key=other).tls_context()


def test_certificates_need_no_extensions_beyond_those_that_other_clients_need(monkeypatch):
    def strict(**files):  # the default of Python 3.13
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    assert not Credentials().tls_context().verify_flags & ssl.VERIFY_X509_STRICT
