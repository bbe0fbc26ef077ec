"""Histories of a whole broker on a simulated disk and network: `README.md` in this folder.

A sample of each kind here, three times as many seeds with MAGNETAR_CRASH_LONG=1 (`make crash-long`); `make simulate`
plays any number. A seed that ever failed stays in REGRESSIONS, with its finding.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.damage import KINDS
from tests.simulation.plan import (
    AGAIN,
    FAULTS,
    FIRST_WITH_COMPACTED,
    FIRST_WITH_EXPIRY,
    FIRST_WITH_WORK,
    OF_PARTS,
    OF_WORK,
    Plan,
)

ROOT = Path(__file__).resolve().parents[2]
LONG = bool(os.environ.get("MAGNETAR_CRASH_LONG"))
SEEDS = 200
CHUNK = 50
PLAYED = CHUNK if LONG else 16
OF_A_FAULT = 20 if LONG else 6
OF_A_PART = 10 if LONG else 4
REGRESSIONS = {
    46: "administrators over HTTP waited on links that tell nothing",
    115: "a topic whose load failed left its index of delayed messages behind, which tried again for ever",
    1084: "a lost write of a ledger file's head made all of its entries unreadable",
    1364: "a lost write of a segment's header hid its frames, under the header of an earlier use",
    696: "records of a misdirected page cost those of the frame under it",
    1848: "a lost header hid a segment also before the first checkpoint",
    2129: "an index was expected behind a damaged entry without receipt",
    3164: "a lost page held records of an earlier use of its segment, which cut the file of a closed ledger",
    8525: "deduplication forgot its producers with a damaged snapshot and stored messages twice",
    70720: "a subscription that was created while it was deleted kept a cursor that is gone",
    5605: "the same as 3164, and the ledger had not been read to its end",
    440_026: "a reader of a compacted topic began anew where the log had dropped all entries",
    460_010: "a client got a count of partitions whose record was not durable, and a crash took the topic back",
    480_125: "verify called an index damaged that a power loss had cut off",
    480_161: "a deletion of a topic that was cut off left its entries without subscriptions and sequence ids",
    480_569: "the model noted an eviction later than the image that contains the eviction",
    481_257: "the model knew no young entries in front of an old stamp, which go along with a quota by age",
    481_460: "the model saw no eviction of a topic that was not loaded when the image was taken",
    500_096: "the same as 480,569",
    547_308: "the same as 481,460",
    200_005: "a record in the body of a message was delivered where the device damaged that message",
    623_162: "the log dropped a ledger before the acknowledgements of its entries were durable",
    663_303: "the model knew no copy of a last chunk that had no receipt and came to the last consumers alone",
    663_305: "the model took a subscription for new whose deletion had an unknown outcome",
    683_188: "the model knew no young entries in front of an old stamp, which expire along",
    687_316: "the model took a message that came beside a seek for one from before the seek",
    680_510: "the checks took entries without messages for stamped by the broker",
    644_407: "a start refused a log behind a refused change whose place the end frame had not yet taken",
    829_011: "the log dropped a ledger before the first read of a reader, which left out a value of the compacted ledger",
    509_009: "a policy was set on a topic whose deletion a crash had cut off, and went with the topic at its load",
    629_019: "the receipt of a last chunk came for the first chunk, whose append had failed",
    629_010: "the model knew no eviction of a part of the chunks whose ACK a crash lost",
    749_016: "the model knew no topic that had dropped all messages when it named its last message",
    769_003: "the model knew no message that the log dropped behind a seek to a later time",
    680_019: "an ACK was answered behind a reset to a time that came after the ACK",
    871_023: "the model knew no full disk of the part that fills the disk, beside requests over HTTP",
    880_029: "consumers held the entries of a truncation that waited for the disk",
    631_003: "the model sent no entry behind a duplicate, and left out chunks",
    651_022: "the same as 631,003",
    751_034: "the model took a slow disk for over that a later fault let go sooner",
    791_030: "the model knew no quota on the backlog of a compaction that a damaged compacted ledger stops",
    811_009: "the cursor of deduplication stayed at an unreadable last entry, and a quota refused producers for ever",
    857_009: "the failure of a save whose caller had gone was an error of the event loop",
    717_656: "a topic that was not found in a half-deleted namespace was expected to have no policies",
    513_326: "policies of a topic whose write was under way stayed behind the deletion of their namespace",
}


def simulation(*arguments):
    """A process of its own: its sets of texts are walked in the same order each time."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.simulation", *map(str, arguments)]
    return subprocess.run(
        command, check=False, cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, text=True
    )


@pytest.fixture
def holds(forks):
    def check(*arguments):
        ran = forks.run("tests.simulation.__main__", *arguments)
        assert ran.returncode == 0, ran.output

    return check


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_histories_hold(first, holds):
    holds("--first", first, "--seeds", PLAYED, "--jobs", 1)


@pytest.mark.timeout(300)
def test_histories_with_faults_in_the_midst_of_work_hold(holds):
    holds("--first", FIRST_WITH_WORK, "--seeds", OF_A_FAULT, "--jobs", 1)


@pytest.mark.timeout(300)
def test_histories_with_readers_of_compacted_topics_hold(holds):
    holds("--first", FIRST_WITH_COMPACTED, "--seeds", OF_A_FAULT, "--jobs", 1)


@pytest.mark.timeout(300)
def test_histories_with_messages_that_expire_hold(holds):
    holds("--first", FIRST_WITH_EXPIRY, "--seeds", OF_A_FAULT, "--jobs", 1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", [*OF_PARTS.values(), *AGAIN])
def test_histories_with_a_part_of_their_own_hold(first, holds):
    holds("--first", first, "--seeds", OF_A_PART, "--jobs", 1)


def plans(first, count):
    return [Plan.of(seed) for seed in range(first, first + count)]


def test_the_sample_has_every_kind_of_history():
    earliest = [plan for first in range(0, SEEDS, CHUNK) for plan in plans(first, PLAYED)]
    assert {fault for plan in earliest for fault in plan.faults} >= set(FAULTS)
    assert {plan.damage for plan in earliest} >= set(KINDS)
    assert {fault for plan in plans(FIRST_WITH_WORK, OF_A_FAULT) for fault in plan.faults} >= set(OF_WORK)
    assert sum(plan.compacted for plan in plans(FIRST_WITH_COMPACTED, OF_A_FAULT)) > 1
    assert sum("expire" in plan.faults for plan in plans(FIRST_WITH_EXPIRY, OF_A_FAULT)) > 1
    parts = {first: (name,) for name, first in OF_PARTS.items()} | AGAIN
    for first, names in parts.items():
        sample = plans(first, OF_A_PART)
        assert all(sum(name in plan.parts for plan in sample) > 1 for name in names), names


@pytest.mark.timeout(300)
def test_histories_that_failed_once_hold(holds):
    if REGRESSIONS:
        holds(*REGRESSIONS)


@pytest.mark.timeout(300)
def test_a_seed_gives_the_same_history_in_each_process():
    seeds = (*range(1000, 1006), 751_034)  # the last has a slow disk, whose time decides about write-behind
    first, second = (simulation(*seeds) for _ in range(2))
    assert first.stdout.count("digest") == 7
    assert first.stdout == second.stdout
