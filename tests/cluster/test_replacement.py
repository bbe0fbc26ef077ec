"""Two brokers of Apache Pulsar are replaced by two of this project, one after the other under load, and back.

Runs where MAGNETAR_PULSAR_LIB names a directory with the jars of Apache Pulsar 4.2 (part of `make cluster`).
"""

from __future__ import annotations

import pathlib
import time

import pytest

from tests.cluster.broker_processes import Member, free_port
from tests.cluster.conftest import LONG
from tests.cluster.figures import figure
from tests.cluster.pulsar_broker import LIB, MORE, NO_LIB, PulsarBroker, initialize_by_pulsar
from tests.cluster.scenes import SETTINGS, SHORT_LEDGERS, loaded, owners

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(not LIB, reason=NO_LIB),
    pytest.mark.skipif(not LONG, reason="part of `make cluster`"),
]


@pytest.fixture
def places(cluster, tmp_path_factory):
    """Two addresses, at each of which a broker of either kind can stand."""
    directory = pathlib.Path(tmp_path_factory.mktemp("places"))
    initialize_by_pulsar(cluster)
    made = []
    for number in (1, 2):
        ports = {"brokerServicePort": free_port(), "webServicePort": free_port()}
        made.append(
            [
                kind(
                    directory,
                    f"{kind.__name__}-{number}",
                    cluster.zookeeper,
                    **MORE,
                    **SETTINGS,
                    **SHORT_LEDGERS,
                    **ports,
                )
                for kind in (PulsarBroker, Member)
            ]
        )
    try:
        yield made
    finally:
        for place in made:
            for each in place:
                each.end()


def test_brokers_are_replaced_one_after_the_other_under_load_and_back(places):
    standing = [place[0].start() for place in places]
    with loaded(standing, pause_s=0.01) as load:
        for kind in (1, 0):
            for number, place in enumerate(places):
                before, after = standing[number], place[kind]
                load.mark()
                began_s = time.monotonic()
                before.terminate()
                gone_s = time.monotonic() - began_s
                load.more(50)
                after.start()
                standing[number] = after
                time.sleep(2)
                load.more(50)
                figure(f"{before.name} -> {after.name}", drain_s=gone_s, silence_s=load.longest_silence())
            assert sum(owners(standing, load).values()) == len(load.lanes)
        figure("replaced and back", messages=load.check())
