"""Decryption: entries of every kind are read as they were before their producer encrypted them."""

import functools
import random

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.client.encryption import Decryption, Encryption
from magnetar.pipeline.columns import EXTRA, PULSAR
from magnetar.pipeline.damage import Reason
from magnetar.pipeline.decode.decoder import Decoder
from magnetar.pipeline.errors import CorruptEntryError
from magnetar.pipeline.values.decoders import value_decoder
from magnetar.pipeline.values.topic_schema import TopicSchema
from magnetar.protocol import pulsar_api_pb2 as pb
from magnetar.protocol.metadata import split_entry
from tests.pipeline import entries_for_tests as e

ALL = ["value", *(column.name for column in (*PULSAR, *EXTRA))]


class KeyPair:
    """The key pair of one reader."""

    def __init__(self):
        key = rsa.generate_private_key(65537, 2048)
        self.public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self.private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        self.encryption = Encryption("app", self.public)


OURS, OTHER = KeyPair(), KeyPair()


@pytest.fixture(autouse=True, scope="module")
def keys_are_checked_once():
    """OpenSSL looks for primes in a private key for 40 ms, and each decoder here has a decryption of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serialization, "load_pem_private_key", functools.cache(serialization.load_pem_private_key))
        yield


def rows_of(bodies, first=None, end=None, *, decrypting=None, decoder=None, **options):
    decoder = decoder or Decoder(
        options.pop("columns", ALL), decrypting=decrypting or Decryption(OURS.private), **options
    )
    return [row for batch in decoder.decode(e.chunk_of(bodies), first, end) for row in batch.to_pylist()]


def is_plain(body):
    meta, _ = split_entry(body)
    return meta is not None and not meta.encryption_keys


@given(seed=st.integers(0, 2**60))
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_the_entries_before_they_were_encrypted(seed):
    rng = random.Random(seed)
    bodies, end = e.random_bodies(rng, rng.randrange(1, 25))
    whole = rng.random() < 0.5
    encrypted = [
        e.sealed(body, OURS.encryption) if is_plain(body) and (whole or rng.random() < 0.5) else body for body in bodies
    ]
    first, last = sorted((rng.randrange(end + 2), rng.randrange(end + 2)))
    first, last = rng.choice(((None, None), (first, last), (None, last), (first, None)))
    assert rows_of(encrypted, first, last) == rows_of(bodies, first, last)


@pytest.mark.parametrize("codec", [pb.NONE, pb.LZ4, pb.ZSTD])
def test_a_chunked_compressed_message_is_decrypted_chunk_by_chunk(codec):
    payload = random.Random(1).randbytes(3000)
    bodies = [e.sealed(body, OURS.encryption) for body in e.chunks(payload, [1000, 1000], first=4, codec=codec)]
    (row,) = rows_of(bodies)
    assert (row["value"], row["__index"], row["__encryptionContext"]) == (payload, 6, None)


def test_chunks_before_the_range_are_decrypted_as_well():
    bodies = [e.sealed(body, OURS.encryption) for body in e.chunks(b"abcdef", [2, 2], first=4)]
    decoder = Decoder(
        ["value"],
        decrypting=Decryption(OURS.private),
        look_back=lambda _topic, _ledger, entry_id: iter([e.chunk_of(bodies[:entry_id])]),
    )
    chunk = e.chunk_of(bodies).slice(2, 3)
    assert [row["value"] for batch in decoder.decode(chunk, 6, 7) for row in batch.to_pylist()] == [b"abcdef"]


def test_a_decrypted_message_has_a_typed_value():
    bodies = [e.sealed(e.batch([e.single(b"\0\0\0\1"), e.single(b"\0\0\0\2")], codec=pb.LZ4, index=1), OURS.encryption)]
    rows = rows_of(bodies, columns=["value", "__index"], value=value_decoder(TopicSchema("INT32")))
    assert rows == [{"value": 1, "__index": 0}, {"value": 2, "__index": 1}]


def batch_for(keys, at):
    return e.sealed(e.batch([e.single(b"a"), e.single(b"b")], index=at), keys.encryption)


def test_entries_without_a_key_follow_the_option_on_encrypted():
    bodies = [batch_for(OURS, 1), batch_for(OTHER, 3), e.plain(b"c", index=4)]
    with pytest.raises(CorruptEntryError, match="encrypted for the keys 'app', not for this one"):
        rows_of(bodies, on_encrypted="fail")
    delivered = rows_of(bodies)
    assert [(row["__index"], row["__encryptionContext"] is None) for row in delivered] == [
        (0, True),
        (1, True),
        (2, False),
        (4, True),
    ]
    decoder = Decoder(["value"], decrypting=Decryption(OURS.private), on_encrypted="quarantine")
    assert [row["value"] for row in rows_of(bodies, decoder=decoder)] == [b"a", b"b", b"c"]
    assert decoder.quarantine.counts == {Reason.ENCRYPTED: 1}
    assert decoder.quarantine.messages == 2


def test_a_payload_that_was_changed_is_none_that_can_be_decrypted():
    meta, payload = split_entry(batch_for(OURS, 1))
    changed = e.stored(meta, bytes(payload[:-1]) + bytes([payload[-1] ^ 1]), index=1)
    with pytest.raises(CorruptEntryError, match="the payload was changed"):
        rows_of([changed], on_encrypted="fail")


def test_an_entry_with_a_wrong_checksum_is_damaged_not_encrypted():
    bodies = [batch_for(OURS, 1), bytearray(batch_for(OURS, 3))]
    bodies[1][-1] ^= 1
    decoder = Decoder(["value"], decrypting=Decryption(OURS.private), on_corrupt="quarantine", on_encrypted="fail")
    assert len(rows_of(bodies, decoder=decoder)) == 2
    assert decoder.quarantine.counts == {Reason.CHECKSUM: 1}


@pytest.mark.parametrize(("on_encrypted", "fails"), [("fail", True), ("deliver", True), ("quarantine", False)])
def test_a_message_of_which_some_chunks_stay_encrypted_is_never_handed_over(on_encrypted, fails):
    first, second = e.chunks(b"abcd", [2], first=0)
    bodies = [e.sealed(first, OURS.encryption), e.sealed(second, OTHER.encryption)]
    decoder = Decoder(["value"], decrypting=Decryption(OURS.private), on_encrypted=on_encrypted)
    if fails:
        with pytest.raises(CorruptEntryError, match="1 of its 2 chunks cannot be decrypted"):
            rows_of(bodies, decoder=decoder)
        return
    assert rows_of(bodies, decoder=decoder) == []
    assert decoder.quarantine.counts == {Reason.ENCRYPTED: 1}


def test_a_chunked_message_for_another_key_is_handed_over_whole():
    bodies = [e.sealed(body, OTHER.encryption) for body in e.chunks(b"abcd", [2], first=0)]
    (row,) = rows_of(bodies)
    assert len(row["value"]) == 4 + 2 * 16
    assert row["__encryptionContext"] is not None


@pytest.mark.parametrize("name", ["app-2", "app"], ids=["another name", "the same name"])
def test_a_range_with_entries_of_the_old_and_the_new_key_pair_is_decrypted(name):
    """The producer makes a new data key in the middle as well, and the last entries are for both pairs."""
    sealing = [
        *(Encryption("app", OURS.public), Encryption("app", OURS.public), Encryption(name, OTHER.public)),
        Encryption("app", OURS.public, (name, OTHER.public)),
    ]
    bodies = [e.plain(b"%d" % k, index=k, codec=pb.LZ4) for k in range(40)]
    encrypted = [e.sealed(body, sealing[k // 10]) for k, body in enumerate(bodies)]
    keys = {"app": [OURS.private]}
    keys.setdefault(name, []).append(OTHER.private)
    for decrypting in (Decryption(named=keys), Decryption(OTHER.private, OURS.private)):
        assert rows_of(encrypted, decrypting=decrypting) == rows_of(bodies)
    with pytest.raises(CorruptEntryError, match="encrypted for the keys 'app"):
        rows_of(encrypted, decrypting=Decryption(OURS.private), on_encrypted="fail")


def test_a_message_whose_chunks_are_for_the_old_and_the_new_key_pair_is_joined():
    first, second, third = e.chunks(b"abcdef", [2, 2], first=0)
    sealed = [e.sealed(first, OURS.encryption), e.sealed(second, OTHER.encryption), e.sealed(third, OURS.encryption)]
    (row,) = rows_of(sealed, decrypting=Decryption(OURS.private, OTHER.private))
    assert row["value"] == b"abcdef"
