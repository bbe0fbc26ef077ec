"""TLS contexts from settings, and certificates that change while the broker runs."""

import contextlib
import dataclasses
import datetime as dt
import os
import pathlib
import re
import ssl
import time

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from structlog.testing import capture_logs

from magnetar.broker.network.tls import TLS_1_3, CertificateWatch, choose_ciphers, openssl_name, tls_context
from magnetar.broker.settings import Settings
from tests.broker.admin.test_admin_server import Certificates
from tests.trusting import trusting


@pytest.fixture
def authority(tmp_path):
    return Certificates(tmp_path)


@pytest.fixture
def settings(authority):
    certificate, key = authority.make("localhost")
    return dataclasses.replace(
        Settings(),
        tls_certificate_file_path=certificate,
        tls_key_file_path=key,
        tls_trust_certs_file_path=authority.authority[0],
    )


def test_client_certificates(settings):
    def mode(**more):
        return tls_context(dataclasses.replace(settings, **more)).verify_mode

    assert mode() is ssl.CERT_OPTIONAL
    assert mode(tls_require_trusted_client_cert_on_connect=True) is ssl.CERT_REQUIRED
    assert mode(tls_trust_certs_file_path="") is ssl.CERT_NONE
    assert mode(tls_allow_insecure_connection=True) is ssl.CERT_NONE


def test_versions_and_ciphers(settings):
    context = tls_context(settings)
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    only = dataclasses.replace(settings, tls_protocols=("TLSv1.3",))
    assert tls_context(only).minimum_version is ssl.TLSVersion.TLSv1_3
    name = "ECDHE-ECDSA-AES256-GCM-SHA384"
    chosen = tls_context(dataclasses.replace(settings, tls_ciphers=(name,)))
    assert name in {each["name"] for each in chosen.get_ciphers()}
    with pytest.raises(ValueError, match="tlsCiphers: NONSENSE"):
        tls_context(dataclasses.replace(settings, tls_ciphers=(name, "NONSENSE")))


def test_the_web_port_has_versions_and_ciphers_of_its_own(settings):
    own = dataclasses.replace(
        settings,
        web_service_tls_protocols=("TLSv1.2",),
        web_service_tls_ciphers=("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",),
        tls_protocols=("TLSv1.3",),
    )
    web, binary = tls_context(own, web=True), tls_context(own)
    assert (web.maximum_version, binary.minimum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert [each["name"] for each in web.get_ciphers() if each["protocol"] == "TLSv1.2"] == [
        "ECDHE-RSA-AES128-GCM-SHA256"
    ]
    same = dataclasses.replace(settings, tls_protocols=("TLSv1.3",))
    assert tls_context(same, web=True).minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize("more", [{"tls_trust_certs_file_path": ""}, {"tls_allow_insecure_connection": True}])
def test_required_client_certificates_that_are_not_checked_are_an_error(settings, more):
    with pytest.raises(ValueError, match="tlsTrustCertsFilePath"):
        tls_context(dataclasses.replace(settings, tls_require_trusted_client_cert_on_connect=True, **more))


@pytest.mark.parametrize("attribute", ["tls_certificate_file_path", "tls_key_file_path", "tls_trust_certs_file_path"])
def test_an_error_names_the_file(settings, tmp_path, attribute):
    missing, empty = "/nowhere.pem", tmp_path / "empty.pem"
    empty.write_text("")
    with pytest.raises(FileNotFoundError, match=missing):
        tls_context(dataclasses.replace(settings, **{attribute: missing}))
    with pytest.raises(ssl.SSLError, match=str(empty)):
        tls_context(dataclasses.replace(settings, **{attribute: str(empty)}))


@pytest.mark.parametrize(
    ("attribute", "content", "words"),
    [
        ("tls_certificate_file_path", b"text", "tlsCertificateFilePath: {path}: no certificate in PEM form"),
        ("tls_key_file_path", b"text", "tlsKeyFilePath: {path}: no private key in PEM form"),
        ("tls_trust_certs_file_path", b"text", "tlsTrustCertsFilePath: {path}: no certificate in PEM form"),
    ],
)
def test_an_unusable_file_is_named_with_its_setting(settings, tmp_path, attribute, content, words):
    path = tmp_path / "file.pem"
    path.write_bytes(content)
    with pytest.raises(ssl.SSLError, match=re.escape(words.format(path=path))):
        tls_context(dataclasses.replace(settings, **{attribute: str(path)}))


def test_a_key_of_another_certificate_is_named_so(settings, authority):
    other = authority.make("other")[1]
    with pytest.raises(ssl.SSLError, match=f"tlsKeyFilePath: {other}: the key does not belong to the certificate"):
        tls_context(dataclasses.replace(settings, tls_key_file_path=other))


def test_an_encrypted_key_is_refused_without_a_question_on_the_terminal(settings, tmp_path):
    with open(settings.tls_key_file_path, "rb") as file:
        key = load_pem_private_key(file.read(), None)
    path = tmp_path / "encrypted.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    with pytest.raises(ssl.SSLError, match="the key is encrypted; `openssl pkey"):
        tls_context(dataclasses.replace(settings, tls_key_file_path=str(path)))


def touch_later(path):
    later = os.stat(path).st_mtime_ns + 10**9
    os.utime(path, ns=(later, later))


def test_changed_certificates_are_read_again(settings, authority):
    watch = CertificateWatch(tls_context(settings), settings)
    assert not watch.check()
    authority.make("localhost")
    touch_later(settings.tls_certificate_file_path)
    assert watch.check()
    assert not watch.check()


@pytest.mark.parametrize("content", [b"", b"half a certificate"])
def test_unusable_new_files_leave_the_old_ones_in_use(settings, authority, content):
    watch = CertificateWatch(tls_context(settings), settings)
    with open(settings.tls_certificate_file_path, "wb") as file:
        file.write(content)
    touch_later(settings.tls_certificate_file_path)
    assert not watch.check()
    os.remove(settings.tls_certificate_file_path)
    assert not watch.check()
    authority.make("localhost")
    touch_later(settings.tls_certificate_file_path)
    assert watch.check()


def test_an_end_of_the_certificate_is_logged_once_a_day_from_two_weeks_before(settings, authority):
    end = dt.datetime(2031, 1, 1, tzinfo=dt.UTC)
    authority.make("localhost", end)
    day, now = 86_400, [end.timestamp() - 15 * 86_400]
    with capture_logs() as logs:
        watch = CertificateWatch(tls_context(settings), settings, now_s=lambda: now[0])
        assert (watch.ends_s, logs) == (end.timestamp(), [])
        for days, event in ((1.5, "certificate.expiring"), (0.5, None), (14, "certificate.expired")):
            now[0] += days * day
            assert not watch.check()
            assert [each["event"] for each in logs] == ([event] if event else [])
            logs.clear()
        authority.make("localhost", end + dt.timedelta(days=365))
        touch_later(settings.tls_certificate_file_path)
        assert watch.check()
        assert [each["event"] for each in logs] == ["certificate.reloaded"]
        assert watch.ends_s == (end + dt.timedelta(days=365)).timestamp()


def shake_hands(server_context, client_context, name="localhost"):
    """The certificate of the client as the server sees it, and of the server; raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname=name)
    open_ends = [client, server]
    while open_ends:
        for end in list(open_ends):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
                open_ends.remove(end)
    server.write(b"x")  # TLSv1.3: the client gets a refusal only when it reads
    client.read(1)
    return server.getpeercert(), client.getpeercert()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["localhost", None], ids=["named", "unnamed"])
def test_a_certificate_that_is_no_longer_trusted_is_refused(settings, authority, tmp_path, version, name):
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other", "other authority")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(b"".join(pathlib.Path(each.authority[0]).read_bytes() for each in (authority, other)))
    settings = dataclasses.replace(
        settings, tls_trust_certs_file_path=str(trusted), tls_require_trusted_client_cert_on_connect=True
    )
    context = tls_context(settings)
    watch = CertificateWatch(context, settings)

    def client(owner):
        made = trusting(authority.authority[0])
        made.check_hostname = name is not None
        made.minimum_version = made.maximum_version = version
        made.load_cert_chain(*owner.make("client"))
        return made

    ours, theirs = client(authority), client(other)
    for each in (ours, theirs):
        assert shake_hands(context, each, name)[0]
    trusted.write_bytes(pathlib.Path(authority.authority[0]).read_bytes())
    touch_later(str(trusted))
    assert watch.check()
    assert shake_hands(context, ours, name)[0]
    with pytest.raises(ssl.SSLError):
        shake_hands(context, theirs, name)


def open_session(context, client, session=None):
    """A handshake in memory; both ends, which stay open."""
    inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(inbound, outbound, server_hostname="localhost", session=session),
        context.wrap_bio(outbound, inbound, server_side=True),
    )
    for _ in range(6):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_resumes_no_session_after_the_end_of_its_trust(settings, authority, tmp_path, version):
    """OpenSSL resumed sessions of TLSv1.2 by their number, without a look at the certificate."""
    (tmp_path / "other").mkdir()
    other = Certificates(tmp_path / "other", "other authority")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(b"".join(pathlib.Path(each.authority[0]).read_bytes() for each in (authority, other)))
    settings = dataclasses.replace(
        settings, tls_trust_certs_file_path=str(trusted), tls_require_trusted_client_cert_on_connect=True
    )
    context = tls_context(settings)
    watch = CertificateWatch(context, settings)
    client = trusting(authority.authority[0])
    client.minimum_version = client.maximum_version = version
    client.load_cert_chain(*other.make("client"))
    ends = open_session(context, client)
    trusted.write_bytes(pathlib.Path(authority.authority[0]).read_bytes())
    touch_later(str(trusted))
    assert watch.check()
    with pytest.raises(ssl.SSLError):
        open_session(context, client, ends[0].session)


def test_a_trusted_client_resumes_sessions_that_began_behind_the_last_change_of_files(settings, authority):
    """A client of TLSv1.2 that keeps its sessions, as that of Java does, failed in every second connection."""
    now_s = [time.time()]
    context = tls_context(settings)
    watch = CertificateWatch(context, settings, now_s=lambda: now_s[0])
    client = trusting(authority.authority[0])
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.load_cert_chain(*authority.make("client"))
    first = open_session(context, client)
    again = open_session(context, client, first[0].session)
    assert again[0].session_reused and again[1].getpeercert()
    touch_later(settings.tls_certificate_file_path)
    assert watch.check()
    with pytest.raises(ssl.SSLError):
        open_session(context, client, first[0].session)
    anew = open_session(context, client, first[0].session)
    assert not anew[0].session_reused and anew[1].getpeercert()
    now_s[0] -= 2
    touch_later(settings.tls_certificate_file_path)
    assert watch.check()
    assert open_session(context, client, anew[0].session)[0].session_reused


def test_new_connections_get_the_new_certificate(settings, authority):
    context = tls_context(settings)
    watch = CertificateWatch(context, settings)
    client = trusting(authority.authority[0])
    before = shake_hands(context, client)[1]["serialNumber"]
    authority.make("localhost")
    touch_later(settings.tls_certificate_file_path)
    assert watch.check()
    assert shake_hands(context, client)[1]["serialNumber"] != before


class Scheduler:
    """Time by hand."""

    def __init__(self):
        self.calls = []

    def call_later(self, delay, callback):
        self.calls.append((delay, callback))
        return self

    def cancel(self):
        self.calls.clear()


def test_files_are_looked_at_every_period_until_stopped(settings, authority):
    scheduler, context = Scheduler(), tls_context(settings)
    watch = CertificateWatch(context, settings)
    watch.start(scheduler)
    for _ in range(3):
        delay, callback = scheduler.calls.pop()
        assert delay == settings.tls_cert_refresh_check_duration_sec
        callback()
    watch.stop()
    assert scheduler.calls == []
    never = dataclasses.replace(settings, tls_cert_refresh_check_duration_sec=0)
    CertificateWatch(context, never).start(scheduler)
    assert scheduler.calls == []


@pytest.mark.parametrize(
    ("iana", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_files_for_java_are_understood(iana, openssl):
    assert openssl_name(iana) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


def chosen(names, least=ssl.TLSVersion.TLSv1_2, most=ssl.TLSVersion.TLSv1_3):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = least, most
    choose_ciphers(context, names, "tlsCiphers")
    return {each["name"] for each in context.get_ciphers()}


def test_no_other_suites_are_spoken():
    name = "ECDHE-RSA-AES128-GCM-SHA256"
    assert chosen([name]) - TLS_1_3 == {name}
    assert chosen([name, *TLS_1_3]) - TLS_1_3 == {name}


def test_choices_that_cannot_be_kept_are_errors():
    with pytest.raises(ValueError, match="one by one"):
        chosen(["ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"])
    with pytest.raises(ValueError, match="speak no older version"):
        chosen(sorted(TLS_1_3))
    assert chosen(sorted(TLS_1_3), least=ssl.TLSVersion.TLSv1_3)
    assert chosen(["ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"], most=ssl.TLSVersion.TLSv1_2)
