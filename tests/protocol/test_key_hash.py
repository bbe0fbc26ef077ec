"""Murmur3 is compared with recorded values in test_vectors.py."""

import subprocess
import sys

import pytest

from magnetar.protocol.key_hash import java_hash, java_string_hash


def test_hash_codes_are_those_of_java():
    assert java_hash("") == 0
    assert java_hash("sub") == 114240
    assert java_hash("ü") == 252
    assert java_hash("\U0001f600") == 0xD83D * 31 + 0xDE00  # two units of UTF-16


@pytest.mark.parametrize(
    ("text", "found"),
    [
        *[("", 0), ("a", 97), ("hello", 99162322), ("\U0001f600", 1772899)],
        ("polygenelubricants", 0),  # Integer.MIN_VALUE without its sign
        ("Müller", -1854470916 & 0x7FFFFFFF),
    ],
)
def test_the_hash_of_a_key_has_no_sign(text, found):
    assert java_string_hash(text) == found


def test_hashing_opens_no_file_when_the_process_has_no_descriptor():
    """str.encode imports the module of a rare codec at its first use."""
    script = (
        "import resource; from magnetar.protocol.key_hash import java_hash;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0)); assert java_hash('sub') == 114240"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
