"""An owner without a guard that is suspended for longer than its session and goes on: two brokers act as owner."""

from __future__ import annotations

import time

import pytest

from tests.cluster.broker_processes import connect, initialize, serving
from tests.cluster.conftest import LONG
from tests.cluster.scenes import SESSION_S, busiest, end, loaded, two_members

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(not LONG, reason="part of `make cluster`")]


def test_a_resumed_owner_gives_way_to_the_next_and_serves_again(cluster, tmp_path):
    initialize(cluster)
    with serving(two_members(tmp_path, cluster.zookeeper, standstillGuardEnabled="false")) as members:
        with loaded(members) as load:
            owner = busiest(members, load)
            owner.suspend()
            time.sleep(2 * SESSION_S)
            (other,) = (each for each in members if each is not owner)
            scout = connect(other)  # the clients of the load wait for their suspended broker
            for lane in load.lanes:
                scout.subscribe(lane.topic, "scout").close()
            scout.close()
            owner.go_on()
            time.sleep(3)
            end("owner suspended without a guard, resumed", load, 3 * SESSION_S)
            assert owner.process.poll() is None
        with loaded(members) as load:  # the resumed broker is a member again
            end("both brokers afterwards", load, SESSION_S)
