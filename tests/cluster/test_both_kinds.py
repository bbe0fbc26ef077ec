"""A broker of Apache Pulsar and one of this project serve one cluster: bundles go to and fro under load, and owners end.

Runs where MAGNETAR_PULSAR_LIB names a directory with the jars of Apache Pulsar 4.2 (part of `make cluster`).
"""

from __future__ import annotations

import pathlib
import signal
import time

import pytest

from tests.cluster.conftest import LONG
from tests.cluster.figures import figure
from tests.cluster.pulsar_broker import LIB, NO_LIB
from tests.cluster.scenes import SESSION_S, end, loaded
from tests.cluster.two_kinds import both_kinds, bring

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not LIB, reason=NO_LIB),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`"),
]
ROUNDS = 8


@pytest.fixture(scope="module")
def kinds(cluster, tmp_path_factory):
    with both_kinds(cluster, pathlib.Path(tmp_path_factory.mktemp("kinds"))) as started:
        yield started


def test_bundles_go_to_and_fro_under_load(kinds):
    with loaded(kinds, pause_s=0.01) as load:
        for number in range(ROUNDS):
            to = kinds[number % 2]
            load.mark()
            bring(kinds[0], load, to)
            figure(f"all bundles to {to.name}", silence_s=load.longest_silence())
            time.sleep(1)
        figure("to and fro", messages=load.check())


@pytest.mark.parametrize("index", [0, 1], ids=["pulsar", "ours"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "stop"])
def test_the_owner_of_all_topics_ends_under_load(kinds, index, how):
    """The limit is wide: lookups at Apache Pulsar lead clients to a dead owner until its session has ended."""
    owner = kinds[index]
    with loaded(kinds, pause_s=0.01) as load:
        bring(kinds[0], load, owner)
        load.mark()
        owner.process.send_signal(how)
        owner.process.wait(60)
        try:
            end(f"{how.name} of the owner {owner.name}", load, 8 * SESSION_S)
        finally:
            owner.start()
