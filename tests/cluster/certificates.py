"""Certificates for tests of TLS to real services, valid for a day."""

from __future__ import annotations

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

__all__ = ["issued", "pem"]


def issued(name, issuer=None, issuer_key=None, *, unit=None, hosts=("localhost", "127.0.0.1")):
    """(certificate, key): self-signed, or issued by another certificate; `unit` is the organisational unit."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    if unit is not None:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit))
    subject = x509.Name(parts)
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([_host(host) for host in hosts]),
            critical=False,
        )
    )
    return builder.sign(issuer_key or key, hashes.SHA256()), key


def pem(certificate, key=None):
    data = certificate.public_bytes(serialization.Encoding.PEM)
    if key is not None:
        kinds = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        data += key.private_bytes(serialization.Encoding.PEM, *kinds)
    return data


def _host(name):
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
