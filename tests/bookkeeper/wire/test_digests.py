from __future__ import annotations

import pytest

from magnetar.bookkeeper.wire.digests import Digester, DigestType, master_key


@pytest.mark.parametrize(
    ("password", "key"),
    [
        (b"", "850bf1071c5e3d8c24235676f8816ae0cbe2f14f"),
        (b"1234567", "53c0501bd64bdd5e9efae5d851bf6eafe755ff82"),
    ],
)
def test_master_keys_as_bookkeeper_makes_them(password, key):
    assert master_key(password).hex() == key


HEADER = bytes.fromhex("0000000000000007000000000000000300000000000000020000" + "0000000003ed")


@pytest.mark.parametrize(
    ("kind", "password", "digest"),
    [
        (DigestType.CRC32C, b"", "e19672ef"),
        (DigestType.CRC32, b"", "000000008fa13a71"),
        (DigestType.HMAC, b"1234567", "2854ecc224caa6581d40bfbb0783a6a10d990b8b"),
        (DigestType.DUMMY, b"", ""),
    ],
)
def test_digests_as_bookkeeper_makes_them(kind, password, digest):
    digester = Digester(kind, password)
    assert digester.digest(HEADER, b"hello-bk").hex() == digest
    assert digester.digest(memoryview(HEADER), memoryview(b"hello-bk")).hex() == digest
    assert digester.size == len(digest) // 2
