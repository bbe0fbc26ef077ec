"""Murmur3 is compared with recorded values in test_vectors.py."""

import random
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.protocol import key_hash
from magnetar.protocol.key_hash import (
    java_hash,
    java_string_hash,
    murmur3_32,
    murmur3_32_with_each,
    pure_java_hash,
    pure_murmur3_32,
)

ANY_CHARACTER = st.characters(exclude_categories=())


@given(data=st.binary(max_size=80))
@settings(max_examples=300, deadline=None)
def test_twins_of_murmur_agree(data):
    assert murmur3_32(data) == murmur3_32(memoryview(data)) == pure_murmur3_32(data)


@given(text=st.text(ANY_CHARACTER, max_size=30))
@settings(max_examples=300, deadline=None)
def test_twins_of_the_hash_code_agree(text):
    assert java_hash(text) == pure_java_hash(text)


@given(prefix=st.binary(max_size=20), suffixes=st.lists(st.binary(max_size=9), max_size=5))
@settings(max_examples=200, deadline=None)
def test_a_common_prefix_is_hashed_once(prefix, suffixes):
    assert murmur3_32_with_each(prefix, suffixes) == [pure_murmur3_32(prefix + each) for each in suffixes]


@pytest.mark.skipif(not key_hash.COMPILED, reason="no compiler at install time")
def test_keys_of_many_bytes_cost_little():
    """A peer chooses the size of a key; the bar is relative, because machines differ."""
    key = random.Random(1).randbytes(1 << 20)
    assert murmur3_32(key) == pure_murmur3_32(key)
    for hashed, pure, given_key in ((murmur3_32, pure_murmur3_32, key), (java_hash, pure_java_hash, key.hex())):
        assert 10 * processor_s(hashed, given_key) < processor_s(pure, given_key)


def processor_s(function, key):
    begin = time.thread_time()
    function(key)
    return time.thread_time() - begin


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
