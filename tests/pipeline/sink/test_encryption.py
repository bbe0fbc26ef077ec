"""The option encryptionKeys: names, files, and keys that cannot be used."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from magnetar.client.encryption import TAG_BYTES, Decryption
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.sink.encryption import open_encryption, parse_keys
from magnetar.protocol import pulsar_api_pb2 as pb


@pytest.fixture(scope="module")
def pairs():
    return [rsa.generate_private_key(65537, 2048) for _ in range(2)]


def private(key):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def public(folder, key, name):
    path = folder / name
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return str(path)


def test_every_reader_that_is_named_reads_the_payload(tmp_path, pairs):
    names = zip(("app", "audit"), (public(tmp_path, key, f"{n}.pem") for n, key in enumerate(pairs)), strict=True)
    encryption, metadata = open_encryption(list(names)), pb.MessageMetadata()
    encryption.encrypt(metadata, b"the first chunk")
    encrypted = encryption.encrypt(metadata, b"secret")
    assert [key.key for key in metadata.encryption_keys] == ["app", "audit"]
    assert len(encrypted) == len(b"secret") + TAG_BYTES
    for key in pairs:
        assert Decryption(private(key)).decrypt(metadata, encrypted) == b"secret"


def test_names_and_files():
    assert parse_keys(" app=/keys/a.pem , audit=/keys/b=c.pem") == (("app", "/keys/a.pem"), ("audit", "/keys/b=c.pem"))
    assert parse_keys("") == ()
    assert open_encryption(()) is None


@pytest.mark.parametrize("text", ["app", "app=", "=/keys/a.pem"])
def test_what_names_no_key_is_refused(text):
    with pytest.raises(OptionError, match="encryptionKeys is NAME=FILE"):
        parse_keys(text)


def test_files_without_an_rsa_key_are_refused(tmp_path, pairs):
    other = public(tmp_path, ec.generate_private_key(ec.SECP256R1()), "ec.pem")
    secret = tmp_path / "private.pem"
    secret.write_bytes(private(pairs[0]))
    for path, why in ((other, "no RSA key"), (secret, "cannot be read"), (tmp_path / "absent", "cannot read the key")):
        with pytest.raises(OptionError, match=f"encryptionKeys.*{why}"):
            open_encryption([("app", str(path))])
