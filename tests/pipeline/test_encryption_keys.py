"""The options encryptionKeys and decryptionKeys: names, files, and keys that cannot be used."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from magnetar.client.encryption import TAG_BYTES, CannotDecryptError, Decryption
from magnetar.pipeline.encryption_keys import (
    open_decryption,
    open_encryption,
    parse_private_keys,
    parse_public_keys,
)
from magnetar.pipeline.option_table import OptionError
from magnetar.pipeline.options import SourceOptions
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
    assert parse_public_keys(" app=/keys/a.pem , audit=/keys/b=c.pem") == (
        ("app", "/keys/a.pem"),
        ("audit", "/keys/b=c.pem"),
    )
    assert parse_public_keys("") == ()
    assert open_encryption(()) is None
    assert parse_private_keys(" app=/keys/a.pem , /keys/b.pem") == (("app", "/keys/a.pem"), ("", "/keys/b.pem"))
    assert open_decryption(parse_private_keys("")) is None


@pytest.mark.parametrize("text", ["app", "app=", "=/keys/a.pem"])
def test_texts_without_a_key_are_refused(text):
    with pytest.raises(OptionError, match="encryptionKeys is NAME=FILE"):
        parse_public_keys(text)


def test_files_without_an_rsa_key_are_refused(tmp_path, pairs):
    other = public(tmp_path, ec.generate_private_key(ec.SECP256R1()), "ec.pem")
    secret = tmp_path / "private.pem"
    secret.write_bytes(private(pairs[0]))
    for path, why in ((other, "no RSA key"), (secret, "cannot be read"), (tmp_path / "absent", "cannot read the key")):
        with pytest.raises(OptionError, match=f"encryptionKeys.*{why}"):
            open_encryption([("app", str(path))])


@pytest.mark.parametrize("text", ["app=", "=/keys/a.pem"])
def test_private_keys_without_name_or_file_are_refused(text):
    with pytest.raises(OptionError, match="decryptionKeys"):
        parse_private_keys(text)


def test_each_name_has_its_private_key(tmp_path, pairs):
    for n, key in enumerate(pairs):
        (tmp_path / f"{n}.key").write_bytes(private(key))
    encryption, metadata = open_encryption([("audit", public(tmp_path, pairs[1], "b.pem"))]), pb.MessageMetadata()
    encrypted = encryption.encrypt(metadata, b"secret")
    for text, opens in (
        *(("1.key", True), ("app=0.key,audit=1.key", True), ("app=1.key", False), ("0.key", False)),
        *(("0.key,1.key", True), ("audit=0.key,audit=1.key", True), ("audit=1.key,audit=0.key", True)),
    ):
        named = text.replace("0.key", f"{tmp_path}/0.key").replace("1.key", f"{tmp_path}/1.key")
        decryption = open_decryption(parse_private_keys(named))
        if opens:
            assert decryption.decrypt(metadata, encrypted) == b"secret"
            continue
        with pytest.raises(CannotDecryptError, match="encrypted for the keys 'audit'"):
            decryption.decrypt(metadata, encrypted)


def test_private_keys_that_cannot_be_used_are_named(tmp_path, pairs):
    path = public(tmp_path, pairs[0], "public.pem")
    for text, why in ((f"app={path}", "private key app cannot be read"), (f"{tmp_path}/absent", "cannot read the key")):
        with pytest.raises(OptionError, match=f"decryptionKeys: .*{why}"):
            open_decryption(parse_private_keys(text))


def test_with_private_keys_encrypted_messages_fail_by_default():
    parsed = [
        SourceOptions.parse({"topic": "t", **more}).on_encrypted
        for more in ({}, {"decryptionKeys": "/k"}, {"decryptionKeys": "/k", "onEncrypted": "deliver"})
    ]
    assert parsed == ["deliver", "fail", "deliver"]
