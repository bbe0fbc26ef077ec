from __future__ import annotations

import os
import ssl

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from magnetar.bookkeeper.bookies.tls import BookieTls, TlsContexts, TlsFilesError, tls_context
from tests.cluster.certificates import issued, pem


@pytest.fixture
def files(tmp_path):
    authority, authority_key = issued("authority")
    certificate, key = issued("client", authority, authority_key)
    (tmp_path / "ca.pem").write_bytes(pem(authority))
    (tmp_path / "both.pem").write_bytes(pem(certificate, key))
    encryption = serialization.BestAvailableEncryption(b"pw")
    store = pkcs12.serialize_key_and_certificates(b"client", key, certificate, [authority], encryption)
    (tmp_path / "client.p12").write_bytes(store)
    (tmp_path / "locked.pem").write_bytes(
        pem(certificate) + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    (tmp_path / "pw").write_text("pw\n")
    (tmp_path / "junk").write_text("junk")
    return tmp_path


def authorities(context):
    return {dict(pair[0] for pair in each["subject"])["commonName"] for each in context.get_ca_certs()}


def test_pem_files(files):
    context = tls_context(BookieTls(trust=f"{files}/ca.pem", key=f"{files}/both.pem"))
    assert authorities(context) == {"authority"}
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert tls_context(BookieTls(trust=f"{files}/ca.pem", verify_names=True)).check_hostname


def test_a_key_with_a_password_needs_its_file_and_asks_no_terminal(files, monkeypatch):
    """OpenSSL reads a password from the terminal where the call gives none."""
    locked = f"{files}/locked.pem"
    tls_context(BookieTls(key=locked, key_password_file=f"{files}/pw"))
    passwords = []
    load = ssl.SSLContext.load_cert_chain

    def noted(context, certificate, key=None, password=None):
        passwords.append(password)
        load(context, certificate, key, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noted)
    with pytest.raises(TlsFilesError, match="locked"):
        tls_context(BookieTls(key=locked))
    assert passwords == [b""]


def test_key_stores(files):
    store, password = f"{files}/client.p12", f"{files}/pw"
    given = BookieTls(store, "PKCS12", password, store, "pkcs12", password)
    assert "authority" in authorities(tls_context(given))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"trust": "none"}, "none"),
        ({"trust": "junk"}, "junk"),
        ({"key": "junk"}, "junk"),
        ({"trust": "client.p12", "trust_kind": "PKCS12"}, "client.p12"),
        ({"trust": "keys.jks", "trust_kind": "JKS"}, "of type JKS cannot be read, .*keytool -importkeystore"),
        ({"key": "keys.jks", "key_kind": "JKS"}, "of type JKS"),
    ],
)
def test_files_that_cannot_be_used_are_named(files, given, reason):
    named = {key: value if key.endswith("kind") else f"{files}/{value}" for key, value in given.items()}
    with pytest.raises(TlsFilesError, match=reason):
        tls_context(BookieTls(**named))


def test_changed_files_are_read_again_after_a_while(files):
    now_s = 0.0
    contexts = TlsContexts(BookieTls(trust=f"{files}/ca.pem", refresh_s=10), lambda: now_s)
    first = contexts.current()
    (files / "ca.pem").write_bytes(pem(issued("another")[0]))
    os.utime(files / "ca.pem", ns=(1, 1))
    assert contexts.current() is first
    now_s = 10.0
    assert authorities(contexts.current()) == {"another"}
    (files / "ca.pem").write_text("junk")
    now_s = 20.0
    assert authorities(contexts.current()) == {"another"}
