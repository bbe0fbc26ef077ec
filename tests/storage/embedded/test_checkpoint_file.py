from __future__ import annotations

import pytest

from magnetar.protocol.checksum import crc32c
from magnetar.storage.embedded.checkpoint_file import Checkpoint, decode_checkpoint, encode_checkpoint
from magnetar.storage.errors import DamagedFileError

CHECKPOINT = Checkpoint(7, 100, 3, {5: (10, 1000), 2**40: (0, 0), 6: (2**33, 2**44)})


def test_round_trip():
    data = encode_checkpoint(b"s" * 16, CHECKPOINT, 5)
    assert decode_checkpoint("c", data) == CHECKPOINT
    empty = Checkpoint()
    assert decode_checkpoint("c", encode_checkpoint(b"s" * 16, empty, 5)) == empty


def test_every_flipped_bit_is_noticed_and_costs_nothing():
    data = encode_checkpoint(b"s" * 16, CHECKPOINT, 5)
    for bit in range(len(data) * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << (bit % 8)
        found = decode_checkpoint("c", bytes(broken))
        assert found.damaged_copies == 1
        found.damaged_copies = 0
        assert found == CHECKPOINT


@pytest.mark.parametrize("cut", [0, 1, 63, 64, 90, 160])
def test_cut_off(cut):
    data = encode_checkpoint(b"s" * 16, CHECKPOINT, 5)
    with pytest.raises(DamagedFileError):
        decode_checkpoint("c", data[:cut])


def test_both_copies_damaged():
    data = bytearray(encode_checkpoint(b"s" * 16, CHECKPOINT, 5))
    data[70] ^= 1
    data[len(data) // 2 + 70] ^= 1
    with pytest.raises(DamagedFileError):
        decode_checkpoint("c", bytes(data))


def test_a_right_checksum_over_a_wrong_length_is_damage():
    data = encode_checkpoint(b"s" * 16, CHECKPOINT, 5)
    copy = data[: len(data) // 2 - 4] + b"x"
    copy += crc32c(copy).to_bytes(4, "little")
    with pytest.raises(DamagedFileError):
        decode_checkpoint("c", copy * 2)
