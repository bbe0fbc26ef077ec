"""Encrypted entries: what the owner of a key gets, and keys that cannot be used."""

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.sink.encryption import TAG_BYTES, Encryptor, parse_keys
from magnetar.protocol import pulsar_api_pb2 as pb


@pytest.fixture(scope="module")
def pair():
    return rsa.generate_private_key(65537, 2048)


def written(folder, key, name="public.pem"):
    path = folder / name
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return str(path)


def test_the_owner_of_a_private_key_reads_the_payload(tmp_path, pair):
    encryptor = Encryptor([("app", written(tmp_path, pair)), ("audit", written(tmp_path, pair))])
    metadata, again = pb.MessageMetadata(), pb.MessageMetadata()
    encrypted = encryptor.encrypt(metadata, b"secret")
    assert encryptor.encrypt(again, b"secret") != encrypted, "an initialization vector is never used twice"
    assert [key.key for key in metadata.encryption_keys] == ["app", "audit"]
    assert len(encrypted) == len(b"secret") + TAG_BYTES
    oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)
    for key in metadata.encryption_keys:
        cipher = AESGCM(pair.decrypt(key.value, oaep))
        assert cipher.decrypt(metadata.encryption_param, encrypted, None) == b"secret"


def test_names_and_files():
    assert parse_keys(" app=/keys/a.pem , audit=/keys/b=c.pem") == (("app", "/keys/a.pem"), ("audit", "/keys/b=c.pem"))
    assert parse_keys("") == ()


@pytest.mark.parametrize("text", ["app", "app=", "=/keys/a.pem"])
def test_what_names_no_key_is_refused(text):
    with pytest.raises(OptionError, match="encryptionKeys is NAME=FILE"):
        parse_keys(text)


def test_files_without_an_rsa_key_are_refused(tmp_path, pair):
    other = written(tmp_path, ec.generate_private_key(ec.SECP256R1()), "ec.pem")
    private = tmp_path / "private.pem"
    private.write_bytes(pair.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    for path, why in ((other, "no RSA key"), (private, "no public key"), (tmp_path / "absent", "no public key")):
        with pytest.raises(OptionError, match=why):
            Encryptor([("app", str(path))])
