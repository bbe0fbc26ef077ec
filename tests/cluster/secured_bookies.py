"""Bookies that take clients with a certificate and a password alone, and the settings of brokers for them."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import tempfile

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.cluster.certificates import issued, pem
from tests.cluster.real_cluster import RealCluster

__all__ = ["broker_settings", "secured_cluster"]

BOOKIE_LOGIN = """
Bookie {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  user_magnetar="se\\"cret";
};
"""
CLIENT_LOGIN = """
BookKeeper {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  username="magnetar"
  password="se\\"cret";
};
"""
HEAP = "-Xms32m -Xmx128m -XX:MaxDirectMemorySize=128m"


def bookie_settings(directory):
    return {
        "tlsProviderFactoryClass": "org.apache.bookkeeper.tls.TLSContextFactory",
        "tlsProvider": "JDK",
        "tlsKeyStoreType": "PEM",
        "tlsKeyStore": directory / "server-key.pem",
        "tlsCertificatePath": directory / "server.pem",
        "tlsTrustStoreType": "PEM",
        "tlsTrustStore": directory / "ca.pem",
        "tlsClientAuthentication": "true",
        "bookieAuthProviderFactoryClass": "org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory",
        "saslJaasClientAllowedIds": ".*",
    }


def key_pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def broker_settings(directory):
    return {
        "bookkeeperTLSClientAuthentication": "true",
        "bookkeeperTLSTrustCertsFilePath": directory / "ca.pem",
        "bookkeeperTLSKeyFilePath": directory / "client-key.pem",
        "bookkeeperTLSCertificateFilePath": directory / "client.pem",
        "bookkeeper_tlsHostnameVerificationEnabled": "true",
        "bookkeeperClientAuthenticationPlugin": "org.apache.bookkeeper.sasl.SASLClientProviderFactory",
        "bookkeeperClientAuthenticationParametersName": "saslJaasClientSectionName",
        "bookkeeperClientAuthenticationParameters": "BookKeeper",
        "jaasLoginConfigPath": directory / "client.jaas",
    }


@contextlib.contextmanager
def secured_cluster(bookies):
    """ZooKeeper and bookies with TLS and SASL; certificates and logins lie in their directory."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="magnetar-secure-"))
    authority, authority_key = issued("authority")
    (directory / "ca.pem").write_bytes(pem(authority))
    for name in ("server", "client"):
        certificate, key = issued(name, authority, authority_key)
        (directory / f"{name}.pem").write_bytes(pem(certificate))
        (directory / f"{name}-key.pem").write_bytes(key_pem(key))
        store = pkcs12.serialize_key_and_certificates(
            name.encode(), key, certificate, [authority], serialization.BestAvailableEncryption(b"pw")
        )
        (directory / f"{name}.p12").write_bytes(store)
    (directory / "pw").write_text("pw\n")
    (directory / "stranger.pem").write_bytes(pem(*issued("stranger")))
    (directory / "bookie.jaas").write_text(BOOKIE_LOGIN)
    (directory / "client.jaas").write_text(CLIENT_LOGIN)
    made = RealCluster(directory)
    settings = " ".join(f"{key}={value}" for key, value in bookie_settings(directory).items())
    login = f"{HEAP} -Djava.security.auth.login.config={directory}/bookie.jaas"
    try:
        made.up(bookies, BK_CONF=settings, BK_JVM=login, BK_TLS="1")
        yield made
    finally:
        made.down()
        shutil.rmtree(directory, ignore_errors=True)
