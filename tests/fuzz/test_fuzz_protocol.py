"""Fuzzing of everything in `protocol` that reads a peer's bytes: no input may raise, hang or be seen differently by
the two helpers.

MAGNETAR_FUZZ_SECONDS sets how long (default one second); MAGNETAR_FUZZ_SEED repeats a failed run. tests/fuzz/asan.sh
runs the same
comparison under the address and undefined behaviour sanitizers.
"""

import os
import pathlib
import random
import sys
import time

import pytest

from magnetar.protocol import _pure
from magnetar.protocol.errors import InvalidTopicNameError
from magnetar.protocol.metadata import split_entry
from magnetar.protocol.topic_name import NamespaceName, TopicName

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "protocol"))
import twins

try:
    from magnetar.protocol import _speedups
except ImportError:
    _speedups = None

SECONDS = float(os.environ.get("MAGNETAR_FUZZ_SECONDS", "1"))
SEED = int(os.environ.get("MAGNETAR_FUZZ_SEED", "20240229"))


def seeds():
    """Numbers to make cases from, until the time is up but at least a hundred."""
    rng, end = random.Random(SEED), time.monotonic() + SECONDS
    done = 0
    while done < 100 or time.monotonic() < end:
        yield rng.getrandbits(60)
        done += 1


@pytest.mark.skipif(_speedups is None, reason="built without the compiled helper")
def test_helpers_agree():
    for seed in seeds():
        for check in twins.CHECKS:
            try:
                check(_speedups, random.Random(seed))
            except Exception as e:
                raise AssertionError(f"{check.__name__} with seed {seed}") from e


def test_the_pure_helper_takes_any_bytes():
    for seed in seeds():
        rng = random.Random(seed)
        data = twins.mutated(rng, twins.stream(rng))
        consumed, _, error = _pure.cut(data, 0, len(data), 6000)
        assert 0 <= consumed <= len(data)
        assert error is None or isinstance(error, str)
        assert _pure.cut(data, 0, consumed, 6000)[0] == consumed


def test_entries_of_any_bytes_split_or_are_unreadable():
    for seed in seeds():
        rng = random.Random(seed)
        body = twins.mutated(rng, twins.entry(twins.metadata(rng), b"payload"))
        metadata, payload = split_entry(body)
        assert metadata is not None or not payload


def test_names_of_any_text_parse_to_themselves_or_are_refused():
    rng = random.Random(SEED)
    pieces = (
        "persistent",
        "non-persistent",
        "://",
        "/",
        "public",
        "default",
        "a",
        "-partition-",
        "0",
        "01",
        " ",
        "ü",
        "",
        "%",
        "\0",
    )
    accepted = 0
    for _ in range(3000):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(9)))
        try:
            name = TopicName.parse(text)
        except InvalidTopicNameError:
            continue
        accepted += 1
        assert TopicName.parse(str(name)) == name
        assert TopicName.from_persistence_name(name.persistence_name) == name
        assert str(NamespaceName.parse(name.namespace)) == name.namespace
    assert accepted > 50
