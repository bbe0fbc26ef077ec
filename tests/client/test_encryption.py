"""Encrypted payloads: each side reads the payloads of the other; wrong keys and changed payloads are errors."""

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from magnetar.client.encryption import CannotDecryptError, Decryption, Encryption, key_at
from magnetar.client.errors import InputError
from magnetar.client.messages import EntryReader
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.batches import encode_batch, encode_entry

PLACE = pb.MessageIdData(ledgerId=1, entryId=2)


def pem(key):
    """The private and the public part."""
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private, public


@pytest.fixture(scope="module")
def keys():
    return pem(rsa.generate_private_key(65537, 2048))


@pytest.fixture(scope="module")
def other_keys():
    return pem(rsa.generate_private_key(65537, 2048))


def metadata():
    return pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)


def test_a_payload_is_read_with_the_private_key_alone(keys, other_keys):
    private, public = keys
    encryption, written = Encryption("billing", public), metadata()
    payload = encryption.encrypt(written, b"order 17")
    assert b"order 17" not in payload
    assert [each.key for each in written.encryption_keys] == ["billing"]
    assert Decryption(private).decrypt(written, payload) == b"order 17"
    with pytest.raises(CannotDecryptError, match="for the keys 'billing'"):
        Decryption(other_keys[0]).decrypt(written, payload)
    with pytest.raises(CannotDecryptError, match="changed"):
        Decryption(private).decrypt(written, payload[:-1] + bytes([payload[-1] ^ 1]))


def test_long_data_keys_are_not_remembered(keys):
    """A data key that is too long for the private key is no data key; names of readers are any text."""
    private, public = keys
    encryption, decryption = Encryption("billing", public), Decryption(private)
    for number in range(20):
        written = metadata()
        payload = encryption.encrypt(written, b"order")
        written.encryption_keys[0].key = f"{number}" * 1000
        written.encryption_keys.add(key="junk", value=bytes(100_000 + number))
        assert decryption.decrypt(written, payload) == b"order"
        del written.encryption_keys[0]
        with pytest.raises(CannotDecryptError):
            decryption.decrypt(written, payload)
    assert len(decryption._ciphers) == 1


def test_two_payloads_never_have_one_nonce(keys):
    encryption = Encryption("k", keys[1])
    nonces = set()
    for _ in range(50):
        written = metadata()
        encryption.encrypt(written, b"x")
        nonces.add(written.encryption_param)
    assert len(nonces) == 50


def test_an_encrypted_batch_is_taken_apart(keys):
    private, public = keys
    written = metadata()
    written.num_messages_in_batch = 2
    body = encode_batch([(pb.SingleMessageMetadata(payload_size=1), payload) for payload in (b"a", b"b")])
    entry = encode_entry(written, Encryption("k", public).encrypt(written, body))
    found = list(EntryReader("t", Decryption(private)).messages(PLACE, entry))
    assert [(each.payload, each.batch_index, each.encrypted, each.problem) for each in found] == [
        (b"a", 0, False, None),
        (b"b", 1, False, None),
    ]


def test_an_entry_for_another_key_is_one_message_with_the_reason(keys, other_keys):
    written = metadata()
    entry = encode_entry(written, Encryption("k", keys[1]).encrypt(written, b"a"))
    (found,) = EntryReader("t", Decryption(other_keys[0])).messages(PLACE, entry)
    assert found.encrypted
    assert "not for this one" in found.problem


def test_keys_that_cannot_be_used_are_named(keys, tmp_path):
    private, public = keys
    elliptic = pem(ec.generate_private_key(ec.SECP256R1()))
    for made, match in (
        (lambda: Encryption("k", b"?"), "the public key k cannot be read"),
        (lambda: Decryption(b"?"), "the private key cannot be read"),
        (lambda: Encryption("k", elliptic[1]), "ECIES"),
        (lambda: Decryption(elliptic[0]), "ECIES"),
        (lambda: key_at(str(tmp_path / "nosuch")), "cannot read the key"),
        (lambda: key_at("data:application/x-pem-file;base64,***"), "a key in data:"),
    ):
        with pytest.raises(InputError, match=match):
            made()
    (tmp_path / "a key.pem").write_bytes(private)
    assert key_at(f"file://{tmp_path}/a%20key.pem") == key_at(str(tmp_path / "a key.pem")) == private
    assert key_at("data:application/x-pem-file;base64," + base64.b64encode(public).decode()) == public
